//! `data.target`: which domains the run should get good at, and the held-out text that stands for those it cannot train on.
//!
//! In: the configuration, the index's domains, the base weights. Out: τ, a mixture over the domains; and for domains of
//! positive τ that have no training text of their own, a few held-out sequences a step, whose gradients alone are measured.
//! Always holds: what is read at a step depends on the step alone; such text never changes the model.

use std::collections::BTreeMap;

use hds::{DomainId, DomainSet, Mixture};
use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use super::error::RunError;
use super::held_out::HeldOut;

/// What the run should get good at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be \"uniform\", \"base\" or a table of weights by domain, { name = 1.0, ... }"
)]
pub enum Target {
    /// By rule.
    Named(NamedTarget),
    /// By domain, divided by their sum; a domain that is not named has 0.
    Table(BTreeMap<String, f64>),
}

/// Rules for targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedTarget {
    /// Every domain the same: the paper's macro mean.
    Uniform,
    /// The base weights.
    Base,
}

impl Default for Target {
    fn default() -> Self {
        Self::Named(NamedTarget::Uniform)
    }
}

impl Target {
    /// τ over the index's domains.
    ///
    /// # Errors
    /// If a name is no domain of the index, or the weights are no mixture.
    pub fn resolve(&self, domains: &DomainSet, base: &Mixture) -> Result<Mixture, ConfigError> {
        let table = match self {
            Self::Named(NamedTarget::Uniform) => return Ok(Mixture::uniform(domains)),
            Self::Named(NamedTarget::Base) => return Ok(base.clone()),
            Self::Table(table) => table,
        };
        let fail = |key: &str, reason: String| ConfigError::Key {
            key: key.to_owned(),
            reason,
        };
        for name in table.keys() {
            domains
                .find(name)
                .map_err(|e| fail(&format!("data.target.{name}"), e.to_string()))?;
        }
        let weight = |name: &String| table.get(name).copied().unwrap_or(0.0);
        let weights = domains.names().iter().map(weight).collect();
        Mixture::normalized(weights, domains).map_err(|e| fail("data.target", e.to_string()))
    }
}

/// The domains whose gradient no training batch can show, and how many of their held-out sequences are read a step.
#[derive(Debug)]
pub struct TargetText {
    domains: Vec<DomainId>,
    sequences: usize,
}

/// Held-out sequences of a step.
#[derive(Debug)]
pub struct TargetRows {
    /// Token ids, one sequence of L + 1 after another.
    pub tokens: Vec<i64>,
    /// Domain of each sequence.
    pub domains: Vec<DomainId>,
}

impl TargetText {
    /// Of the domains with a positive target and no training text; `sequences` of each a step.
    pub fn new(target: &Mixture, readable: &[bool], sequences: u64) -> Self {
        let wanted = (0u16..).zip(target.weights().iter().zip(readable));
        Self {
            domains: wanted
                .filter(|(_, (weight, there))| **weight > 0.0 && !**there)
                .map(|(id, _)| DomainId(id))
                .collect(),
            sequences: usize::try_from(sequences).unwrap_or(usize::MAX),
        }
    }

    /// The rows of a step, each domain's held-out sequences one after another; `None` where there are none.
    ///
    /// # Errors
    /// If a sequence cannot be read.
    pub fn rows(&self, held_out: &HeldOut, step: u64) -> Result<Option<TargetRows>, RunError> {
        let mut rows = TargetRows {
            tokens: Vec::new(),
            domains: Vec::new(),
        };
        for &domain in &self.domains {
            let read = held_out.read(domain, step, self.sequences, &mut rows.tokens)?;
            rows.domains.extend((0..read).map(|_| domain));
        }
        Ok(Some(rows).filter(|rows| !rows.domains.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_uniform_the_base_weights_or_any_weights() {
        let domains = DomainSet::new(["a", "b", "c"]).unwrap();
        let base = Mixture::new(vec![0.5, 0.25, 0.25], &domains).unwrap();
        let read = |text: &str| {
            #[derive(Deserialize)]
            struct Section {
                target: Target,
            }
            toml::from_str::<Section>(text).map(|s| s.target)
        };
        let of = |text: &str| read(text).unwrap().resolve(&domains, &base);
        let third = 1.0 / 3.0;
        for (text, want) in [
            ("target = 'uniform'", [third, third, third]),
            ("target = 'base'", [0.5, 0.25, 0.25]),
            ("target = { c = 3, a = 1 }", [0.25, 0.0, 0.75]),
        ] {
            let got = of(text).unwrap();
            for (got, want) in got.weights().iter().zip(want) {
                assert!((got - want).abs() < 1e-12, "{text}: {got} {want}");
            }
        }
        for (text, part) in [
            ("target = { d = 1 }", "data.target.d"),
            ("target = { a = 0 }", "data.target"),
            ("target = { a = -1, b = 2 }", "data.target"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = read("target = 'pile'").unwrap_err().to_string();
        assert!(error.contains("\"uniform\", \"base\""), "{error}");
    }

    #[test]
    fn only_targets_without_training_text_are_read_from_held_out_text() {
        let domains = DomainSet::new(["a", "b", "c"]).unwrap();
        let target = Mixture::new(vec![0.5, 0.5, 0.0], &domains).unwrap();
        let text = TargetText::new(&target, &[true, false, false], 2);
        assert_eq!(text.domains, [DomainId(1)]);
    }
}
