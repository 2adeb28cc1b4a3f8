//! Why a corpus could not be made.

use std::io;
use std::path::{Path, PathBuf};

/// Why a corpus could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// cargo did not name the crates.
    #[error(
        "cargo cannot list the crates of this workspace, whose sources the corpus is made of:\n{said}\nRun `cargo fetch` with a network and try again"
    )]
    Metadata {
        /// What cargo said.
        said: String,
    },
    /// The output folder holds something that is not a corpus.
    #[error(
        "{path}: holds {stranger}, which no corpus has; name an empty or new folder with --out"
    )]
    NotACorpus {
        /// The output folder.
        path: PathBuf,
        /// A file in it.
        stranger: String,
    },
    /// Next to no text was found.
    #[error(
        "text for only {domains} domains was found, at least 2 are needed; build first (`cargo build --release`) and run again"
    )]
    TooLittle {
        /// Domains with a document.
        domains: usize,
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

impl CorpusError {
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
