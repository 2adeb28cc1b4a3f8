//! What can be missing on a machine, with the command that helps.

use std::io;
use std::path::PathBuf;

/// Why libtorch could not be made available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// PyTorch publishes no wheel with a usable libtorch for this platform.
    #[error(
        "no pinned libtorch for {os} on {arch}: setup covers Linux with glibc on x86_64 and aarch64.\n\
         Get libtorch 2.11.0 yourself (https://pytorch.org/get-started/locally, or `pip install torch==2.11.0`)\n\
         and run again with LIBTORCH=/path/to/libtorch, the folder that holds lib/ and include/"
    )]
    Platform {
        /// Operating system and C library.
        os: String,
        /// Processor architecture.
        arch: &'static str,
    },
    /// The C library is older than the wheel's.
    #[error(
        "glibc {got} is too old: libtorch 2.11.0 needs 2.28 or newer (Debian 10, Ubuntu 20.04, RHEL 8 or newer)"
    )]
    Glibc {
        /// Version found.
        got: String,
    },
    /// No working C++17 compiler.
    #[error(
        "no C++ compiler that accepts -std=c++17: tried `{tried}`{detail}\n\
         Debian/Ubuntu: sudo apt install g++    Fedora: sudo dnf install gcc-c++    macOS: xcode-select --install\n\
         (or name one in the CXX environment variable)"
    )]
    Compiler {
        /// Command tried.
        tried: String,
        /// What it said.
        detail: String,
    },
    /// No Python 3.
    #[error(
        "no python3 on PATH; it is needed once, to download libtorch.\n\
         Debian/Ubuntu: sudo apt install python3 python3-venv    Fedora: sudo dnf install python3 python3-pip\n\
         (or set LIBTORCH to a libtorch 2.11.0 that you have)"
    )]
    Python,
    /// Python 3 without pip, and no way to make a virtual environment with one.
    #[error(
        "python3 ({version}) has no usable pip, and `python3 -m venv` could not make one:\n{detail}\n\
         Debian/Ubuntu: sudo apt install python3-venv (or python3-pip)    Fedora: sudo dnf install python3-pip\n\
         (or set LIBTORCH to a libtorch 2.11.0 that you have)"
    )]
    Pip {
        /// Python's version.
        version: String,
        /// What venv said.
        detail: String,
    },
    /// Not enough room.
    #[error(
        "{path}: {free_mb} MB free, {need_mb} MB are needed to unpack libtorch; free some space and run `cargo xtask setup` again"
    )]
    Disk {
        /// Folder on the full file system.
        path: PathBuf,
        /// Megabytes free.
        free_mb: u64,
        /// Megabytes needed.
        need_mb: u64,
    },
    /// The packages that came are not the pinned ones.
    #[error(
        "pip received a package whose SHA-256 is not the one in tools/libtorch-*.txt; nothing was installed.\n\
         A mirror or proxy may have altered it: clear its copy with `python3 -m pip cache purge` and run `cargo xtask setup` again"
    )]
    Hash,
    /// The package index cannot be reached.
    #[error(
        "pip could not get the packages from the package index (see above); nothing was installed.\n\
         Check the network, or the proxy and index in `python3 -m pip config list`, and run `cargo xtask setup` again"
    )]
    Network,
    /// pip failed in another way.
    #[error(
        "pip ended with {status} (see above); nothing was installed. Run `cargo xtask setup` again once that is resolved"
    )]
    PipFailed {
        /// Its exit status.
        status: String,
    },
    /// pip reported success but files are missing.
    #[error("{path}: {reason}; nothing was installed. Run `cargo xtask setup` again")]
    Incomplete {
        /// Folder that was unpacked.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The user's `LIBTORCH` is not a libtorch.
    #[error(
        "LIBTORCH={path} has no {missing}; point it to the folder with lib/ and include/ of libtorch 2.11.0, or unset it to have one installed"
    )]
    OwnLibtorch {
        /// Value of the variable.
        path: PathBuf,
        /// What was looked for.
        missing: &'static str,
    },
    /// A file operation failed.
    #[error("{path}: cannot {doing}: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}
