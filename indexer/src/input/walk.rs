//! Walks a folder and all below it in one fixed order.
//!
//! In: a folder. Out: its files one after another, each folder's entries sorted by the bytes of their names, a
//! subfolder's files where its name stands. Links are followed, but not to a folder above themselves.
//! Memory: the entries of the folders on the present path, not of the whole tree.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// A file met on the way, or something that is no file.
#[derive(Debug)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// Its path below the folder walked, with `/`; bytes that are not UTF-8 as U+FFFD.
    pub relative: String,
    /// Its metadata, links followed.
    pub metadata: Metadata,
    /// A reason not to read it: hidden, no regular file, a folder without entries or one that is being walked.
    pub left_out: Option<&'static str>,
}

/// What failed, and where.
#[derive(Debug)]
pub struct WalkError {
    /// The file or folder.
    pub path: PathBuf,
    /// Its path below the folder walked, as [`Entry::relative`]; empty for that folder.
    pub relative: String,
    /// What the system said.
    pub source: io::Error,
}

/// The walk; an iterator over [`Entry`].
#[derive(Debug)]
pub struct Walk {
    /// The folders from the top to the present one: what is left of their entries, and who they are.
    open: Vec<Folder>,
    top: PathBuf,
}

#[derive(Debug)]
struct Folder {
    rest: std::vec::IntoIter<PathBuf>,
    identity: PathBuf,
}

impl Walk {
    /// Starts at a folder.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn new(folder: &Path) -> Result<Self, WalkError> {
        let mut walk = Self {
            open: Vec::new(),
            top: folder.to_owned(),
        };
        walk.enter(folder)?;
        Ok(walk)
    }

    /// Goes into a folder; a reason not to, if there is one.
    fn enter(&mut self, folder: &Path) -> Result<Option<&'static str>, WalkError> {
        let failed = |source| WalkError {
            path: folder.to_owned(),
            relative: self.below(folder),
            source,
        };
        let identity = fs::canonicalize(folder).map_err(failed)?;
        if self.open.iter().any(|f| f.identity == identity) {
            return Ok(Some("link to a folder around it"));
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        // The parent is the same for all, so this is the order of the names' bytes.
        paths.sort_unstable();
        let reason = paths.is_empty().then_some("empty folder");
        self.open.push(Folder {
            rest: paths.into_iter(),
            identity,
        });
        Ok(reason)
    }

    fn below(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.top).unwrap_or(path);
        let parts: Vec<_> = below.iter().map(|p| p.to_string_lossy()).collect();
        parts.join("/")
    }

    fn look_at(&mut self, path: PathBuf) -> Result<Option<Entry>, WalkError> {
        let hidden = path
            .file_name()
            .is_some_and(|n| n.as_encoded_bytes().first() == Some(&b'.'));
        // Editors leave hidden links that lead nowhere; what is not read need not be followed.
        let metadata = match fs::metadata(&path) {
            Err(_) if hidden => path.symlink_metadata(),
            other => other,
        };
        let relative = self.below(&path);
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(source) => {
                return Err(WalkError {
                    path,
                    relative,
                    source,
                });
            }
        };
        let left_out = if metadata.is_dir() && !hidden {
            match self.enter(&path)? {
                None => return Ok(None),
                reason => reason,
            }
        } else if hidden {
            Some("hidden")
        } else if !metadata.is_file() {
            Some("not a regular file")
        } else {
            None
        };
        Ok(Some(Entry {
            relative,
            path,
            metadata,
            left_out,
        }))
    }
}

impl Iterator for Walk {
    type Item = Result<Entry, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let folder = self.open.last_mut()?;
            match folder.rest.next() {
                Some(path) => match self.look_at(path) {
                    Ok(None) => {}
                    Ok(Some(entry)) => return Some(Ok(entry)),
                    Err(error) => return Some(Err(error)),
                },
                None => _ = self.open.pop(),
            }
        }
    }
}

/// The files below a folder, hidden ones too, by their paths below it; what cannot be listed is passed over.
pub fn walk_files(folder: &Path) -> impl Iterator<Item = String> {
    let walk = Walk::new(folder).ok();
    walk.into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(folder: &Path) -> Vec<String> {
        Walk::new(folder)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| match e.left_out {
                Some(why) => format!("{} ({why})", e.relative),
                None => e.relative,
            })
            .collect()
    }

    #[test]
    fn files_come_in_the_order_of_their_names_at_every_level() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b/2.txt",
            "b/10.txt",
            "a.txt",
            "c.txt",
            "b/x/y.txt",
            "b/.git/z.txt",
            ".hidden",
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        assert_eq!(
            walked(dir.path()),
            [
                ".hidden (hidden)",
                "a.txt",
                "b/.git (hidden)",
                "b/10.txt",
                "b/2.txt",
                "b/x/y.txt",
                "c.txt"
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_in_circles() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/x.txt"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/up")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("a/x.txt"), dir.path().join("link.txt"))
            .unwrap();
        let up = "a/up (link to a folder around it)";
        assert_eq!(walked(dir.path()), [up, "a/x.txt", "link.txt"]);
        std::os::unix::fs::symlink("nowhere", dir.path().join(".#a.txt")).unwrap();
        assert_eq!(
            walked(dir.path()),
            [".#a.txt (hidden)", up, "a/x.txt", "link.txt"]
        );
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/dangling.txt")).unwrap();
        let errors: Vec<_> = Walk::new(dir.path())
            .unwrap()
            .filter_map(Result::err)
            .map(|e| e.relative)
            .collect();
        assert_eq!(errors, ["a/dangling.txt"]);
    }
}
