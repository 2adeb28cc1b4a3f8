//! Stability: how little the selected layers' norms moved.
//!
//! # Source
//! Paper, reward 3: r_stab = min(1 / (| ‖ω^t‖ − ‖ω^{t−1}‖ | + ε), 5); over several layers the authors'
//! code sums the absolute changes first. Our choice: the first step, which has no step before it,
//! counts as no change; a step with a norm that is not finite gets 0 and is not remembered.

use serde::{Deserialize, Serialize};

use super::config::RewardConfig;
use super::statistics::RunningStatistics;

/// The norms of the step before, and the statistics of the reward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StabilityState {
    norms: Option<Vec<f64>>,
    statistics: RunningStatistics,
}

impl StabilityState {
    /// The reward of a step whose selected layers have these norms, the same for every domain.
    pub(super) fn reward(&mut self, config: &RewardConfig, norms: &[f64]) -> f64 {
        if norms.is_empty() || norms.iter().any(|norm| !norm.is_finite()) {
            return 0.0;
        }
        let change: f64 = match &self.norms {
            Some(before) => norms
                .iter()
                .zip(before)
                .map(|(now, then)| (now - then).abs())
                .sum(),
            None => 0.0,
        };
        self.norms = Some(norms.to_vec());
        let reward = (1.0 / (change + config.epsilon)).min(config.stability_cap);
        if config.scale_stability {
            self.statistics.scale(config, reward)
        } else {
            reward
        }
    }
}
