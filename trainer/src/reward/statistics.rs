//! Standardisation over the domains of a step, running statistics over steps, and values held for
//! domains that a step did not show.

use serde::{Deserialize, Serialize};

use super::config::{Absent, RewardConfig};

/// Standardises the values that are there to mean 0 and (population) standard deviation 1 and clamps
/// them; all equal gives 0.
pub(super) fn standardize(config: &RewardConfig, values: &[Option<f64>]) -> Vec<Option<f64>> {
    let there: Vec<f64> = values.iter().flatten().copied().collect();
    let n = there.len().max(1) as f64;
    let mean = there.iter().sum::<f64>() / n;
    let variance = there.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let scale = variance.sqrt() + config.epsilon;
    values
        .iter()
        .map(|value| value.map(|v| ((v - mean) / scale).clamp(-config.clamp, config.clamp)))
        .collect()
}

/// Exponentially weighted mean and variance of a number, corrected for their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunningStatistics {
    weight: f64,
    mean: f64,
    variance: f64,
}

impl RunningStatistics {
    /// Takes a finite value in, then gives it centred, scaled and clamped; the first value gives 0.
    pub(super) fn scale(&mut self, config: &RewardConfig, value: f64) -> f64 {
        let decay = config.statistics_decay;
        self.weight = decay * self.weight + (1.0 - decay);
        // Share of the new value among all that were seen: 1 at first, 1 − decay in the long run.
        let share = (1.0 - decay) / self.weight;
        let distance = value - self.mean;
        self.mean += share * distance;
        self.variance = (1.0 - share) * (self.variance + share * distance * distance);
        let scale = self.variance.sqrt() + config.epsilon;
        ((value - self.mean) / scale).clamp(-config.clamp, config.clamp)
    }
}

/// The last value of every domain and the step it is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Held(Vec<Option<(f64, u64)>>);

impl Held {
    pub(super) fn new(domains: usize) -> Self {
        Self(vec![None; domains])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes the values of a step and fills in for the domains without one; length K.
    pub(super) fn fill(
        &mut self,
        config: &RewardConfig,
        step: u64,
        values: &[Option<f64>],
    ) -> Vec<f64> {
        let mut filled = Vec::with_capacity(self.0.len());
        for (i, held) in self.0.iter_mut().enumerate() {
            if let Some(value) = values.get(i).copied().flatten().filter(|v| v.is_finite()) {
                *held = Some((value, step));
            }
            let age_limit = match config.absent {
                Absent::Zero => 0,
                Absent::Hold => config.absent_age_steps,
            };
            *held = held.filter(|(_, seen)| step.saturating_sub(*seen) <= age_limit);
            filled.push(held.map_or(0.0, |(value, _)| value));
        }
        filled
    }
}
