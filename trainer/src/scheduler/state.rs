//! The agent's state: what it sees of a run after a step.
//!
//! In: [`StepSignals`]. Out: three features per domain (samples n, loss l, its change Δl) and, for the
//! run, the selected layers' ‖ω‖, then their ‖Δω‖, then t/T. Always holds: every number is finite.
//!
//! # Source
//! Paper, state s^t, with the authors' code's standardisation: each group to mean 0 and deviation 1 over
//! its elements, clamped to ±3; t/T times 100 (configurable). Our choices: a domain absent from a step
//! keeps its last loss and has Δl = 0; a loss never seen, or not finite, counts as the mean of the group.

use serde::{Deserialize, Serialize};

use crate::signals::StepSignals;

/// Features of a domain.
pub(super) const DOMAIN_FEATURES: usize = 3;
const CLAMP: f64 = 3.0;

/// A state as the networks take it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// [K · 3], domain by domain.
    pub domains: Vec<f32>,
    /// [2 · layers + 1].
    pub globals: Vec<f32>,
}

/// Turns signals into states; remembers the last loss of every domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateEncoder {
    losses: Vec<Option<f64>>,
}

impl StateEncoder {
    pub(super) fn new(domains: usize) -> Self {
        Self {
            losses: vec![None; domains],
        }
    }

    /// K.
    pub(super) fn domains(&self) -> usize {
        self.losses.len()
    }

    /// The state after a step whose vectors have the run's lengths.
    pub(super) fn encode(&mut self, signals: &StepSignals, progress_scale: f64) -> State {
        let samples: Vec<Option<f64>> = signals.samples.iter().map(|&n| Some(n as f64)).collect();
        let mut changes = Vec::with_capacity(self.losses.len());
        for (last, now) in self.losses.iter_mut().zip(&signals.losses) {
            let now = now.filter(|loss| loss.is_finite());
            changes.push(Some(match (now, *last) {
                (Some(now), Some(last)) => now - last,
                _ => 0.0,
            }));
            *last = now.or(*last);
        }
        let groups = [samples, self.losses.clone(), changes].map(|group| standardize(&group));
        let domains = (0..self.losses.len())
            .flat_map(|i| groups.each_ref().map(|group| group[i]))
            .collect();
        let finite = |norms: &[f64]| -> Vec<Option<f64>> {
            norms.iter().map(|&n| n.is_finite().then_some(n)).collect()
        };
        let mut globals = standardize(&finite(&signals.weight_norms));
        globals.extend(standardize(&finite(&signals.weight_change_norms)));
        let progress = signals.step as f64 / signals.total_steps.max(1) as f64;
        globals.push((progress_scale * progress) as f32);
        State { domains, globals }
    }
}

/// To mean 0 and population deviation 1 over the values that are there, clamped; the others get 0.
fn standardize(values: &[Option<f64>]) -> Vec<f32> {
    let there = || values.iter().flatten();
    let count = there().count().max(1) as f64;
    let mean = there().sum::<f64>() / count;
    let variance = there().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    let scale = variance.sqrt() + 1e-8;
    let scaled = |v: f64| ((v - mean) / scale).clamp(-CLAMP, CLAMP) as f32;
    values
        .iter()
        .map(|value| value.map_or(0.0, scaled))
        // Values too large to square give no number; they carry no information either.
        .map(|value| if value.is_finite() { value } else { 0.0 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::observation;
    use super::*;

    fn signals(losses: &[Option<f64>]) -> StepSignals {
        let mut signals = observation(losses.len(), 250, &[]).signals;
        signals.losses = losses.to_vec();
        signals
    }

    fn feature(state: &State, which: usize) -> Vec<f32> {
        state
            .domains
            .iter()
            .skip(which)
            .step_by(DOMAIN_FEATURES)
            .copied()
            .collect()
    }

    fn close(got: &[f32], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        for (g, w) in got.iter().zip(want) {
            assert!((f64::from(*g) - w).abs() < 1e-5, "{got:?} is not {want:?}");
        }
    }

    #[test]
    fn groups_are_standardised_over_their_elements() {
        let mut encoder = StateEncoder::new(3);
        let mut first = signals(&[Some(1.0), Some(2.0), Some(3.0)]);
        first.weight_norms = vec![4.0, 8.0];
        first.weight_change_norms = vec![1.0, 1.0];
        let state = encoder.encode(&first, 100.0);
        let outer = 1.5f64.sqrt();
        // Samples 1, 2, 3 as well.
        close(&feature(&state, 0), &[-outer, 0.0, outer]);
        close(&feature(&state, 1), &[-outer, 0.0, outer]);
        close(&feature(&state, 2), &[0.0; 3]);
        close(&state.globals, &[-1.0, 1.0, 0.0, 0.0, 25.0]);
    }

    #[test]
    fn an_absent_domain_keeps_its_loss_and_shows_no_change() {
        let mut encoder = StateEncoder::new(3);
        encoder.encode(&signals(&[Some(1.0), Some(2.0), None]), 1.0);
        let state = encoder.encode(&signals(&[Some(4.0), None, None]), 1.0);
        // Losses 4 and 2 are known, the third counts as their mean; changes 3, 0, 0.
        close(&feature(&state, 1), &[1.0, -1.0, 0.0]);
        close(
            &feature(&state, 2),
            &[2f64.sqrt(), -1.0 / 2f64.sqrt(), -1.0 / 2f64.sqrt()],
        );
    }

    #[test]
    fn outliers_are_clamped_and_numbers_that_are_not_finite_left_out() {
        let mut losses = vec![Some(0.0); 20];
        losses[0] = Some(1e6);
        losses[1] = Some(f64::NAN);
        losses[2] = Some(f64::MAX);
        let mut bad = signals(&losses);
        bad.weight_norms = vec![f64::INFINITY];
        let state = StateEncoder::new(20).encode(&bad, 1.0);
        assert!(
            state
                .domains
                .iter()
                .chain(&state.globals)
                .all(|v| v.is_finite() && v.abs() <= 3.0)
        );
        losses[2] = Some(0.0);
        let state = StateEncoder::new(20).encode(&signals(&losses), 1.0);
        assert_eq!(feature(&state, 1)[0], 3.0);
        assert_eq!(feature(&state, 1)[1], 0.0);
    }
}
