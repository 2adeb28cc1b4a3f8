//! A training run: the one place that joins loader, model, signals, reward and scheduler.
//!
//! In: a [`RunConfig`] and a run folder. Out: in that folder `config.toml`, `metrics.jsonl`,
//! `weights.jsonl`, `events.jsonl` and `checkpoints/`.
//! Always holds: step t reads the weights in force, trains, and publishes the weights of step t+1;
//! a run resumed from a checkpoint writes the same metrics, but for `timing`, as one never stopped.

mod alike;
mod checkpoint;
mod config;
mod contents;
mod data_section;
#[cfg(test)]
mod documented;
mod error;
mod evaluate;
mod evaluate_table;
mod export;
mod folder;
mod held_out;
mod interrupt;
mod ledger;
mod metrics;
mod optimizer_file;
mod optimizer_section;
mod overrides;
mod precision;
mod preset_values;
mod progress;
mod setup;
mod state;
mod step;
mod target;
mod tensorboard;
mod trained;
mod trainer;

pub use checkpoint::{CheckpointError, Checkpoints};
pub use config::{
    CheckpointSection, ConfigError, EvaluationSection, RunConfig, RunSection, SignalsSection,
};
pub use data_section::{Attention, BaseWeights, CountedLosses, DataSection, NamedWeights};
pub use error::RunError;
pub use evaluate::{
    DomainEvaluation, EvaluateError, EvaluateOptions, Evaluation, LoadedModel, evaluate_held_out,
};
pub use export::{ExportError, StoredAs, export};
pub use folder::RunFolder;
pub use interrupt::Interrupt;
pub use metrics::{EvaluationTiming, StepTiming};
pub use optimizer_section::{OptimizerSection, ScheduleName};
pub use precision::{LossScale, Precision};
pub use setup::check_same_run;
pub use target::{NamedTarget, Target};
pub use trained::{Trained, TrainedError};
pub use trainer::{Outcome, Start, Trainer};
