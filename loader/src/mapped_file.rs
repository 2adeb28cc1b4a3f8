//! Files of an index, mapped into memory on first use. The only module with `unsafe`.
//!
//! In: a path and the size the manifest gives. Out: the file's bytes, without a copy.
//! Always holds: no byte is handed out before the file was seen to have exactly that size; a file is
//! mapped at most once. Leaves the meaning of the bytes to others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hds::index::IndexError;
use memmap2::Mmap;

/// A file that is mapped when its bytes are first asked for.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    bytes: u64,
    map: OnceLock<Mmap>,
}

impl MappedFile {
    /// Checks that the file is there and has `bytes` bytes; maps nothing yet.
    ///
    /// # Errors
    /// If it is missing, no regular file, or of another size.
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Result<Self, IndexError> {
        let metadata = path
            .metadata()
            .map_err(|source| io_error("open", &path, source))?;
        check(&path, &metadata, bytes)?;
        Ok(Self {
            path,
            bytes,
            map: OnceLock::new(),
        })
    }

    /// Where the file is, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The content.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped, or has changed its size since [`Self::new`].
    #[inline]
    pub(crate) fn content(&self) -> Result<&[u8], IndexError> {
        match self.map.get() {
            Some(map) => Ok(map),
            None => self.map(),
        }
    }

    #[cold]
    fn map(&self) -> Result<&[u8], IndexError> {
        let file = File::open(&self.path).map_err(|e| io_error("open", &self.path, e))?;
        let metadata = file
            .metadata()
            .map_err(|e| io_error("read the size of", &self.path, e))?;
        check(&self.path, &metadata, self.bytes)?;
        let map = map_read_only(&file).map_err(|e| io_error("map", &self.path, e))?;
        // Where two threads came here at once, the first map stays and the other is dropped.
        Ok(self.map.get_or_init(|| map))
    }
}

fn check(path: &Path, metadata: &std::fs::Metadata, bytes: u64) -> Result<(), IndexError> {
    if !metadata.is_file() {
        return Err(IndexError::Content {
            path: path.to_owned(),
            reason: "is no regular file".into(),
        });
    }
    if metadata.len() != bytes {
        return Err(IndexError::Size {
            path: path.to_owned(),
            want: bytes,
            got: metadata.len(),
        });
    }
    Ok(())
}

#[allow(unsafe_code)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the contract of `Mmap::map` is that nobody changes or shortens the file while it is
    // mapped. The index format promises it: files are written beside their target, renamed when
    // whole, and nothing published is ever written in place. The map is private and read-only, and
    // no reference into it outlives the `MappedFile` that owns it.
    unsafe { Mmap::map(file) }
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> IndexError {
    IndexError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
