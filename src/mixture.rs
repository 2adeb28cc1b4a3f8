//! Mixture weights: a point a ∈ Δ^{K-1}, the probability with which each domain is drawn.
//!
//! In: K numbers. Out: checked weights that draw a domain from a number in [0, 1).
//! Always holds: every weight is finite and ≥ 0 and they sum to 1 within [`SUM_TOLERANCE`]; weights
//! that pass are kept bit for bit, so that a mixture written to a log and read back draws the same.

use serde::Serialize;
use thiserror::Error;

use crate::domain::{DomainId, DomainSet};

/// How far the sum of the weights may be from 1.
pub const SUM_TOLERANCE: f64 = 1e-6;

/// Why numbers are not mixture weights.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum MixtureError {
    /// Not one weight per domain.
    #[error("{got} weights for {want} domains")]
    Length {
        /// Weights given.
        got: usize,
        /// Domains there are.
        want: usize,
    },
    /// A weight is NaN, infinite or negative.
    #[error("weight of domain {domain:?} is {value}; weights are finite and not negative")]
    Weight {
        /// Name of the domain.
        domain: String,
        /// Its weight.
        value: f64,
    },
    /// The weights do not sum to 1.
    #[error("weights sum to {sum}, must sum to 1 (within {SUM_TOLERANCE})")]
    Sum {
        /// What they sum to.
        sum: f64,
    },
    /// There is nothing to divide by their sum.
    #[error("weights sum to {sum}; at least one must be above 0, and their sum finite")]
    NoSum {
        /// What they sum to.
        sum: f64,
    },
}

/// Weights on the simplex, ready to draw from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Mixture {
    weights: Vec<f64>,
    #[serde(skip)]
    cumulative: Vec<f64>,
}

impl Mixture {
    /// Takes weights that already sum to 1; they are kept bit for bit.
    ///
    /// # Errors
    /// Wrong length; a weight that is NaN, infinite or negative (its domain is named); a sum off 1.
    pub fn new(weights: Vec<f64>, domains: &DomainSet) -> Result<Self, MixtureError> {
        let sum = Self::check(&weights, domains)?;
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(MixtureError::Sum { sum });
        }
        Ok(Self::build(weights))
    }

    /// Takes weights of any positive sum and divides them by it.
    ///
    /// # Errors
    /// As [`Self::new`], but for the sum, which must be finite and above 0.
    pub fn normalized(mut weights: Vec<f64>, domains: &DomainSet) -> Result<Self, MixtureError> {
        let sum = Self::check(&weights, domains)?;
        if !(sum.is_finite() && sum > 0.0) {
            return Err(MixtureError::NoSum { sum });
        }
        weights.iter_mut().for_each(|w| *w /= sum);
        Self::new(weights, domains)
    }

    /// The same weight for every domain.
    pub fn uniform(domains: &DomainSet) -> Self {
        Self::build(vec![1.0 / domains.len() as f64; domains.len()])
    }

    /// Whether every domain has the same weight, to rounding.
    pub fn is_uniform(&self) -> bool {
        let share = 1.0 / self.weights.len() as f64;
        self.weights.iter().all(|w| (w - share).abs() < 1e-9)
    }

    fn check(weights: &[f64], domains: &DomainSet) -> Result<f64, MixtureError> {
        if weights.len() != domains.len() {
            return Err(MixtureError::Length {
                got: weights.len(),
                want: domains.len(),
            });
        }
        for (&value, name) in weights.iter().zip(domains.names()) {
            if !value.is_finite() || value < 0.0 {
                return Err(MixtureError::Weight {
                    domain: name.clone(),
                    value,
                });
            }
        }
        Ok(weights.iter().sum())
    }

    fn build(weights: Vec<f64>) -> Self {
        let mut total = 0.0;
        let cumulative = weights
            .iter()
            .map(|w| {
                total += w;
                total
            })
            .collect();
        Self {
            weights,
            cumulative,
        }
    }

    /// The weights, length K.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The weight of one domain; 0 for an id of another set.
    pub fn weight(&self, id: DomainId) -> f64 {
        self.weights.get(id.index()).copied().unwrap_or(0.0)
    }

    /// Draws a domain by inverting the cumulative weights at `unit` ∈ [0, 1).
    ///
    /// A domain of weight 0 is never drawn.
    pub fn draw(&self, unit: f64) -> DomainId {
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        let point = unit * total;
        let mut i = self.cumulative.partition_point(|&c| c <= point);
        if i >= self.weights.len() {
            // `unit * total` can round up to the total itself: take the last domain with weight.
            i = self.weights.iter().rposition(|&w| w > 0.0).unwrap_or(0);
        }
        DomainId(i as u16)
    }

    /// Shannon entropy −Σ a_i ln a_i in nats; ln K for uniform weights.
    pub fn entropy_nats(&self) -> f64 {
        // From 0 on, not by negation: a mixture of one domain has entropy 0, not -0.
        let there = self.weights.iter().filter(|&&w| w > 0.0);
        there.fold(0.0, |entropy, w| entropy - w * w.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn domains(k: usize) -> DomainSet {
        DomainSet::new((0..k).map(|i| format!("d{i}"))).unwrap()
    }

    #[test]
    fn a_bad_weight_names_its_domain() {
        for bad in [f64::NAN, f64::INFINITY, -0.1] {
            let error = Mixture::new(vec![1.0, bad], &domains(2)).unwrap_err();
            assert!(error.to_string().contains("d1"), "{error}");
        }
        assert_eq!(
            Mixture::new(vec![0.5, 0.4], &domains(2)),
            Err(MixtureError::Sum { sum: 0.9 })
        );
        assert_eq!(
            Mixture::new(vec![1.0], &domains(2)),
            Err(MixtureError::Length { got: 1, want: 2 })
        );
        assert!(Mixture::normalized(vec![0.0, 0.0], &domains(2)).is_err());
        assert!(Mixture::normalized(vec![f64::MAX, f64::MAX], &domains(2)).is_err());
    }

    #[test]
    fn draws_split_the_unit_interval_by_weight() {
        let m = Mixture::new(vec![0.25, 0.0, 0.75], &domains(3)).unwrap();
        assert_eq!(m.draw(0.0), DomainId(0));
        assert_eq!(m.draw(0.249_999), DomainId(0));
        assert_eq!(m.draw(0.25), DomainId(2));
        assert_eq!(m.draw(1.0 - f64::EPSILON / 2.0), DomainId(2));
        let trailing_zero = Mixture::new(vec![1.0, 0.0], &domains(2)).unwrap();
        assert_eq!(trailing_zero.draw(1.0 - f64::EPSILON / 2.0), DomainId(0));
    }

    #[test]
    fn uniform_entropy_is_ln_k() {
        let m = Mixture::uniform(&domains(22));
        assert!((m.entropy_nats() - 22f64.ln()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn weights_survive_json_bit_for_bit(raw in prop::collection::vec(0.0f64..1e3, 1..40)) {
            prop_assume!(raw.iter().sum::<f64>() > 0.0);
            let d = domains(raw.len());
            let m = Mixture::normalized(raw, &d).unwrap();
            let text = serde_json::to_string(&m).unwrap();
            let back = Mixture::new(serde_json::from_str(&text).unwrap(), &d).unwrap();
            prop_assert_eq!(m, back);
        }

        #[test]
        fn a_zero_weight_is_never_drawn(raw in prop::collection::vec(0u8..3, 1..20), unit in 0.0f64..1.0) {
            prop_assume!(raw.iter().any(|&w| w > 0));
            let d = domains(raw.len());
            let m = Mixture::normalized(raw.iter().map(|&w| f64::from(w)).collect(), &d).unwrap();
            prop_assert!(m.weight(m.draw(unit)) > 0.0);
        }
    }
}
