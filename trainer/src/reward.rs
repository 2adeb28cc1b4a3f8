//! The three rewards of the paper, from a step's signals.
//!
//! In: [`StepSignals`] of one optimizer step. Out: [`Rewards`], each term before and after scaling.
//! Always holds: what comes out is finite whatever goes in (a domain whose numbers are not finite
//! counts as absent from the step); the same signals in the same order give the same rewards, also
//! across [`RewardModel::save`] and [`RewardModel::restore`]. Knows no model, no policy.
//!
//! Legend: K domains.
//!
//! # Source
//! Paper section on rewards: r_i = w_align·r_align,i + w_div·r_div,i + w_stab·r_stab. Each term's
//! module gives its formula and what is our choice.

mod alignment;
mod config;
mod diversity;
mod stability;
mod statistics;

pub use config::{Absent, Diversity, OwnTerm, RewardConfig, RewardError};

use serde::{Deserialize, Serialize};

use crate::signals::{Rewards, StepSignals};
use alignment::SequenceVariances;
use stability::StabilityState;
use statistics::Held;

/// Turns signals into rewards; holds what the formulas need of earlier steps.
#[derive(Clone, Debug)]
pub struct RewardModel {
    config: RewardConfig,
    domains: usize,
    /// τ, length K, sum 1.
    target: Vec<f64>,
    state: RewardState,
}

/// What the formulas need of earlier steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RewardState {
    alignment: Held,
    sequence_variances: SequenceVariances,
    diversity: Held,
    stability: StabilityState,
}

impl RewardModel {
    /// A model for K = `domains` domains whose target is uniform.
    pub fn new(config: RewardConfig, domains: usize) -> Self {
        Self {
            config,
            domains,
            target: vec![1.0 / domains.max(1) as f64; domains],
            state: RewardState {
                alignment: Held::new(domains),
                sequence_variances: SequenceVariances::new(domains),
                diversity: Held::new(domains),
                stability: StabilityState::default(),
            },
        }
    }

    /// Sets the target τ: which domains the run should get good at. Uniform is the paper's sum over
    /// all domains.
    ///
    /// # Errors
    /// If `target` is not K finite numbers ≥ 0 with a positive sum (they are divided by it).
    pub fn with_target(mut self, target: &[f64]) -> Result<Self, RewardError> {
        let sum: f64 = target.iter().sum();
        let good = target.len() == self.domains
            && target.iter().all(|t| t.is_finite() && *t >= 0.0)
            && sum.is_finite()
            && sum > 0.0;
        if !good {
            return Err(RewardError::Target {
                got: target.len(),
                want: self.domains,
            });
        }
        self.target = target.iter().map(|t| t / sum).collect();
        Ok(self)
    }

    /// τ, on the simplex; length K.
    pub fn target(&self) -> &[f64] {
        &self.target
    }

    /// The configuration the model works by.
    pub fn config(&self) -> &RewardConfig {
        &self.config
    }

    /// The rewards of a step. Vectors shorter than K count as absent domains.
    pub fn rewards(&mut self, signals: &StepSignals) -> Rewards {
        let config = &self.config;
        let variances = &mut self.state.sequence_variances;
        let (alignment_raw, measured) =
            alignment::alignment(config, signals, &self.target, variances);
        let alignment = self.state.alignment.fill(config, signals.step, &measured);
        let (diversity_raw, measured) = diversity::diversity(config, signals, self.domains);
        let diversity = self.state.diversity.fill(config, signals.step, &measured);
        let (stability_raw, stability) = self.state.stability.reward(config, &signals.weight_norms);
        let total = alignment
            .iter()
            .zip(&diversity)
            .map(|(align, div)| {
                config.alignment_weight * align
                    + config.diversity_weight * div
                    + config.stability_weight * stability
            })
            .collect();
        Rewards {
            alignment_raw,
            alignment,
            diversity_raw,
            diversity,
            stability_raw,
            stability,
            total,
        }
    }

    /// What [`Self::restore`] needs to go on with the next step.
    ///
    /// # Errors
    /// Never for a state made here; the type is that of the encoder.
    pub fn save(&self) -> Result<serde_json::Value, RewardError> {
        serde_json::to_value(&self.state).map_err(|source| RewardError::State { source })
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// If it is not one, or is of another number of domains; the model is then unchanged.
    pub fn restore(&mut self, saved: &serde_json::Value) -> Result<(), RewardError> {
        let state: RewardState =
            Deserialize::deserialize(saved).map_err(|source| RewardError::State { source })?;
        for got in [
            state.alignment.len(),
            state.sequence_variances.len(),
            state.diversity.len(),
        ] {
            if got != self.domains {
                return Err(RewardError::Domains {
                    got,
                    want: self.domains,
                });
            }
        }
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
