//! What a process knows of a file of a remote index.
//!
//! In: pieces as they are used. Out: which were, with what checksums, and whether the file is refused. Always holds: a
//! piece that is used again has the checksum that it had, or there is [`Trouble::Doubt`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hds::index::{FileEntry, IndexError};

use super::digest;
use super::in_hand::lock;
use super::troubles::Troubles;
use super::values::Values;

/// A file of the index, as the manifest has it.
#[derive(Debug)]
pub(super) struct FileFacts {
    /// Its number among all files of this index.
    pub(super) number: u32,
    pub(super) entry: FileEntry,
}

/// What a process knows of a file.
pub(super) struct FileState {
    pub(super) facts: Arc<FileFacts>,
    pub(super) folder: PathBuf,
    pub(super) values: Values,
    /// The object's ETag, once seen.
    pub(super) etag: Mutex<Option<String>>,
    /// Pieces used in this process.
    pub(super) seen: Mutex<HashMap<u64, Seen>>,
    /// Why the file cannot be used any more.
    pub(super) refused: OnceLock<String>,
    /// Held while all of it is fetched again because of a contradiction.
    pub(super) recovering: Mutex<()>,
    /// Whether what was used before that is still to be held against the proof.
    pub(super) compare: AtomicBool,
}

/// A piece that was used in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Second of its last noted use.
    pub(super) last: u32,
    /// Beginning of the value that it had.
    pub(super) mark: [u8; 8],
    /// Whether the file in the cache was seen whole, and not dropped since.
    pub(super) is_whole: bool,
}

/// Why there is no piece.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is none.
    Error(IndexError),
    /// What is known of the file contradicts itself: see [`super::recovery`].
    Doubt,
}

impl From<IndexError> for Trouble {
    fn from(error: IndexError) -> Self {
        Self::Error(error)
    }
}

impl FileState {
    /// A file whose pieces of `piece` bytes are kept in `folder`.
    pub(super) fn new(
        facts: Arc<FileFacts>,
        folder: PathBuf,
        piece: u64,
        troubles: Arc<Troubles>,
    ) -> Self {
        let entry = &facts.entry;
        Self {
            values: Values::new(folder.clone(), entry.blake3, entry.bytes, piece, troubles),
            folder,
            etag: Mutex::default(),
            seen: Mutex::default(),
            refused: OnceLock::new(),
            recovering: Mutex::default(),
            compare: AtomicBool::new(false),
            facts,
        }
    }

    /// Notes a piece that is handed out at second `now`; it must be the one that was handed out before. (While that
    /// is still to be compared with the proof, it is the old one that stays noted.)
    pub(super) fn see(&self, number: u64, value: &digest::Value, now: u32) -> Result<(), Trouble> {
        let mut mark = [0; 8];
        mark.copy_from_slice(&value[..8]);
        let new = Seen {
            last: now,
            mark,
            is_whole: true,
        };
        let mut seen = lock(&self.seen);
        let noted = seen.entry(number).or_insert(new);
        if noted.mark != mark && !self.compare.load(Ordering::Acquire) {
            return Err(Trouble::Doubt);
        }
        (noted.last, noted.is_whole) = (now, true);
        Ok(())
    }

    /// Whether the checksum of a piece is known.
    pub(super) fn knows(&self, number: u64) -> bool {
        self.values.get(number).is_some()
    }

    /// The place of a piece.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }
}
