//! Why the demo ended early.

use std::io;
use std::path::{Path, PathBuf};

use crate::corpus::CorpusError;
use crate::setup::SetupError;

/// Why the demo ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// libtorch is missing.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// No corpus could be made.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A program could not be started.
    #[error(
        "{program} cannot be started: {source}; `cargo build --release --workspace --bins` builds it"
    )]
    Start {
        /// The program.
        program: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A program failed.
    #[error(
        "{program} ended with {status} (see above); what is done is kept, `cargo xtask demo` goes on from there"
    )]
    Failed {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: String,
    },
    /// The user stopped the training.
    #[error("stopped; `cargo xtask demo` goes on from the last checkpoint")]
    Stopped,
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

impl DemoError {
    /// Adds what was tried on `path` to the system's answer.
    pub(super) fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            path,
            doing,
            source,
        }
    }
}
