//! The files of shards that are being written: appending, cutting back, and whether they are as they were written.
//!
//! In: paths in the staging folder. Out: their bytes, or an error that names the file. Always holds: what an interrupted build left is
//! used only where it has the size and content that were noted.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hds::durable::FileError;
use hds::index::{Checksum, ChecksumReader};

use super::document::DocumentRecord;
use super::error::BuildError;
use super::shards::ClosedShard;

/// Removes the folders of splits that are not known.
pub(super) fn remove_others(top: &Path, known: &BTreeSet<String>) -> Result<(), FileError> {
    let names = |folder: &Path| -> Result<Vec<String>, FileError> {
        let failed = |e| FileError::new("list", folder, e);
        match fs::read_dir(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries
                .map_err(failed)?
                .map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into()))
                .collect(),
        }
    };
    for domain in names(&top.join("domains"))? {
        let domain = format!("domains/{domain}");
        for split in names(&top.join(&domain))? {
            let folder = format!("{domain}/{split}");
            if !known.contains(&folder) {
                let path = top.join(folder);
                fs::remove_dir_all(&path).map_err(|e| FileError::new("remove", &path, e))?;
            }
        }
        // Where nothing is left of the domain; any other error is met again by who writes there.
        let _ = fs::remove_dir(top.join(domain));
    }
    Ok(())
}

pub(super) fn append_to(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|e| FileError::new("write", path, e))
}

/// Cuts a file to a length; makes an empty one where none is and none is wanted.
pub(super) fn cut(path: &Path, length: u64) -> Result<(), BuildError> {
    let failed = |e| FileError::new("cut", path, e);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let got = file.metadata().map_err(failed)?.len();
    if got < length {
        return Err(BuildError::Staging {
            path: path.to_owned(),
            reason: format!("holds {got} bytes, the journal says {length}"),
        });
    }
    file.set_len(length).map_err(failed)?;
    Ok(())
}

pub(super) fn digest(path: &Path) -> Result<blake3::Hasher, FileError> {
    let failed = |e| FileError::new("read", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(hasher),
            n => hasher.update(&buffer[..n]),
        };
    }
}

/// # Errors
/// If a file is not there, or has another size.
pub(super) fn check_size(path: &Path, bytes: u64) -> Result<(), BuildError> {
    let reason = match path.metadata() {
        Ok(found) if found.is_file() && found.len() == bytes => return Ok(()),
        Ok(found) => format!("has {} bytes, {bytes} were written", found.len()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            "was written and is not there any more".into()
        }
        Err(e) => return Err(FileError::new("look at", path, e).into()),
    };
    Err(BuildError::Staging {
        path: path.to_owned(),
        reason,
    })
}

/// # Errors
/// If what was read is not what was noted.
pub(super) fn check_content(
    path: &Path,
    read: Checksum,
    noted: Option<Checksum>,
) -> Result<(), BuildError> {
    if noted == Some(read) {
        return Ok(());
    }
    Err(BuildError::Staging {
        path: path.to_owned(),
        reason: "is not as it was written: damaged or changed since".into(),
    })
}

/// Reads the records of a shard one after another, in constant memory, and checks that they are as they were written.
pub(super) struct RecordFile {
    path: PathBuf,
    input: io::BufReader<ChecksumReader<File>>,
    left: u64,
    want: Checksum,
}

impl RecordFile {
    /// Opens the file of a shard.
    pub fn open(path: PathBuf, shard: &ClosedShard) -> Result<Self, BuildError> {
        let bytes = shard.documents.saturating_mul(DocumentRecord::BYTES as u64);
        check_size(&path, bytes)?;
        let file = File::open(&path).map_err(|e| FileError::new("open", &path, e))?;
        Ok(Self {
            path,
            input: io::BufReader::with_capacity(1 << 18, ChecksumReader::new(file)),
            left: shard.documents,
            want: shard.records,
        })
    }
}

impl Iterator for RecordFile {
    type Item = Result<DocumentRecord, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut bytes = [0; DocumentRecord::BYTES];
        if let Err(e) = self.input.read_exact(&mut bytes) {
            return Some(Err(FileError::new("read", &self.path, e).into()));
        }
        // All of it is read ahead by now.
        let digest = (self.left == 0).then(|| self.input.get_ref().digest());
        if let Some(got) = digest
            && let Err(e) = check_content(&self.path, got, Some(self.want))
        {
            return Some(Err(e));
        }
        Some(Ok(DocumentRecord::read(&bytes)))
    }
}
