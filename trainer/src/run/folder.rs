//! The folder of a run and the files in it; one process at a time writes there.
//!
//! In: a path. Out: names of the files, and a lock held while a run goes on. The lock is the system's
//! own file lock, so one left by a killed process never blocks the next.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use hds::durable::FileError;

use super::error::RunError;

const LOCK_FILE: &str = "run.lock";

/// A run's folder.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    made: bool,
    // Held, not read: the lock ends with the file.
    _lock: File,
}

impl RunFolder {
    /// Makes the folder if needed and takes its lock.
    ///
    /// # Errors
    /// If it cannot be made, or another process trains in it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let made = !path.exists();
        fs::create_dir_all(path).map_err(|e| FileError::new("create", path, e))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|e| FileError::new("open", &lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                made,
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(RunError::Busy {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(e)) => Err(FileError::new("lock", &lock_path, e).into()),
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The metrics log.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// TensorBoard's event files.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    /// The weight log.
    pub fn weights(&self) -> PathBuf {
        self.path.join("weights.jsonl")
    }

    /// Starts, resumes, signals and faults, with the time of day.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// The folder of the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        Self::checkpoints_in(&self.path)
    }

    /// The folder of the checkpoints in a run's folder that another rank has locked.
    pub fn checkpoints_in(path: &Path) -> PathBuf {
        path.join("checkpoints")
    }

    /// A file or folder of a run that is here already; `None` if no run was started here.
    pub fn used(&self) -> Option<PathBuf> {
        let parts = [
            self.metrics(),
            self.checkpoints(),
            self.config(),
            self.weights(),
            self.events(),
        ];
        parts.into_iter().find(|p| p.symlink_metadata().is_ok())
    }
}

/// A folder that was made for a run that did not start is taken away again.
impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.made && self.used().is_none() {
            // What cannot be removed is an empty folder: no harm.
            let _ = fs::remove_file(self.path.join(LOCK_FILE));
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_in_the_same_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunFolder::open(dir.path()).unwrap();
        let error = RunFolder::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(first);
        RunFolder::open(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_is_left_only_if_a_run_started_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        drop(RunFolder::open(&path).unwrap());
        assert!(!path.exists());
        let folder = RunFolder::open(&path).unwrap();
        fs::create_dir(folder.checkpoints()).unwrap();
        assert_eq!(folder.used(), Some(folder.checkpoints()));
        drop(folder);
        assert!(path.join("checkpoints").exists());
        // One that was there stays, also empty.
        drop(RunFolder::open(dir.path()).unwrap());
        assert!(dir.path().exists());
    }
}
