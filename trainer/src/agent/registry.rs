//! Which runs are open: each once at most, in this process and in any other on the same state folder.
//!
//! In: names of runs. Out: a claim that holds while it lives. Always holds: the lock against other
//! processes is the system's own, so one left by a killed process never blocks the next.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hds::durable::FileError;

use super::error::SessionError;

/// The runs of a state folder that are open in this process.
#[derive(Clone, Debug)]
pub struct Sessions {
    pub(super) folder: PathBuf,
    open: Arc<Mutex<HashSet<String>>>,
}

impl Sessions {
    /// Runs below `folder`, which is made if needed.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(folder: PathBuf) -> Result<Self, FileError> {
        fs::create_dir_all(&folder).map_err(|e| FileError::new("create", &folder, e))?;
        Ok(Self {
            folder,
            open: Arc::default(),
        })
    }

    /// Number of runs that are open.
    pub fn len(&self) -> usize {
        self.names().len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        // A set of names is whole whatever happened to who held it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a run's name taken for as long as it lives.
#[derive(Debug)]
pub(super) struct Taken {
    sessions: Sessions,
    pub(super) run: String,
    /// Holds the lock against other processes.
    _lock: File,
}

impl Taken {
    /// Takes the name of a run.
    ///
    /// # Errors
    /// If it is taken, or its folder or lock cannot be made.
    pub(super) fn new(sessions: &Sessions, run: &str) -> Result<Self, SessionError> {
        let busy = || SessionError::Busy { run: run.into() };
        if !sessions.names().insert(run.to_owned()) {
            return Err(busy());
        }
        let folder = sessions.folder.join(run);
        let lock = (|| {
            fs::create_dir_all(&folder).map_err(|e| FileError::new("create", &folder, e))?;
            let path = folder.join("lock");
            let file = File::create(&path).map_err(|e| FileError::new("create", &path, e))?;
            match file.try_lock() {
                Ok(()) => Ok(file),
                Err(TryLockError::WouldBlock) => Err(busy()),
                Err(TryLockError::Error(e)) => Err(FileError::new("lock", &path, e).into()),
            }
        })();
        match lock {
            Ok(lock) => Ok(Self {
                sessions: sessions.clone(),
                run: run.to_owned(),
                _lock: lock,
            }),
            Err(error) => {
                sessions.names().remove(run);
                Err(error)
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.sessions.names().remove(&self.run);
    }
}
