//! Policies that choose domain weights.
//!
//! In: the [`Observation`] of each optimizer step. Out: a [`Decision`], the weights of the next batch.
//! Always holds: a decision's weights are K finite numbers ≥ 0 that sum to 1; what a policy gives
//! depends on its configuration, the run's facts and the observations alone (no clock, no global
//! random state), so that a restored policy goes on bit for bit. Policies know no model and no reward
//! formula: [`crate::signals`] is all they see.
//!
//! Legend: K domains.

mod ac_odm;
mod actor_critic;
mod ado;
mod aside;
mod config;
mod doge;
mod error;
mod fixed;
mod hds;
mod logged;
mod odm;
mod parameters;
mod pile;
mod prior;
mod replay;
mod saved;
mod size;
mod state;
mod storage;
mod warm_up;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ::hds::DomainSet;

use crate::signals::Observation;

pub use self::hds::{Coupling, EntropyTarget, HdsConfig, NetworkSize};
pub use ac_odm::AcOdmConfig;
pub use ado::AdoConfig;
pub use config::{PolicyName, SchedulerConfig};
pub use doge::DogeConfig;
pub use error::PolicyError;
pub use fixed::{FixedConfig, FixedMixture};
pub use logged::LoggedConfig;
pub use odm::OdmConfig;
pub use pile::pile_weights;
pub use size::{PolicySize, size, size_warning};

/// Chooses the weights of every batch of a run.
pub trait Policy: Send {
    /// Its name in configurations and reports.
    fn name(&self) -> &'static str;

    /// The weights of batch 0; length K.
    fn initial(&mut self) -> Vec<f64>;

    /// Takes in what step t showed and gives the weights of batch t + 1.
    ///
    /// # Errors
    /// If the observation is not of this run's shape. Numbers in it that are not finite are no error:
    /// the policy leaves them out and says so in the diagnostics.
    fn next(&mut self, observation: &Observation) -> Result<Decision, PolicyError>;

    /// Writes everything [`Self::restore`] needs into `folder`, which exists.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn save(&mut self, folder: &Path) -> Result<(), PolicyError>;

    /// Goes on from what [`Self::save`] wrote for the same configuration and run.
    ///
    /// # Errors
    /// If a file is missing, damaged, or of another policy or shape; do not use the policy then.
    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError>;

    /// Waits for what it learns beside the training step. Changes no decision: [`Self::next`] and
    /// [`Self::save`] wait by themselves.
    fn settle(&mut self) {}

    /// Time spent learning so far, beside the training step; what goes on is not in it.
    fn learning_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Parameters of all its networks together; 0 where there is none.
    fn parameters(&self) -> u64;

    /// Whether it uses the rewards, and so the per-domain gradients they need; a policy that does not
    /// costs a run no signals.
    fn wants_rewards(&self) -> bool {
        true
    }

    /// Steps before its own choice governs.
    fn warmup_steps(&self) -> u64 {
        0
    }

    /// Name of the preset its options started from, or "".
    fn preset(&self) -> &'static str {
        ""
    }
}

/// What a policy decided after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Weights of the next batch; length K, on the simplex.
    pub weights: Vec<f64>,
    /// Numbers for the metrics log, by name; only finite ones.
    pub diagnostics: BTreeMap<String, f64>,
}

/// Tells the first time that a policy's diagnostics count something that went wrong.
#[derive(Debug, Default)]
pub struct Troubles {
    told: BTreeSet<&'static str>,
}

impl Troubles {
    /// What is new in the decision after `step`, as a sentence.
    pub fn look(&mut self, step: u64, decision: &Decision) -> Option<String> {
        const KINDS: [(&str, &str); 3] = [
            (
                "fallbacks",
                "the policy's output is not finite; the last good weights stay in force",
            ),
            (
                "skipped_updates",
                "an update of the policy's networks is not finite and left out",
            ),
            (
                "rejected_transitions",
                "a number of the step is not finite; the policy does not learn from it",
            ),
        ];
        let is_new = |(name, _): &&(&'static str, &str)| {
            decision
                .diagnostics
                .get(*name)
                .is_some_and(|&count| count > 0.0)
                && !self.told.contains(name)
        };
        let (name, what) = KINDS.iter().find(is_new)?;
        self.told.insert(name);
        Some(format!(
            "step {step}: {what} (said once; counted as {name} in the diagnostics)"
        ))
    }
}

/// What a policy needs to know of the run it serves.
#[derive(Clone, Debug)]
pub struct RunFacts<'a> {
    /// The K domains.
    pub domains: &'a DomainSet,
    /// The corpus's own weights, where the policy starts from; length K, on the simplex.
    pub base_weights: Vec<f64>,
    /// What the run should get good at, τ; length K, on the simplex.
    pub target: Vec<f64>,
    /// Training tokens of each domain; length K.
    pub natural_tokens: Vec<u64>,
    /// Steps of the whole run, T.
    pub total_steps: u64,
    /// Sequence length L in tokens.
    pub sequence_length: u64,
    /// Number of layers whose norms the signals have.
    pub layers: usize,
    /// Parameters of the model that is trained.
    pub model_parameters: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Fingerprint of the index, where it is known.
    pub index: Option<String>,
    /// Where the policy's networks live.
    pub device: tch::Device,
}

/// Makes the policy that a configuration names.
///
/// # Errors
/// If the configuration is not valid (see [`SchedulerConfig::validate`]) or does not fit the run: weights
/// for a domain that does not exist, facts of another length than K.
pub fn build(config: &SchedulerConfig, run: &RunFacts<'_>) -> Result<Box<dyn Policy>, PolicyError> {
    config.validate()?;
    for (field, got) in [
        ("base_weights", run.base_weights.len()),
        ("target", run.target.len()),
        ("natural_tokens", run.natural_tokens.len()),
    ] {
        if got != run.domains.len() {
            return Err(PolicyError::Length {
                field,
                got,
                want: run.domains.len(),
            });
        }
    }
    size::check(config, run)?;
    ::hds::Mixture::new(run.base_weights.clone(), run.domains).map_err(|source| {
        PolicyError::Weights {
            key: "base weights",
            source,
        }
    })?;
    match config.policy {
        PolicyName::Fixed => Ok(Box::new(fixed::FixedPolicy::new(&config.fixed, run)?)),
        PolicyName::Hds => Ok(Box::new(hds::HdsPolicy::new(&config.hds, run))),
        PolicyName::Odm => Ok(Box::new(odm::OdmPolicy::new(&config.odm, run))),
        PolicyName::AcOdm => Ok(Box::new(ac_odm::AcOdmPolicy::new(&config.ac_odm, run)?)),
        PolicyName::Ado => Ok(Box::new(ado::AdoPolicy::new(&config.ado, run))),
        PolicyName::Doge => Ok(Box::new(doge::DogePolicy::new(&config.doge, run)?)),
        PolicyName::Log => Ok(Box::new(logged::LoggedPolicy::new(&config.log, run)?)),
    }
}

/// Checks that an observation is of K domains and `layers` layers.
fn check_shape(
    observation: &Observation,
    domains: usize,
    layers: usize,
) -> Result<(), PolicyError> {
    let signals = &observation.signals;
    let lengths = [
        ("weights", observation.weights.len(), domains),
        ("rewards.total", observation.rewards.total.len(), domains),
        (
            "rewards.alignment",
            observation.rewards.alignment.len(),
            domains,
        ),
        ("signals.samples", signals.samples.len(), domains),
        ("signals.losses", signals.losses.len(), domains),
        ("signals.weight_norms", signals.weight_norms.len(), layers),
        (
            "signals.weight_change_norms",
            signals.weight_change_norms.len(),
            layers,
        ),
    ];
    match lengths.into_iter().find(|(_, got, want)| got != want) {
        Some((field, got, want)) => Err(PolicyError::Length { field, got, want }),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_told_once() {
        let mut troubles = Troubles::default();
        let after = |counts: &[(&str, f64)]| Decision {
            weights: vec![1.0],
            diagnostics: counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect(),
        };
        assert_eq!(troubles.look(0, &after(&[("fallbacks", 0.0)])), None);
        let told = troubles.look(1, &after(&[("fallbacks", 1.0)])).unwrap();
        assert!(
            told.contains("step 1") && told.contains("last good"),
            "{told}"
        );
        let both = after(&[("fallbacks", 2.0), ("skipped_updates", 1.0)]);
        let told = troubles.look(2, &both).unwrap();
        assert!(told.contains("skipped_updates"), "{told}");
        assert_eq!(troubles.look(3, &both), None);
    }
}
