//! One run of one client: its policy, its rewards, its place, and their checkpoints.
//!
//! In: what the client says of the run and of each step. Out: weights; checkpoints in the run's folder.
//! Always holds: a request that is refused changes nothing; a step sent again gets the same answer; a
//! run is open once at most, in this process and in any other on the same state folder.
//!
//! Checkpoints that the client asks for, those that come by interval and the one written when a session ends unasked are kept
//! apart, so that none of the latter pushes out what a client's own checkpoint belongs to.

use std::fs;
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};
use hds::{DomainSet, Mixture};
use serde::{Deserialize, Serialize};

use super::error::{SessionError, invalid};
use super::parts::{Parts, make};
use super::protocol::{Facts, Open, PROTOCOL, Reply, Start, Step};
use super::registry::{Sessions, Taken};
use super::signals;
use crate::reward::RewardModel;
use crate::run::Checkpoints;
use crate::scheduler::{Policy, Troubles};
use crate::signals::Observation;

const STATE_FILE: &str = "agent.json";
const STATE_VERSION: u32 = 1;
/// Checkpoints kept of those that were asked for, and of those that came by interval.
const KEEP: usize = 5;

/// How far the sum of weights that a client sends may be from 1: single precision over thousands of domains.
const SENT_SUM_TOLERANCE: f64 = 1e-3;

/// What a checkpoint holds beside the policy's folder.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedState {
    version: u32,
    facts: Facts,
    step: u64,
    weights: Vec<f64>,
    weights_version: u64,
    reward: serde_json::Value,
}

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The client asked.
    Asked,
    /// It was due.
    ByInterval,
    /// The session ended.
    Unasked,
}

/// A run that is open.
pub struct Session {
    taken: Taken,
    facts: Facts,
    domains: DomainSet,
    policy: Box<dyn Policy>,
    reward: RewardModel,
    step: u64,
    weights: Vec<f64>,
    version: u64,
    /// The last step and its answer.
    last: Option<(Step, Reply)>,
    asked: Checkpoints,
    by_interval: Checkpoints,
    unasked: Checkpoints,
    interval: u64,
    saved: Option<u64>,
    /// The checkpoint that was asked for last, and after which step.
    asked_last: Option<(u64, PathBuf)>,
    notes: Vec<String>,
    troubles: Troubles,
}

impl Session {
    /// Opens a run.
    ///
    /// # Errors
    /// If the request is not valid, the run is open elsewhere, or the state folder does not fit.
    pub fn open(sessions: &Sessions, open: &Open) -> Result<Self, SessionError> {
        if open.protocol != PROTOCOL {
            return Err(SessionError::Protocol { got: open.protocol });
        }
        check_name(&open.run)?;
        if open.at_step.is_some() && open.start == Start::New {
            return Err(invalid("at_step", "goes with start = resume only"));
        }
        let Parts {
            domains,
            policy,
            reward,
            notes,
        } = make(&open.facts)?;
        let taken = Taken::new(sessions, &open.run)?;
        let folder = sessions.folder.join(&open.run);
        let mut session = Self {
            asked: Checkpoints::new(folder.join("checkpoints"), KEEP),
            by_interval: Checkpoints::new(folder.join("interval"), KEEP),
            unasked: Checkpoints::new(folder.join("ended"), 1),
            taken,
            facts: open.facts.clone(),
            domains,
            policy,
            reward,
            step: 0,
            weights: Vec::new(),
            version: 0,
            last: None,
            interval: open.checkpoint_interval_steps,
            saved: None,
            asked_last: None,
            notes,
            troubles: Troubles::default(),
        };
        match session.find(open)? {
            Some(checkpoint) => session.restore(&checkpoint)?,
            None => {
                session.weights = session.policy.initial();
                session.saved = Some(0);
            }
        }
        Ok(session)
    }

    /// What the client is told of it.
    pub fn opened(&self) -> Reply {
        Reply::Opened {
            policy: self.policy.name().to_owned(),
            parameters: self.policy.parameters(),
            step: self.step,
            weights: self.weights.clone(),
            version: self.version,
            notes: self.notes.clone(),
        }
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Name of the run.
    pub fn run(&self) -> &str {
        &self.taken.run
    }

    /// Takes in what a step showed; gives the weights of the next.
    ///
    /// # Errors
    /// If it is not the next step or not of this run's shape; nothing has changed then. A due checkpoint that cannot be written is no
    /// error of the step: the answer's notes tell of it.
    pub fn next(&mut self, step: Step) -> Result<Reply, SessionError> {
        if let Some((last, reply)) = &self.last
            && *last == step
        {
            return Ok(reply.clone());
        }
        if step.step != self.step {
            return Err(SessionError::Order {
                got: step.step,
                want: self.step,
            });
        }
        if self.step >= self.facts.total_steps {
            return Err(SessionError::Ended {
                step: self.step,
                total: self.facts.total_steps,
            });
        }
        let signals = signals::of(&step, &self.facts, &*self.policy)?;
        let weights = match &step.weights {
            None => self.weights.clone(),
            Some(weights) => {
                let sum: f64 = weights.iter().sum();
                if (sum - 1.0).abs() > SENT_SUM_TOLERANCE {
                    return Err(invalid("weights", format!("sum to {sum}, must sum to 1")));
                }
                let mixture = Mixture::normalized(weights.clone(), &self.domains);
                let mixture = mixture.map_err(|e| invalid("weights", e))?;
                mixture.weights().to_vec()
            }
        };
        // The reward's state must not run ahead of a policy that refuses.
        let mut reward = self.reward.clone();
        let observation = Observation {
            rewards: reward.rewards(&signals),
            signals,
            weights,
        };
        let decision = self.policy.next(&observation)?;
        if let Err(error) = Mixture::new(decision.weights.clone(), &self.domains) {
            return Err(SessionError::Spoilt {
                run: self.taken.run.clone(),
                step: self.step,
                reason: error.to_string(),
            });
        }
        let trouble = self.troubles.look(self.step, &decision);
        self.reward = reward;
        self.step += 1;
        if decision.weights != self.weights {
            self.version += 1;
            self.weights = decision.weights;
        }
        let due = self.interval > 0 && self.step.is_multiple_of(self.interval);
        let unsaved = if due {
            self.save_by_interval().err()
        } else {
            None
        };
        let unsaved = unsaved.map(|error| {
            format!(
                "the checkpoint at step {} could not be written: {error}",
                self.step
            )
        });
        let notes: Vec<String> = trouble.into_iter().chain(unsaved).collect();
        for note in &notes {
            hds::note!("run {}: {note}", self.taken.run);
        }
        let reply = Reply::Weights {
            step: self.step,
            weights: self.weights.clone(),
            version: self.version,
            rewards: observation.rewards,
            diagnostics: decision.diagnostics,
            notes,
        };
        self.last = Some((step, reply.clone()));
        Ok(reply)
    }

    /// Writes a checkpoint of the run as it is now; asked again at the same step, it is the same.
    ///
    /// # Errors
    /// If it cannot be written; those there were stay.
    pub fn save(&mut self) -> Result<PathBuf, SessionError> {
        if let Some((step, path)) = &self.asked_last
            && *step == self.step
            && self.asked.at(*step).is_ok_and(|found| found.is_some())
        {
            return Ok(path.clone());
        }
        let path = self.write(Kind::Asked)?;
        self.saved = Some(self.step);
        self.asked_last = Some((self.step, path.clone()));
        Ok(path)
    }

    fn save_by_interval(&mut self) -> Result<(), SessionError> {
        self.write(Kind::ByInterval)?;
        self.saved = Some(self.step);
        Ok(())
    }

    /// Saves what is not saved yet, for a session that ends unasked.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn save_at_end(&mut self) -> Result<(), SessionError> {
        if self.saved != Some(self.step) {
            self.write(Kind::Unasked)?;
            self.saved = Some(self.step);
        }
        Ok(())
    }

    fn kinds(&self) -> [&Checkpoints; 3] {
        [&self.asked, &self.by_interval, &self.unasked]
    }

    fn write(&mut self, kind: Kind) -> Result<PathBuf, SessionError> {
        self.taken.hold()?;
        let state = SavedState {
            version: STATE_VERSION,
            facts: self.facts.clone(),
            step: self.step,
            weights: self.weights.clone(),
            weights_version: self.version,
            reward: self.reward.save()?,
        };
        let checkpoints = match kind {
            Kind::Asked => &self.asked,
            Kind::ByInterval => &self.by_interval,
            Kind::Unasked => &self.unasked,
        };
        let policy = &mut self.policy;
        let path = checkpoints.save(self.step, |folder| {
            let parts = folder.join("policy");
            fs::create_dir(&parts).map_err(|e| FileError::new("create", &parts, e))?;
            policy.save(&parts)?;
            durable::write_json(&folder.join(STATE_FILE), &state)?;
            Ok::<(), SessionError>(())
        })?;
        for kept in self.kinds() {
            kept.remove_after(self.step)?;
        }
        Ok(path)
    }

    fn state_error(&self, reason: impl ToString) -> SessionError {
        SessionError::State {
            run: self.taken.run.clone(),
            reason: reason.to_string(),
        }
    }

    /// The checkpoint to go on from.
    fn find(&mut self, open: &Open) -> Result<Option<PathBuf>, SessionError> {
        let mut steps = Vec::new();
        for kept in self.kinds() {
            steps.extend(kept.steps()?);
        }
        steps.sort_unstable();
        steps.dedup();
        if open.start == Start::New {
            if steps.is_empty() {
                return Ok(None);
            }
            return Err(self.state_error(
                "has checkpoints; open it with start = resume or any, or choose another name",
            ));
        }
        if let Some(step) = open.at_step {
            let there = self.kinds().map(|kept| kept.at(step));
            let mut damaged = None;
            for found in there {
                match found {
                    Ok(Some(path)) => return Ok(Some(path)),
                    Ok(None) => {}
                    Err(error) => damaged = Some(error),
                }
            }
            return Err(match damaged {
                Some(error) => error.into(),
                None => {
                    self.state_error(format!("no checkpoint at step {step}; there are {steps:?}"))
                }
            });
        }
        let mut damaged = Vec::new();
        for step in steps.into_iter().rev() {
            for found in self.kinds().map(|kept| kept.at(step)) {
                match found {
                    Ok(Some(path)) => {
                        self.notes.extend(damaged);
                        return Ok(Some(path));
                    }
                    Ok(None) => {}
                    Err(error) => damaged.push(error.to_string()),
                }
            }
        }
        if open.start == Start::Resume || !damaged.is_empty() {
            return Err(self.state_error(match damaged.is_empty() {
                true => "no checkpoint to resume from; open it with start = new or any".to_owned(),
                false => format!("no whole checkpoint to resume from. {}", damaged.join("; ")),
            }));
        }
        Ok(None)
    }

    fn restore(&mut self, checkpoint: &Path) -> Result<(), SessionError> {
        let path = checkpoint.join(STATE_FILE);
        let text = fs::read(&path).map_err(|e| FileError::new("read", &path, e))?;
        let saved: SavedState = serde_json::from_slice(&text)
            .map_err(|e| self.state_error(format!("{}: {e}", path.display())))?;
        if saved.version != STATE_VERSION {
            let reason = format!("{}: version {}", path.display(), saved.version);
            return Err(self.state_error(reason));
        }
        if let Some(field) = difference(&saved.facts, &self.facts) {
            return Err(self.state_error(format!(
                "facts.{field} differs from the checkpoint's; resume with the same, or open another run"
            )));
        }
        self.policy.restore(&checkpoint.join("policy"))?;
        self.reward.restore(&saved.reward)?;
        let weights = Mixture::new(saved.weights, &self.domains);
        let weights = weights.map_err(|e| self.state_error(format!("{}: {e}", path.display())))?;
        self.weights = weights.weights().to_vec();
        self.version = saved.weights_version;
        self.step = saved.step;
        self.saved = Some(saved.step);
        Ok(())
    }
}

fn check_name(run: &str) -> Result<(), SessionError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if run.is_empty() || run.len() > 64 || run.starts_with('.') || !run.chars().all(good) {
        let reason = "1 to 64 letters, digits, '.', '_' or '-', not beginning with '.'";
        return Err(invalid("run", reason));
    }
    Ok(())
}

/// The first field in which two runs differ.
fn difference(saved: &Facts, now: &Facts) -> Option<String> {
    let fields = |facts: &Facts| match serde_json::to_value(facts) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (saved, now) = (fields(saved), fields(now));
    let differs = now
        .iter()
        .find(|(key, value)| saved.get(*key) != Some(*value));
    differs.map(|(key, _)| key.clone())
}

#[cfg(test)]
#[path = "session_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "session_fault_tests.rs"]
mod fault_tests;
