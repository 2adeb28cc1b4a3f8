//! House rules that no compiler checks; run as a test and by `cargo xtask test`.
//!
//! In: the files of a checkout. Out: a list of breaches, each with file, line and what to do. Reads only.

mod manifests;
mod sources;
mod trees;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A rule that a file breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// File, relative to the checkout.
    pub file: PathBuf,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.file.display())?;
        if self.line > 0 {
            write!(formatter, ":{}", self.line)?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// A text file of the checkout.
struct Source {
    /// Relative to the checkout.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path
            .extension()
            .is_some_and(|extension| extension == "rs")
    }

    fn breach(&self, line: usize, message: impl Into<String>) -> Breach {
        Breach {
            file: self.path.clone(),
            line,
            message: message.into(),
        }
    }
}

/// Checks every rule on the checkout at `root`.
///
/// # Errors
/// Where a folder or file of the checkout cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Breach>> {
    let mut files = Vec::new();
    list(root, Path::new(""), &mut files)?;
    files.sort();
    let mut sources = Vec::new();
    for path in files {
        // Binary files have no lines to check.
        if let Ok(text) = String::from_utf8(fs::read(root.join(&path))?) {
            sources.push(Source { path, text });
        }
    }
    let mut breaches = Vec::new();
    for source in &sources {
        breaches.extend(sources::check(source));
        breaches.extend(manifests::check(source));
        breaches.extend(trees::check(root, source));
    }
    Ok(breaches)
}

/// Adds the files below `root/relative`, leaving out what builds and runs have made.
fn list(root: &Path, relative: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(relative))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = relative.join(&*name);
        let made = matches!(
            &*name,
            ".git" | ".servers" | "target" | "out" | ".venv" | "__pycache__" | "Cargo.lock"
        ) || name.starts_with(".libtorch")
            || name.ends_with(".hds-tmp");
        let kind = entry.file_type()?;
        if made || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_of(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        check(folder.path())
            .expect("a readable folder")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_clean_checkout_passes() {
        let found = breaches_of(&[
            ("src/lib.rs", "//! Header.\n"),
            (
                "Cargo.toml",
                "[package]\nname = \"a\"\n[lints]\nworkspace = true\n",
            ),
            (
                "README.md",
                "```text\na/\n  src/  code\n    lib.rs\n```\n[code](src/lib.rs)\n",
            ),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let unfinished = format!("//! Header.\nfn f() {{ {}!() }}\n", "todo");
        let skipped = format!("//! Header.\n#[{}]\nfn f() {{}}\n", "ignore");
        let machine = format!("//! See {}/me/x.\n", "/home");
        let long = format!("//! Header.\n{}", "\n".repeat(600));
        let cases: [(&str, &str, &str); 9] = [
            (
                "src/a.rs",
                "fn f() {}\n",
                "src/a.rs:1: begin with a module header",
            ),
            ("src/a.rs", &unfinished, "src/a.rs:2:"),
            ("src/a.rs", &skipped, "src/a.rs:2:"),
            ("src/a.rs", &machine, "src/a.rs:1:"),
            ("src/a.rs", &long, "src/a.rs: 601 lines"),
            ("src/utils.rs", "//! Header.\n", "src/utils.rs: "),
            (
                "a/Cargo.toml",
                "[package]\nname = \"a\"\n",
                "a/Cargo.toml: ",
            ),
            (
                "README.md",
                "```text\na/\n├── src/   code\n```\n",
                "README.md:3: ",
            ),
            ("README.md", "[guide](docs/guide.md)\n", "README.md:1: "),
        ];
        for (name, text, want) in cases {
            let found = breaches_of(&[(name, text)]);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert!(
                found[0].starts_with(want),
                "{} does not start with {want}",
                found[0]
            );
        }
    }
}
