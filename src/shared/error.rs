//! What can go wrong with weights shared across processes.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::mixture::MixtureError;

/// Why shared weights cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedWeightsError {
    /// The system refused.
    #[error("shared weights: cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what readers of these domains can use.
    #[error("shared weights: {path} {reason}; a writer of the same domains must make it")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process writes the file.
    #[error("shared weights: another writer has {path} open; one writer is the rule")]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file holds weights that are no mixture.
    #[error("shared weights: version {version} in {path}: {source}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// Version of the weights.
        version: u64,
        /// What is wrong.
        source: MixtureError,
    },
    /// The reader is so far behind that the weights of its batch were overwritten.
    #[error(
        "shared weights: {path} has no weights for batch {step} any more; the reader is more than {} changes of \
         weights behind",
        super::SLOTS
    )]
    Behind {
        /// The file.
        path: PathBuf,
        /// The batch.
        step: u64,
    },
    /// The weights begin with a later batch.
    #[error(
        "shared weights: {path} has no weights for batch {step}: they begin with batch {first}"
    )]
    Before {
        /// The file.
        path: PathBuf,
        /// The batch asked for.
        step: u64,
        /// The first batch with weights.
        first: u64,
    },
    /// The file that is read is not the one under its name any more.
    #[error(
        "shared weights: another writer has made {path} anew since it was opened here; readers open it again, at the batch reached, to go on under its weights"
    )]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The batch may not be drawn yet.
    #[error("batch {step} waits for its weights: only batches below {horizon} may be drawn so far")]
    Horizon {
        /// The batch.
        step: u64,
        /// First batch that may not be drawn.
        horizon: u64,
    },
    /// The writing process ended while others wait for it.
    #[error("shared weights: process {process}, which writes {path}, has ended")]
    WriterGone {
        /// The file.
        path: PathBuf,
        /// Number of the process.
        process: u64,
    },
}

impl SharedWeightsError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
