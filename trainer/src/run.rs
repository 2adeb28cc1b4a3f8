//! A training run: the one place that joins loader, model, signals, reward and scheduler.
//!
//! In: a [`RunConfig`] and a run folder. Out: in that folder `config.toml`, `metrics.jsonl`,
//! `weights.jsonl`, `events.jsonl` and `checkpoints/`.
//! Always holds: step t reads the weights in force, trains, and publishes the weights of step t+1;
//! a run resumed from a checkpoint writes the same metrics, but for `timing`, as one never stopped.

mod checkpoint;
mod config;
mod data_section;
#[cfg(test)]
mod documented;
mod error;
mod folder;
mod held_out;
mod interrupt;
mod metrics;
mod optimizer_section;
mod overrides;
mod progress;
mod setup;
mod state;
mod step;
mod trainer;

pub use checkpoint::{CheckpointError, Checkpoints};
pub use config::{
    CheckpointSection, ConfigError, EvaluationSection, RunConfig, RunSection, SignalsSection,
};
pub use data_section::{BaseWeights, DataSection, NamedWeights};
pub use error::RunError;
pub use folder::RunFolder;
pub use interrupt::Interrupt;
pub use metrics::{EvaluationTiming, StepTiming};
pub use optimizer_section::{OptimizerSection, ScheduleName};
pub use setup::check_same_run;
pub use trainer::{Outcome, Start, Trainer};
