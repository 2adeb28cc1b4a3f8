//! What the cache of one process went through: counted, and the first of each kind said.
//!
//! In: damage and a full disk, as they are met. Out: the counts, and one line on standard error for each kind. All of
//! it was mended by fetching again: what cannot be mended is an error, not a warning.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::remote_options::CacheTroubles;

/// Counts of one process.
#[derive(Debug)]
pub(super) struct Troubles {
    /// The cache's folder.
    folder: PathBuf,
    damaged: AtomicU64,
    disk_full: AtomicU64,
    not_kept: AtomicU64,
}

impl Troubles {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            damaged: AtomicU64::new(0),
            disk_full: AtomicU64::new(0),
            not_kept: AtomicU64::new(0),
        }
    }

    /// A file of the cache that was not as it had been written.
    pub(super) fn damaged(&self, path: &Path) {
        if self.damaged.fetch_add(1, Ordering::Relaxed) == 0 {
            hds::note!(
                "warning: {}, in the cache, is not what was written there, and is fetched again; more of that kind is only counted. Look after the disk, and who writes to it",
                path.display()
            );
        }
    }

    /// A piece for which the disk had no room.
    pub(super) fn disk_full(&self) {
        if self.disk_full.fetch_add(1, Ordering::Relaxed) == 0 {
            hds::note!(
                "warning: the disk of the cache {} is full before the limit of the cache is reached: pieces make way for new ones and are fetched again, which is slow. Free room there, or give a smaller cache_limit or another cache folder",
                self.folder.display()
            );
        }
    }

    /// A piece that could not be kept.
    pub(super) fn not_kept(&self) {
        if self.not_kept.fetch_add(1, Ordering::Relaxed) == 0 {
            hds::note!(
                "warning: the cache {} cannot be written, as there is no room for a piece: each piece is fetched again whenever it is used, which is slow. Free room there, or give another cache folder",
                self.folder.display()
            );
        }
    }

    pub(super) fn so_far(&self) -> CacheTroubles {
        CacheTroubles {
            damaged: self.damaged.load(Ordering::Relaxed),
            disk_full: self.disk_full.load(Ordering::Relaxed),
            not_kept: self.not_kept.load(Ordering::Relaxed),
        }
    }
}
