//! The Holistic Data Scheduler: a soft actor-critic agent that chooses domain weights.
//!
//! In: observations. Out: noisy base weights during warm-up, then draws of the learnt policy.
//!
//! Order within a step: the transition that ended enters the replay, the networks as they are choose
//! the next weights, and then the networks learn. So what is learnt from step t on acts from the
//! decision after the next step on, whether learning is done at once or beside the training step.
//!
//! Always holds: every random number is a function of the seed, its purpose and the step or update; a
//! transition with a number that is not finite is left out; a policy whose output is not finite gives
//! the last good weights. Both are counted in the diagnostics.
//!
//! # Source
//! Paper, decision process and SAC sections; each module names its own choices.

mod agent;
mod config;
mod network;
mod simplex;
mod sizing;

use std::collections::BTreeMap;
use std::path::Path;

use hds::random::{Purpose, RandomStream};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

pub use config::{Coupling, EntropyTarget, HdsConfig, NetworkSize};

use super::error::PolicyError;
use super::replay::{Replay, RowLayout, Transition};
use super::size::PolicySize;
use super::state::{DOMAIN_FEATURES, State, StateEncoder};
use super::storage::{self, Parts};
use super::warm_up::noisy_base_weights;
use super::{Decision, Policy, RunFacts, check_shape};
use crate::signals::Observation;
use agent::{Agent, Minibatch, UpdateReport};

/// The agent with its memory.
pub(super) struct HdsPolicy {
    config: HdsConfig,
    base_weights: Vec<f64>,
    layers: usize,
    warm_up_steps: u64,
    seed: u64,
    device: Device,
    agent: Agent,
    replay: Replay,
    progress: Progress,
}

/// What changes from step to step beside networks and replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    encoder: StateEncoder,
    /// What the last step showed.
    state: Option<State>,
    /// Updates tried; the position of their random numbers.
    updates: u64,
    /// Updates not applied because a number was not finite.
    skipped_updates: u64,
    /// Transitions left out because a number was not finite.
    rejected_transitions: u64,
    /// Decisions taken from `last_good` because the network's output was not finite.
    fallbacks: u64,
    last_good: Vec<f64>,
}

/// What the agent's networks and memory take.
///
/// Operations: an update runs the actor once without and once with a gradient (1 + 3 forward passes' worth), and each of the
/// two critics as target, fitted, and as the actor's judge (1 + 3 + 2); acting is one more pass of the actor.
pub(super) fn size(
    config: &HdsConfig,
    domains: usize,
    layers: usize,
    model_parameters: u64,
) -> PolicySize {
    let layout = RowLayout {
        domains,
        globals: 2 * layers + 1,
    };
    let sizing = sizing::sizing(config.network, layout, model_parameters);
    let [actor, critics] = agent::shapes(sizing, layout);
    let critics_parameters = critics.members as u64 * critics.parameters_each();
    let samples = (config.updates_per_step * config.minibatch) as f64;
    let critics_flops = critics.members as f64 * critics.forward_flops();
    PolicySize {
        trained: actor.parameters_each() + critics_parameters,
        targets: critics_parameters,
        replay_bytes: config.replay_capacity * 4 * layout.row() as u64,
        flops_per_step: samples * (4.0 * actor.forward_flops() + 6.0 * critics_flops)
            + actor.forward_flops(),
    }
}

impl HdsPolicy {
    pub(super) fn new(config: &HdsConfig, run: &RunFacts<'_>) -> Self {
        let domains = run.domains.len();
        let layout = RowLayout {
            domains,
            globals: 2 * run.layers + 1,
        };
        let sizing = sizing::sizing(config.network, layout, run.model_parameters);
        let agent = Agent::new(config, sizing, layout, run.seed, run.device, Kind::Float);
        Self {
            warm_up_steps: (config.warm_up_fraction * run.total_steps as f64).floor() as u64,
            base_weights: run.base_weights.clone(),
            layers: run.layers,
            seed: run.seed,
            device: run.device,
            agent,
            replay: Replay::new(layout, config.replay_capacity as usize),
            progress: Progress {
                encoder: StateEncoder::new(domains),
                state: None,
                updates: 0,
                skipped_updates: 0,
                rejected_transitions: 0,
                fallbacks: 0,
                last_good: run.base_weights.clone(),
            },
            config: config.clone(),
        }
    }

    fn warm_up_weights(&self, step: u64) -> Vec<f64> {
        noisy_base_weights(
            &self.base_weights,
            self.config.warm_up_noise,
            self.seed,
            step,
        )
    }

    /// A draw of the learnt policy; `None` if the network's output is not finite.
    fn act(&self, state: &State, step: u64) -> Option<Vec<f64>> {
        let (mean, deviation) = self.agent.policy(&state.domains, &state.globals);
        let mut noise = RandomStream::new(self.seed, Purpose::Action).sequence(step);
        let logits: Vec<f64> = mean
            .iter()
            .zip(&deviation)
            .map(|(mu, sigma)| mu + sigma * noise.next_normal())
            .collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = logits.iter().map(|z| (z - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let (domains, floor) = (weights.len() as f64, self.config.weight_floor);
        weights
            .iter_mut()
            .for_each(|w| *w = floor / domains + (1.0 - floor) * *w / sum);
        let good =
            weights.len() == self.base_weights.len() && weights.iter().all(|w| w.is_finite());
        good.then_some(weights)
    }

    /// N_ac updates, once there is enough to learn from. The reports of those tried.
    fn learn(&mut self) -> Vec<UpdateReport> {
        let held = self.replay.len() as u64;
        if held < self.config.least_transitions.max(1) {
            return Vec::new();
        }
        let minibatch = self.config.minibatch as usize;
        let (layout, device) = (self.agent.layout, self.device);
        (0..self.config.updates_per_step)
            .map(|_| {
                let update = self.progress.updates;
                self.progress.updates += 1;
                let mut choice = RandomStream::new(self.seed, Purpose::Replay).sequence(update);
                let places: Vec<usize> = (0..minibatch)
                    .map(|_| choice.next_below(held) as usize)
                    .collect();
                let mut normals = RandomStream::new(self.seed, Purpose::Learning).sequence(update);
                let mut noise = || {
                    let values: Vec<f32> = (0..minibatch * layout.domains)
                        .map(|_| normals.next_normal() as f32)
                        .collect();
                    Tensor::from_slice(&values)
                        .view([minibatch as i64, layout.domains as i64])
                        .to_device(device)
                };
                let (next_noise, noise) = (noise(), noise());
                let batch = Minibatch::gather(&self.replay, layout, &places, device, Kind::Float);
                let report = self.agent.update(&batch, &self.replay, &next_noise, &noise);
                self.progress.skipped_updates += u64::from(!report.applied);
                report
            })
            .collect()
    }

    fn diagnostics(
        &self,
        warm_up: bool,
        reward: f64,
        reports: &[UpdateReport],
    ) -> BTreeMap<String, f64> {
        let progress = &self.progress;
        let mut all = vec![
            ("warm_up", f64::from(u8::from(warm_up))),
            ("reward_mean", reward),
            ("alpha", self.agent.temperature()),
            ("entropy_target", self.agent.entropy_target()),
            ("replay", self.replay.len() as f64),
            ("updates", progress.updates as f64),
            ("skipped_updates", progress.skipped_updates as f64),
            ("rejected_transitions", progress.rejected_transitions as f64),
            ("fallbacks", progress.fallbacks as f64),
        ];
        if let Some(last) = reports.last() {
            all.extend([
                ("critic_loss", last.critic_loss),
                ("actor_loss", last.actor_loss),
                ("entropy", last.entropy),
                ("q_mean", last.value),
            ]);
        }
        all.into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Policy for HdsPolicy {
    fn name(&self) -> &'static str {
        "hds"
    }

    /// Batch 0 has no state to act on: noisy base weights, also without a warm-up.
    fn initial(&mut self) -> Vec<f64> {
        self.warm_up_weights(0)
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        check_shape(observation, self.base_weights.len(), self.layers)?;
        let signals = &observation.signals;
        let state = self
            .progress
            .encoder
            .encode(signals, self.config.progress_scale);
        if let Some(before) = &self.progress.state {
            let transition = Transition {
                state: before,
                action: &observation.weights,
                rewards: &observation.rewards.total,
                next: &state,
            };
            let lost = signals
                .losses
                .iter()
                .flatten()
                .any(|loss| !loss.is_finite());
            if lost || !self.replay.push(&transition) {
                self.progress.rejected_transitions += 1;
            }
        }
        let step = signals.step + 1;
        let warm_up = step < self.warm_up_steps;
        let weights = if warm_up {
            self.warm_up_weights(step)
        } else if let Some(weights) = self.act(&state, step) {
            self.progress.last_good.clone_from(&weights);
            weights
        } else {
            self.progress.fallbacks += 1;
            self.progress.last_good.clone()
        };
        self.progress.state = Some(state);
        let reports = if warm_up && !self.config.learn_in_warm_up {
            Vec::new()
        } else {
            self.learn()
        };
        let expected = observation.weights.iter().zip(&observation.rewards.total);
        let reward = expected.map(|(a, r)| a * r).sum();
        Ok(Decision {
            weights,
            diagnostics: self.diagnostics(warm_up, reward, &reports),
        })
    }

    fn save(&self, folder: &Path) -> Result<(), PolicyError> {
        let agent = &self.agent;
        let optimizers = [
            ("actor", &agent.actor_optimizer),
            ("critics", &agent.critic_optimizer),
            ("temperature", &agent.temperature_optimizer),
        ];
        storage::save(
            folder,
            self.name(),
            &self.progress,
            &parts(agent),
            &optimizers,
            &self.replay,
        )
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let name = self.name();
        let restored = storage::restore(folder, name, &parts(&self.agent))?;
        let agent = &mut self.agent;
        let optimizers = vec![
            ("actor", &mut agent.actor_optimizer),
            ("critics", &mut agent.critic_optimizer),
            ("temperature", &mut agent.temperature_optimizer),
        ];
        let progress: Progress = restored.into_parts(folder, optimizers, &mut self.replay)?;
        let domains = self.base_weights.len();
        let globals = 2 * self.layers + 1;
        let fits = |state: &State| {
            state.domains.len() == domains * DOMAIN_FEATURES && state.globals.len() == globals
        };
        if progress.encoder.domains() != domains
            || progress.last_good.len() != domains
            || !progress.state.as_ref().is_none_or(fits)
        {
            return Err(PolicyError::State {
                path: folder.join("policy.json"),
                field: "number of domains or layers".into(),
                got: progress.encoder.domains().to_string(),
                want: format!("{domains} domains, {} layers", self.layers),
            });
        }
        self.progress = progress;
        Ok(())
    }

    fn parameters(&self) -> u64 {
        self.agent.parameters()
    }

    fn warmup_steps(&self) -> u64 {
        self.warm_up_steps
    }

    fn preset(&self) -> &'static str {
        self.config.preset.name()
    }
}

/// What of the agent is saved as tensors.
fn parts(agent: &Agent) -> Parts<'_> {
    Parts {
        networks: vec![
            ("actor", &agent.actor.parameters),
            ("critics", &agent.critics.parameters),
            ("targets", &agent.targets.parameters),
        ],
        tensors: vec![("log_temperature", &agent.log_temperature)],
    }
}

#[cfg(test)]
mod tests;
