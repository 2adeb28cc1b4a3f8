//! Where the checkout's folders are.
//!
//! In: the environment that cargo gives a program it runs. Out: paths. Nothing is created here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A checkout of this workspace.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// Finds the checkout that this program was started in: cargo names it at run time, and the place of
    /// the build stands in where the program is started by hand.
    #[must_use]
    pub fn locate() -> Self {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.join("libtorch-cpu.txt").is_file())
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        Self::at(manifest.parent().unwrap_or(&manifest))
    }

    /// The checkout at `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    /// The workspace root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that holds the unpacked packages; libtorch proper is `torch/` in it.
    #[must_use]
    pub fn packages(&self) -> PathBuf {
        self.root.join(".libtorch")
    }

    /// The value that `.cargo/config.toml` gives `LIBTORCH` unless the user has set it.
    #[must_use]
    pub fn default_libtorch(&self) -> PathBuf {
        self.packages().join("torch")
    }

    /// `path` relative to the checkout where it lies inside, for messages.
    #[must_use]
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// The cargo that started this program, or the one on `PATH`.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
