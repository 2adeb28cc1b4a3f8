//! DDPG: actor, critic, their targets, and one update of all.
//!
//! Legend: B minibatch, S = 3K + G state features, K domains, W width.
//!
//! # Source
//! Lillicrap et al., "Continuous control with deep reinforcement learning", 2016, algorithm 1:
//! y = r + γ Q'(s', π'(s')), critic by MSE, the actor maximises Q(s, π(s)), Polyak averaging of both.

use tch::{Device, Kind, Tensor, no_grad};

use super::super::parameters::{Linear, Maker, Parameters, normalize};
use super::super::replay::{Replay, RowLayout};
use super::super::size::PolicySize;
use super::super::state::State;
use super::AcOdmConfig;
use crate::optimizer::{AdamW, AdamWConfig};

/// Hidden layers with layer normalisation (gain and bias) and ReLU, then a linear layer.
pub(super) struct Perceptron {
    hidden: Vec<(Linear, Tensor, Tensor)>,
    last: Linear,
    pub(super) parameters: Parameters,
}

impl Perceptron {
    fn new(sizes: [usize; 4], seed: u64, index: u64, device: Device, kind: Kind) -> Self {
        let [inputs, width, layers, outputs] = sizes;
        let mut make = Maker::new(1, seed, index, device, kind);
        let hidden = (0..layers)
            .map(|i| {
                let from = if i == 0 { inputs } else { width };
                let linear = make.linear(&format!("layers.{i}"), from, width, 1.0);
                let gain = make.leaf(format!("layers.{i}.gain"), &vec![1.0; width], &[1, width]);
                let bias = make.leaf(format!("layers.{i}.shift"), &vec![0.0; width], &[1, width]);
                (linear, gain, bias)
            })
            .collect();
        let last = make.linear("last", width, outputs, 0.01);
        Self {
            hidden,
            last,
            parameters: make.finish(),
        }
    }

    /// [B, inputs] → [B, outputs].
    fn forward(&self, x_bi: &Tensor) -> Tensor {
        let mut x_1bw = x_bi.unsqueeze(0);
        for (linear, gain, bias) in &self.hidden {
            x_1bw = (normalize(&linear.forward(&x_1bw)) * gain + bias).relu();
        }
        self.last.forward(&x_1bw).squeeze_dim(0)
    }
}

/// What the four networks and the memory take.
///
/// Operations: an update runs both targets once, fits the critic (3 forward passes' worth), and moves the actor (3) through the
/// critic (2); acting is one more pass of the actor.
pub(in crate::scheduler) fn size(config: &AcOdmConfig, layout: RowLayout) -> PolicySize {
    let (width, layers) = (config.width as usize, config.layers as usize);
    let weights = |inputs: usize, outputs: usize| {
        inputs * width + layers.saturating_sub(1) * width * width + width * outputs
    };
    // A bias, a gain and a shift a hidden unit; a bias an output.
    let others = |outputs: usize| 3 * layers * width + outputs;
    let domains = layout.domains;
    let actor = weights(layout.state(), domains);
    let critic = weights(layout.state() + domains, 1);
    let trained = (actor + others(domains) + critic + others(1)) as u64;
    let updates = if config.learn {
        config.updates_per_step
    } else {
        0
    };
    let samples = (updates * config.minibatch) as f64;
    PolicySize {
        trained,
        targets: trained,
        replay_bytes: config.replay_capacity * 4 * layout.row() as u64,
        flops_per_step: 2.0 * (samples * (4.0 * actor as f64 + 6.0 * critic as f64) + actor as f64),
    }
}

/// What an update showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UpdateReport {
    pub critic_loss: f64,
    pub actor_loss: f64,
    /// Whether networks changed.
    pub applied: bool,
}

/// The networks and how they learn.
pub(super) struct Learner {
    layout: RowLayout,
    discount: f64,
    polyak: f64,
    learning_rate: f64,
    device: Device,
    kind: Kind,
    pub(super) actor: Perceptron,
    pub(super) critic: Perceptron,
    pub(super) target_actor: Perceptron,
    pub(super) target_critic: Perceptron,
    pub(super) actor_optimizer: AdamW,
    pub(super) critic_optimizer: AdamW,
}

impl Learner {
    pub(super) fn new(
        config: &AcOdmConfig,
        layout: RowLayout,
        seed: u64,
        device: Device,
        kind: Kind,
    ) -> Self {
        let (width, layers) = (config.width as usize, config.layers as usize);
        let actor = || {
            let sizes = [layout.state(), width, layers, layout.domains];
            Perceptron::new(sizes, seed, 0, device, kind)
        };
        let critic = || {
            let sizes = [layout.state() + layout.domains, width, layers, 1];
            Perceptron::new(sizes, seed, 1, device, kind)
        };
        let adam = AdamWConfig {
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: 0.0,
        };
        let (first_actor, first_critic) = (actor(), critic());
        Self {
            layout,
            discount: config.discount,
            polyak: config.polyak,
            learning_rate: config.learning_rate,
            device,
            kind,
            actor_optimizer: AdamW::new(first_actor.parameters.optimized(), adam),
            critic_optimizer: AdamW::new(first_critic.parameters.optimized(), adam),
            actor: first_actor,
            critic: first_critic,
            // The same random numbers: equal at first.
            target_actor: actor(),
            target_critic: critic(),
        }
    }

    /// Parameters of the four networks together.
    pub(super) fn parameters(&self) -> u64 {
        let networks = [
            &self.actor,
            &self.critic,
            &self.target_actor,
            &self.target_critic,
        ];
        networks
            .iter()
            .map(|network| network.parameters.count())
            .sum()
    }

    /// The actor's output before the softmax; length K.
    pub(super) fn logits(&self, state: &State) -> Vec<f64> {
        let flat: Vec<f32> = state
            .domains
            .iter()
            .chain(&state.globals)
            .copied()
            .collect();
        let state_1s = Tensor::from_slice(&flat)
            .unsqueeze(0)
            .to_device(self.device)
            .to_kind(self.kind);
        let logits = no_grad(|| self.actor.forward(&state_1s));
        let flat = logits
            .to_kind(Kind::Double)
            .to_device(Device::Cpu)
            .contiguous()
            .view(-1);
        Vec::try_from(flat).unwrap_or_default()
    }

    /// One update of critic, actor and targets on the rows at `places`.
    pub(super) fn update(&mut self, replay: &Replay, places: &[usize]) -> UpdateReport {
        let layout = self.layout;
        let mut flat = Vec::with_capacity(places.len() * layout.row());
        for &place in places {
            flat.extend_from_slice(replay.row(place));
        }
        let rows = Tensor::from_slice(&flat)
            .view([places.len() as i64, layout.row() as i64])
            .to_device(self.device)
            .to_kind(self.kind);
        let part = |start: usize, end: usize| rows.narrow(1, start as i64, (end - start) as i64);
        let state_bs = part(0, layout.action());
        let action_bk = part(layout.action(), layout.rewards());
        let rewards_bk = part(layout.rewards(), layout.next());
        let next_bs = part(layout.next(), layout.row());
        let reward_b1 =
            (rewards_bk * &action_bk).sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>);

        let goal_b1 = no_grad(|| {
            let next_action_bk = self
                .target_actor
                .forward(&next_bs)
                .softmax(-1, None::<Kind>);
            reward_b1 + value(&self.target_critic, &next_bs, &next_action_bk) * self.discount
        });
        let mut report = UpdateReport::default();
        let critic_loss = (value(&self.critic, &state_bs, &action_bk) - goal_b1)
            .square()
            .mean(None::<Kind>);
        report.critic_loss = critic_loss.double_value(&[]);
        let leaves = self.critic.parameters.leaves();
        let gradients = Tensor::run_backward(&[critic_loss], &leaves, false, false);
        let finite = report.critic_loss.is_finite();
        if !finite || !self.critic.parameters.set_gradients(&gradients) {
            return report;
        }
        self.critic_optimizer.step(self.learning_rate);

        let chosen_bk = self.actor.forward(&state_bs).softmax(-1, None::<Kind>);
        let actor_loss = -value(&self.critic, &state_bs, &chosen_bk).mean(None::<Kind>);
        report.actor_loss = actor_loss.double_value(&[]);
        let leaves = self.actor.parameters.leaves();
        let gradients = Tensor::run_backward(&[actor_loss], &leaves, false, false);
        let finite = report.actor_loss.is_finite();
        if !finite || !self.actor.parameters.set_gradients(&gradients) {
            return report;
        }
        self.actor_optimizer.step(self.learning_rate);
        let rate = self.polyak;
        self.target_critic
            .parameters
            .approach(&self.critic.parameters, rate);
        self.target_actor
            .parameters
            .approach(&self.actor.parameters, rate);
        report.applied = true;
        report
    }
}

/// Q(s, a), [B, 1].
fn value(critic: &Perceptron, state_bs: &Tensor, action_bk: &Tensor) -> Tensor {
    critic.forward(&Tensor::cat(&[state_bs, action_bk], -1))
}

#[cfg(test)]
mod tests {
    use super::super::super::replay::Transition;
    use super::*;

    #[test]
    fn the_paper_size_is_five_layers_of_1024() {
        let layout = RowLayout {
            domains: 22,
            globals: 7,
        };
        let config = AcOdmConfig::default();
        let learner = Learner::new(&config, layout, 1, Device::Cpu, Kind::Float);
        let each = |inputs: u64, outputs: u64| {
            let hidden = |from: u64| from * 1024 + 3 * 1024;
            hidden(inputs) + 4 * hidden(1024) + 1024 * outputs + outputs
        };
        assert_eq!(learner.parameters(), 2 * (each(73, 22) + each(95, 1)));
    }

    #[test]
    fn updates_follow_the_formulas_of_ddpg() {
        // Goal, both losses and the averaging of three updates, from the networks' outputs by loops over plain numbers.
        let layout = RowLayout {
            domains: 2,
            globals: 3,
        };
        let config = AcOdmConfig {
            width: 8,
            layers: 2,
            discount: 0.9,
            polyak: 0.25,
            learning_rate: 1e-2,
            ..AcOdmConfig::default()
        };
        let mut learner = Learner::new(&config, layout, 1, Device::Cpu, Kind::Double);
        let state = |seed: f64| State {
            domains: (0..6).map(|i| (seed + f64::from(i)).sin() as f32).collect(),
            globals: (0..3).map(|i| (seed - f64::from(i)).cos() as f32).collect(),
        };
        let (actions, rewards) = ([[0.75, 0.25], [0.125, 0.875]], [[2.0, 4.0], [-1.0, 0.5]]);
        let mut replay = Replay::new(layout, 4);
        for row in 0..2 {
            replay.push(&Transition {
                state: &state(row as f64),
                action: &actions[row],
                rewards: &rewards[row],
                next: &state(row as f64 + 1.0),
            });
        }
        let vector = |state: &State| -> Vec<f64> {
            let all = state.domains.iter().chain(&state.globals);
            all.map(|v| f64::from(*v)).collect()
        };
        let run = |network: &Perceptron, input: &[f64]| -> Vec<f64> {
            let out = no_grad(|| network.forward(&Tensor::from_slice(input).unsqueeze(0)));
            Vec::try_from(out.view(-1)).unwrap()
        };
        let softmax = |z: Vec<f64>| {
            let sum: f64 = z.iter().map(|z| z.exp()).sum();
            z.iter().map(|z| z.exp() / sum).collect::<Vec<f64>>()
        };
        let judge = |critic: &Perceptron, state: &[f64], action: &[f64]| {
            run(critic, &[state, action].concat())[0]
        };
        let flat = |network: &Perceptron| -> Vec<f64> {
            let all = network.parameters.leaves().into_iter();
            all.flat_map(|t| Vec::<f64>::try_from(t.contiguous().view(-1)).unwrap())
                .collect()
        };
        let near = |got: f64, want: f64| {
            assert!(
                (got - want).abs() < 1e-9 * want.abs().max(1.0),
                "{got} {want}"
            );
        };
        for update in 0..3 {
            let mut critic_loss = 0.0;
            for row in 0..2 {
                let next = vector(&state(row as f64 + 1.0));
                let chosen = softmax(run(&learner.target_actor, &next));
                let reward = (0..2)
                    .map(|i| actions[row][i] * rewards[row][i])
                    .sum::<f64>();
                let goal = reward + 0.9 * judge(&learner.target_critic, &next, &chosen);
                let value = judge(&learner.critic, &vector(&state(row as f64)), &actions[row]);
                critic_loss += (value - goal).powi(2) / 2.0;
            }
            let chosen: Vec<Vec<f64>> = (0..2)
                .map(|row| softmax(run(&learner.actor, &vector(&state(row as f64)))))
                .collect();
            let before = [flat(&learner.target_actor), flat(&learner.target_critic)];
            let report = learner.update(&replay, &[0, 1]);
            near(report.critic_loss, critic_loss);
            // The actor is judged by the critic that has just learnt.
            let value =
                |row: usize| judge(&learner.critic, &vector(&state(row as f64)), &chosen[row]);
            near(report.actor_loss, -(value(0) + value(1)) / 2.0);
            let pairs = [
                (&learner.target_actor, &learner.actor),
                (&learner.target_critic, &learner.critic),
            ];
            for ((target, source), before) in pairs.into_iter().zip(before) {
                for ((now, new), old) in flat(target).into_iter().zip(flat(source)).zip(before) {
                    near(now, 0.75 * old + 0.25 * new);
                }
            }
            assert!(report.applied, "update {update}");
        }
    }

    #[test]
    fn the_first_update_fits_the_reward_and_follows_the_critic() {
        // With equal targets and γ = 0 the goal is the reward: Σ a r = 0.75·2 + 0.25·4 = 2.5. The last
        // layer starts near 0, so the first loss is nearly 2.5².
        let layout = RowLayout {
            domains: 2,
            globals: 3,
        };
        let config = AcOdmConfig {
            width: 16,
            layers: 2,
            discount: 0.0,
            learning_rate: 1e-2,
            ..AcOdmConfig::default()
        };
        let mut learner = Learner::new(&config, layout, 1, Device::Cpu, Kind::Double);
        let state = State {
            domains: vec![0.5, -1.0, 0.2, 1.0, 0.0, -0.3],
            globals: vec![1.0, -1.0, 0.1],
        };
        let mut replay = Replay::new(layout, 4);
        let action = [0.75, 0.25];
        replay.push(&Transition {
            state: &state,
            action: &action,
            rewards: &[2.0, 4.0],
            next: &state,
        });
        let first = learner.update(&replay, &[0, 0]);
        assert!(
            (first.critic_loss - 6.25).abs() < 0.5 && first.applied,
            "{first:?}"
        );
        let mut last = first;
        for _ in 0..200 {
            last = learner.update(&replay, &[0, 0]);
        }
        assert!(last.critic_loss < 1e-2, "{last:?}");
    }
}
