//! Stability: how little the selected layers' norms moved.
//!
//! # Source
//! Paper, reward 3: r_stab = min(1 / (| ‖ω^t‖ − ‖ω^{t−1}‖ | + ε), 5); over several layers the authors'
//! code sums the absolute changes first. Our choices: the first step, which has no step before it,
//! counts as no change; a step with a norm that is not finite gets 0 and is not remembered; scaled, it is
//! the logarithm of the inverse without its cap that is centred, since the capped inverse is the same
//! number at every step of an ordinary run and says nothing.

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
    /// The reward of a step whose selected layers have these norms, before cap and scaling and as it counts; the same for every domain.
    pub(super) fn reward(&mut self, config: &RewardConfig, norms: &[f64]) -> (f64, f64) {
        if norms.is_empty() || norms.iter().any(|norm| !norm.is_finite()) {
            return (0.0, 0.0);
        }
        let before = self.norms.replace(norms.to_vec());
        let change: Option<f64> = before.map(|before| {
            let pairs = norms.iter().zip(&before);
            pairs.map(|(now, then)| (now - then).abs()).sum()
        });
        let inverse = |change: f64| 1.0 / (change + config.epsilon);
        let raw = inverse(change.unwrap_or(0.0));
        let counted = match (config.scale_stability, change) {
            (true, None) => 0.0,
            (true, Some(_)) => self.statistics.scale(config, raw.ln()),
            (false, _) => raw.min(config.stability_cap),
        };
        (raw, counted)
    }
}
