//! The folder in which an index is built, beside its target.
//!
//! In: the target. Out: `<target>.building/`, locked against a second build:
//!
//! ```text
//! <target>.building/
//!   lock            held while a build runs
//!   journal.json    the last place from which the build can go on
//!   records/        document records, from which the tables are made
//!   index/          what becomes the target, by one rename
//!   all/            the shards with all documents, where copies are left out of index/, whose records are then in kept/
//!   duplicates/     scratch files of the search for copies
//! ```
//!
//! Always holds: the target is absent until it is whole. Leaves what is in the journal to [`super::journal`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};

use super::error::BuildError;

/// The locked staging folder of one build.
#[derive(Debug)]
pub(crate) struct Staging {
    target: PathBuf,
    folder: PathBuf,
    // Held until this value is dropped.
    _lock: File,
    /// Why there is no lock, where the file system has none.
    pub unlocked: Option<String>,
}

impl Staging {
    /// Makes or takes over the staging folder of a target.
    ///
    /// # Errors
    /// If the target exists, another build is running, or the system refuses.
    pub fn enter(target: &Path) -> Result<Self, BuildError> {
        let mut name = match target.file_name() {
            Some(name) => name.to_owned(),
            None => {
                return Err(BuildError::TargetExists {
                    path: target.into(),
                });
            }
        };
        name.push(".building");
        let folder = target.with_file_name(name);
        if target.symlink_metadata().is_ok() {
            remove_published(&folder);
            return Err(BuildError::TargetExists {
                path: target.into(),
            });
        }
        if let Some(entry) = foreign(&folder)? {
            return Err(BuildError::InTheWay {
                path: folder,
                entry,
            });
        }
        fs::create_dir_all(&folder).map_err(|e| FileError::new("create", &folder, e))?;
        let path = folder.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| FileError::new("create", &path, e))?;
        let unlocked = match lock.try_lock() {
            Ok(()) => None,
            Err(TryLockError::WouldBlock) => {
                return Err(BuildError::Locked {
                    target: target.into(),
                    lock: path,
                });
            }
            // Some network file systems have no locks; a build there is not refused.
            Err(TryLockError::Error(e)) => Some(e.to_string()),
        };
        let staging = Self {
            target: target.into(),
            folder,
            _lock: lock,
            unlocked,
        };
        // The other build may have published and gone between the first look and the lock.
        if target.symlink_metadata().is_ok() {
            staging.discard()?;
            return Err(BuildError::TargetExists {
                path: target.into(),
            });
        }
        Ok(staging)
    }

    /// As [`Self::enter`], for work that does not go on after an interruption: what such work left is removed.
    ///
    /// # Errors
    /// Also if an interrupted build lies there, which the user may want to go on with.
    pub fn enter_anew(target: &Path) -> Result<Self, BuildError> {
        let staging = Self::enter(target)?;
        if staging.journal().exists() {
            return Err(BuildError::OtherBuild {
                staging: staging.folder,
                what: "other inputs".into(),
            });
        }
        staging.clear()?;
        Ok(staging)
    }

    /// The staging folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What becomes the target.
    pub fn index(&self) -> PathBuf {
        self.folder.join("index")
    }

    /// The document records.
    pub fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    /// The shards with all documents, where copies are to be left out of the index.
    pub fn all(&self) -> PathBuf {
        self.folder.join("all")
    }

    /// The records of the documents kept, where copies are left out.
    pub fn kept(&self) -> PathBuf {
        self.folder.join("kept")
    }

    /// Scratch files of the search for copies.
    pub fn duplicates(&self) -> PathBuf {
        self.folder.join("duplicates")
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.folder.join("journal.json")
    }

    /// Removes everything but the lock.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn clear(&self) -> Result<(), FileError> {
        // The journal first: without it the rest is worth nothing, with it it must be whole.
        self.remove_journal()?;
        for folder in [
            self.index(),
            self.records(),
            self.all(),
            self.kept(),
            self.duplicates(),
        ] {
            match fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::new("remove", &folder, e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn remove_journal(&self) -> Result<(), FileError> {
        match fs::remove_file(self.journal()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(FileError::new("remove", &self.journal(), e))
            }
            _ => Ok(()),
        }
    }

    /// Removes the staging folder and gives up the lock.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<(), FileError> {
        fs::remove_dir_all(&self.folder).map_err(|e| FileError::new("remove", &self.folder, e))
    }

    /// Gives the finished index its name and removes the rest.
    ///
    /// # Errors
    /// If the rename fails; everything then stays.
    pub fn publish(self) -> Result<(), FileError> {
        sync_folders(&self.index())?;
        if self.all().exists() {
            // Tells a published build's left-overs from an interrupted one's; see `remove_published`.
            self.remove_journal()?;
        }
        durable::publish_folder(&self.index(), &self.target)?;
        self.discard()
    }
}

/// What a staging folder may hold.
const ENTRIES: [&str; 8] = [
    "lock",
    "journal.json",
    "journal.json.partial",
    "records",
    "index",
    "all",
    "kept",
    "duplicates",
];

/// Refuses a target below a folder that is read: its files would be input of the next build, if not of this one.
///
/// # Errors
/// [`BuildError::TargetInInput`].
pub(super) fn check_outside<'a>(
    target: &Path,
    mut inputs: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), BuildError> {
    let path = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let place = path.ancestors().skip(1).find_map(|p| p.canonicalize().ok());
    let contains = |input: &&PathBuf| {
        let folder = input.canonicalize().ok().filter(|p| p.is_dir());
        folder.is_some_and(|folder| place.as_ref().is_some_and(|p| p.starts_with(folder)))
    };
    match inputs.find(contains) {
        None => Ok(()),
        Some(folder) => Err(BuildError::TargetInInput {
            target: target.into(),
            folder: folder.clone(),
        }),
    }
}

/// What is in the way of a staging folder: the path itself if it is no folder, or something in it that no build made. Everything in
/// a staging folder is removed in the end, so nothing of anybody else's may be there.
fn foreign(folder: &Path) -> Result<Option<String>, FileError> {
    match folder.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FileError::new("look at", folder, e)),
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Ok(Some("no folder of its own".into())),
    }
    let failed = |e| FileError::new("list", folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !ENTRIES.iter().any(|known| name == *known) {
            return Ok(Some(format!("{name:?}")));
        }
    }
    Ok(None)
}

/// Removes what is left where a build was killed between publishing and tidying up: a staging folder without an index, and where
/// copies were left out without a journal.
fn remove_published(folder: &Path) {
    let goes_on = folder.join("all").exists() && folder.join("journal.json").exists();
    let all_ours = matches!(foreign(folder), Ok(None));
    if !folder.is_dir() || folder.join("index").exists() || goes_on || !all_ours {
        return;
    }
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("lock"));
    if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Makes the entries of a folder and all folders below it durable.
fn sync_folders(folder: &Path) -> Result<(), FileError> {
    let failed = |e| FileError::new("list", folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    durable::sync_folder(folder)
}
