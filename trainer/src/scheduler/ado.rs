//! Adaptive Data Optimization: sample where a scaling law of each domain forecasts the fastest learning.
//!
//! In: the losses and sample counts of a step. Out: prior × forecast learning speed × credit, averaged
//! over time. Uses no gradients, so a run under it needs no signals.
//!
//! # Source
//! Jiang, Zhou, Feng, Malladi, Kolter, "Adaptive Data Optimization: Dynamic Sample Selection with Scaling
//! Laws", ICLR 2025, arXiv:2410.11820. With L_k(n) = ε_k + β_k n^{−α_k} fitted per domain ([`fit`]), μ the base weights:
//! - learning speed −dL_k/dn = α_k β_k n^{−α_k} / n; every domain's n grows by the whole batch, so that
//!   what a domain learns from others is its own to forecast (the paper's choice),
//! - credit λ_k = h_k^s, h ← (1 − γ₁) h + γ₁ (share of domain k in the step), h_k = μ_k at first,
//! - preference ρ_k ∝ μ_k λ_k (−dL_k/dn), at least `least_weight`, then normalised,
//! - π = γ₂ ρ + (1 − γ₂) π̄ with π̄ the mean of all ρ so far, π̄ ← π̄ + (ρ − π̄) / (t + 1), π̄ = μ at first.
//!
//! γ₁ = γ₂ = 0.1, s = ½, least weight 0.01; base weights until the first fit after 1,000 of 60,000 steps, whose first
//! 500 are not fitted, and a new fit every 1,000: here as shares of the run. Our choice: `least_weight` is at most 1/(2K).

mod fit;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, check_shape, saved};
use crate::signals::Observation;
use fit::{LossHistory, ScalingLaw};

/// `[scheduler.ado]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdoConfig {
    /// γ₁, the weight of a step in the credit; in (0, 1].
    pub credit_rate: f64,
    /// s, the power of the credit; ≥ 0.
    pub credit_power: f64,
    /// γ₂, the weight of the preference beside its mean over time; in (0, 1].
    pub preference_rate: f64,
    /// Least preference of a domain before normalising; in [0, 1).
    pub least_weight: f64,
    /// Share of the run's steps under the base weights; in [0, 1].
    pub warm_up_fraction: f64,
    /// Share of the run's steps at its start that are not fitted, below `warm_up_fraction`.
    pub ignored_fraction: f64,
    /// Share of the run's steps from one fit to the next; in (0, 1].
    pub refit_fraction: f64,
}

impl Default for AdoConfig {
    /// The paper's values.
    fn default() -> Self {
        Self {
            credit_rate: 0.1,
            credit_power: 0.5,
            preference_rate: 0.1,
            least_weight: 0.01,
            warm_up_fraction: 1.0 / 60.0,
            ignored_fraction: 1.0 / 120.0,
            refit_fraction: 1.0 / 60.0,
        }
    }
}

impl AdoConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let check = |key: &str, got: f64, good: bool, want: &str| {
            if good {
                return Ok(());
            }
            Err(PolicyError::Config {
                key: format!("scheduler.ado.{key}"),
                got: got.to_string(),
                want: want.into(),
            })
        };
        for (key, rate) in [
            ("credit_rate", self.credit_rate),
            ("preference_rate", self.preference_rate),
            ("refit_fraction", self.refit_fraction),
        ] {
            check(key, rate, rate > 0.0 && rate <= 1.0, "in (0, 1]")?;
        }
        let power = self.credit_power;
        check(
            "credit_power",
            power,
            power >= 0.0 && power.is_finite(),
            "0 or more",
        )?;
        let least = self.least_weight;
        check(
            "least_weight",
            least,
            (0.0..1.0).contains(&least),
            "in [0, 1)",
        )?;
        let warm_up = self.warm_up_fraction;
        check(
            "warm_up_fraction",
            warm_up,
            (0.0..=1.0).contains(&warm_up),
            "in [0, 1]",
        )?;
        let ignored = self.ignored_fraction;
        let want = "from 0 to scheduler.ado.warm_up_fraction";
        check(
            "ignored_fraction",
            ignored,
            (0.0..=warm_up).contains(&ignored),
            want,
        )
    }
}

/// The forecasts and what they are made of.
#[derive(Debug)]
pub(super) struct AdoPolicy {
    config: AdoConfig,
    prior: Vec<f64>,
    layers: usize,
    warm_up_steps: u64,
    ignored_steps: u64,
    refit_steps: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Samples of all domains so far, n.
    samples: f64,
    history: LossHistory,
    /// By domain; `None` before the first fit, and where there was nothing to fit.
    laws: Vec<Option<ScalingLaw>>,
    fits: u64,
    /// h, length K.
    credit: Vec<f64>,
    /// π̄, length K.
    average: Vec<f64>,
}

impl AdoPolicy {
    pub(super) fn new(config: &AdoConfig, run: &RunFacts<'_>) -> Self {
        let domains = run.domains.len();
        let steps = |fraction: f64| (fraction * run.total_steps as f64).floor() as u64;
        Self {
            prior: run.base_weights.clone(),
            layers: run.layers,
            warm_up_steps: steps(config.warm_up_fraction).max(1),
            ignored_steps: steps(config.ignored_fraction),
            refit_steps: steps(config.refit_fraction).max(1),
            state: State {
                samples: 0.0,
                history: LossHistory::new(domains),
                laws: vec![None; domains],
                fits: 0,
                credit: run.base_weights.clone(),
                average: run.base_weights.clone(),
            },
            config: config.clone(),
        }
    }

    fn take_in(&mut self, observation: &Observation) {
        let signals = &observation.signals;
        let batch: u64 = signals.samples.iter().sum();
        if batch > 0 {
            let rate = self.config.credit_rate;
            for (credit, &n) in self.state.credit.iter_mut().zip(&signals.samples) {
                *credit = (1.0 - rate) * *credit + rate * n as f64 / batch as f64;
            }
        }
        self.state.samples += batch as f64;
        if signals.step >= self.ignored_steps {
            self.state.history.push(self.state.samples, &signals.losses);
        }
    }

    /// ρ.
    fn preference(&self) -> Vec<f64> {
        let domains = self.prior.len() as f64;
        let speed = |law: &Option<ScalingLaw>| law.map_or(0.0, |l| l.speed(self.state.samples));
        let raw: Vec<f64> = (0..self.prior.len())
            .map(|i| {
                let credit = self.state.credit[i].powf(self.config.credit_power);
                self.prior[i] * credit * speed(&self.state.laws[i])
            })
            .collect();
        let sum: f64 = raw.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            return self.prior.clone();
        }
        let least = self.config.least_weight.min(0.5 / domains);
        let raised: Vec<f64> = raw.iter().map(|r| (r / sum).max(least)).collect();
        let sum: f64 = raised.iter().sum();
        raised.iter().map(|r| r / sum).collect()
    }
}

impl Policy for AdoPolicy {
    fn name(&self) -> &'static str {
        "ado"
    }

    fn initial(&mut self) -> Vec<f64> {
        self.prior.clone()
    }

    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError> {
        check_shape(observation, self.prior.len(), self.layers)?;
        self.take_in(observation);
        let step = observation.signals.step + 1;
        let warm_up = step < self.warm_up_steps;
        if !warm_up && (step - self.warm_up_steps).is_multiple_of(self.refit_steps) {
            for (i, law) in self.state.laws.iter_mut().enumerate() {
                // A fit that fails keeps the last law.
                *law = self.state.history.fit(i).or(*law);
            }
            self.state.fits += 1;
        }
        let weights = if warm_up {
            self.prior.clone()
        } else {
            let preference = self.preference();
            let rate = self.config.preference_rate;
            let mix = |(new, mean): (&f64, &f64)| rate * new + (1.0 - rate) * mean;
            let weights = preference
                .iter()
                .zip(&self.state.average)
                .map(mix)
                .collect();
            for (mean, new) in self.state.average.iter_mut().zip(&preference) {
                *mean += (new - *mean) / (step as f64 + 1.0);
            }
            weights
        };
        Ok(Decision {
            weights,
            diagnostics: BTreeMap::from([
                ("warm_up".to_owned(), f64::from(u8::from(warm_up))),
                ("fits".to_owned(), self.state.fits as f64),
                (
                    "fitted_domains".to_owned(),
                    self.state.laws.iter().flatten().count() as f64,
                ),
            ]),
        })
    }

    fn save(&mut self, folder: &Path) -> Result<(), PolicyError> {
        saved::write(folder, self.name(), &self.state)
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state: State = saved::read(folder, self.name())?;
        for (field, got) in [
            ("laws", state.laws.len()),
            ("credit", state.credit.len()),
            ("average", state.average.len()),
            ("history", state.history.domains()),
        ] {
            saved::check_length(folder, field, got, self.prior.len())?;
        }
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

    #[test]
    fn weights_follow_the_papers_formulas() {
        // Two domains, μ = (0.36, 0.64), laws that are given, one step of 4 and 6 samples; by hand.
        let set = domains(2);
        let mut run = facts(&set, 600);
        run.base_weights = vec![0.36, 0.64];
        let mut policy = AdoPolicy::new(&AdoConfig::default(), &run);
        policy.state.laws = vec![
            Some(ScalingLaw {
                floor: 1.0,
                scale: 8.0,
                power: 0.5,
            }),
            Some(ScalingLaw {
                floor: 2.0,
                scale: 3.0,
                power: 0.25,
            }),
        ];
        policy.state.samples = 9_990.0;
        policy.warm_up_steps = 5;
        policy.refit_steps = 1000;
        let mut seen = observation(2, 9, &run.base_weights);
        seen.signals.samples = vec![4, 6];
        let decision = policy.next(&seen).unwrap();
        // n = 10,000: speeds 0.5·8·0.01/n = 0.04/n and 0.25·3·0.1/n = 0.075/n.
        // h = 0.9·(0.36, 0.64) + 0.1·(0.4, 0.6) = (0.364, 0.636).
        let (first, second) = (
            0.36 * 0.364f64.sqrt() * 0.04,
            0.64 * 0.636f64.sqrt() * 0.075,
        );
        let rho = [first / (first + second), second / (first + second)];
        close(
            &decision.weights,
            &[0.1 * rho[0] + 0.9 * 0.36, 0.1 * rho[1] + 0.9 * 0.64],
        );
        // π̄ after step t = 10: μ + (ρ − μ)/11.
        close(
            &policy.state.average,
            &[0.36 + (rho[0] - 0.36) / 11.0, 0.64 + (rho[1] - 0.64) / 11.0],
        );
    }

    #[test]
    fn a_trace_of_several_steps_is_that_of_the_formulas() {
        // As above from step to step, by the formulas alone: n, h, ρ and π̄ are carried on here, not read from the policy.
        let set = domains(3);
        let mut run = facts(&set, 600);
        run.base_weights = vec![0.5, 0.3, 0.2];
        let mut policy = AdoPolicy::new(&AdoConfig::default(), &run);
        let laws = [(8.0, 0.5), (3.0, 0.25), (0.001, 0.1)];
        policy.state.laws = laws
            .iter()
            .map(|&(scale, power)| {
                Some(ScalingLaw {
                    floor: 1.0,
                    scale,
                    power,
                })
            })
            .collect();
        policy.warm_up_steps = 3;
        policy.refit_steps = 1000;
        let (mut n, mut credit, mut average) = (0.0, [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]);
        for (step, samples) in [[4u64, 6, 0], [1, 1, 8], [5, 5, 0], [10, 0, 0], [2, 3, 5]]
            .into_iter()
            .enumerate()
        {
            // The fit that is due at the end of warm-up has too little to go by, and the laws stay.
            let mut seen = observation(3, step as u64, &[0.5, 0.3, 0.2]);
            seen.signals.samples = samples.to_vec();
            let got = policy.next(&seen).unwrap().weights;
            n += 10.0;
            let mut rho = [0.0; 3];
            for i in 0..3 {
                credit[i] = 0.9 * credit[i] + 0.1 * samples[i] as f64 / 10.0;
                let (scale, power) = laws[i];
                let speed = power * scale * f64::powf(n, -power) / n;
                rho[i] = run.base_weights[i] * f64::sqrt(credit[i]) * speed;
            }
            if step + 1 < 3 {
                close(&got, &run.base_weights);
                continue;
            }
            let sum: f64 = rho.iter().sum();
            let raised = rho.map(|r| (r / sum).max(0.01));
            assert_eq!(raised[2], 0.01, "the least weight has no part in the trace");
            let sum: f64 = raised.iter().sum();
            let rho = raised.map(|r| r / sum);
            let want: Vec<f64> = (0..3).map(|i| 0.1 * rho[i] + 0.9 * average[i]).collect();
            close(&got, &want);
            for i in 0..3 {
                average[i] += (rho[i] - average[i]) / (step as f64 + 2.0);
            }
        }
    }

    #[test]
    fn a_domain_that_still_learns_is_sampled_more() {
        // Domain 0's loss is flat, domain 1's falls as a power of the samples seen.
        let set = domains(2);
        let run = facts(&set, 600);
        let mut policy = AdoPolicy::new(&AdoConfig::default(), &run);
        let mut weights = policy.initial();
        let mut samples = 0.0f64;
        for step in 0..600 {
            let mut seen = observation(2, step, &weights);
            seen.signals.samples = vec![5, 5];
            samples += 10.0;
            seen.signals.losses = vec![Some(3.0), Some(2.0 + 9.0 * samples.powf(-0.3))];
            if step < 9 {
                assert_eq!(weights, run.base_weights);
            }
            weights = policy.next(&seen).unwrap().weights;
        }
        assert!(weights[1] > 0.9, "{weights:?}");
        close(&[weights.iter().sum()], &[1.0]);
    }

    #[test]
    fn a_restored_policy_goes_on_bit_for_bit() {
        restores_bit_for_bit(&SchedulerConfig {
            policy: PolicyName::Ado,
            ..SchedulerConfig::default()
        });
    }

    #[test]
    fn a_value_out_of_range_is_named_by_its_dotted_key() {
        let config = AdoConfig {
            ignored_fraction: 0.5,
            ..AdoConfig::default()
        };
        let error = config.validate().unwrap_err().to_string();
        assert!(
            error.contains("scheduler.ado.ignored_fraction is 0.5"),
            "{error}"
        );
    }
}
