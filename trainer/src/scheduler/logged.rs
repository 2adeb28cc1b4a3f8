//! Replays the weights of another run from its weight log.
//!
//! In: a weight log of the same domains. Out: at every step the mixture that the log says was in
//! force. With the log of a run of the same seed and index the same batches come again, without the
//! agent. Reads the log line by line and holds one entry at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hds::weight_log::{Entry, WeightLogError, WeightLogReader};
use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, saved};
use crate::signals::Observation;

/// `[scheduler.log]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoggedConfig {
    /// The weight log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl LoggedConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        match self.file {
            Some(_) => Ok(()),
            None => Err(PolicyError::Config {
                key: "scheduler.log.file".into(),
                got: "missing".into(),
                want: "the path of a run's weight log".into(),
            }),
        }
    }
}

/// A log being read.
#[derive(Debug)]
pub(super) struct LoggedPolicy {
    path: PathBuf,
    reader: WeightLogReader,
    current: Vec<f64>,
    /// The first entry after those that are in `current`.
    ahead: Option<Entry>,
    step: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    step: u64,
    weights: Vec<f64>,
}

impl LoggedPolicy {
    pub(super) fn new(config: &LoggedConfig, run: &RunFacts<'_>) -> Result<Self, PolicyError> {
        let path = config.file.clone().unwrap_or_default();
        let failed = |e: WeightLogError| PolicyError::WeightLog {
            source: Box::new(e),
        };
        let mut reader = WeightLogReader::open(&path).map_err(failed)?;
        let theirs = &reader.header().domains;
        if theirs != run.domains {
            return Err(PolicyError::State {
                path,
                field: "domains".into(),
                got: theirs.names().join(", "),
                want: run.domains.names().join(", "),
            });
        }
        let first = reader.next_entry().map_err(failed)?;
        let ahead = reader.next_entry().map_err(failed)?;
        match first {
            Some(first) if first.step == 0 => Ok(Self {
                path,
                reader,
                current: first.weights.mixture.weights().to_vec(),
                ahead,
                step: 0,
            }),
            other => Err(PolicyError::State {
                path,
                field: "first step".into(),
                got: other.map_or("none".into(), |entry| entry.step.to_string()),
                want: "a log from step 0 on".into(),
            }),
        }
    }

    /// Reads on to what was in force at `step`; never back.
    fn seek(&mut self, step: u64) -> Result<(), PolicyError> {
        let failed = |e: WeightLogError| PolicyError::WeightLog {
            source: Box::new(e),
        };
        while self.ahead.as_ref().is_some_and(|entry| entry.step <= step) {
            let next = self.reader.next_entry().map_err(failed)?;
            if let Some(entry) = std::mem::replace(&mut self.ahead, next) {
                self.current = entry.weights.mixture.weights().to_vec();
            }
        }
        if self.ahead.is_none() {
            self.reader.expect_known(step).map_err(failed)?;
        }
        self.step = step;
        Ok(())
    }
}

impl Policy for LoggedPolicy {
    fn name(&self) -> &'static str {
        "log"
    }

    fn initial(&mut self) -> Vec<f64> {
        self.current.clone()
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        self.seek(observation.signals.step + 1)?;
        Ok(Decision {
            weights: self.current.clone(),
            diagnostics: BTreeMap::new(),
        })
    }

    fn save(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state = State {
            step: self.step,
            weights: self.current.clone(),
        };
        saved::write(folder, self.name(), &state)
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state: State = saved::read(folder, self.name())?;
        self.seek(state.step)?;
        if self.current != state.weights {
            return Err(PolicyError::State {
                path: self.path.clone(),
                field: format!("weights at step {}", state.step),
                got: format!("{:?}", self.current),
                want: format!("{:?}", state.weights),
            });
        }
        Ok(())
    }

    fn parameters(&self) -> u64 {
        0
    }

    fn wants_rewards(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{domains, facts, observation};
    use super::*;
    use hds::weight_log::{Header, WeightLogWriter};
    use hds::{Mixture, VersionedMixture};

    fn log(path: &Path, first: u64) {
        let set = domains(2);
        let header = Header::new(set.clone(), "f00d".into(), 7);
        let mut writer = WeightLogWriter::create(path, &header).unwrap();
        for (version, step) in [(1, first), (2, 3), (3, 4), (4, 9)] {
            let weight = version as f64 / 10.0;
            let mixture = Mixture::new(vec![weight, 1.0 - weight], &set).unwrap();
            writer
                .record(step, &VersionedMixture { version, mixture })
                .unwrap();
        }
        writer.sync().unwrap();
    }

    fn open(path: &Path, k: usize) -> Result<LoggedPolicy, PolicyError> {
        let set = domains(k);
        LoggedPolicy::new(
            &LoggedConfig {
                file: Some(path.to_owned()),
            },
            &facts(&set, 100),
        )
    }

    #[test]
    fn every_step_has_the_weights_that_governed_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.jsonl");
        log(&path, 0);
        let mut policy = open(&path, 2).unwrap();
        let mut first = vec![policy.initial()[0]];
        for step in 0..11 {
            if step == 6 {
                policy.save(folder.path()).unwrap();
                policy = open(&path, 2).unwrap();
                policy.restore(folder.path()).unwrap();
            }
            first.push(
                policy
                    .next(&observation(2, step, &[0.5; 2]))
                    .unwrap()
                    .weights[0],
            );
        }
        assert_eq!(
            first,
            [0.1, 0.1, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.4, 0.4]
        );
    }

    #[test]
    fn a_log_that_is_not_of_this_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.jsonl");
        assert!(
            open(&path, 2)
                .unwrap_err()
                .to_string()
                .contains("weights.jsonl")
        );
        log(&path, 0);
        assert!(
            open(&path, 3)
                .unwrap_err()
                .to_string()
                .contains("domains is d0, d1")
        );
        log(&path, 1);
        assert!(
            open(&path, 2)
                .unwrap_err()
                .to_string()
                .contains("first step is 1")
        );
    }
}
