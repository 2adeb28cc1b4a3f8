//! A file mapped as 64-bit words that several processes read and write at once. The only module of this
//! crate with `unsafe`.
//!
//! In: an open file. Out: its words, each an [`AtomicU64`]. Always holds: every access is atomic and inside
//! the map, so that no two threads or processes race; the meaning of the words is [`super`]'s.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

/// Words of a file that is mapped for reading and writing, shared with every process that maps it.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
}

impl Words {
    /// Maps a file of at least one word, opened for reading and writing.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        Ok(Self {
            map: MmapRaw::map_raw(file)?,
        })
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
        // open it, and never resized.
        unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(place) }
    }
}
