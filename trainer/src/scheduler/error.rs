//! Why a policy cannot be made, fed, saved or restored.

use std::path::PathBuf;

use hds::weight_log::WeightLogError;
use hds::{DomainError, MixtureError};
use thiserror::Error;

/// Why a policy cannot be made, fed, saved or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A configuration value out of range.
    #[error("{key} is {got}, must be {want}")]
    Config {
        /// Dotted key.
        key: String,
        /// What it is.
        got: String,
        /// What it may be.
        want: String,
    },
    /// A weight for something that is no domain.
    #[error("{key}: {source}")]
    Domain {
        /// Dotted key.
        key: &'static str,
        /// Which names there are.
        source: DomainError,
    },
    /// The Pile's weights, asked for another corpus.
    #[error("The Pile has no domain {domain:?}, so no weight for it; give weights by name instead")]
    NotOfThePile {
        /// The domain that is none of its 22.
        domain: String,
    },
    /// Weights that are no mixture of the run's domains.
    #[error("{key}: {source}")]
    Weights {
        /// Where they come from.
        key: &'static str,
        /// What is wrong.
        source: MixtureError,
    },
    /// A vector of another length than the run's.
    #[error("{field} has {got} entries, the run has {want}")]
    Length {
        /// Which vector.
        field: &'static str,
        /// Its length.
        got: usize,
        /// The run's.
        want: usize,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A saved state that is not this policy's.
    #[error(
        "{path}: {field} is {got}, this run has {want}; resume with the configuration it was saved under"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What differs.
        field: String,
        /// What the file has.
        got: String,
        /// What was expected.
        want: String,
    },
    /// Networks beyond all reason.
    #[error(
        "{key}: its networks have {parameters} parameters and take {megabytes} MB with their optimizer; at most {most} MB are given to a run"
    )]
    TooLarge {
        /// Section of the policy.
        key: String,
        /// Of all networks.
        parameters: u64,
        /// With gradients and moments.
        megabytes: u64,
        /// Given at most.
        most: u64,
    },
    /// A weight log that is not this run's.
    #[error(
        "scheduler.log.file {path} is not the log of a run like this one: {reason}; give the log of one, or take these weights all the \
         same by scheduler.log.strict = false"
    )]
    OtherLog {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// A weight log that cannot be replayed.
    #[error("scheduler.log.file: {source}")]
    WeightLog {
        /// What is wrong.
        source: Box<WeightLogError>,
    },
}
