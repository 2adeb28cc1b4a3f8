//! Online Data Mixing: an Exp3 bandit whose arms are domains and whose reward is a domain's loss.
//!
//! In: the losses of a step. Out: an exponential weighting of their importance-weighted averages over a
//! floor that shrinks with time. Uses no gradients, so a run under it needs no signals.
//!
//! # Source
//! Albalak, Pan, Raffel, Wang, "Efficient Online Data Mixing for Language Model Pre-Training", 2023,
//! arXiv:2312.02406, algorithm 1. With E_t = min(1/K, √(ln K / (K t))), E_0 = 1/K, and t the steps seen:
//! R̂_i ← α R̂_i + (1 − α) l_i / π_i for the domains seen in the step, and
//! π_i = (1 − K E_t) · exp(E_{t−1} R̂_i) / Σ_j exp(E_{t−1} R̂_j) + E_t.
//! During warm-up (1 % of the steps) π are the base weights, and R̂ is learnt. A loss that is not
//! finite counts as not seen.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, check_shape, saved};
use crate::signals::Observation;

/// `[scheduler.odm]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OdmConfig {
    /// α, the weight of the past in the average reward; in [0, 1).
    pub smoothing: f64,
    /// Share of the run's steps under the base weights; in [0, 1].
    pub warm_up_fraction: f64,
}

impl Default for OdmConfig {
    /// The paper's values.
    fn default() -> Self {
        Self {
            smoothing: 0.9,
            warm_up_fraction: 0.01,
        }
    }
}

impl OdmConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let check = |key: &str, got: f64, good: bool, want: &str| {
            if good {
                return Ok(());
            }
            Err(PolicyError::Config {
                key: format!("scheduler.odm.{key}"),
                got: got.to_string(),
                want: want.into(),
            })
        };
        let smoothing = self.smoothing;
        check(
            "smoothing",
            smoothing,
            (0.0..1.0).contains(&smoothing),
            "in [0, 1)",
        )?;
        let fraction = self.warm_up_fraction;
        check(
            "warm_up_fraction",
            fraction,
            (0.0..=1.0).contains(&fraction),
            "in [0, 1]",
        )
    }
}

/// The bandit.
#[derive(Debug)]
pub(super) struct OdmPolicy {
    smoothing: f64,
    warm_up_steps: u64,
    base_weights: Vec<f64>,
    layers: usize,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// R̂, length K.
    rewards: Vec<f64>,
    /// t.
    steps_seen: u64,
}

impl OdmPolicy {
    pub(super) fn new(config: &OdmConfig, run: &RunFacts<'_>) -> Self {
        Self {
            smoothing: config.smoothing,
            warm_up_steps: (config.warm_up_fraction * run.total_steps as f64).floor() as u64,
            base_weights: run.base_weights.clone(),
            layers: run.layers,
            state: State {
                rewards: vec![0.0; run.domains.len()],
                steps_seen: 0,
            },
        }
    }
}

/// E_t for K domains; 1/K for t = 0.
fn exploration(domains: usize, steps: u64) -> f64 {
    let k = domains as f64;
    let most = 1.0 / k;
    if steps == 0 {
        most
    } else {
        (k.ln() / (k * steps as f64)).sqrt().min(most)
    }
}

impl Policy for OdmPolicy {
    fn name(&self) -> &'static str {
        "odm"
    }

    fn initial(&mut self) -> Vec<f64> {
        self.base_weights.clone()
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        let domains = self.base_weights.len();
        check_shape(observation, domains, self.layers)?;
        for (i, reward) in self.state.rewards.iter_mut().enumerate() {
            let seen = observation.signals.losses[i].filter(|loss| loss.is_finite());
            let weight = observation.weights[i];
            if let Some(loss) = seen
                && weight > 0.0
            {
                *reward = self.smoothing * *reward + (1.0 - self.smoothing) * loss / weight;
            }
        }
        self.state.steps_seen += 1;
        let seen = self.state.steps_seen;
        let (floor, sharpness) = (exploration(domains, seen), exploration(domains, seen - 1));
        let warm_up = observation.signals.step + 1 < self.warm_up_steps;
        let weights = if warm_up {
            self.base_weights.clone()
        } else {
            let most = self.state.rewards.iter().copied().fold(f64::MIN, f64::max);
            let exponentials: Vec<f64> = self
                .state
                .rewards
                .iter()
                .map(|r| (sharpness * (r - most)).exp())
                .collect();
            let sum: f64 = exponentials.iter().sum();
            let rest = 1.0 - domains as f64 * floor;
            exponentials
                .iter()
                .map(|e| rest * e / sum + floor)
                .collect()
        };
        Ok(Decision {
            weights,
            diagnostics: BTreeMap::from([
                ("warm_up".to_owned(), f64::from(u8::from(warm_up))),
                ("exploration".to_owned(), floor),
            ]),
        })
    }

    fn save(&mut self, folder: &Path) -> Result<(), PolicyError> {
        saved::write(folder, self.name(), &self.state)
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state: State = saved::read(folder, self.name())?;
        saved::check_length(
            folder,
            "rewards",
            state.rewards.len(),
            self.base_weights.len(),
        )?;
        self.state = state;
        Ok(())
    }

    fn parameters(&self) -> u64 {
        0
    }

    fn wants_rewards(&self) -> bool {
        false
    }

    fn warmup_steps(&self) -> u64 {
        self.warm_up_steps
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, domains, facts, observation, restores_bit_for_bit};
    use super::super::{PolicyName, SchedulerConfig};
    use super::*;

    fn seen(step: u64, weights: &[f64], losses: [Option<f64>; 3]) -> Observation {
        let mut seen = observation(3, step, weights);
        seen.signals.losses = losses.to_vec();
        seen
    }

    #[test]
    fn weights_follow_the_papers_formulas() {
        // K = 3, α = 0.5, no warm-up; worked out by hand.
        let config = OdmConfig {
            smoothing: 0.5,
            warm_up_fraction: 0.0,
        };
        let set = domains(3);
        let mut run = facts(&set, 100);
        run.base_weights = vec![0.5, 0.25, 0.25];
        let mut policy = OdmPolicy::new(&config, &run);
        let weights = policy.initial();
        assert_eq!(weights, run.base_weights);
        // t = 1: R̂ = ½ (4/0.5, 3/0.25, 0) = (4, 6, 0); E_1 = min(1/3, √(ln 3 / 3) = 0.605) = 1/3:
        // all of the mass is exploration.
        let decision = policy
            .next(&seen(0, &weights, [Some(4.0), Some(3.0), None]))
            .unwrap();
        close(&decision.weights, &[1.0 / 3.0; 3]);
        // t = 2: R̂ = (½·4 + ½·3·2, 6, ½·3·1) = (5, 6, 1.5); E_2 = √(ln 3 / 6) = 0.4279 → 1/3 still.
        let weights = decision.weights;
        let decision = policy
            .next(&seen(1, &weights, [Some(2.0), None, Some(1.0)]))
            .unwrap();
        close(&decision.weights, &[1.0 / 3.0; 3]);
        // t = 3 has 0.3494 → 1/3; t = 4: E_4 = √(ln 3 / 12) = 0.302 573, E_3 = 1/3.
        policy.next(&seen(2, &weights, [None; 3])).unwrap();
        let decision = policy
            .next(&seen(3, &weights, [None, Some(f64::NAN), None]))
            .unwrap();
        // exp(R̂/3) = 5.294 490, 7.389 056, 1.648 721, sum 14.332 267; 1 − 3·0.302 574 = 0.092 278.
        let want = [0.336_662_462_2, 0.350_148_282_4, 0.313_189_255_4];
        for (got, want) in decision.weights.iter().zip(want) {
            assert!((got - want).abs() < 1e-9, "{decision:?} {want:?}");
        }
        close(&[decision.weights.iter().sum()], &[1.0]);
    }

    #[test]
    fn warm_up_keeps_the_base_weights() {
        let set = domains(3);
        let mut run = facts(&set, 200);
        run.base_weights = vec![0.5, 0.25, 0.25];
        let mut policy = OdmPolicy::new(
            &OdmConfig {
                warm_up_fraction: 0.02,
                ..OdmConfig::default()
            },
            &run,
        );
        for step in 0..3 {
            let seen = observation(3, step, &run.base_weights);
            assert_eq!(policy.next(&seen).unwrap().weights, run.base_weights);
        }
        let seen = observation(3, 3, &run.base_weights);
        assert_ne!(policy.next(&seen).unwrap().weights, run.base_weights);
    }

    #[test]
    fn a_restored_bandit_goes_on_bit_for_bit() {
        restores_bit_for_bit(&SchedulerConfig {
            policy: PolicyName::Odm,
            ..SchedulerConfig::default()
        });
    }

    #[test]
    fn huge_rewards_do_not_overflow() {
        let set = domains(3);
        let mut run = facts(&set, 100);
        run.base_weights = vec![1.0 - 2e-12, 1e-12, 1e-12];
        let mut policy = OdmPolicy::new(&OdmConfig::default(), &run);
        let weights = run.base_weights.clone();
        for step in 0..50 {
            let decision = policy.next(&observation(3, step, &weights)).unwrap();
            assert!(
                decision.weights.iter().all(|w| w.is_finite() && *w >= 0.0),
                "{decision:?}"
            );
        }
    }
}
