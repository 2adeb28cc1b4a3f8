//! Holds one file of an index against the size and checksum that the manifest says.
//!
//! In: an entry of the manifest, from anyone. Out: the open file, or the first thing wrong with it. Memory: one buffer. What is inside the
//! file is for [`super::tables`] and [`super::shard`].

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hds::durable::open_regular;
use hds::index::{Checksum, FileEntry, IndexError};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Opens a file of the size that the manifest says.
///
/// # Errors
/// If it cannot be opened, or is of another size.
pub(crate) fn open_sized(path: &Path, entry: &FileEntry) -> Result<File, IndexError> {
    let file = open_regular(path).map_err(|e| io_error("open", path, e))?;
    let got = file
        .metadata()
        .map_err(|e| io_error("open", path, e))?
        .len();
    if got != entry.bytes {
        return Err(IndexError::Size {
            path: path.into(),
            want: entry.bytes,
            got,
        });
    }
    Ok(file)
}

/// Reads a whole file and compares size and checksum; calls with the bytes of each read.
///
/// # Errors
/// If it cannot be read, or is not what the manifest says.
pub(crate) fn check_file(
    path: &Path,
    entry: &FileEntry,
    mut advanced: impl FnMut(u64),
) -> Result<(), IndexError> {
    let mut file = open_sized(path, entry)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file
            .read(&mut buffer)
            .map_err(|e| io_error("read", path, e))?
        {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                advanced(n as u64);
            }
        }
    }
    compare_checksum(path, entry, hasher.finalize().into())
}

/// Compares the checksum of a file that was read with the manifest's.
///
/// # Errors
/// If they differ.
pub(crate) fn compare_checksum(
    path: &Path,
    entry: &FileEntry,
    got: Checksum,
) -> Result<(), IndexError> {
    if got == entry.blake3 {
        return Ok(());
    }
    Err(IndexError::Checksum {
        path: path.into(),
        want: entry.blake3.to_string(),
        got: got.to_string(),
    })
}

pub(crate) fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> IndexError {
    IndexError::Io {
        action,
        path: path.into(),
        source,
    }
}
