//! A trained model by its place: the folder of a run, one of its checkpoints, or a Hugging Face folder.
//!
//! In: a path from a user. Out: the folder of the model, and the run it is of, where it is of one. Always holds: a checkpoint of a
//! run is whole, every file as it was written; nothing is locked or changed, so that a run may go on meanwhile.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::checkpoint::{self, CheckpointError, Checkpoints};
use super::config::{ConfigError, RunConfig};
use super::contents::{CONTENTS_FILE, verify_of_run};

/// Why there is no model at a place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainedError {
    /// Nothing known is there.
    #[error(
        "no trained model in {path}: it is neither a run (config.toml, checkpoints/), nor a checkpoint of one \
         (contents.json), nor a Hugging Face folder (config.json)"
    )]
    Nothing {
        /// The place.
        path: PathBuf,
    },
    /// A run without a checkpoint.
    #[error(
        "run {path} has no checkpoint yet; one is written every checkpoint.interval_steps steps and at its end"
    )]
    NoCheckpoint {
        /// The run.
        path: PathBuf,
    },
    /// A step without a checkpoint.
    #[error("run {path} has no checkpoint of step {step}; it has those of {known}")]
    NoStep {
        /// The run.
        path: PathBuf,
        /// The step.
        step: u64,
        /// The steps there are.
        known: String,
    },
    /// A step of something that is no run.
    #[error("--step chooses a checkpoint of a run, and {path} is none")]
    StepOfNoRun {
        /// The place.
        path: PathBuf,
    },
    /// A damaged checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Where a trained model is, and what is known of it.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Folder with `config.json` and weights.
    pub model: PathBuf,
    /// Steps it was trained for, where it is a checkpoint.
    pub step: Option<u64>,
    /// The folder of its run.
    pub run: Option<PathBuf>,
    /// The configuration of its run.
    pub config: Option<RunConfig>,
    /// Newer checkpoints that were passed over, and why.
    pub damaged: Vec<String>,
}

impl Trained {
    /// Finds the model; of a run the newest whole checkpoint, or that of `step`.
    ///
    /// # Errors
    /// If there is none, or the one asked for is damaged.
    pub fn find(path: &Path, step: Option<u64>) -> Result<Self, TrainedError> {
        let is_run = path.join("checkpoints").is_dir() || path.join("config.toml").is_file();
        if is_run {
            return Self::of_run(path, step);
        }
        if step.is_some() {
            return Err(TrainedError::StepOfNoRun {
                path: path.to_owned(),
            });
        }
        if path.join(CONTENTS_FILE).is_file() {
            verify_of_run(path)?;
            // A checkpoint that was moved away from its run is a model all the same.
            let run = std::path::absolute(path)
                .ok()
                .and_then(|path| Some(path.parent()?.parent()?.to_owned()))
                .filter(|run| run.join("config.toml").is_file());
            return Self::of_checkpoint(path.to_owned(), run, Vec::new());
        }
        if path.join("config.json").is_file() {
            return Ok(Self {
                model: path.to_owned(),
                step: None,
                run: None,
                config: None,
                damaged: Vec::new(),
            });
        }
        Err(TrainedError::Nothing {
            path: path.to_owned(),
        })
    }

    fn of_run(run: &Path, step: Option<u64>) -> Result<Self, TrainedError> {
        let checkpoints = Checkpoints::of_run(run.join("checkpoints"), 1);
        let (found, damaged) = match step {
            Some(step) => {
                let Some(found) = checkpoints.at(step)? else {
                    let known = checkpoints.steps()?;
                    let known: Vec<String> = known.iter().map(u64::to_string).collect();
                    return Err(TrainedError::NoStep {
                        path: run.to_owned(),
                        step,
                        known: match known.is_empty() {
                            true => "none".to_owned(),
                            false => known.join(", "),
                        },
                    });
                };
                (Some(found), Vec::new())
            }
            None => checkpoints.newest()?,
        };
        let Some(found) = found else {
            return Err(match damaged.into_iter().next() {
                Some(error) => error.into(),
                None => TrainedError::NoCheckpoint {
                    path: run.to_owned(),
                },
            });
        };
        let damaged = damaged.iter().map(ToString::to_string).collect();
        Self::of_checkpoint(found, Some(run.to_owned()), damaged)
    }

    fn of_checkpoint(
        checkpoint: PathBuf,
        run: Option<PathBuf>,
        damaged: Vec<String>,
    ) -> Result<Self, TrainedError> {
        let config = run
            .as_ref()
            .map(|run| RunConfig::load(&run.join("config.toml"), &[]))
            .transpose()?;
        Ok(Self {
            model: checkpoint.join("model"),
            step: checkpoint::step_of(&checkpoint),
            run,
            config,
            damaged,
        })
    }
}
