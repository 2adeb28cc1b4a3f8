//! `[optimizer]` of a run's configuration: AdamW, its learning-rate schedule, clipping.

use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use crate::model::DecayOn;
use crate::optimizer::{AdamWConfig, IN_SINGLE_PRECISION, OptimizerError, Schedule};

/// Shape of the learning rate over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleName {
    /// Half a cosine down to the minimum.
    Cosine,
    /// A straight line down to the minimum.
    Linear,
    /// Stable, then a straight line down over the last `decay_fraction` of the run.
    WarmupStableDecay,
    /// The peak throughout.
    Constant,
}

/// `[optimizer]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSection {
    /// Greatest learning rate.
    pub learning_rate: f64,
    /// Learning rate at the end of the schedule.
    pub minimum_learning_rate: f64,
    /// Part of the run with a linearly growing rate.
    pub warmup_fraction: f64,
    /// Shape of the schedule.
    pub schedule: ScheduleName,
    /// Part of the run with a falling rate, for `warmup_stable_decay`.
    pub decay_fraction: f64,
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Which parameters it applies to.
    pub decay_on: DecayOn,
    /// Greatest global norm of the gradient.
    pub gradient_clip: f64,
}

impl Default for OptimizerSection {
    fn default() -> Self {
        // Paper, training set-up of Pythia-1B: Adam (0.9, 0.95, 1e-8), 2.5e-4 → 2.5e-5 cosine, 1 %
        // warm-up, weight decay 0.1, clip 1.0. The decay fraction is our choice (Hägele et al. 2024).
        let adamw = AdamWConfig::default();
        Self {
            learning_rate: 2.5e-4,
            minimum_learning_rate: 2.5e-5,
            warmup_fraction: 0.01,
            schedule: ScheduleName::Cosine,
            decay_fraction: 0.2,
            betas: adamw.betas,
            epsilon: adamw.epsilon,
            weight_decay: adamw.weight_decay,
            decay_on: DecayOn::default(),
            gradient_clip: 1.0,
        }
    }
}

impl OptimizerSection {
    /// The settings of AdamW.
    pub fn adamw(&self) -> AdamWConfig {
        AdamWConfig {
            betas: self.betas,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
        }
    }

    /// The learning rate of every step of a run.
    pub fn schedule(&self, total_steps: u64) -> Schedule {
        let part = |fraction: f64| (fraction * total_steps as f64).round() as u64;
        let (peak, floor) = (self.learning_rate, self.minimum_learning_rate);
        let warmup_steps = part(self.warmup_fraction);
        match self.schedule {
            ScheduleName::Cosine => Schedule::Cosine {
                peak,
                floor,
                warmup_steps,
                total_steps,
            },
            ScheduleName::Linear => Schedule::Linear {
                peak,
                floor,
                warmup_steps,
                total_steps,
            },
            ScheduleName::WarmupStableDecay => Schedule::WarmupStableDecay {
                peak,
                floor,
                warmup_steps,
                decay_steps: part(self.decay_fraction),
                total_steps,
            },
            ScheduleName::Constant => Schedule::Constant { peak, warmup_steps },
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value out of range, by its dotted key.
    pub fn validate(&self, total_steps: u64) -> Result<(), ConfigError> {
        let holds = |value: f64| IN_SINGLE_PRECISION.contains(&value);
        let fraction = |value: f64| (0.0..=1.0).contains(&value);
        let minimum = self.minimum_learning_rate;
        for (key, value, fits, want) in [
            (
                "learning_rate",
                self.learning_rate,
                holds(self.learning_rate),
                "from 1e-30 to 1e30, as weights have 32 bits",
            ),
            (
                "minimum_learning_rate",
                minimum,
                minimum == 0.0 || holds(minimum) && minimum <= self.learning_rate,
                "0, or from 1e-30 to optimizer.learning_rate",
            ),
            (
                "warmup_fraction",
                self.warmup_fraction,
                fraction(self.warmup_fraction),
                "in [0, 1]",
            ),
            (
                "decay_fraction",
                self.decay_fraction,
                fraction(self.decay_fraction),
                "in [0, 1]",
            ),
            (
                "gradient_clip",
                self.gradient_clip,
                self.gradient_clip.is_finite()
                    && self.gradient_clip >= *IN_SINGLE_PRECISION.start(),
                "at least 1e-30",
            ),
        ] {
            if !fits {
                let reason = format!("is {value}, must be {want}");
                return Err(ConfigError::Key {
                    key: format!("optimizer.{key}"),
                    reason,
                });
            }
        }
        let schedule = self.schedule(total_steps);
        if let Schedule::WarmupStableDecay {
            warmup_steps,
            decay_steps,
            ..
        } = schedule
            && warmup_steps.saturating_add(decay_steps) > total_steps
        {
            let reason = format!(
                "{} gives {decay_steps} steps, and optimizer.warmup_fraction {warmup_steps} more: together they must be at most \
                 run.steps = {total_steps}",
                self.decay_fraction
            );
            return Err(ConfigError::Key {
                key: "optimizer.decay_fraction".into(),
                reason,
            });
        }
        let failed = |reason: String| ConfigError::Key {
            key: "optimizer".into(),
            reason,
        };
        self.adamw().validate().map_err(|error| match error {
            OptimizerError::Setting { key, got, want } => ConfigError::Key {
                key: format!("optimizer.{key}"),
                reason: format!("is {got}, must be {want}"),
            },
            other => failed(other.to_string()),
        })?;
        schedule.validate().map_err(|e| failed(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_named_by_its_own_key() {
        type Change = fn(&mut OptimizerSection);
        let check = |change: Change| {
            let mut section = OptimizerSection::default();
            change(&mut section);
            section.validate(10).map_err(|e| e.to_string())
        };
        assert_eq!(check(|_| ()), Ok(()));
        let cases: [(Change, &str); 7] = [
            (|s| s.learning_rate = 1e-39, "optimizer.learning_rate"),
            (|s| s.learning_rate = 1e39, "optimizer.learning_rate"),
            (
                |s| s.minimum_learning_rate = 1e-39,
                "optimizer.minimum_learning_rate",
            ),
            (|s| s.epsilon = 1e-60, "optimizer.epsilon"),
            (|s| s.gradient_clip = 1e-60, "optimizer.gradient_clip"),
            (|s| s.betas.1 = 1.0, "optimizer.betas[1]"),
            (
                |s| {
                    s.schedule = ScheduleName::WarmupStableDecay;
                    (s.warmup_fraction, s.decay_fraction) = (0.5, 0.6);
                },
                "optimizer.decay_fraction: 0.6 gives 6 steps",
            ),
        ];
        for (change, want) in cases {
            let error = check(change).unwrap_err();
            assert!(error.contains(want), "{error}");
            assert!(!error.contains("_steps"), "a key that is none: {error}");
        }
    }
}
