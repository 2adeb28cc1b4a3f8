//! Tells whether an unpacked libtorch is whole and of the pinned versions.
//!
//! In: the folder with the unpacked packages. Out: usable, or why not. What pip leaves beside each package
//! (`NAME-VERSION.dist-info/RECORD`) is the stamp: it is there for the pinned version, and gives the size of every
//! library and header. Contents are not hashed again: pip has checked the archives.

use std::fs;
use std::io;
use std::path::Path;

const CPU_LIST: &str = include_str!("../../libtorch-cpu.txt");
const CUDA_LIST: &str = include_str!("../../libtorch-cuda.txt");

/// Which packages are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// What a run on CPUs needs.
    Cpu,
    /// The same and the CUDA libraries.
    Cuda,
}

impl Flavour {
    /// The package lists, by file name in `tools/` and content.
    pub(super) fn lists(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Cpu => vec![("libtorch-cpu.txt", CPU_LIST)],
            Self::Cuda => vec![
                ("libtorch-cpu.txt", CPU_LIST),
                ("libtorch-cuda.txt", CUDA_LIST),
            ],
        }
    }

    /// Megabytes that the download takes, rounded.
    pub(super) fn download_mb(self) -> u64 {
        match self {
            Self::Cpu => 545,
            Self::Cuda => 2_400,
        }
    }

    /// Megabytes of disk that unpacking takes at its peak: archives and contents.
    pub(super) fn room_mb(self) -> u64 {
        match self {
            Self::Cpu => 2_500,
            Self::Cuda => 9_000,
        }
    }

    /// Name and version of every package wanted.
    fn pins(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.lists()
            .into_iter()
            .flat_map(|(_, list)| list.lines())
            .filter_map(|line| {
                let (name, rest) = line.split_once("==")?;
                Some((name, rest.split_whitespace().next()?))
            })
    }
}

/// The pinned version of PyTorch.
#[must_use]
pub fn torch_version() -> &'static str {
    Flavour::Cpu
        .pins()
        .find(|(name, _)| *name == "torch")
        .map_or("unknown", |(_, version)| version)
}

/// Why an unpacked libtorch cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotUsable {
    #[error("nothing is there")]
    Absent,
    #[error("{package} {version} is not there")]
    Package { package: String, version: String },
    #[error("{file} holds {got} bytes, its package says {want}")]
    Size { file: String, want: u64, got: u64 },
    #[error("{file} is missing")]
    File { file: String },
    #[error("{file} cannot be read: {source}")]
    Unreadable { file: String, source: io::Error },
}

/// Checks that `packages` holds every package of `flavour` with all its libraries and headers.
pub(super) fn check(packages: &Path, flavour: Flavour) -> Result<(), NotUsable> {
    if !packages.join("torch").exists() {
        return Err(NotUsable::Absent);
    }
    for (package, version) in flavour.pins() {
        let info = format!("{}-{version}.dist-info", package.replace('-', "_"));
        let record_name = format!("{info}/RECORD");
        let record = match fs::read_to_string(packages.join(&record_name)) {
            Ok(record) => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NotUsable::Package {
                    package: package.into(),
                    version: version.into(),
                });
            }
            Err(source) => {
                return Err(NotUsable::Unreadable {
                    file: record_name,
                    source,
                });
            }
        };
        check_record(packages, &record)?;
    }
    Ok(())
}

/// Compares the sizes of the libraries and headers that a RECORD lists (`path,hash,size` a line).
fn check_record(packages: &Path, record: &str) -> Result<(), NotUsable> {
    for line in record.lines() {
        let used = ["torch/lib/", "torch/include/", "nvidia/"]
            .iter()
            .any(|folder| line.starts_with(folder));
        let mut fields = line.rsplitn(3, ',');
        let (Some(size), Some(_hash), Some(file)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Ok(want) = size.parse::<u64>() else {
            continue;
        };
        if !used || file.contains('"') {
            continue;
        }
        match fs::metadata(packages.join(file)) {
            Ok(metadata) if metadata.len() == want => {}
            Ok(metadata) => {
                return Err(NotUsable::Size {
                    file: file.into(),
                    want,
                    got: metadata.len(),
                });
            }
            Err(_) => return Err(NotUsable::File { file: file.into() }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that holds every pinned package of the CPU list, with one library of 5 bytes.
    fn unpacked() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, version) in Flavour::Cpu.pins() {
            let info = folder
                .path()
                .join(format!("{}-{version}.dist-info", name.replace('-', "_")));
            fs::create_dir_all(&info).expect("a folder");
            let library = if name == "torch" {
                "torch/lib/libc10.so,sha256=abc,5\n"
            } else {
                ""
            };
            let record = format!(
                "{library}../../bin/tool,sha256=abc,9\nmodule.py,sha256=abc,9\n{name}/RECORD,,\n"
            );
            fs::write(info.join("RECORD"), record).expect("a file");
        }
        fs::create_dir_all(folder.path().join("torch/lib")).expect("a folder");
        fs::write(folder.path().join("torch/lib/libc10.so"), "12345").expect("a file");
        folder
    }

    #[test]
    fn whole_packages_are_usable() {
        check(unpacked().path(), Flavour::Cpu).expect("usable");
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = unpacked();
        let library = folder.path().join("torch/lib/libc10.so");
        let reason = check(folder.path(), Flavour::Cuda)
            .expect_err("no CUDA")
            .to_string();
        assert!(reason.ends_with("is not there"), "{reason}");
        fs::write(&library, "123").expect("a file");
        let reason = check(folder.path(), Flavour::Cpu)
            .expect_err("short")
            .to_string();
        assert_eq!(
            reason,
            "torch/lib/libc10.so holds 3 bytes, its package says 5"
        );
        fs::remove_file(&library).expect("removed");
        let reason = check(folder.path(), Flavour::Cpu)
            .expect_err("gone")
            .to_string();
        assert_eq!(reason, "torch/lib/libc10.so is missing");
        let info = format!("torch-{}.dist-info", torch_version());
        fs::remove_dir_all(folder.path().join(info)).expect("removed");
        let reason = check(folder.path(), Flavour::Cpu)
            .expect_err("another version")
            .to_string();
        assert_eq!(reason, format!("torch {} is not there", torch_version()));
        let empty = tempfile::tempdir().expect("a temporary folder");
        assert!(matches!(
            check(empty.path(), Flavour::Cpu),
            Err(NotUsable::Absent)
        ));
    }

    #[test]
    fn every_pin_has_a_hash_for_each_architecture() {
        for (name, list) in Flavour::Cuda.lists() {
            for entry in list.split("\n").filter(|line| line.contains("==")) {
                let block = &list[list.find(entry).expect("just found")..];
                let hashes = block
                    .lines()
                    .skip(1)
                    .take_while(|line| line.trim_start().starts_with("--hash=sha256:"));
                let lengths: Vec<usize> = hashes
                    .map(|line| line.trim().trim_end_matches([' ', '\\']).len())
                    .collect();
                assert_eq!(lengths, [78, 78], "{name}: {entry}");
            }
        }
    }
}
