//! What the agent learns with and from: networks and replay, and the updates of a step.
//!
//! In: transitions; how many updates were tried before. Out: better networks, and what each update showed.
//! Always holds: the places and noise of an update are a function of the seed and the update's number alone, so that
//! it does not matter on which thread it is done, or when.

use hds::random::{Purpose, RandomStream};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::super::RunFacts;
use super::super::actor_critic::StepReport;
use super::super::replay::{Replay, RowLayout};
use super::agent::{Agent, Minibatch, RewardScale, UpdateReport};
use super::config::HdsConfig;
use super::sizing;

/// Networks and replay.
pub(super) struct Learning {
    pub agent: Agent,
    pub replay: Replay,
    seed: u64,
    device: Device,
    least_transitions: u64,
    minibatch: usize,
    updates_per_step: u64,
}

/// An update's numbers for the metrics; only finite ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastUpdate {
    pub critic_loss: Option<f64>,
    pub actor_loss: Option<f64>,
    pub entropy: Option<f64>,
    pub q_mean: Option<f64>,
}

impl From<UpdateReport> for LastUpdate {
    fn from(report: UpdateReport) -> Self {
        let finite = |value: f64| value.is_finite().then_some(value);
        Self {
            critic_loss: finite(report.critic_loss),
            actor_loss: finite(report.actor_loss),
            entropy: finite(report.entropy),
            q_mean: finite(report.value),
        }
    }
}

impl Learning {
    pub(super) fn new(config: &HdsConfig, run: &RunFacts<'_>) -> Self {
        let layout = RowLayout::of(run.domains.len(), run.layers);
        let sizing = sizing::sizing(config.network, layout, run.model_parameters);
        Self {
            agent: Agent::new(config, sizing, layout, run.seed, run.device, Kind::Float),
            replay: Replay::new(layout, config.replay_capacity as usize),
            seed: run.seed,
            device: run.device,
            least_transitions: config.least_transitions.max(1),
            minibatch: config.minibatch as usize,
            updates_per_step: config.updates_per_step,
        }
    }

    /// N_ac updates, once there is enough to learn from; `before` were tried before them.
    pub(super) fn learn(&mut self, before: u64) -> StepReport<LastUpdate> {
        let held = self.replay.len() as u64;
        let mut step = StepReport::default();
        if held < self.least_transitions {
            return step;
        }
        let scale = self.agent.reward_scale(&self.replay);
        for update in before..before + self.updates_per_step {
            let report = self.update(update, held, scale);
            step.updates += 1;
            step.skipped += u64::from(!report.applied);
            step.last = report.into();
        }
        step
    }

    fn update(&mut self, update: u64, held: u64, scale: RewardScale) -> UpdateReport {
        let (layout, device, minibatch) = (self.agent.layout, self.device, self.minibatch);
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
        self.agent.update(&batch, scale, &next_noise, &noise)
    }
}
