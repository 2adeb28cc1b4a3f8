//! The folder that keeps what was fetched, and its limit.
//!
//! ```text
//! CACHE/
//!   usage                        bytes taken, as far as known; locked by whoever makes room
//!   files/<blake3>-<piece size>-<origin>/ one folder for each file of an index
//!     <number>                   a piece
//!     <number>.partial           one being fetched; locked by whoever fetches it
//!     values, proven             checksums of the pieces ([`super::values`])
//! ```
//!
//! In: how many bytes are to be added. Out: leave to add them, for which what was not used for longest may have
//! been removed. Always holds: all processes together stay within the limit, but for pieces that were removed
//! while somebody still reads them. Nothing is trusted to be left tidy: locks are the system's and end with their
//! process, the number in `usage` is counted anew whenever room is made, and files of the dead are removed then.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use hds::index::{Checksum, IndexError};

use crate::remote_options::RemoteOptions;

/// Share of the limit that is freed beyond what is needed, so that the folder is not listed for every piece.
const FREED_SHARE: u64 = 10;
/// Marks the number in `usage`.
const MARK: [u8; 8] = *b"hdsusage";
/// Longest wait for another process to make room.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// Shortest and longest pause between looks at a lock.
const LOCK_PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));
/// What a piece that is being fetched is called.
const PARTIAL: &str = "partial";

/// A cache folder, opened.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// A file in the cache that may be removed.
struct Old {
    used: SystemTime,
    bytes: u64,
    /// Place in the list of folders.
    folder: u32,
    number: u64,
}

impl Cache {
    /// Makes the folder where there is none, and sees that it can be written to.
    pub(super) fn open(folder: PathBuf, options: &RemoteOptions) -> Result<Self, IndexError> {
        let cache = Self {
            limit: options.cache_limit.0,
            folder,
        };
        let files = cache.folder.join("files");
        fs::create_dir_all(&files).map_err(|e| error("create", &files, e))?;
        drop(cache.usage()?);
        // Whether new files can be made shows only by making one.
        let probe = files.join(format!("probe-{}", std::process::id()));
        let made = fs::create_dir(&probe).or_else(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(e),
        });
        made.map_err(|e| error("write to", &files, e))?;
        let _ = fs::remove_dir(&probe);
        Ok(cache)
    }

    /// The folder of a file's pieces.
    pub(super) fn folder_of(&self, content: &Checksum, piece: u64, origin: &str) -> PathBuf {
        let name = format!("{content}-{piece}-{origin}");
        self.folder.join("files").join(name)
    }

    /// Counts `bytes` more, making room where needed, and gives `file` that length; whether there was room.
    pub(super) fn reserve(&self, bytes: u64, file: &File, path: &Path) -> Result<bool, IndexError> {
        let usage = self.locked_usage()?;
        let used = match read_usage(&usage) {
            Some(used) if used.saturating_add(bytes) <= self.limit => used,
            _ => self.make_room(bytes)?,
        };
        let fits = used.saturating_add(bytes) <= self.limit;
        if fits {
            // Those who count see the file at its full length from here on.
            file.set_len(bytes).map_err(|e| error("write", path, e))?;
        }
        let now = if fits { used + bytes } else { used };
        write_usage(&usage, now).map_err(|e| error("write", &self.usage_path(), e))?;
        Ok(fits)
    }

    /// Gives room back.
    pub(super) fn release(&self, bytes: u64) -> Result<(), IndexError> {
        let usage = self.locked_usage()?;
        let used = read_usage(&usage).unwrap_or(0).saturating_sub(bytes);
        write_usage(&usage, used).map_err(|e| error("write", &self.usage_path(), e))
    }

    /// Removes a tenth of what is there, for a full disk; whether there was anything to remove.
    pub(super) fn shrink(&self) -> Result<bool, IndexError> {
        let usage = self.locked_usage()?;
        let before = Cell::new(0);
        let used = self.count(|used| {
            before.set(used);
            used - used.div_ceil(FREED_SHARE)
        })?;
        write_usage(&usage, used).map_err(|e| error("write", &self.usage_path(), e))?;
        Ok(used < before.get())
    }

    /// Where everything is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the folder of a file whose content is not what it should be.
    pub(super) fn forget(&self, folder: &Path) {
        // First what the rest is held against. Others may write there meanwhile; what is left then is found out by its
        // checksums.
        for name in ["proven", "values"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let _ = fs::remove_dir_all(folder);
    }

    /// Frees room for `bytes`; what is then used. The caller holds the lock.
    fn make_room(&self, bytes: u64) -> Result<u64, IndexError> {
        let most = self.limit.saturating_sub(bytes);
        let target = most.saturating_sub(self.limit / FREED_SHARE);
        self.count(|used| if used <= most { used } else { target })
    }

    /// Lists the folder, removes what was not used for longest until no more is left than `target` says of the
    /// bytes there are, and gives what is left.
    fn count(&self, target: impl Fn(u64) -> u64) -> Result<u64, IndexError> {
        let files = self.folder.join("files");
        let mut folders = Vec::new();
        let mut old = Vec::new();
        let mut used = 0u64;
        for entry in list(&files)? {
            let folder = entry.path();
            for file in list(&folder).unwrap_or_default() {
                let path = file.path();
                let is_partial = path.extension().is_some_and(|name| name == PARTIAL);
                let metadata = match file.metadata() {
                    // It may have got its final name since it was listed, and counts under that one.
                    Err(_) if is_partial => path.with_extension("").metadata(),
                    found => found,
                };
                let Ok(metadata) = metadata else {
                    continue;
                };
                if is_partial && remove_orphan(&path) {
                    continue;
                }
                used = used.saturating_add(metadata.len());
                let number = file.file_name().to_str().and_then(|name| name.parse().ok());
                if let (Some(number), Ok(used)) = (number, metadata.modified()) {
                    old.push(Old {
                        used,
                        bytes: metadata.len(),
                        folder: folders.len() as u32,
                        number,
                    });
                }
            }
            folders.push(folder);
        }
        let target = target(used);
        if used > target {
            old.sort_unstable_by_key(|old| old.used);
            for old in old {
                if used <= target {
                    break;
                }
                let path = folders[old.folder as usize].join(old.number.to_string());
                match fs::remove_file(&path) {
                    Ok(()) => used = used.saturating_sub(old.bytes),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(error("remove", &path, e)),
                }
            }
        }
        Ok(used)
    }

    fn usage_path(&self) -> PathBuf {
        self.folder.join("usage")
    }

    fn usage(&self) -> Result<File, IndexError> {
        let path = self.usage_path();
        check_regular(&path).map_err(|e| error("open", &path, e))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&path).or_else(|e| {
            // Somebody may have removed the whole folder.
            if e.kind() != io::ErrorKind::NotFound {
                return Err(error("open", &path, e));
            }
            let files = self.folder.join("files");
            fs::create_dir_all(&files).map_err(|e| error("create", &files, e))?;
            options.open(&path).map_err(|e| error("open", &path, e))
        })
    }

    fn locked_usage(&self) -> Result<File, IndexError> {
        let (usage, path) = (self.usage()?, self.usage_path());
        let start = Instant::now();
        let mut pause = LOCK_PAUSES.0;
        while !try_lock(&usage, &path)? {
            if start.elapsed() > LOCK_PATIENCE {
                let why = "another process has it locked for a minute";
                return Err(error(
                    "lock",
                    &path,
                    io::Error::new(io::ErrorKind::TimedOut, why),
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOCK_PAUSES.1);
        }
        Ok(usage)
    }
}

/// The right to fetch a piece: no other process that looks fetches it as well.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    path: PathBuf,
    /// Whether the file was given its final name.
    published: bool,
}

impl Claim {
    /// Claims the piece that is to be at `target`; `None` where it is there by now. Waits for who has claimed it
    /// already, but no longer than `patience`: then it is fetched twice.
    pub(super) fn take(target: &Path, patience: Duration) -> Result<Option<Self>, IndexError> {
        let start = Instant::now();
        let mut pause = LOCK_PAUSES.0;
        let mut path = target.with_extension(PARTIAL);
        loop {
            check_regular(&path).map_err(|e| error("create", &path, e))?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = match options.open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let folder = target.parent().unwrap_or(target);
                    fs::create_dir_all(folder).map_err(|e| error("create", folder, e))?;
                    options.open(&path).map_err(|e| error("create", &path, e))?
                }
                Err(e) => return Err(error("create", &path, e)),
            };
            if try_lock(&file, &path)? {
                // Between opening and locking, who had it may have published or removed it.
                if is_at(&file, &path) {
                    return Ok(Some(Self {
                        file,
                        path,
                        published: false,
                    }));
                }
                continue;
            }
            if target.exists() {
                return Ok(None);
            }
            if start.elapsed() > patience {
                path = target.with_extension(format!("{}.{PARTIAL}", std::process::id()));
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOCK_PAUSES.1);
        }
    }

    /// The file to write to, and its name.
    pub(super) fn file(&self) -> (&File, &Path) {
        (&self.file, &self.path)
    }

    /// Gives the file its final name; it stays open for reading.
    pub(super) fn publish(mut self, target: &Path) -> Result<File, IndexError> {
        fs::rename(&self.path, target).map_err(|e| error("rename to", target, e))?;
        self.published = true;
        // A handle without the claim, which ends here.
        self.file.try_clone().map_err(|e| error("open", target, e))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.path);
        }
        // Copies of the handle, also those of a forked child, would keep the lock.
        let _ = self.file.unlock();
    }
}

/// Removes a piece whose fetching was never finished, if nobody is at it; whether it did.
fn remove_orphan(path: &Path) -> bool {
    let file = OpenOptions::new().read(true).write(true).open(path);
    match file {
        Ok(file) => matches!(file.try_lock(), Ok(())) && fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
}

fn try_lock(file: &File, path: &Path) -> Result<bool, IndexError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(error("lock", path, e)),
    }
}

/// Refuses what is no file, such as a pipe, which would be waited for without end.
pub(super) fn check_regular(path: &Path) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let why = "it is no regular file, and nothing of the cache's: remove it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// Opens a file of the cache for reading.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(path)?;
    File::open(path)
}

/// Whether an open file is the one of that name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

fn read_usage(file: &File) -> Option<u64> {
    use io::{Read, Seek};
    let mut content = [0; 16];
    let mut file = file;
    file.rewind().ok()?;
    file.read_exact(&mut content).ok()?;
    let (mark, number) = content.split_first_chunk::<8>()?;
    (*mark == MARK).then(|| number.first_chunk().map(|n| u64::from_le_bytes(*n)))?
}

fn write_usage(file: &File, used: u64) -> io::Result<()> {
    use io::{Seek, Write};
    let mut content = [0; 16];
    content[..8].copy_from_slice(&MARK);
    content[8..].copy_from_slice(&used.to_le_bytes());
    let mut file = file;
    file.rewind()?;
    file.write_all(&content)
}

fn list(folder: &Path) -> Result<Vec<fs::DirEntry>, IndexError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    entries.map_err(|e| error("list", folder, e))
}

pub(super) fn error(action: &'static str, path: &Path, source: io::Error) -> IndexError {
    IndexError::Cache {
        action,
        path: path.to_owned(),
        source,
    }
}
