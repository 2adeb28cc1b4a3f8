//! Turns what a user names into the paths of a plan: patterns into what they match, lists of files into their lines.
//!
//! In: paths, some with `*`, `?`, `[…]` or `**`; files with a path a line. Out: paths, matches sorted by the bytes of their names. Always holds:
//! a path that exists under its literal name is taken as it is, whatever signs are in it; a pattern without a match and an empty list
//! are errors.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use glob::Pattern;
use thiserror::Error;

/// Largest list of files: millions of paths.
const MOST_LIST: u64 = 1 << 30;

/// Why names give no paths.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NameError {
    /// A pattern matches nothing.
    #[error("{pattern} matches no file")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// A pattern is none.
    #[error("{pattern} is no pattern: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A folder on the way of a pattern, or a list, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The folder or list.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A list without a path.
    #[error("{path} names no file; a path a line is wanted")]
    EmptyList {
        /// The list.
        path: PathBuf,
    },
    /// A line of a list that is no path.
    #[error("{path}, line {line}: not UTF-8")]
    Line {
        /// The list.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
}

/// The paths that some names stand for, in the order of the names.
///
/// # Errors
/// A pattern without a match, or one that is none.
pub fn expand(names: &[PathBuf]) -> Result<Vec<PathBuf>, NameError> {
    let mut paths = Vec::with_capacity(names.len());
    for name in names {
        let pattern = name.to_str().filter(|n| n.contains(['*', '?', '[']));
        match pattern {
            Some(pattern) if name.symlink_metadata().is_err() => {
                paths.extend(matches_of(pattern)?);
            }
            _ => paths.push(name.clone()),
        }
    }
    Ok(paths)
}

fn matches_of(pattern: &str) -> Result<Vec<PathBuf>, NameError> {
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') {
        "/"
    } else {
        ""
    })];
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    for (place, &part) in parts.iter().enumerate() {
        // A folder is read with all below it.
        if part == "**" && place + 1 == parts.len() {
            found.retain(|path| path.as_os_str().is_empty() || path.is_dir());
            break;
        }
        let folders = std::mem::take(&mut found);
        if part == "**" {
            for folder in folders {
                folders_below(folder, &mut found)?;
            }
        } else if part.contains(['*', '?', '[']) {
            let names = Pattern::new(part).map_err(|e| NameError::Pattern {
                pattern: pattern.into(),
                reason: e.msg,
            })?;
            for folder in folders {
                let entries = entries_of(&folder)?.into_iter();
                found.extend(entries.filter(|path| fits(&names, path)));
            }
        } else {
            let paths = folders.into_iter().map(|folder| folder.join(part));
            found.extend(paths.filter(|path| path.symlink_metadata().is_ok()));
        }
    }
    if found.is_empty() {
        return Err(NameError::NoMatch {
            pattern: pattern.into(),
        });
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether a name fits a part of a pattern, as in a shell: hidden ones only where the pattern says so. Bytes that are not
/// UTF-8 fit wildcards.
fn fits(part: &Pattern, path: &Path) -> bool {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    part.matches_with(&name, options)
}

/// What is in a folder; nothing where it is none.
fn entries_of(folder: &Path) -> Result<Vec<PathBuf>, NameError> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    if !here.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |source| NameError::Read {
        path: here.into(),
        source,
    };
    let entries = fs::read_dir(here).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| folder.join(entry.file_name())))
        .collect::<Result<_, _>>()
        .map_err(failed)
}

/// A folder and all below it that are not hidden; links are not followed.
fn folders_below(folder: PathBuf, found: &mut Vec<PathBuf>) -> Result<(), NameError> {
    for path in entries_of(&folder)? {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            folders_below(path, found)?;
        }
    }
    found.push(folder);
    Ok(())
}

/// The paths in a list, one a line or, as `find -print0` writes them, each closed by a NUL; taken literally. `-` is a list on the standard
/// input. Blank lines and a byte order mark are passed over.
///
/// # Errors
/// If the list cannot be read or names nothing.
pub fn read_list(list: &Path) -> Result<Vec<PathBuf>, NameError> {
    let failed = |source| NameError::Read {
        path: list.into(),
        source,
    };
    let content = if list == Path::new("-") {
        let mut content = Vec::new();
        io::stdin().read_to_end(&mut content).map_err(failed)?;
        content
    } else {
        let mut content = Vec::new();
        let file = fs::File::open(list).map_err(failed)?;
        file.take(MOST_LIST + 1)
            .read_to_end(&mut content)
            .map_err(failed)?;
        if content.len() as u64 > MOST_LIST {
            let why = format!("more than {MOST_LIST} bytes, which is no list of files");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        content
    };
    let mut paths = Vec::new();
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&content);
    // No path holds a NUL, but some hold newlines.
    let by_nul = content.contains(&0);
    let end = if by_nul { 0 } else { b'\n' };
    for (number, line) in content.split(|b| *b == end).enumerate() {
        let line = match line.strip_suffix(b"\r") {
            Some(line) if !by_nul => line,
            _ => line,
        };
        if !line.trim_ascii().is_empty() {
            let path = path_of(line).ok_or_else(|| NameError::Line {
                path: list.into(),
                line: number + 1,
            })?;
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(NameError::EmptyList { path: list.into() });
    }
    Ok(paths)
}

#[cfg(unix)]
fn path_of(line: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Some(std::ffi::OsStr::from_bytes(line).into())
}

#[cfg(not(unix))]
fn path_of(line: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(line).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_below(folder: &Path, paths: &[PathBuf]) -> Vec<String> {
        let below = |p: &PathBuf| p.strip_prefix(folder).unwrap().display().to_string();
        paths.iter().map(below).collect()
    }

    #[test]
    fn patterns_give_their_matches_in_order_and_literal_names_stay() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b/2.jsonl",
            "b/10.jsonl",
            "a/1.jsonl",
            "a/x/3.jsonl",
            "a/.h.jsonl",
            "[1].jsonl",
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| {
            let paths = expand(&[dir.path().join(pattern)]).unwrap();
            names_below(dir.path(), &paths)
        };
        assert_eq!(found("*/*.jsonl"), ["a/1.jsonl", "b/10.jsonl", "b/2.jsonl"]);
        assert_eq!(
            found("**/*.jsonl"),
            [
                "[1].jsonl",
                "a/1.jsonl",
                "a/x/3.jsonl",
                "b/10.jsonl",
                "b/2.jsonl"
            ]
        );
        assert_eq!(found("b/[0-5].jsonl"), ["b/2.jsonl"]);
        assert_eq!(found("[1].jsonl"), ["[1].jsonl"]);
        assert_eq!(found("a/?.jsonl"), ["a/1.jsonl"]);
        assert_eq!(found("absent.jsonl"), ["absent.jsonl"]);
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_not_utf8_fit_wildcards_and_stop_nothing() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let odd = |name: &[u8]| dir.path().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(odd(b"d\xff")).unwrap();
        for name in [&b"a.jsonl"[..], b"x\xff.jsonl", b"d\xff/b.jsonl"] {
            fs::write(odd(name), "").unwrap();
        }
        let found = |pattern: &str| expand(&[dir.path().join(pattern)]).unwrap();
        assert_eq!(found("a*"), [odd(b"a.jsonl")]);
        assert_eq!(found("*.jsonl"), [odd(b"a.jsonl"), odd(b"x\xff.jsonl")]);
        assert_eq!(
            found("**/*.jsonl"),
            [odd(b"a.jsonl"), odd(b"d\xff/b.jsonl"), odd(b"x\xff.jsonl")]
        );
        // A folder at the end is read with all below it.
        assert_eq!(found("*/**"), [odd(b"d\xff")]);
    }

    #[test]
    fn a_pattern_without_a_match_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = expand(&[dir.path().join("*.jsonl")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("*.jsonl matches no file"), "{error}");
        let error = expand(&["a***b".into()]).unwrap_err().to_string();
        assert!(error.contains("a***b is no pattern"), "{error}");
    }

    #[test]
    fn lists_are_read_by_lines_and_taken_literally() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        fs::write(&list, "a b.jsonl\r\n\n*.jsonl\nlast").unwrap();
        let paths: Vec<PathBuf> = ["a b.jsonl", "*.jsonl", "last"].map(PathBuf::from).into();
        assert_eq!(read_list(&list).unwrap(), paths);
        fs::write(&list, "\u{feff}a b.jsonl\n \t\n*.jsonl\nlast\n").unwrap();
        assert_eq!(read_list(&list).unwrap(), paths);
        fs::write(&list, "a b.jsonl\0*.jsonl\0last\0").unwrap();
        assert_eq!(read_list(&list).unwrap(), paths);
        fs::write(&list, "a\nb\r\0c").unwrap();
        assert_eq!(
            read_list(&list).unwrap(),
            [PathBuf::from("a\nb\r"), "c".into()]
        );
        fs::write(&list, "\n\n").unwrap();
        let error = read_list(&list).unwrap_err().to_string();
        assert!(error.contains("names no file"), "{error}");
        let error = read_list(&dir.path().join("absent"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("absent"), "{error}");
    }
}
