//! Why a run cannot start, or ended early.

use std::path::PathBuf;

use hds::durable::FileError;
use hds::weight_log::WeightLogError;
use hds::{DomainError, MixtureError};
use hds_loader::{IndexError, LoaderError};
use thiserror::Error;

use super::checkpoint::CheckpointError;
use super::config::ConfigError;
use crate::distributed::GroupError;
use crate::evaluation::EvaluationError;
use crate::gradients::{GradientError, NormError};
use crate::model::ModelError;
use crate::optimizer::OptimizerError;
use crate::reward::RewardError;
use crate::scheduler::PolicyError;
use crate::tensors::TensorFileError;

/// Everything that can end a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The index or the loader.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The optimizer.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The choice of layers, or per-domain gradients.
    #[error(transparent)]
    Gradients(#[from] GradientError),
    /// Saved weight norms.
    #[error(transparent)]
    Norms(#[from] NormError),
    /// The rewards.
    #[error(transparent)]
    Reward(#[from] RewardError),
    /// Held-out text.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError<LoaderError>),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A file of tensors.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// No checkpoint is whole.
    #[error(
        "{newest}{}; no whole checkpoint is left to go on from: put one back, or start anew in another folder",
        older.iter().map(|error| format!("; {error}")).collect::<String>()
    )]
    AllDamaged {
        /// What is wrong with the newest.
        newest: CheckpointError,
        /// What is wrong with those before it.
        older: Vec<String>,
    },
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The weight log.
    #[error(transparent)]
    WeightLog(#[from] WeightLogError),
    /// A file operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// Domains of the index.
    #[error(transparent)]
    Domains(#[from] DomainError),
    /// The policy gave weights that are no mixture.
    #[error("policy {policy} gave unusable weights after step {step}: {source}")]
    Weights {
        /// Its name.
        policy: String,
        /// The step.
        step: u64,
        /// What is wrong.
        source: MixtureError,
    },
    /// Another process trains in the folder.
    #[error("another process is training in {path}; wait for it, or choose another --out")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run already.
    #[error("{path} is of a run already; go on with it by --resume, or choose another --out")]
    Used {
        /// What is there.
        path: PathBuf,
    },
    /// The folder of the run is gone, and with it the logs.
    #[error(
        "{path} was removed while the run went on; its logs are lost, so nothing can be saved to resume from"
    )]
    Gone {
        /// The file that is missing.
        path: PathBuf,
    },
    /// The folder holds another run than the one to resume.
    #[error(
        "cannot resume {path}: {key} is {got} there and {want} now; give it its value there (in config.toml or by --set), or \
         start another run in another --out"
    )]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// What differs.
        key: String,
        /// In the folder.
        got: String,
        /// In this configuration.
        want: String,
    },
    /// A checkpoint's `run.json`.
    #[error("{path}: {reason}")]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The device is not there.
    #[error("device {device:?}: {reason}")]
    Device {
        /// As configured.
        device: String,
        /// Why not.
        reason: String,
    },
    /// Loss or gradient stayed non-finite.
    #[error(
        "loss or gradient was not finite in {count} steps in a row, last at step {step} (loss {loss}); \
         the state before them is saved in {checkpoint}; lower optimizer.learning_rate or look at the data"
    )]
    NotFinite {
        /// How many.
        count: u64,
        /// The last of them.
        step: u64,
        /// Its loss.
        loss: f64,
        /// Where the state is.
        checkpoint: PathBuf,
    },
    /// The weights themselves are not finite.
    #[error(
        "after step {step} the model's weights are not finite, which no later step mends: nothing is saved of them ({}); lower \
         optimizer.learning_rate or look at the data",
        newest.as_ref().map_or("there is no checkpoint before it".to_owned(), |path| format!("the newest checkpoint is {}", path.display()))
    )]
    WeightsNotFinite {
        /// The last step.
        step: u64,
        /// The newest checkpoint of this run.
        newest: Option<PathBuf>,
    },
    /// The run has given up.
    #[error(
        "the run gave up with {checkpoint}: loss or gradient was not finite in the last {count} of its {step} steps, and the steps after them \
         would be the same; {advice}"
    )]
    GaveUp {
        /// Its newest checkpoint.
        checkpoint: PathBuf,
        /// Steps in a row.
        count: u64,
        /// Steps done.
        step: u64,
        /// What can be done.
        advice: String,
    },
    /// A run that was asked to end before there was anything to save.
    #[error("asked to end before the run had begun; nothing was changed")]
    Interrupted,
    /// The other ranks.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The tensor library failed.
    #[error("tensor library: {0}")]
    Tensor(#[from] tch::TchError),
    /// The system refused signal handlers or threads.
    #[error("cannot {action}: {source}")]
    System {
        /// What.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
