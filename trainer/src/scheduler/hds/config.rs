//! `[scheduler.hds]`: the agent's method and hyper-parameters.

use serde::{Deserialize, Serialize};

use super::super::error::PolicyError;
use crate::optimizer::IN_SINGLE_PRECISION;
use crate::preset::{Preset, configuration_with_presets};

/// How large the agent's networks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkSize {
    /// Width 32, 1 block: for models that train on a CPU.
    Small,
    /// The paper's: width 256, 8 blocks; 26.5 M parameters in five networks.
    Paper,
    /// About 0.5 % of the trained model's parameters a network, but not below `small`.
    Auto,
}

/// How rewards, critics and the actor's objective fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coupling {
    /// The authors' code: head i regresses r_i plus the discounted head i of the next state; the actor
    /// maximises the mean of the heads. Where r_i does not depend on the action, it learns nothing.
    Vector,
    /// The expected reward of a draw, Σ_i a_i r_i, as one number; Q = Σ_i a_i q_i(s, a).
    Expected,
    /// The expected reward of a draw, learnt part by part: head i regresses r_i plus the discounted
    /// value of the next state, and Q = Σ_i a_i q_i(s, a). The same fixed point as `expected`, with K
    /// numbers to learn from at each step instead of one.
    Factored,
}

/// The entropy that the temperature is learnt to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyTarget {
    /// −K, the usual choice; no density on the simplex reaches it for K > 4, and α then rises for ever.
    Paper,
    /// `entropy_margin_nats` · (K − 1) below the greatest entropy possible, −ln (K − 1)!.
    Relative,
}

/// `[scheduler.hds]`: the soft actor-critic agent.
///
/// `preset = "paper"` has the paper's and the authors' code's values. `preset = "default"` differs in:
/// - `coupling = "factored"`: the literal rewards are no functions of the action, so that critics
///   which regress them give the actor no gradient.
/// - `entropy_target = "relative"`: −K cannot be met on the simplex.
/// - `normalize_rewards`: critics see rewards of mean 0 and deviation 1 over the replay, whatever the
///   scale of their terms.
/// - `weight_floor = 0.1`: every domain keeps a tenth of its uniform share, so that its signals do not
///   end, and the density stays finite.
/// - `progress_scale = 1`: t/T·100 is tens of times any other input, all of which lie in ±3.
/// - `learning_rate = 1e-3`, `polyak = 0.01`, `minibatch = 64`: with the paper's 1e-4 and 0.001 an agent has barely
///   moved in the first thousand steps of a run.
/// - `network = "auto"`, which is the paper's size for a model of 1 B parameters.
/// - `learn_in_warm_up`: transitions are learnt from as soon as there are enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct HdsConfig {
    /// Where the values below started from.
    pub preset: Preset,
    /// Size of each of the five networks.
    pub network: NetworkSize,
    /// How rewards, critics and the actor's objective fit together.
    pub coupling: Coupling,
    /// The entropy that the temperature is learnt to hold.
    pub entropy_target: EntropyTarget,
    /// For `entropy_target = "relative"`: nats per free dimension below the greatest possible; > 0.
    pub entropy_margin_nats: f64,
    /// Centre and scale rewards by their statistics over the replay before critics see them.
    pub normalize_rewards: bool,
    /// Least weight of a domain as a share of 1/K, in [0, 1).
    pub weight_floor: f64,
    /// Share of the run's steps that sample from noisy base weights and fill the replay; in [0, 1].
    pub warm_up_fraction: f64,
    /// Standard deviation of the noise on the base weights; they are clipped at 0 and renormalised.
    pub warm_up_noise: f64,
    /// Whether the networks learn during warm-up.
    pub learn_in_warm_up: bool,
    /// Least number of transitions before the networks learn.
    pub least_transitions: u64,
    /// Discount γ, in [0, 1).
    pub discount: f64,
    /// Share of the critics that enters the targets at each update, in (0, 1].
    pub polyak: f64,
    /// Updates per step, N_ac.
    pub updates_per_step: u64,
    /// Transitions per update, drawn with replacement.
    pub minibatch: u64,
    /// Transitions kept.
    pub replay_capacity: u64,
    /// Adam's learning rate, for actor, critics and temperature.
    pub learning_rate: f64,
    /// Decoupled weight decay of the networks' matrices.
    pub weight_decay: f64,
    /// Temperature α at the start.
    pub initial_temperature: f64,
    /// What t/T is multiplied by in the state.
    pub progress_scale: f64,
    /// What the policy's deviation is multiplied by where the run's weights are drawn; ≥ 0. 1 draws from the policy itself; at 0 it acts
    /// by its middle.
    pub exploration: f64,
    /// κ of the weights ∝ exp(κ · running mean of a domain's reward) that the policy is relative to; ≥ 0, 0 for none.
    pub prior_strength: f64,
    /// Weight of the past in that running mean, in [0, 1).
    pub prior_decay: f64,
}
configuration_with_presets!(HdsConfig);

impl HdsConfig {
    /// The paper's and the authors' code's values.
    pub fn paper() -> Self {
        Self {
            preset: Preset::Paper,
            network: NetworkSize::Paper,
            coupling: Coupling::Vector,
            entropy_target: EntropyTarget::Paper,
            entropy_margin_nats: 1.0,
            normalize_rewards: false,
            weight_floor: 0.0,
            warm_up_fraction: 0.02,
            warm_up_noise: 0.02,
            learn_in_warm_up: false,
            least_transitions: 256,
            discount: 0.95,
            polyak: 0.001,
            updates_per_step: 2,
            minibatch: 256,
            replay_capacity: 10_000,
            learning_rate: 1e-4,
            // The trained model's, as the authors' code.
            weight_decay: 0.1,
            initial_temperature: 0.2,
            progress_scale: 100.0,
            exploration: 1.0,
            prior_strength: 0.0,
            prior_decay: 0.98,
        }
    }

    pub(crate) fn preset_values(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self::paper(),
            Preset::Default => Self::default(),
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the dotted key that is out of range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let check = |key: &str, got: f64, good: bool, want: &str| {
            if good {
                return Ok(());
            }
            Err(PolicyError::Config {
                key: format!("scheduler.hds.{key}"),
                got: got.to_string(),
                want: want.into(),
            })
        };
        let share = |v: f64| (0.0..1.0).contains(&v);
        check(
            "entropy_margin_nats",
            self.entropy_margin_nats,
            self.entropy_margin_nats > 0.0 && self.entropy_margin_nats.is_finite(),
            "above 0",
        )?;
        check(
            "weight_floor",
            self.weight_floor,
            share(self.weight_floor),
            "in [0, 1)",
        )?;
        let fraction = self.warm_up_fraction;
        check(
            "warm_up_fraction",
            fraction,
            (0.0..=1.0).contains(&fraction),
            "in [0, 1]",
        )?;
        check("discount", self.discount, share(self.discount), "in [0, 1)")?;
        let decay = self.prior_decay;
        check("prior_decay", decay, share(decay), "in [0, 1)")?;
        check(
            "polyak",
            self.polyak,
            self.polyak > 0.0 && self.polyak <= 1.0,
            "in (0, 1]",
        )?;
        for (key, value) in [
            ("learning_rate", self.learning_rate),
            ("initial_temperature", self.initial_temperature),
        ] {
            let holds = IN_SINGLE_PRECISION.contains(&value);
            check(key, value, holds, "from 1e-30 to 1e30")?;
        }
        for (key, value) in [
            ("warm_up_noise", self.warm_up_noise),
            ("weight_decay", self.weight_decay),
            ("progress_scale", self.progress_scale),
            ("exploration", self.exploration),
            ("prior_strength", self.prior_strength),
        ] {
            check(key, value, value >= 0.0 && value.is_finite(), "0 or more")?;
        }
        for (key, value, most) in [
            ("least_transitions", self.least_transitions, 10_000_000),
            ("minibatch", self.minibatch, 1_000_000),
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
        check(
            "least_transitions",
            self.least_transitions as f64,
            self.least_transitions <= self.replay_capacity,
            "at most scheduler.hds.replay_capacity",
        )
    }
}

impl Default for HdsConfig {
    fn default() -> Self {
        Self {
            preset: Preset::Default,
            network: NetworkSize::Auto,
            coupling: Coupling::Factored,
            entropy_target: EntropyTarget::Relative,
            normalize_rewards: true,
            weight_floor: 0.1,
            learn_in_warm_up: true,
            least_transitions: 16,
            polyak: 0.01,
            minibatch: 64,
            learning_rate: 1e-3,
            weight_decay: 0.0,
            progress_scale: 1.0,
            ..Self::paper()
        }
    }
}
