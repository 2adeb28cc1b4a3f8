//! The file of a weight log: read from a place of its own, written by one at a time.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use super::error::WeightLogError;

const CLAIM_TRIES: u32 = 30;
const CLAIM_PAUSE: Duration = Duration::from_millis(100);

/// A file read from a place of this reader's own: a process that was forked shares the file's, and both would move it.
#[derive(Debug)]
pub(super) struct OwnPlace {
    pub(super) file: File,
    pub(super) at: u64,
}

impl Read for OwnPlace {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let read = std::os::unix::fs::FileExt::read_at(&self.file, buffer, self.at)?;
        #[cfg(not(unix))]
        let read = {
            self.file.seek(io::SeekFrom::Start(self.at))?;
            self.file.read(buffer)?
        };
        self.at += read as u64;
        Ok(read)
    }
}

/// Locks a log that is open for writing until that file is closed. What a killed writer's forked children still hold is waited for, for a
/// few seconds; where the file system has no locks, goes on without.
pub(super) fn claim(file: &File, path: &Path) -> Result<(), WeightLogError> {
    for _ in 0..CLAIM_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(CLAIM_PAUSE),
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
    Err(WeightLogError::InUse {
        path: path.to_owned(),
    })
}
