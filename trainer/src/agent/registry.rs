//! Which runs are open: each once at most, in this process and in any other on the same state folder.
//!
//! In: names of runs. Out: a claim that holds while it lives. Always holds: the lock against other
//! processes is the system's own, so one left by a killed process never blocks the next.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hds::durable::FileError;

use super::error::SessionError;

const LOCK_FILE: &str = "lock";

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
    lock: File,
}

impl Taken {
    /// Takes the name of a run.
    ///
    /// # Errors
    /// If it is taken, or its folder or lock cannot be made.
    pub(super) fn new(sessions: &Sessions, run: &str) -> Result<Self, SessionError> {
        if !sessions.names().insert(run.to_owned()) {
            return Err(SessionError::Busy {
                run: run.into(),
                holder: String::new(),
            });
        }
        match lock(&sessions.folder.join(run), run) {
            Ok(lock) => Ok(Self {
                sessions: sessions.clone(),
                run: run.to_owned(),
                lock,
            }),
            Err(error) => {
                sessions.names().remove(run);
                Err(error)
            }
        }
    }

    /// Makes sure, before anything is written, that the run's folder is still the one that was locked: if it was taken away, it is
    /// made and locked again.
    ///
    /// # Errors
    /// If another process has the run by now, or trains in its folder.
    pub(super) fn hold(&mut self) -> Result<(), SessionError> {
        let folder = self.sessions.folder.join(&self.run);
        let there = folder.join(LOCK_FILE).symlink_metadata();
        let ours = self.lock.metadata();
        let same =
            matches!((&there, &ours), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()));
        if !same {
            self.lock = lock(&folder, &self.run)?;
        }
        refuse_others(&folder, &self.run)
    }
}

/// Locks a run's folder, which is made if needed, and notes who has it.
fn lock(folder: &Path, run: &str) -> Result<File, SessionError> {
    fs::create_dir_all(folder).map_err(|e| FileError::new("create", folder, e))?;
    refuse_others(folder, run)?;
    let path = folder.join(LOCK_FILE);
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(FileError::new("lock", &path, source).into());
    }
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| FileError::new("create", &path, e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(SessionError::Busy {
                run: run.into(),
                holder: holder(&mut file),
            });
        }
        Err(TryLockError::Error(e)) => return Err(FileError::new("lock", &path, e).into()),
    }
    // For the message of the next that comes; the lock does not depend on it, so that a full disk is no obstacle.
    let _ = file
        .set_len(0)
        .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    Ok(file)
}

/// The process that a lock file names, as part of a sentence.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(20).read_to_string(&mut text);
    let process = text.trim().parse::<u32>().ok().filter(|_| read.is_ok());
    process.map_or_else(String::new, |id| format!(", of process {id}"))
}

/// Refuses the folder of a run of `hds-train`, whose checkpoints have the same names.
fn refuse_others(folder: &Path, run: &str) -> Result<(), SessionError> {
    if folder.join("run.lock").symlink_metadata().is_err() {
        return Ok(());
    }
    Err(SessionError::State {
        run: run.into(),
        reason: format!(
            "{} is the folder of a run of hds-train; choose another name, or another --state",
            folder.display()
        ),
    })
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.sessions.names().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: Result<impl Sized, SessionError>) -> String {
        outcome.err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_run_is_held_against_another_agent_on_the_same_folder() {
        let dir = tempfile::tempdir().unwrap();
        // As of two processes: they share no memory, only the folder.
        let agents = [(); 2].map(|()| Sessions::new(dir.path().to_owned()).unwrap());
        let first = Taken::new(&agents[0], "a").unwrap();
        let error = text(Taken::new(&agents[1], "a"));
        let process = format!("of process {}", std::process::id());
        assert!(
            error.contains("is open") && error.contains(&process),
            "{error}"
        );
        assert!(agents[1].is_empty(), "the refused one keeps the name");
        let other = Taken::new(&agents[1], "b").unwrap();
        drop(first);
        Taken::new(&agents[1], "a").unwrap();
        drop(other);
        // What a killed one leaves is no obstacle, whatever it says.
        for left in ["", "1\n", "\u{fffd}", "99999999999999999999999999"] {
            fs::write(dir.path().join("a/lock"), left).unwrap();
            Taken::new(&agents[0], "a").unwrap();
        }
    }

    #[test]
    fn a_lock_that_is_no_file_is_neither_waited_for_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(dir.path().to_owned()).unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "mine").unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink(&precious, dir.path().join("a/lock")).unwrap();
        assert!(text(Taken::new(&sessions, "a")).contains("no regular file"));
        assert_eq!(fs::read(&precious).unwrap(), b"mine");
    }

    #[test]
    fn a_folder_that_was_taken_away_is_locked_again_or_left_to_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let agents = [(); 2].map(|()| Sessions::new(dir.path().to_owned()).unwrap());
        let mut first = Taken::new(&agents[0], "a").unwrap();
        first.hold().unwrap();
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        first.hold().unwrap();
        assert!(text(Taken::new(&agents[1], "a")).contains("is open"));
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        let second = Taken::new(&agents[1], "a").unwrap();
        assert!(text(first.hold()).contains("is open"));
        drop(second);
        first.hold().unwrap();
    }

    #[test]
    fn the_folder_of_a_run_of_hds_train_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(dir.path().to_owned()).unwrap();
        let mut taken = Taken::new(&sessions, "b").unwrap();
        for run in ["a", "b"] {
            let run = crate::run::RunFolder::open(&dir.path().join(run)).unwrap();
            std::mem::forget(run);
        }
        for error in [text(Taken::new(&sessions, "a")), text(taken.hold())] {
            assert!(error.contains("a run of hds-train"), "{error}");
        }
    }
}
