//! The files of a run, which one process writes: rank 0 where there are several.
//!
//! In: a folder, and records. Out: `config.toml`, the logs, `events.jsonl`; and where a run goes on. Always holds: the
//! folder is locked; logs are cut back to a checkpoint only once both are known to be this run's.

use std::path::{Path, PathBuf};

use hds::weight_log::{Header, WeightLogWriter};

use super::checkpoint::Checkpoints;
use super::config::RunConfig;
use super::error::RunError;
use super::folder::RunFolder;
use super::metrics::MetricsLog;
use super::setup;
use super::state::RunState;
use super::tensorboard::EventLog;
use super::trainer::Start;
use crate::distributed::{Group, GroupError};

/// A folder that may be written to, and where its run goes on.
pub struct Opened {
    folder: RunFolder,
    checkpoints: Checkpoints,
    resumed: Option<PathBuf>,
}

impl Opened {
    /// Takes the folder's lock and finds the newest whole checkpoint.
    ///
    /// # Errors
    /// If the folder is in use, or of a run that is not to be gone on with or has no whole checkpoint left.
    pub fn open(config: &RunConfig, out: &Path, start: Start) -> Result<Self, RunError> {
        let folder = RunFolder::open(out)?;
        let used = folder.used();
        if let (Start::New, Some(path)) = (start, &used) {
            return Err(RunError::Used { path: path.clone() });
        }
        let checkpoints = Checkpoints::of_run(folder.checkpoints(), config.checkpoint.keep)
            .and_every(config.checkpoint.keep_every);
        let mut resumed = None;
        if used.is_some() {
            setup::check_same_run(&folder.config(), config)?;
            let (newest, damaged) = checkpoints.newest()?;
            match &newest {
                Some(_) => damaged.iter().for_each(|error| {
                    hds::note!("warning: {error}; using the checkpoint before it")
                }),
                // Starting over would overwrite the logs of what may be days of training.
                None => setup::refuse_damaged(damaged)?,
            }
            if let Some(checkpoint) = &newest {
                // The folder's own file may have been changed after it.
                let saved = checkpoint.join(CONFIG_FILE);
                if saved.exists() {
                    setup::check_same_run(&saved, config)?;
                }
                refuse_given_up(checkpoint, config, &checkpoints)?;
            }
            resumed = newest;
        }
        Ok(Self {
            folder,
            checkpoints,
            resumed,
        })
    }

    /// Begins the logs, or goes on with them where the checkpoint was written.
    ///
    /// # Errors
    /// If a log is not this run's, or a file cannot be written.
    pub fn begin(
        self,
        config: &RunConfig,
        header: &Header,
        saved: Option<&RunState>,
        ranks: usize,
    ) -> Result<Ledger, RunError> {
        let folder = self.folder;
        let (mut metrics, weight_log) = match saved {
            Some(saved) => {
                MetricsLog::check(&folder.metrics(), saved.metrics_bytes)?;
                let weight_log = WeightLogWriter::resume(&folder.weights(), header, saved.step)?;
                weight_log.expect_version(saved.step, saved.weights_version)?;
                let metrics = MetricsLog::resume(&folder.metrics(), saved.metrics_bytes)?;
                (metrics, weight_log)
            }
            None => {
                setup::write_config(&folder.config(), config)?;
                let metrics = MetricsLog::create(&folder.metrics())?;
                (metrics, WeightLogWriter::create(&folder.weights(), header)?)
            }
        };
        let step = saved.map_or(0, |saved| saved.step);
        EventLog::cut(&folder.tensorboard(), saved.map(|_| step))?;
        if config.run.tensorboard {
            metrics.also_to_tensorboard(&folder.tensorboard(), step, header.domains.names())?;
        }
        setup::note_event(&folder, step, saved.is_some(), ranks)?;
        Ok(Ledger {
            folder,
            checkpoints: self.checkpoints,
            metrics,
            weight_log,
        })
    }
}

/// Refuses to go on where the run has given up: the steps that failed would be followed by the same ones again.
fn refuse_given_up(
    checkpoint: &Path,
    config: &RunConfig,
    checkpoints: &Checkpoints,
) -> Result<(), RunError> {
    let saved = RunState::read(checkpoint)?;
    let ended = saved.step >= config.run.steps;
    let most = if ended { 1 } else { config.run.max_bad_steps };
    if saved.bad_steps < most {
        return Ok(());
    }
    let begun = saved.step.saturating_sub(saved.bad_steps);
    let earlier = checkpoints.newest_before(begun + 1)?.0;
    let mut advice = match earlier {
        Some(earlier) => format!(
            "remove {} to train again from {}, or",
            checkpoint.display(),
            earlier.display()
        ),
        None => "no checkpoint from before them is left:".to_owned(),
    };
    if !ended {
        advice += &format!(
            " go on over them with --set run.max_bad_steps above {}, or",
            saved.bad_steps
        );
    }
    advice += " start anew in another --out with a lower optimizer.learning_rate";
    Err(RunError::GaveUp {
        checkpoint: checkpoint.to_owned(),
        count: saved.bad_steps,
        step: saved.step,
        advice,
    })
}

/// The configuration that a checkpoint was written under, beside its state; a folder with a `config.toml` would be a run.
pub(super) const CONFIG_FILE: &str = "run.toml";

/// What is written while a run goes on.
pub struct Ledger {
    pub folder: RunFolder,
    pub checkpoints: Checkpoints,
    pub metrics: MetricsLog,
    pub weight_log: WeightLogWriter,
}

/// The checkpoint to go on from, as rank 0 has found it, by this rank's path.
///
/// # Errors
/// If it is not seen here, or a rank is lost.
pub fn resume_point(
    opened: Option<&Opened>,
    out: &Path,
    group: &Group,
) -> Result<Option<PathBuf>, RunError> {
    let found = opened.and_then(|opened| opened.resumed.clone());
    if group.is_alone() {
        return Ok(found);
    }
    let name = found.as_deref().and_then(Path::file_name);
    let name = name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let name = group.texts(&name)?.swap_remove(0);
    if name.is_empty() {
        return Ok(None);
    }
    let path = RunFolder::checkpoints_in(out).join(name);
    let seen = if RunState::path(&path).exists() {
        Ok(path)
    } else {
        Err(RunError::from(GroupError::NotShared {
            rank: group.rank(),
            path,
        }))
    };
    group.agree(seen).map(Some)
}
