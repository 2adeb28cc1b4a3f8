//! Soft actor-critic: actor, twin critics with targets, temperature, and one update of all.
//!
//! In: minibatches of the replay and standard normal noise. Out: better networks, and what the update
//! showed. Always holds: no loss or gradient that is not finite is ever applied: the update ends there;
//! the same minibatches and noise give the same networks, bit for bit on one device and thread count.
//!
//! Legend: B minibatch, K domains, G run features.
//!
//! # Source
//! Paper, soft actor-critic section; Haarnoja et al., "Soft actor-critic algorithms and applications",
//! 2018: y = r + γ (min_k Q'_k(s', a') − α ln π(a'|s')), critics by MSE, the actor minimises
//! α ln π(a|s) − min_k Q_k(s, a), α by −ln α · (ln π + H), H the target entropy, Polyak averaging.
//! What Q and r are under each coupling: [`Coupling`].

use tch::{Device, Kind, Tensor, no_grad};

use super::super::replay::{Replay, RowLayout};
use super::super::state::DOMAIN_FEATURES;
use super::config::{Coupling, EntropyTarget, HdsConfig};
use super::network::{Network, NetworkShape};
use super::simplex::{Draw, Floor, LogisticNormal, greatest_entropy};
use crate::optimizer::{AdamW, AdamWConfig, Parameter};

/// Bounds of the actor's outputs, smooth: |μ| < 6 keeps ratios of weights within e^12, and ln σ in
/// (−4, 1) goes from nearly no noise to more than the most spread policy has. Our choice.
const MEAN_BOUND: f64 = 6.0;
const LOG_DEVIATION_MIDDLE: f64 = -1.5;
const LOG_DEVIATION_HALF: f64 = 2.5;
/// Raw output 0 means σ = 0.5: about as spread as the default entropy target asks for.
const LOG_DEVIATION_START: f64 = 0.33;
/// Bound of |ln α|: e^±12 is beyond any use, and finite.
const LOG_TEMPERATURE_BOUND: f64 = 12.0;

/// Sizes of width and depth, before what a run adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NetworkSizing {
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
    pub hidden: usize,
}

/// Minibatch tensors.
pub(super) struct Minibatch {
    features_bkf: Tensor,
    globals_bg: Tensor,
    action_bk: Tensor,
    rewards_bk: Tensor,
    next_features_bkf: Tensor,
    next_globals_bg: Tensor,
}

impl Minibatch {
    /// The rows at `places`.
    pub(super) fn gather(
        replay: &Replay,
        layout: RowLayout,
        places: &[usize],
        device: Device,
        kind: Kind,
    ) -> Self {
        let mut flat = Vec::with_capacity(places.len() * layout.row());
        for &place in places {
            flat.extend_from_slice(replay.row(place));
        }
        let (b, k, g) = (
            places.len() as i64,
            layout.domains as i64,
            layout.globals as i64,
        );
        let rows = Tensor::from_slice(&flat)
            .view([b, layout.row() as i64])
            .to_device(device)
            .to_kind(kind);
        let part = |start: usize, length: i64| rows.narrow(1, start as i64, length);
        let features = |start: usize| {
            part(start, k * DOMAIN_FEATURES as i64).reshape([b, k, DOMAIN_FEATURES as i64])
        };
        let after = |start: usize| part(start + layout.domains * DOMAIN_FEATURES, g);
        Self {
            features_bkf: features(0),
            globals_bg: after(0),
            action_bk: part(layout.action(), k),
            rewards_bk: part(layout.rewards(), k),
            next_features_bkf: features(layout.next()),
            next_globals_bg: after(layout.next()),
        }
    }
}

/// What an update showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UpdateReport {
    pub critic_loss: f64,
    pub actor_loss: f64,
    /// −mean ln π of the actions drawn while learning.
    pub entropy: f64,
    /// Mean Q of the replayed actions, in the critics' units.
    pub value: f64,
    /// Whether networks changed.
    pub applied: bool,
}

/// How rewards become what critics see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RewardScale {
    mean: f64,
    divisor: f64,
}

impl RewardScale {
    const NONE: Self = Self {
        mean: 0.0,
        divisor: 1.0,
    };
}

/// The agent's networks and how they learn.
pub(super) struct Agent {
    coupling: Coupling,
    floor: Floor,
    discount: f64,
    polyak: f64,
    learning_rate: f64,
    normalize_rewards: bool,
    entropy_target: f64,
    /// Log weights [K] that the policy is relative to, if any.
    center_k: Option<Tensor>,
    pub(super) layout: RowLayout,
    device: Device,
    kind: Kind,
    pub(super) actor: Network,
    pub(super) critics: Network,
    pub(super) targets: Network,
    pub(super) log_temperature: Tensor,
    pub(super) actor_optimizer: AdamW,
    pub(super) critic_optimizer: AdamW,
    pub(super) temperature_optimizer: AdamW,
}

impl Agent {
    pub(super) fn new(
        config: &HdsConfig,
        sizing: NetworkSizing,
        layout: RowLayout,
        seed: u64,
        device: Device,
        kind: Kind,
    ) -> Self {
        let [actor_shape, critic_shape] = shapes(sizing, layout);
        let actor = Network::new(actor_shape, seed, 0, device, kind);
        let critics = Network::new(critic_shape, seed, 1, device, kind);
        // Built from the same random numbers, so equal to the critics.
        let targets = Network::new(critic_shape, seed, 1, device, kind);
        let log_temperature = Tensor::from_slice(&[config.initial_temperature.ln()])
            .to_kind(Kind::Double)
            .set_requires_grad(true);
        (&log_temperature * 0.0).sum(None::<Kind>).backward();
        let adam = AdamWConfig {
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: config.weight_decay,
        };
        let floor = Floor {
            share: config.weight_floor,
        };
        let domains = layout.domains;
        let entropy_target = match config.entropy_target {
            EntropyTarget::Paper => -(domains as f64),
            EntropyTarget::Relative => {
                let free = domains.saturating_sub(1) as f64;
                greatest_entropy(domains, floor) - config.entropy_margin_nats * free
            }
        };
        let temperature = Parameter {
            name: "log_temperature".into(),
            tensor: log_temperature.shallow_clone(),
            decays: false,
        };
        Self {
            coupling: config.coupling,
            floor,
            discount: config.discount,
            polyak: config.polyak,
            learning_rate: config.learning_rate,
            normalize_rewards: config.normalize_rewards,
            entropy_target,
            center_k: None,
            layout,
            device,
            kind,
            actor_optimizer: AdamW::new(actor.parameters.optimized(), adam),
            critic_optimizer: AdamW::new(critics.parameters.optimized(), adam),
            temperature_optimizer: AdamW::new(vec![temperature], adam),
            actor,
            critics,
            targets,
            log_temperature,
        }
    }

    /// Parameters of the five networks together.
    pub(super) fn parameters(&self) -> u64 {
        [&self.actor, &self.critics, &self.targets]
            .map(|network| network.parameters.count())
            .iter()
            .sum()
    }

    /// Makes the policy relative to these log weights, from the next update on.
    pub(super) fn set_center(&mut self, log_weights: &[f64]) {
        let center_k = Tensor::from_slice(log_weights);
        self.center_k = Some(center_k.to_device(self.device).to_kind(self.kind));
    }

    /// α.
    pub(super) fn temperature(&self) -> f64 {
        self.log_temperature.double_value(&[0]).exp()
    }

    /// The entropy that α is learnt to hold.
    pub(super) fn entropy_target(&self) -> f64 {
        self.entropy_target
    }

    /// μ and σ of the policy in a state given as features [K·3] and [G]; length K each.
    pub(super) fn policy(&self, domains: &[f32], globals: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let k = self.layout.domains as i64;
        let to = |values: &[f32], shape: &[i64]| {
            Tensor::from_slice(values)
                .view(shape)
                .to_device(self.device)
                .to_kind(self.kind)
        };
        let features_bkf = to(domains, &[1, k, DOMAIN_FEATURES as i64]);
        let globals_bg = to(globals, &[1, globals.len() as i64]);
        let policy = no_grad(|| self.distribution(&features_bkf, &globals_bg));
        let read = |tensor: &Tensor| -> Vec<f64> {
            let flat = tensor
                .to_kind(Kind::Double)
                .to_device(Device::Cpu)
                .contiguous()
                .view(-1);
            Vec::try_from(flat).unwrap_or_default()
        };
        (read(&policy.mean_bk), read(&policy.log_deviation_bk.exp()))
    }

    /// What [`Self::update`] takes off rewards and divides them by: it costs a pass over the whole replay, so once for
    /// all updates of a step.
    pub(super) fn reward_scale(&self, replay: &Replay) -> RewardScale {
        if !self.normalize_rewards {
            return RewardScale::NONE;
        }
        let scalar = self.coupling == Coupling::Expected;
        let (mean, deviation) = replay.statistics(|action, rewards, take| {
            let products = action
                .iter()
                .zip(rewards)
                .map(|(a, r)| f64::from(*a) * f64::from(*r));
            if scalar {
                take(products.sum());
            } else {
                rewards.iter().for_each(|r| take(f64::from(*r)));
            }
        });
        // A constant reward says nothing: leave it at 0 instead of blowing up its rounding.
        let says_something = deviation > 1e-6 * mean.abs().max(1e-6);
        let divisor = if says_something { deviation } else { 1.0 };
        RewardScale { mean, divisor }
    }

    /// One update of critics, actor, temperature and targets, with noise [B, K] for the actions drawn
    /// in the next states and in the states.
    pub(super) fn update(
        &mut self,
        batch: &Minibatch,
        scale: RewardScale,
        next_noise_bk: &Tensor,
        noise_bk: &Tensor,
    ) -> UpdateReport {
        let rewards = self.coupled_rewards(batch, scale);
        let goal = no_grad(|| self.goal(batch, &rewards, next_noise_bk));
        let mut report = UpdateReport::default();

        let values = self.value(
            &self.critics,
            &batch.features_bkf,
            &batch.globals_bg,
            &batch.action_bk,
        );
        // The mean over both critics, times 2: the sum of two mean squared errors.
        let critic_loss = (values.fit - goal).square().mean(None::<Kind>) * 2.0;
        report.critic_loss = critic_loss.double_value(&[]);
        report.value = values.total.mean(None::<Kind>).double_value(&[]);
        let leaves = self.critics.parameters.leaves();
        let gradients = Tensor::run_backward(&[critic_loss], &leaves, false, false);
        if !report.critic_loss.is_finite() || !self.critics.parameters.set_gradients(&gradients) {
            return report;
        }
        self.critic_optimizer.step(self.learning_rate);

        let (actor_loss, log_density) = self.actor_loss(batch, noise_bk);
        report.actor_loss = actor_loss.double_value(&[]);
        report.entropy = -log_density;
        let leaves = self.actor.parameters.leaves();
        let gradients = Tensor::run_backward(&[actor_loss], &leaves, false, false);
        if !report.actor_loss.is_finite() || !self.actor.parameters.set_gradients(&gradients) {
            return report;
        }
        self.actor_optimizer.step(self.learning_rate);
        self.learn_temperature(log_density);
        self.targets
            .parameters
            .approach(&self.critics.parameters, self.polyak);
        report.applied = true;
        report
    }

    /// The actor's loss α ln π − min Q, a scalar, and the mean ln π.
    fn actor_loss(&self, batch: &Minibatch, noise_bk: &Tensor) -> (Tensor, f64) {
        let draw = self
            .distribution(&batch.features_bkf, &batch.globals_bg)
            .draw_around(self.center_k.as_ref(), noise_bk, self.floor);
        let value = self
            .value(
                &self.critics,
                &batch.features_bkf,
                &batch.globals_bg,
                &draw.mixture_bk,
            )
            .least();
        // Under `vector`, the mean over heads of the least of two values.
        let value_b = self.per_transition(&value);
        let loss = (&draw.log_density_b * self.temperature() - value_b).mean(None::<Kind>);
        (
            loss,
            draw.log_density_b.mean(None::<Kind>).double_value(&[]),
        )
    }

    /// What the critics regress: [B, K], or [B] under `expected`.
    fn goal(&self, batch: &Minibatch, rewards: &Tensor, noise_bk: &Tensor) -> Tensor {
        let Draw {
            mixture_bk,
            log_density_b,
        } = self
            .distribution(&batch.next_features_bkf, &batch.next_globals_bg)
            .draw_around(self.center_k.as_ref(), noise_bk, self.floor);
        let least = self
            .value(
                &self.targets,
                &batch.next_features_bkf,
                &batch.next_globals_bg,
                &mixture_bk,
            )
            .least();
        let entropy_b = log_density_b * self.temperature();
        let next = match self.coupling {
            Coupling::Vector => least - entropy_b.unsqueeze(-1),
            Coupling::Expected => least - entropy_b,
            Coupling::Factored => (least - entropy_b).unsqueeze(-1),
        };
        rewards + next * self.discount
    }

    fn distribution(&self, features_bkf: &Tensor, globals_bg: &Tensor) -> LogisticNormal {
        let out_bk2 = self.actor.forward(features_bkf, globals_bg).squeeze_dim(0);
        let raw_mean_bk = out_bk2.select(-1, 0);
        let centered_bk =
            &raw_mean_bk - raw_mean_bk.mean_dim([-1i64].as_slice(), true, None::<Kind>);
        let bounded = (out_bk2.select(-1, 1) + LOG_DEVIATION_START).tanh();
        LogisticNormal {
            mean_bk: (centered_bk / MEAN_BOUND).tanh() * MEAN_BOUND,
            log_deviation_bk: bounded * LOG_DEVIATION_HALF + LOG_DEVIATION_MIDDLE,
        }
    }

    fn value(
        &self,
        critics: &Network,
        features_bkf: &Tensor,
        globals_bg: &Tensor,
        action_bk: &Tensor,
    ) -> Value {
        // K a − 1: 0 for uniform weights, of the same size as the other features.
        let scaled_bk1 = (action_bk * self.layout.domains as f64 - 1.0).unsqueeze(-1);
        let heads_ebk = critics
            .forward(&Tensor::cat(&[features_bkf, &scaled_bk1], -1), globals_bg)
            .squeeze_dim(-1);
        let weighted =
            || (&heads_ebk * action_bk).sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>);
        match self.coupling {
            Coupling::Vector => Value {
                fit: heads_ebk.shallow_clone(),
                total: heads_ebk,
            },
            Coupling::Expected => {
                let total = weighted();
                Value {
                    fit: total.shallow_clone(),
                    total,
                }
            }
            Coupling::Factored => {
                let total = weighted();
                Value {
                    fit: heads_ebk,
                    total,
                }
            }
        }
    }

    /// The rewards as the critics take them: [B, K], or [B] under `expected`.
    fn coupled_rewards(&self, batch: &Minibatch, scale: RewardScale) -> Tensor {
        let rewards = if self.coupling == Coupling::Expected {
            let products_bk = &batch.rewards_bk * &batch.action_bk;
            products_bk.sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>)
        } else {
            batch.rewards_bk.shallow_clone()
        };
        if scale == RewardScale::NONE {
            return rewards;
        }
        (rewards - scale.mean) / scale.divisor
    }

    fn per_transition(&self, value: &Tensor) -> Tensor {
        match self.coupling {
            Coupling::Vector => value.mean_dim([-1i64].as_slice(), false, None::<Kind>),
            Coupling::Expected | Coupling::Factored => value.shallow_clone(),
        }
    }

    /// d/d ln α of −ln α (ln π + H) is −(ln π + H).
    fn learn_temperature(&mut self, mean_log_density: f64) {
        let gradient = -(mean_log_density + self.entropy_target);
        let _ = self.log_temperature.grad().fill_(gradient);
        self.temperature_optimizer.step(self.learning_rate);
        let _ = self
            .log_temperature
            .detach()
            .clamp_(-LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND);
    }
}

/// What critics give: what is regressed, and what the actor maximises; [2, B, K] or [2, B].
struct Value {
    fit: Tensor,
    total: Tensor,
}

impl Value {
    /// The lesser of the two critics' values.
    fn least(&self) -> Tensor {
        self.total.get(0).minimum(&self.total.get(1))
    }
}

/// Shapes of actor and critics.
pub(super) fn shapes(sizing: NetworkSizing, layout: RowLayout) -> [NetworkShape; 2] {
    let shape = |members, features, outputs| NetworkShape {
        members,
        domains: layout.domains,
        features,
        globals: layout.globals,
        outputs,
        width: sizing.width,
        blocks: sizing.blocks,
        heads: sizing.heads,
        hidden: sizing.hidden,
    };
    [
        shape(1, DOMAIN_FEATURES, 2),
        shape(2, DOMAIN_FEATURES + 1, 1),
    ]
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
