//! Why a report cannot be made.

use std::io;
use std::path::PathBuf;

use hds::durable::FileError;
use thiserror::Error;

/// Why a report cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// There is no metrics log in the folder.
    #[error(
        "no run in {folder}: {path} is not there; give the folder named by `hds-train run --out`"
    )]
    Missing {
        /// The folder asked for.
        folder: PathBuf,
        /// The file that should be in it.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not begin as a metrics log does.
    #[error(
        "{path} is not a metrics log: line 1 should be a record with \"kind\":\"run\", but {reason}"
    )]
    NotMetrics {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// A line is not what the log's description says.
    #[error("{path}, line {line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// What is wrong, with the field.
        reason: String,
    },
    /// The page could not be written.
    #[error(transparent)]
    Write(#[from] FileError),
}
