//! Replays the weights of another run from its weight log.
//!
//! In: a weight log of the same domains. Out: at every step the mixture that the log says was in
//! force. With the log of a run of the same seed and index the same batches come again, without the
//! agent. Reads the log line by line and holds one entry at a time. Always holds, unless asked otherwise: the whole log is looked
//! through before the first step, and refused where it cannot be that of a run of this seed, index and length.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hds::weight_log::{Entry, WeightLogError, WeightLogReader};
use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, saved};
use crate::signals::Observation;

/// `[scheduler.log]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoggedConfig {
    /// The weight log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Whether it must be the whole log of a run of this seed, index and number of steps.
    pub strict: bool,
}

impl Default for LoggedConfig {
    fn default() -> Self {
        Self {
            file: None,
            strict: true,
        }
    }
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

/// What is taken of the configuration beside a log.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Neighbour {
    run: NeighbourRun,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NeighbourRun {
    steps: Option<u64>,
}

/// Looks through a log before anything is trained by it.
///
/// A log has an entry only where weights change, so that its end alone does not say how long it is. It is too short where its run
/// had fewer steps, as the `config.toml` beside it tells, or where more steps follow its last entry than ever lay between two.
fn check(path: &Path, run: &RunFacts<'_>) -> Result<(), PolicyError> {
    let failed = |e: WeightLogError| PolicyError::WeightLog {
        source: Box::new(e),
    };
    let wrong = |reason: String| PolicyError::OtherLog {
        path: path.to_owned(),
        reason,
    };
    let mut reader = WeightLogReader::open(path).map_err(failed)?;
    if let (Some(index), header) = (&run.index, reader.header()) {
        if header.index != *index {
            return Err(wrong(format!(
                "its run read the index {}, this one reads {index}",
                header.index
            )));
        }
        if header.seed != run.seed {
            return Err(wrong(format!(
                "its run had the seed {}, this one has {}",
                header.seed, run.seed
            )));
        }
    }
    let neighbour = path.with_file_name("config.toml");
    let neighbour = std::fs::read_to_string(neighbour).unwrap_or_default();
    let neighbour: Neighbour = toml::from_str(&neighbour).unwrap_or_default();
    let total = run.total_steps;
    if let Some(steps) = neighbour.run.steps.filter(|&steps| steps < total) {
        return Err(wrong(format!(
            "its run had {steps} steps, this one has {total}"
        )));
    }
    let (mut last, mut longest): (Option<u64>, u64) = (None, 0);
    while let Some(entry) = reader.next_entry().map_err(failed)? {
        if let Some(step) = last {
            longest = longest.max(entry.step - step);
        }
        last = Some(entry.step);
    }
    reader
        .expect_known(total.saturating_sub(1))
        .map_err(failed)?;
    match last {
        Some(step) if longest > 0 && total.saturating_sub(1) > step + longest => {
            Err(wrong(format!(
                "it ends with step {step}, after {longest} steps at most from one change to the next, and this run has {total} steps"
            )))
        }
        _ => Ok(()),
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
        if config.strict {
            check(&path, run)?;
        }
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
        open_for(path, k, 12, true)
    }

    /// For a run of seed 7 on the index `f00d`.
    fn open_for(
        path: &Path,
        k: usize,
        steps: u64,
        strict: bool,
    ) -> Result<LoggedPolicy, PolicyError> {
        let set = domains(k);
        let config = LoggedConfig {
            file: Some(path.to_owned()),
            strict,
        };
        let mut facts = facts(&set, steps);
        facts.index = Some("f00d".to_owned());
        LoggedPolicy::new(&config, &facts)
    }

    #[test]
    fn a_log_too_short_with_gaps_or_of_another_run_is_refused_unless_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.jsonl");
        log(&path, 0);
        let whole = std::fs::read_to_string(&path).unwrap();
        // As if made by hand, so that it may be changed.
        let bare = |line: &str| match line.find(",\"sum\"") {
            Some(at) => line[..at].to_owned() + "}\n",
            None => line.to_owned() + "\n",
        };
        let whole: String = whole.lines().map(bare).collect();
        std::fs::write(&path, &whole).unwrap();
        // Between entries of steps 4 and 9 lie five steps, so the last weights may have held for as many.
        open_for(&path, 2, 15, true).unwrap();
        let neighbour = "[run]\nsteps = 11\n";
        let cases = [
            (whole.clone(), "", 16, "ends with step 9"),
            (whole.clone(), neighbour, 12, "had 11 steps"),
            (whole.replace("f00d", "beef"), "", 12, "index beef"),
            (whole.replace("\"seed\":7", "\"seed\":8"), "", 12, "seed 8"),
        ];
        let config = folder.path().join("config.toml");
        for (text, beside, steps, words) in cases {
            std::fs::write(&path, text).unwrap();
            std::fs::write(&config, beside).unwrap();
            let error = open_for(&path, 2, steps, true).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
            assert!(error.contains("scheduler.log.strict"), "{error}");
            open_for(&path, 2, steps, false).unwrap();
        }
        // Cut short: nobody knows what governed the steps after the last whole entry.
        std::fs::write(&config, "").unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let error = open_for(&path, 2, 12, true).unwrap_err().to_string();
        assert!(error.contains("cut short"), "{error}");
        // A line that went missing in the middle.
        let kept = whole.lines().filter(|l| !l.contains("\"version\":3"));
        std::fs::write(&path, kept.fold(String::new(), |all, l| all + l + "\n")).unwrap();
        let error = open_for(&path, 2, 12, true).unwrap_err().to_string();
        assert!(error.contains("lines are missing"), "{error}");
        // Weights that never change may hold for ever.
        let constant: Vec<&str> = whole.lines().take(2).collect();
        std::fs::write(&path, constant.join("\n") + "\n").unwrap();
        open_for(&path, 2, 1000, true).unwrap();
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
