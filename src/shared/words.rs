//! A file mapped as 64-bit words that several processes read and write at once. The only module of this
//! crate with `unsafe`.
//!
//! In: an open file. Out: its words, each an [`AtomicU64`]. Always holds: every access is atomic and inside
//! the map, so that no two threads or processes race; the meaning of the words is [`super`]'s.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::SharedWeightsError;
use crate::durable::is_same_file;

/// Words of a file that is mapped for reading and writing, shared with every process that maps it.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
    /// What is mapped, to ask for its length.
    file: File,
}

impl Words {
    /// Maps a file of at least one word, opened for reading and writing.
    pub(super) fn map(file: File) -> io::Result<Self> {
        Ok(Self {
            map: MmapRaw::map_raw(&file)?,
            file,
        })
    }

    /// Whether the file is still as long as the map: behind its end the system ends whoever looks.
    pub(super) fn is_whole(&self) -> bool {
        let metadata = self.file.metadata();
        metadata.is_ok_and(|metadata| metadata.len() >= self.map.len() as u64)
    }

    /// # Errors
    /// [`SharedWeightsError::Format`] where the file was cut short.
    pub(super) fn check_length(&self, path: &Path) -> Result<(), SharedWeightsError> {
        if self.is_whole() {
            return Ok(());
        }
        Err(SharedWeightsError::Format {
            path: path.to_owned(),
            reason: "was cut short while it was in use".into(),
        })
    }

    /// Looks whether the map can be read on, and is still what `path` names; a path that names nothing any more is no fault.
    ///
    /// # Errors
    /// [`SharedWeightsError::Format`] where the file was cut short, [`SharedWeightsError::Replaced`] where there is another.
    pub(super) fn check(&self, path: &Path) -> Result<(), SharedWeightsError> {
        self.check_length(path)?;
        let (here, there) = (self.file.metadata(), path.metadata());
        match (here, there) {
            (Ok(here), Ok(there)) if !is_same_file(&here, &there) => {
                Err(SharedWeightsError::Replaced {
                    path: path.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Number of whole words.
    pub(super) fn len(&self) -> usize {
        self.map.len() / size_of::<u64>()
    }

    /// A word.
    ///
    /// # Panics
    /// If `place` is not below the length.
    #[allow(unsafe_code)]
    pub(super) fn at(&self, place: usize) -> &AtomicU64 {
        assert!(place < self.len(), "word {place} of {}", self.len());
        // SAFETY: the map is page aligned, lives as long as `self`, and holds `place` (checked above).
        // `MmapRaw` hands out no references, and all access in all processes goes through this function,
        // so every access to these bytes is atomic. The contract with the outside is that nobody
        // shortens the file while it is mapped: it is made whole under another name before anyone can
        // open it, and never resized. Callers look at its length first all the same.
        unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(place) }
    }
}
