//! AC-ODM: a deterministic actor-critic (DDPG) that chooses domain weights for gradient alignment.
//!
//! In: observations, of whose rewards only alignment is used. Out: noisy base weights during warm-up,
//! then the actor's weights with exploration noise. With `policy_from` the networks start from those
//! of another run (proxy mode: learn on a small model, use on a large one) and there is no warm-up.
//!
//! Always holds: as for the HDS agent: every random number is a function of seed, purpose and position; a
//! decision uses what was learnt up to the step before (on a thread of its own, [`super::aside`]); numbers that are not finite enter neither
//! replay nor networks, and a policy whose output is not finite gives the last good weights.
//!
//! # Source
//! Ma, Dang, Liao, "AC-ODM", ICML 2026, arXiv:2505.23878: same state as HDS, reward r_align, actor and critic of
//! five 1024-wide layers with layer normalisation and ReLU, softmax output, γ 0.95, τ 0.001, replay 10,000,
//! minibatch 256, warm-up 834 of 41,667 steps (2 %). DDPG: Lillicrap et al., 2016. Our choices: the reward of a
//! step is Σ_i a_i r_align,i, a function of the action; exploration adds N(0, 0.1) to the logits.

mod learner;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hds::random::{Purpose, RandomStream};
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::actor_critic::{Progress, StepReport, softmax};
use super::aside::Aside;
use super::error::PolicyError;
use super::replay::{Replay, RowLayout};
use super::state::State;
use super::storage::{self, Parts};
use super::warm_up::noisy_base_weights;
use super::{Decision, Policy, RunFacts, check_shape};
use crate::optimizer::IN_SINGLE_PRECISION;
use crate::signals::Observation;
use learner::Learner;
pub(super) use learner::size;

/// `[scheduler.ac_odm]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcOdmConfig {
    /// Width of the hidden layers.
    pub width: u64,
    /// Hidden layers of each network.
    pub layers: u64,
    /// Share of the run's steps under noisy base weights; in [0, 1].
    pub warm_up_fraction: f64,
    /// Standard deviation of the noise on the base weights.
    pub warm_up_noise: f64,
    /// Standard deviation of the noise on the actor's logits.
    pub exploration_noise: f64,
    /// Discount γ, in [0, 1).
    pub discount: f64,
    /// Share of the networks that enters the targets at each update, in (0, 1].
    pub polyak: f64,
    /// Updates per step.
    pub updates_per_step: u64,
    /// Transitions per update, drawn with replacement.
    pub minibatch: u64,
    /// Least number of transitions before the networks learn.
    pub least_transitions: u64,
    /// Transitions kept.
    pub replay_capacity: u64,
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// Folder of a saved policy of this kind whose networks to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_from: Option<PathBuf>,
    /// Whether to learn; `false` uses the networks of `policy_from` as they are.
    pub learn: bool,
}

impl Default for AcOdmConfig {
    /// The paper's values; Adam's rate is HDS's.
    fn default() -> Self {
        Self {
            width: 1024,
            layers: 5,
            warm_up_fraction: 0.02,
            warm_up_noise: 0.02,
            exploration_noise: 0.1,
            discount: 0.95,
            polyak: 0.001,
            updates_per_step: 1,
            minibatch: 256,
            least_transitions: 256,
            replay_capacity: 10_000,
            learning_rate: 1e-4,
            policy_from: None,
            learn: true,
        }
    }
}

impl AcOdmConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let check = |key: &str, got: f64, good: bool, want: &str| {
            if good {
                return Ok(());
            }
            Err(PolicyError::Config {
                key: format!("scheduler.ac_odm.{key}"),
                got: got.to_string(),
                want: want.into(),
            })
        };
        for (key, value, most) in [
            ("width", self.width, 65_536),
            ("layers", self.layers, 64),
            ("minibatch", self.minibatch, 1_000_000),
            (
                "least_transitions",
                self.least_transitions,
                self.replay_capacity,
            ),
            ("replay_capacity", self.replay_capacity, 10_000_000),
        ] {
            let want = format!("from 1 to {most}");
            check(key, value as f64, (1..=most).contains(&value), &want)?;
        }
        let updates = self.updates_per_step;
        check(
            "updates_per_step",
            updates as f64,
            updates <= 1000,
            "from 0 to 1000",
        )?;
        let fraction = self.warm_up_fraction;
        check(
            "warm_up_fraction",
            fraction,
            (0.0..=1.0).contains(&fraction),
            "in [0, 1]",
        )?;
        for (key, value) in [
            ("warm_up_noise", self.warm_up_noise),
            ("exploration_noise", self.exploration_noise),
        ] {
            check(key, value, value >= 0.0 && value.is_finite(), "0 or more")?;
        }
        check(
            "discount",
            self.discount,
            (0.0..1.0).contains(&self.discount),
            "in [0, 1)",
        )?;
        check(
            "polyak",
            self.polyak,
            self.polyak > 0.0 && self.polyak <= 1.0,
            "in (0, 1]",
        )?;
        let rate = self.learning_rate;
        check(
            "learning_rate",
            rate,
            IN_SINGLE_PRECISION.contains(&rate),
            "from 1e-30 to 1e30",
        )?;
        if self.learn || self.policy_from.is_some() {
            return Ok(());
        }
        Err(PolicyError::Config {
            key: "scheduler.ac_odm.learn".into(),
            got: "false".into(),
            want: "true, or scheduler.ac_odm.policy_from a saved policy".into(),
        })
    }
}

/// The agent with its memory.
pub(super) struct AcOdmPolicy {
    config: AcOdmConfig,
    base_weights: Vec<f64>,
    layers: usize,
    warm_up_steps: u64,
    seed: u64,
    /// Parameters of all networks.
    parameters: u64,
    learning: Aside<Learning, StepReport<LastUpdate>>,
    progress: Progress<LastUpdate>,
}

/// Networks and replay.
struct Learning {
    learner: Learner,
    replay: Replay,
    seed: u64,
    minibatch: u64,
    least_transitions: u64,
    updates_per_step: u64,
}

/// The last update's numbers for the metrics; only finite ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastUpdate {
    critic_loss: Option<f64>,
    actor_loss: Option<f64>,
}

impl Learning {
    /// The updates of a step, once there is enough to learn from; `before` were tried before them.
    fn learn(&mut self, before: u64) -> StepReport<LastUpdate> {
        let held = self.replay.len() as u64;
        let mut step = StepReport::default();
        if held < self.least_transitions {
            return step;
        }
        let finite = |value: f64| value.is_finite().then_some(value);
        for update in before..before + self.updates_per_step {
            let mut choice = RandomStream::new(self.seed, Purpose::Replay).sequence(update);
            let places: Vec<usize> = (0..self.minibatch)
                .map(|_| choice.next_below(held) as usize)
                .collect();
            let report = self.learner.update(&self.replay, &places);
            step.updates += 1;
            step.skipped += u64::from(!report.applied);
            step.last = LastUpdate {
                critic_loss: finite(report.critic_loss),
                actor_loss: finite(report.actor_loss),
            };
        }
        step
    }
}

impl AcOdmPolicy {
    pub(super) fn new(config: &AcOdmConfig, run: &RunFacts<'_>) -> Result<Self, PolicyError> {
        let layout = RowLayout::of(run.domains.len(), run.layers);
        let learner = Learner::new(config, layout, run.seed, run.device, Kind::Float);
        let proxy = config.policy_from.as_deref();
        if let Some(folder) = proxy {
            storage::restore_networks(folder, &parts(&learner))?;
        }
        let warm_up_steps = (config.warm_up_fraction * run.total_steps as f64).floor() as u64;
        Ok(Self {
            warm_up_steps: if proxy.is_some() { 0 } else { warm_up_steps },
            base_weights: run.base_weights.clone(),
            layers: run.layers,
            seed: run.seed,
            parameters: learner.parameters(),
            learning: Aside::new(Learning {
                learner,
                replay: Replay::new(layout, config.replay_capacity as usize),
                seed: run.seed,
                minibatch: config.minibatch,
                least_transitions: config.least_transitions,
                updates_per_step: config.updates_per_step,
            }),
            progress: Progress::new(&run.base_weights),
            config: config.clone(),
        })
    }

    /// The actor's weights with noise on the logits.
    fn act(&mut self, state: &State, step: u64) -> Vec<f64> {
        let mut noise = RandomStream::new(self.seed, Purpose::Action).sequence(step);
        let deviation = if self.config.learn {
            self.config.exploration_noise
        } else {
            0.0
        };
        let learner = &self.learning.learner().learner;
        let logits: Vec<f64> = learner
            .logits(state)
            .into_iter()
            .map(|logit| logit + deviation * noise.next_normal())
            .collect();
        softmax(&logits)
    }

    /// Waits for what is being learnt and takes down what it showed.
    fn finish_learning(&mut self) {
        if let Some(step) = self.learning.take_shown() {
            self.progress.add(step);
        }
    }
}

impl Policy for AcOdmPolicy {
    fn name(&self) -> &'static str {
        "ac_odm"
    }

    fn initial(&mut self) -> Vec<f64> {
        noisy_base_weights(&self.base_weights, self.config.warm_up_noise, self.seed, 0)
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        check_shape(observation, self.base_weights.len(), self.layers)?;
        self.finish_learning();
        let state = self.progress.observe(
            observation,
            &observation.rewards.alignment,
            1.0,
            &mut self.learning.learner().replay,
        );
        let step = observation.signals.step + 1;
        let warm_up = step < self.warm_up_steps;
        let weights = if warm_up {
            noisy_base_weights(
                &self.base_weights,
                self.config.warm_up_noise,
                self.seed,
                step,
            )
        } else {
            let chosen = self.act(&state, step);
            self.progress.or_last_good(chosen)
        };
        let progress = &self.progress;
        let last = progress.last_update;
        let count = |value: u64| Some(value as f64);
        let all = [
            ("warm_up", Some(f64::from(u8::from(warm_up)))),
            ("replay", count(self.learning.learner().replay.len() as u64)),
            ("updates", count(progress.updates)),
            ("skipped_updates", count(progress.skipped_updates)),
            ("rejected_transitions", count(progress.rejected_transitions)),
            ("fallbacks", count(progress.fallbacks)),
            ("critic_loss", last.critic_loss),
            ("actor_loss", last.actor_loss),
        ];
        if !warm_up && self.config.learn {
            let before = progress.updates;
            self.learning.begin(move |learning| learning.learn(before));
        }
        Ok(Decision {
            weights,
            diagnostics: all
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect(),
        })
    }

    fn settle(&mut self) {
        self.finish_learning();
    }

    fn learning_time(&self) -> Duration {
        self.learning.busy()
    }

    fn save(&mut self, folder: &Path) -> Result<(), PolicyError> {
        self.finish_learning();
        let name = self.name();
        let learning = self.learning.learner();
        let learner = &learning.learner;
        let optimizers = [
            ("actor", &learner.actor_optimizer),
            ("critic", &learner.critic_optimizer),
        ];
        storage::save(
            folder,
            name,
            &self.progress,
            &parts(learner),
            &optimizers,
            &learning.replay,
        )
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let name = self.name();
        self.finish_learning();
        let Learning {
            learner, replay, ..
        } = self.learning.learner();
        let restored = storage::restore(folder, name, &parts(learner))?;
        let optimizers = vec![
            ("actor", &mut learner.actor_optimizer),
            ("critic", &mut learner.critic_optimizer),
        ];
        let progress: Progress<_> = restored.into_parts(folder, optimizers, replay)?;
        progress.check(folder, self.base_weights.len(), self.layers)?;
        self.progress = progress;
        Ok(())
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn warmup_steps(&self) -> u64 {
        self.warm_up_steps
    }
}

/// What of the learner is saved as tensors.
fn parts(learner: &Learner) -> Parts<'_> {
    Parts {
        networks: vec![
            ("actor", &learner.actor.parameters),
            ("critic", &learner.critic.parameters),
            ("target_actor", &learner.target_actor.parameters),
            ("target_critic", &learner.target_critic.parameters),
        ],
        tensors: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
