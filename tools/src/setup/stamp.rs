//! Tells whether an unpacked libtorch is whole and of the pinned versions.
//!
//! In: the folder with the unpacked packages. Out: usable, or why not. Each package's own file list
//! (`*.dist-info/RECORD`) gives the size of every library and header; a stamp written last gives the pins it was
//! made from. Contents are not hashed again: pip has checked the archives.

use std::fs;
use std::io;
use std::path::Path;

const CPU_LIST: &str = include_str!("../../libtorch-cpu.txt");
const CUDA_LIST: &str = include_str!("../../libtorch-cuda.txt");
const STAMP: &str = "hds-setup.stamp";

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

/// Checks that `packages` holds every package of `flavour` with all its files; writes the stamp where one is
/// missing but everything is there (an unpacked copy brought by other means).
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

/// Writes the pins that `packages` was made from.
pub(super) fn write(packages: &Path, flavour: Flavour) -> io::Result<()> {
    let pins: String = flavour
        .pins()
        .map(|(name, version)| format!("{name}=={version}\n"))
        .collect();
    fs::write(
        packages.join(STAMP),
        format!("# written by `cargo xtask setup` when everything was in place\n{pins}"),
    )
}
