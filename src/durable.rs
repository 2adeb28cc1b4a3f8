//! Files that are whole or absent: written beside the target, synced, then renamed.
//!
//! In: a target path and what to write. Out: the file or folder under its name, or an error and no
//! change. Always holds: a reader never sees half of what is written here, also after a power loss.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file operation that failed, with what and where.
#[derive(Debug, Error)]
#[error("cannot {action} {path}: {source}")]
pub struct FileError {
    /// What was tried, as an infinitive ("write", "rename to").
    pub action: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl FileError {
    /// Wraps a system error with what was tried and where.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// Writes a file so that it is whole or unchanged: to `<name>.partial` beside it, synced, renamed.
///
/// # Errors
/// If something that is no regular file has the name (a device, a pipe, a folder); any step that fails, among them a full disk: the
/// partial file is then removed.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FileError> {
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(FileError::new("write", path, source));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let outcome = (|| {
        let file = File::create(&partial).map_err(|e| FileError::new("create", &partial, e))?;
        let mut buffer = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffer).map_err(|e| FileError::new("write", &partial, e))?;
        let file = buffer
            .into_inner()
            .map_err(|e| FileError::new("write", &partial, e.into_error()))?;
        file.sync_all()
            .map_err(|e| FileError::new("sync", &partial, e))?;
        fs::rename(&partial, path).map_err(|e| FileError::new("rename to", path, e))?;
        sync_parent(path)
    })();
    if outcome.is_err() {
        let _ = fs::remove_file(&partial);
    }
    outcome
}

/// Opens a file for reading that is to be a regular one: a pipe in its place would wait for a writer that may
/// never come.
///
/// # Errors
/// If it is something else, or cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    File::open(path)
}

/// Reads a regular file of at most `limit` bytes, whatever the system says of its length.
///
/// # Errors
/// If it is something else, longer, or cannot be read.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!(
            "it is longer than the {limit} bytes that are expected at most"
        )));
    }
    Ok(bytes)
}

/// Gives a finished folder its final name; the target must not exist.
///
/// # Errors
/// If the target exists, or a step fails; the staging folder then stays where it is.
pub fn publish_folder(staging: &Path, target: &Path) -> Result<(), FileError> {
    if target.symlink_metadata().is_ok() {
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(FileError::new("rename to", target, source));
    }
    sync_folder(staging)?;
    fs::rename(staging, target).map_err(|e| FileError::new("rename to", target, e))?;
    sync_parent(target)
}

/// Gives a finished folder its final name, in place of the folder that has it: at every moment one of both is there whole, where the
/// file system can exchange two names (on Linux all usual ones can). What was there is removed.
///
/// # Errors
/// If a step fails; the staging folder then stays where it is.
pub fn replace_folder(staging: &Path, target: &Path) -> Result<(), FileError> {
    if target.symlink_metadata().is_err() {
        return publish_folder(staging, target);
    }
    sync_folder(staging)?;
    let old = match exchange(staging, target) {
        Ok(()) => staging,
        Err(_) => {
            // A moment without either, which whoever is killed in it leaves.
            remove_whole(target)?;
            fs::rename(staging, target).map_err(|e| FileError::new("rename to", target, e))?;
            return sync_parent(target);
        }
    };
    sync_parent(target)?;
    remove_whole(old)
}

fn remove_whole(folder: &Path) -> Result<(), FileError> {
    let is_folder = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    let removed = match is_folder {
        true => fs::remove_dir_all(folder),
        false => fs::remove_file(folder),
    };
    removed.map_err(|e| FileError::new("remove", folder, e))
}

#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Makes the entries of a folder durable.
///
/// # Errors
/// If the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> Result<(), FileError> {
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|e| FileError::new("sync", folder, e))
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

/// Writes a value as indented JSON with a final newline, durably.
///
/// # Errors
/// As [`write_file`].
pub fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    write_file(path, |w| {
        serde_json::to_writer_pretty(&mut *w, value)?;
        w.write_all(b"\n")
    })
}

/// Whether both are of one file, as far as the system tells.
pub(crate) fn is_same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }
    #[cfg(not(unix))]
    {
        one.is_file() == other.is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write_file(&path, |w| w.write_all(b"old")).unwrap();
        let error = write_file(&path, |w| {
            w.write_all(b"new")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.to_string().contains("state.json"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_neither_replaced_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut others = vec![folder];
        #[cfg(unix)]
        {
            let link = dir.path().join("device");
            std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
            others.push(link);
        }
        for other in others {
            let before = other.symlink_metadata().unwrap().file_type();
            let error = write_file(&other, |w| w.write_all(b"new")).unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{error}");
            assert_eq!(other.symlink_metadata().unwrap().file_type(), before);
            let error = read_regular(&other, 10).unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{error}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_regular(&file, 10).unwrap(), b"0123456789");
        let error = read_regular(&file, 9).unwrap_err();
        assert!(error.to_string().contains("longer than the 9"), "{error}");
    }

    #[test]
    fn a_folder_is_never_published_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        assert!(publish_folder(&a, &b).is_err());
        fs::remove_dir(&b).unwrap();
        publish_folder(&a, &b).unwrap();
        assert!(b.is_dir() && !a.exists());
    }

    #[test]
    fn a_folder_takes_the_place_of_another_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (staging, target) = (dir.path().join(".new"), dir.path().join("there"));
        for content in ["one", "two"] {
            fs::create_dir(&staging).unwrap();
            fs::write(staging.join("file"), content).unwrap();
            replace_folder(&staging, &target).unwrap();
            assert_eq!(fs::read_to_string(target.join("file")).unwrap(), content);
            assert!(!staging.exists());
        }
        // Also of a file.
        fs::remove_dir_all(&target).unwrap();
        fs::write(&target, "").unwrap();
        fs::create_dir(&staging).unwrap();
        replace_folder(&staging, &target).unwrap();
        assert!(target.is_dir() && !staging.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_are_exchanged_here() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::create_dir(&one).unwrap();
        fs::write(&other, "").unwrap();
        exchange(&one, &other).unwrap();
        assert!(one.is_file() && other.is_dir());
    }
}
