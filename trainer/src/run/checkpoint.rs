//! Checkpoints: folders `step-00000100` that hold all a run needs to go on, whole or absent.
//!
//! In: a closure that writes the parts. Out: a folder with `contents.json` (sizes and BLAKE3 of every
//! file), renamed into place when all of it is on disk; and the newest folder that is whole.
//! Always holds: a checkpoint is removed only after a newer one is whole; a damaged one is named, and
//! the one before it is used. Leaves what the parts mean to who writes them, and what whole is to [`super::contents`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};
use thiserror::Error;

use super::contents::{seal, verify, verify_of_run};

const PREFIX: &str = "step-";
const PARTIAL: &str = ".partial";

/// Why a checkpoint cannot be written or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder has no list of contents, or not a readable one.
    #[error("checkpoint {path} is incomplete: {reason}")]
    Incomplete {
        /// The checkpoint.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A file is not as it was written.
    #[error("checkpoint {path} is damaged: {file} {reason}")]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// The file in it.
        file: String,
        /// What differs.
        reason: String,
    },
}

/// The checkpoints of a run.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    keep_every: u64,
    /// Whether one is whole.
    check: fn(&Path) -> Result<(), CheckpointError>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, of which the newest `keep` are kept.
    pub fn new(folder: PathBuf, keep: usize) -> Self {
        Self {
            folder,
            keep: keep.max(1),
            keep_every: 0,
            check: verify,
        }
    }

    /// As [`Self::new`], of a training run: one is whole only with all that a run goes on from.
    pub(super) fn of_run(folder: PathBuf, keep: usize) -> Self {
        Self {
            check: verify_of_run,
            ..Self::new(folder, keep)
        }
    }

    /// The same, where those of every `steps` steps are kept for good beside the newest; 0 for none.
    #[must_use]
    pub fn and_every(self, steps: u64) -> Self {
        Self {
            keep_every: steps,
            ..self
        }
    }

    /// Writes the checkpoint after `step` steps through `write`, which is given an empty folder.
    ///
    /// # Errors
    /// Those of `write`, and every failed file operation; the checkpoints there were stay.
    pub fn save<E: From<CheckpointError>>(
        &self,
        step: u64,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let target = self.write(step, write)?;
        self.remove_old(step)?;
        Ok(target)
    }

    /// The same, where none is removed for its age: what is saved may be worse than what would go. It takes the place of the one after
    /// `instead_of` steps, if given.
    ///
    /// # Errors
    /// Those of [`Self::save`].
    pub fn save_beside<E: From<CheckpointError>>(
        &self,
        step: u64,
        instead_of: Option<u64>,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let target = self.write(step, write)?;
        self.remove_after(step)?;
        for old in instead_of.into_iter().filter(|&old| old != step) {
            remove_folder(&self.folder.join(checkpoint_name(old)))
                .map_err(CheckpointError::from)?;
        }
        Ok(target)
    }

    fn write<E: From<CheckpointError>>(
        &self,
        step: u64,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let name = checkpoint_name(step);
        let staging = self.folder.join(format!(".{name}{PARTIAL}"));
        let target = self.folder.join(name);
        fresh_folder(&staging).map_err(CheckpointError::from)?;
        let outcome = write(&staging).and_then(|()| {
            seal(&staging)?;
            // One of the same step stays until this one is there.
            durable::replace_folder(&staging, &target).map_err(CheckpointError::from)?;
            Ok(())
        });
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&staging);
        }
        outcome?;
        Ok(target)
    }

    /// Steps of the checkpoints there are, ascending, whole or not.
    ///
    /// # Errors
    /// If the folder cannot be read; a folder that is absent has none.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| FileError::new("read", &self.folder, e))?,
        };
        let mut steps = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| FileError::new("read", &self.folder, e))?;
            let name = entry.file_name();
            let step = name
                .to_str()
                .and_then(|n| n.strip_prefix(PREFIX))
                .map(str::parse);
            if let Some(Ok(step)) = step {
                steps.push(step);
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// The newest checkpoint that is whole, and what was wrong with each newer one.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn newest(&self) -> Result<(Option<PathBuf>, Vec<CheckpointError>), CheckpointError> {
        self.newest_before(u64::MAX)
    }

    /// The same, of those of fewer steps.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn newest_before(
        &self,
        end: u64,
    ) -> Result<(Option<PathBuf>, Vec<CheckpointError>), CheckpointError> {
        let mut damaged = Vec::new();
        let steps = self.steps()?.into_iter().rev();
        for step in steps.filter(|&step| step < end) {
            let path = self.folder.join(format!("{PREFIX}{step:08}"));
            match (self.check)(&path) {
                Ok(()) => return Ok((Some(path), damaged)),
                Err(error) => damaged.push(error),
            }
        }
        Ok((None, damaged))
    }

    /// The checkpoint after `step` steps; `None` if there is none.
    ///
    /// # Errors
    /// If it is not whole.
    pub fn at(&self, step: u64) -> Result<Option<PathBuf>, CheckpointError> {
        let path = self.folder.join(format!("{PREFIX}{step:08}"));
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        (self.check)(&path)?;
        Ok(Some(path))
    }

    /// Removes the checkpoints of later steps than `step`: a future that a run, resumed before it, has left,
    /// and that must not be taken for the newest.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove_after(&self, step: u64) -> Result<(), CheckpointError> {
        for later in self.steps()?.into_iter().filter(|&later| later > step) {
            remove_folder(&self.folder.join(format!("{PREFIX}{later:08}")))?;
        }
        Ok(())
    }

    /// Removes what killed processes left half written: nobody else writes here.
    fn remove_unfinished(&self) -> Result<(), CheckpointError> {
        let failed = |e| FileError::new("read", &self.folder, e);
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let step = name.to_str().and_then(|n| {
                n.strip_prefix('.')?
                    .strip_prefix(PREFIX)?
                    .strip_suffix(PARTIAL)
            });
            if step.is_some_and(|step| step.parse::<u64>().is_ok()) {
                remove_folder(&entry.path())?;
            }
        }
        Ok(())
    }

    fn remove_old(&self, saved: u64) -> Result<(), CheckpointError> {
        self.remove_after(saved)?;
        self.remove_unfinished()?;
        let mut steps = self.steps()?;
        steps.retain(|step| self.keep_every == 0 || !step.is_multiple_of(self.keep_every));
        let excess = steps.len().saturating_sub(self.keep);
        for step in &steps[..excess] {
            remove_folder(&self.folder.join(format!("{PREFIX}{step:08}")))?;
        }
        Ok(())
    }
}

/// The steps that a checkpoint's name gives.
pub(super) fn step_of(checkpoint: &Path) -> Option<u64> {
    let name = checkpoint.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Name of the folder of the checkpoint after `step` steps.
pub fn checkpoint_name(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

fn fresh_folder(path: &Path) -> Result<(), FileError> {
    if path.exists() {
        remove_folder(path)?;
    }
    fs::create_dir_all(path).map_err(|e| FileError::new("create", path, e))
}

fn remove_folder(path: &Path) -> Result<(), FileError> {
    fs::remove_dir_all(path).map_err(|e| FileError::new("remove", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(all: &Checkpoints, step: u64) -> PathBuf {
        all.save::<CheckpointError>(step, |folder| {
            fs::create_dir(folder.join("policy")).unwrap();
            fs::write(folder.join("policy/a"), b"agent").unwrap();
            fs::write(folder.join("model"), step.to_string()).unwrap();
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn the_newest_are_kept_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().join("c"), 2);
        assert_eq!(all.newest().unwrap().0, None);
        for step in [10, 20, 30] {
            save(&all, step);
        }
        assert_eq!(all.steps().unwrap(), [20, 30]);
        assert!(all.newest().unwrap().0.unwrap().ends_with("step-00000030"));
        // A run that was resumed before them has left the later ones.
        save(&all, 25);
        assert_eq!(all.steps().unwrap(), [20, 25]);
    }

    #[test]
    fn those_of_an_interval_are_kept_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().join("c"), 1).and_every(20);
        for step in [10, 20, 30, 40, 50] {
            save(&all, step);
        }
        assert_eq!(all.steps().unwrap(), [20, 40, 50]);
    }

    #[test]
    fn one_that_may_be_worse_pushes_none_out_but_its_like() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().join("c"), 2);
        save(&all, 10);
        save(&all, 20);
        for (step, before) in [(23, None), (24, Some(23)), (24, Some(24))] {
            all.save_beside::<CheckpointError>(step, before, |folder| {
                fs::write(folder.join("model"), "bad").unwrap();
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(all.steps().unwrap(), [10, 20, 24]);
        verify(&all.newest().unwrap().0.unwrap()).unwrap();
        save(&all, 30);
        assert_eq!(all.steps().unwrap(), [24, 30]);
    }

    #[test]
    fn a_damaged_newest_is_named_and_the_one_before_used() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().to_owned(), 3);
        save(&all, 1);
        let second = save(&all, 2);
        let third = save(&all, 3);
        fs::write(second.join("policy/a"), b"agenT").unwrap();
        fs::remove_file(third.join("model")).unwrap();
        let (found, damaged) = all.newest().unwrap();
        assert!(found.unwrap().ends_with("step-00000001"));
        let text: Vec<String> = damaged.iter().map(ToString::to_string).collect();
        assert!(
            text[0].contains("step-00000003") && text[0].contains("model"),
            "{text:?}"
        );
        assert!(
            text[1].contains("policy/a has another checksum"),
            "{text:?}"
        );
    }

    #[test]
    fn a_failed_save_leaves_the_checkpoints_there_were() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().to_owned(), 1);
        save(&all, 1);
        let failed = all.save::<CheckpointError>(2, |folder| {
            fs::write(folder.join("model"), b"half").unwrap();
            let reason = "disk full".to_owned();
            Err(CheckpointError::Incomplete {
                path: folder.to_owned(),
                reason,
            })
        });
        assert!(failed.is_err());
        assert_eq!(all.steps().unwrap(), [1]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
