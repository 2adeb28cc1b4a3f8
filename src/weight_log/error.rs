//! What can go wrong with a weight log.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::mixture::MixtureError;

/// Why a weight log cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightLogError {
    /// The system refused.
    #[error("weight log {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two writers at once would cut each other's entries off.
    #[error(
        "weight log {path} is being written by another run or dataset; give each a log of its own, or end the other first"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A line is not what the format says.
    #[error("weight log {path}, line {line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Weights that are no mixture.
    #[error("weight log {path}, line {line}: {source}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// What is wrong.
        source: MixtureError,
    },
    /// Entries are missing at the end.
    #[error(
        "weight log {path} has lost entries: before step {step} the next after version {got} is missing, the run was at {want}; \
         put the whole file back"
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// The step to go on with.
        step: u64,
        /// The last version it has.
        got: u64,
        /// The version that governs that step.
        want: u64,
    },
    /// The entry that governed the batch before has other weights.
    #[error(
        "weight log {path} is of another run: its version {version}, before step {step}, has other weights than this run's; give this run's own log, \
         or a new one"
    )]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The step to go on with.
        step: u64,
        /// The version.
        version: u64,
    },
    /// The last line is cut short.
    #[error(
        "weight log {path}, line {line}: cut short, so the weights after batch {last} are not known (batch {step} was asked for); put the whole \
         file back, or delete that line to go on under the weights before it"
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// The batch that the last whole entry begins with.
        last: u64,
        /// The batch asked for.
        step: u64,
    },
    /// The file that is being written is not where it was.
    #[error(
        "weight log {path} was moved, removed, replaced or cut short while this run writes it; put it back, or begin another run"
    )]
    Moved {
        /// The file.
        path: PathBuf,
    },
    /// The log is of batches that were drawn otherwise.
    #[error(
        "weight log {path} is of batches with {what} {got}, here it is {want}: with the same weights they would be other batches"
    )]
    OtherStream {
        /// The file.
        path: PathBuf,
        /// What differs, in words.
        what: String,
        /// What the log says.
        got: String,
        /// What was expected.
        want: String,
    },
    /// The log belongs to something else.
    #[error("weight log {path} is of another {what}: it has {got}, expected {want}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What differs ("index", "seed", "domains", "format version").
        what: &'static str,
        /// What the log says.
        got: String,
        /// What was expected.
        want: String,
    },
}
