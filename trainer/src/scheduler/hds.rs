//! The Holistic Data Scheduler: a soft actor-critic agent that chooses domain weights.
//!
//! In: observations. Out: noisy base weights during warm-up, then draws of the learnt policy.
//!
//! Order within a step: what was begun after the step before is waited for, the transition that ended enters the
//! replay, the networks as they are choose the next weights, and then learning begins on a thread of its own
//! ([`super::aside`]). So what is learnt while step t runs acts from the decision for t + 1 on, in any timing; the
//! numbers that a decision tells of learning are those of the updates done before it.
//!
//! Always holds: every random number is a function of the seed, its purpose and the step or update; a
//! transition with a number that is not finite is left out; a policy whose output is not finite gives
//! the last good weights. Both are counted in the diagnostics.
//!
//! # Source
//! Paper, decision process and SAC sections; each module names its own choices.

mod agent;
mod config;
mod learning;
mod network;
mod simplex;
mod sizing;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub use config::{Coupling, EntropyTarget, HdsConfig, NetworkSize};
use hds::random::{Purpose, RandomStream};

use super::actor_critic::{Progress, StepReport, softmax};
use super::aside::Aside;
use super::error::PolicyError;
use super::prior::Prior;
use super::replay::RowLayout;
use super::size::PolicySize;
use super::state::State;
use super::storage::{self, Parts};
use super::warm_up::noisy_base_weights;
use super::{Decision, Policy, RunFacts, check_shape};
use crate::signals::Observation;
use agent::Agent;
use learning::{LastUpdate, Learning};

/// The agent with its memory.
pub(super) struct HdsPolicy {
    config: HdsConfig,
    base_weights: Vec<f64>,
    layers: usize,
    warm_up_steps: u64,
    seed: u64,
    /// Parameters of all networks.
    parameters: u64,
    learning: Aside<Learning, StepReport<LastUpdate>>,
    progress: Progress<LastUpdate>,
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
    let layout = RowLayout::of(domains, layers);
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

/// Parameters of one network, the actor.
pub(super) fn actor_parameters(
    config: &HdsConfig,
    domains: usize,
    layers: usize,
    model_parameters: u64,
) -> u64 {
    let layout = RowLayout::of(domains, layers);
    let sizing = sizing::sizing(config.network, layout, model_parameters);
    agent::shapes(sizing, layout)[0].parameters_each()
}

impl HdsPolicy {
    pub(super) fn new(config: &HdsConfig, run: &RunFacts<'_>) -> Self {
        let learning = Learning::new(config, run);
        let prior = (config.prior_strength > 0.0).then(|| Prior::new(run.domains.len()));
        Self {
            warm_up_steps: (config.warm_up_fraction * run.total_steps as f64).floor() as u64,
            base_weights: run.base_weights.clone(),
            layers: run.layers,
            seed: run.seed,
            parameters: learning.agent.parameters(),
            learning: Aside::new(learning),
            progress: Progress::new(&run.base_weights).relative_to(prior),
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

    /// The log weights that the policy is relative to, if any.
    fn center(&self) -> Option<Vec<f64>> {
        let prior = self.progress.prior.as_ref()?;
        Some(prior.log_weights(self.config.prior_strength))
    }

    /// A draw of the learnt policy.
    fn act(&mut self, state: &State, step: u64) -> Vec<f64> {
        let agent = &self.learning.learner().agent;
        let (mean, deviation) = agent.policy(&state.domains, &state.globals);
        let mut noise = RandomStream::new(self.seed, Purpose::Action).sequence(step);
        let exploration = self.config.exploration;
        let mut logits: Vec<f64> = mean
            .iter()
            .zip(&deviation)
            .map(|(mu, sigma)| mu + exploration * sigma * noise.next_normal())
            .collect();
        if let Some(center) = self.center() {
            logits.iter_mut().zip(center).for_each(|(z, c)| *z += c);
        }
        let mut weights = softmax(&logits);
        let (domains, floor) = (weights.len() as f64, self.config.weight_floor);
        weights
            .iter_mut()
            .for_each(|w| *w = floor / domains + (1.0 - floor) * *w);
        weights
    }

    /// Waits for what is being learnt and takes down what it showed.
    fn finish_learning(&mut self) {
        if let Some(step) = self.learning.take_shown() {
            self.progress.add(step);
        }
    }

    fn diagnostics(&mut self, warm_up: bool, reward: f64) -> BTreeMap<String, f64> {
        let progress = &self.progress;
        let learning = self.learning.learner();
        let last = &progress.last_update;
        let always = [
            ("warm_up", f64::from(u8::from(warm_up))),
            ("reward_mean", reward),
            ("alpha", learning.agent.temperature()),
            ("entropy_target", learning.agent.entropy_target()),
            ("replay", learning.replay.len() as f64),
            ("updates", progress.updates as f64),
            ("skipped_updates", progress.skipped_updates as f64),
            ("rejected_transitions", progress.rejected_transitions as f64),
            ("fallbacks", progress.fallbacks as f64),
        ];
        let learnt = [
            ("critic_loss", last.critic_loss),
            ("actor_loss", last.actor_loss),
            ("entropy", last.entropy),
            ("q_mean", last.q_mean),
        ];
        let learnt = learnt
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        always
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .chain(learnt)
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
        self.finish_learning();
        let state = self.progress.observe(
            observation,
            &observation.rewards.total,
            self.config.progress_scale,
            &mut self.learning.learner().replay,
        );
        if let Some(prior) = &mut self.progress.prior {
            prior.observe(&observation.rewards.total, self.config.prior_decay);
        }
        let step = observation.signals.step + 1;
        let warm_up = step < self.warm_up_steps;
        let weights = if warm_up {
            self.warm_up_weights(step)
        } else {
            let chosen = self.act(&state, step);
            self.progress.or_last_good(chosen)
        };
        let expected = observation.weights.iter().zip(&observation.rewards.total);
        let reward = expected.map(|(a, r)| a * r).sum();
        let diagnostics = self.diagnostics(warm_up, reward);
        if !warm_up || self.config.learn_in_warm_up {
            let before = self.progress.updates;
            let center = self.center();
            self.learning.begin(move |learning| {
                if let Some(center) = center {
                    learning.agent.set_center(&center);
                }
                learning.learn(before)
            });
        }
        Ok(Decision {
            weights,
            diagnostics,
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
        let agent = &learning.agent;
        let optimizers = [
            ("actor", &agent.actor_optimizer),
            ("critics", &agent.critic_optimizer),
            ("temperature", &agent.temperature_optimizer),
        ];
        storage::save(
            folder,
            name,
            &self.progress,
            &parts(agent),
            &optimizers,
            &learning.replay,
        )
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let name = self.name();
        self.finish_learning();
        let learning = self.learning.learner();
        let restored = storage::restore(folder, name, &parts(&learning.agent))?;
        let agent = &mut learning.agent;
        let optimizers = vec![
            ("actor", &mut agent.actor_optimizer),
            ("critics", &mut agent.critic_optimizer),
            ("temperature", &mut agent.temperature_optimizer),
        ];
        let mut progress: Progress<_> =
            restored.into_parts(folder, optimizers, &mut learning.replay)?;
        progress.check(folder, self.base_weights.len(), self.layers)?;
        // A checkpoint of before there was one.
        let prior = progress.prior.take().or_else(|| self.progress.prior.take());
        self.progress = progress.relative_to(prior);
        Ok(())
    }

    fn parameters(&self) -> u64 {
        self.parameters
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
mod bandits;
#[cfg(test)]
mod tests;
