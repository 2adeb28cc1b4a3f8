//! DoGE, used online: exponentiated gradient on how well each domain's gradient serves a target.
//!
//! In: the Gram matrix of a step. Out: weights multiplied by exp(rate · W_i). Needs per-domain
//! gradients, but no network: the simplest policy that follows the first-order gain.
//!
//! # Source
//! Fan, Pagliardini, Jaggi, "DoGE: Domain Reweighting with Generalization Estimation", ICML 2024,
//! arXiv:2310.15393, equations 5 to 7: W_i = ⟨g_i, Σ_j τ_j g_j⟩, a_i ∝ a_i exp(η_t W_i / μ). There weights are learnt
//! on a small model and averaged; here they govern the run itself, as the paper's update does
//! step by step. Our choices: `normalize` divides W by the mean ‖g_j‖², so that a rate means the same for
//! any model, layer and time (η_t/μ literally without it); a domain absent from the step counts as the
//! mean of those present; a floor keeps every domain in sight.

use std::collections::BTreeMap;
use std::path::Path;

use hds::Mixture;
use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, check_shape, saved};
use crate::signals::{Observation, StepSignals};

/// `[scheduler.doge]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DogeConfig {
    /// η/μ; > 0.
    pub rate: f64,
    /// Divide W by the step's mean ‖g_j‖².
    pub normalize: bool,
    /// Least weight of a domain as a share of 1/K, in [0, 1).
    pub weight_floor: f64,
    /// Share of the run's steps under the base weights; in [0, 1].
    pub warm_up_fraction: f64,
    /// Target weight τ per domain, divided by their sum; none named means the run's target.
    pub target: BTreeMap<String, f64>,
}

impl Default for DogeConfig {
    fn default() -> Self {
        Self {
            rate: 0.2,
            normalize: true,
            weight_floor: 0.1,
            warm_up_fraction: 0.01,
            target: BTreeMap::new(),
        }
    }
}

impl DogeConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let check = |key: &str, got: f64, good: bool, want: &str| {
            if good {
                return Ok(());
            }
            Err(PolicyError::Config {
                key: format!("scheduler.doge.{key}"),
                got: got.to_string(),
                want: want.into(),
            })
        };
        check(
            "rate",
            self.rate,
            self.rate > 0.0 && self.rate.is_finite(),
            "above 0",
        )?;
        let floor = self.weight_floor;
        check(
            "weight_floor",
            floor,
            (0.0..1.0).contains(&floor),
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

/// Exponentiated gradient.
#[derive(Debug)]
pub(super) struct DogePolicy {
    config: DogeConfig,
    target: Vec<f64>,
    warm_up_steps: u64,
    base_weights: Vec<f64>,
    layers: usize,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// ln a before the floor, up to a constant; length K.
    log_weights: Vec<f64>,
}

/// Furthest below the largest that a log weight may be: e^−30 is never drawn, and can come back.
const LEAST_LOG_WEIGHT: f64 = -30.0;

impl DogePolicy {
    pub(super) fn new(config: &DogeConfig, run: &RunFacts<'_>) -> Result<Self, PolicyError> {
        let domains = run.domains.len();
        let target = if config.target.is_empty() {
            Mixture::new(run.target.clone(), run.domains).map_err(|source| {
                PolicyError::Weights {
                    key: "target",
                    source,
                }
            })?
        } else {
            for name in config.target.keys() {
                run.domains
                    .find(name)
                    .map_err(|source| PolicyError::Domain {
                        key: "scheduler.doge.target",
                        source,
                    })?;
            }
            let weight = |name| config.target.get(name).copied().unwrap_or(0.0);
            let weights = run.domains.names().iter().map(weight).collect();
            Mixture::normalized(weights, run.domains).map_err(|source| PolicyError::Weights {
                key: "scheduler.doge.target",
                source,
            })?
        };
        Ok(Self {
            target: target.weights().to_vec(),
            warm_up_steps: (config.warm_up_fraction * run.total_steps as f64).floor() as u64,
            base_weights: run.base_weights.clone(),
            layers: run.layers,
            state: State {
                // Uniform, as the paper starts.
                log_weights: vec![0.0; domains],
            },
            config: config.clone(),
        })
    }

    /// W of the domains whose gradients the step showed; `None` without a usable Gram matrix.
    fn gains(&self, signals: &StepSignals) -> Option<Vec<Option<f64>>> {
        let domains = self.target.len();
        let gram = signals.gram.as_ref()?;
        if gram.domains != domains || gram.products.len() != domains * domains {
            return None;
        }
        let shown: Vec<bool> = (0..domains)
            .map(|i| signals.samples[i] > 0 && gram.at(i, i).is_finite())
            .collect();
        let gains: Vec<Option<f64>> = (0..domains)
            .map(|i| {
                let gain = || -> f64 {
                    // Also of domains that are only held out, which the step measured but did not draw.
                    let others = (0..domains).filter(|&j| gram.at(j, j).is_finite());
                    others.map(|j| self.target[j] * gram.at(i, j)).sum()
                };
                shown[i].then(gain)
            })
            .collect();
        let count = shown.iter().filter(|&&s| s).count() as f64;
        let square: f64 = (0..domains)
            .filter(|&i| shown[i])
            .map(|i| gram.at(i, i))
            .sum();
        let scale = if self.config.normalize {
            square / count
        } else {
            1.0
        };
        let usable = scale.is_finite() && scale > 0.0;
        let scaled: Vec<Option<f64>> = gains.iter().map(|gain| gain.map(|w| w / scale)).collect();
        (usable && scaled.iter().flatten().all(|w| w.is_finite())).then_some(scaled)
    }
}

impl Policy for DogePolicy {
    fn name(&self) -> &'static str {
        "doge"
    }

    fn initial(&mut self) -> Vec<f64> {
        self.base_weights.clone()
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        let domains = self.target.len();
        check_shape(observation, domains, self.layers)?;
        let gains = self.gains(&observation.signals);
        if let Some(gains) = &gains {
            let count = gains.iter().flatten().count().max(1) as f64;
            let mean = gains.iter().flatten().sum::<f64>() / count;
            for (log, gain) in self.state.log_weights.iter_mut().zip(gains) {
                *log += self.config.rate * (gain.unwrap_or(mean) - mean);
            }
            let most = self
                .state
                .log_weights
                .iter()
                .copied()
                .fold(f64::MIN, f64::max);
            for log in &mut self.state.log_weights {
                *log = (*log - most).max(LEAST_LOG_WEIGHT);
            }
        }
        let warm_up = observation.signals.step + 1 < self.warm_up_steps;
        let weights = if warm_up {
            self.base_weights.clone()
        } else {
            let exponentials: Vec<f64> = self.state.log_weights.iter().map(|l| l.exp()).collect();
            let sum: f64 = exponentials.iter().sum();
            let floor = self.config.weight_floor;
            exponentials
                .iter()
                .map(|e| floor / domains as f64 + (1.0 - floor) * e / sum)
                .collect()
        };
        Ok(Decision {
            weights,
            diagnostics: BTreeMap::from([
                ("warm_up".to_owned(), f64::from(u8::from(warm_up))),
                ("measured".to_owned(), f64::from(u8::from(gains.is_some()))),
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
            "log_weights",
            state.log_weights.len(),
            self.target.len(),
        )?;
        self.state = state;
        Ok(())
    }

    fn parameters(&self) -> u64 {
        0
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
    use crate::signals::Gram;

    fn literal() -> DogeConfig {
        DogeConfig {
            rate: 0.5,
            normalize: false,
            weight_floor: 0.0,
            warm_up_fraction: 0.0,
            target: BTreeMap::new(),
        }
    }

    /// g_0 = (1, 0), g_1 = (1, 2).
    fn seen(step: u64, second: u64) -> Observation {
        let mut seen = observation(2, step, &[0.5, 0.5]);
        let products = if second > 0 {
            vec![1.0, 1.0, 1.0, 5.0]
        } else {
            vec![1.0, 0.0, 0.0, 0.0]
        };
        seen.signals.samples = vec![1, second];
        seen.signals.gram = Some(Gram {
            domains: 2,
            products,
            sequence_squares: Vec::new(),
        });
        seen
    }

    #[test]
    fn weights_follow_the_papers_formulas() {
        let set = domains(2);
        let mut policy = DogePolicy::new(&literal(), &facts(&set, 100)).unwrap();
        // W = (½·1 + ½·1, ½·1 + ½·5) = (1, 3): a ∝ (e^0.5, e^1.5), then squared factors.
        let first = policy.next(&seen(0, 1)).unwrap().weights;
        let share = 1f64.exp() / (1.0 + 1f64.exp());
        close(&first, &[1.0 - share, share]);
        let second = policy.next(&seen(1, 1)).unwrap().weights;
        let share = 2f64.exp() / (1.0 + 2f64.exp());
        close(&second, &[1.0 - share, share]);
        // The second domain is absent: nothing is known against it.
        let third = policy.next(&seen(2, 0)).unwrap().weights;
        close(&third, &second);
    }

    #[test]
    fn a_target_and_normalisation_enter_the_gain() {
        let set = domains(2);
        let mut config = literal();
        config.normalize = true;
        config.weight_floor = 0.2;
        config.target = BTreeMap::from([("d0".to_owned(), 4.0)]);
        let mut policy = DogePolicy::new(&config, &facts(&set, 100)).unwrap();
        // τ = (1, 0): W = (1, 1), no difference, whatever the scale.
        close(&policy.next(&seen(0, 1)).unwrap().weights, &[0.5, 0.5]);
        config.target = BTreeMap::from([("d1".to_owned(), 1.0)]);
        let mut policy = DogePolicy::new(&config, &facts(&set, 100)).unwrap();
        // W = (1, 5) over the mean ‖g‖² of 3; the difference times 0.5 is 2/3.
        let share = (2.0f64 / 3.0).exp() / (1.0 + (2.0f64 / 3.0).exp());
        close(
            &policy.next(&seen(0, 1)).unwrap().weights,
            &[0.1 + 0.8 * (1.0 - share), 0.1 + 0.8 * share],
        );
    }

    #[test]
    fn a_step_without_usable_gradients_changes_nothing() {
        let set = domains(2);
        let mut policy = DogePolicy::new(&literal(), &facts(&set, 100)).unwrap();
        let before = policy.next(&seen(0, 1)).unwrap().weights;
        let mut bad = seen(1, 1);
        bad.signals.gram.as_mut().unwrap().products[1] = f64::NAN;
        let decision = policy.next(&bad).unwrap();
        assert_eq!(
            (decision.weights, decision.diagnostics["measured"]),
            (before.clone(), 0.0)
        );
        bad.signals.gram = None;
        assert_eq!(policy.next(&bad).unwrap().weights, before);
    }

    #[test]
    fn an_unknown_target_domain_is_named() {
        let set = domains(2);
        let config = DogeConfig {
            target: BTreeMap::from([("x".to_owned(), 1.0)]),
            ..literal()
        };
        let error = DogePolicy::new(&config, &facts(&set, 100))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("scheduler.doge.target: no domain is named \"x\""),
            "{error}"
        );
    }

    #[test]
    fn a_restored_policy_goes_on_bit_for_bit() {
        restores_bit_for_bit(&SchedulerConfig {
            policy: PolicyName::Doge,
            ..SchedulerConfig::default()
        });
    }
}
