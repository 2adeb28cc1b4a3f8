//! The centre of the policy: a softmax of the running means of the domains' rewards.
//!
//! In: the rewards of each step. Out: log weights, up to a constant, that the actor's output is added to. The actor learns what is to
//! be changed about them, and its entropy is relative to them: with nothing learnt the policy is this softmax and noise. So the
//! agent follows what the rewards say from the first steps on, before its networks have seen enough.
//!
//! # Source
//! Our choice. Rewards that pay r_i for a draw of domain i, entropy-regularised: the best mixture is ∝ exp(κ r_i); exponentiated gradient with a
//! decay of its log weights comes to the same (DoGE, arXiv:2310.15393, without the decay).

use serde::{Deserialize, Serialize};

/// Running means of rewards that were standardised over the domains of their step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prior {
    means: Vec<f64>,
}

impl Prior {
    pub(super) fn new(domains: usize) -> Self {
        Self {
            means: vec![0.0; domains],
        }
    }

    /// K.
    pub(super) fn domains(&self) -> usize {
        self.means.len()
    }

    /// Takes a step's rewards; those of a step that has one which is not finite, or all alike, are passed over.
    pub(super) fn observe(&mut self, rewards: &[f64], decay: f64) {
        let count = rewards.len().max(1) as f64;
        let mean = rewards.iter().sum::<f64>() / count;
        let variance = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt();
        // A spread of rounding says nothing.
        let says_something = deviation.is_finite() && deviation > 1e-9 * mean.abs().max(1e-9);
        if !says_something || rewards.len() != self.means.len() {
            return;
        }
        for (kept, reward) in self.means.iter_mut().zip(rewards) {
            *kept = decay * *kept + (1.0 - decay) * (reward - mean) / deviation;
        }
    }

    /// κ times the means.
    pub(super) fn log_weights(&self, strength: f64) -> Vec<f64> {
        self.means.iter().map(|mean| strength * mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_standardised_rewards() {
        let mut prior = Prior::new(2);
        // Standardised: −1 and 1, whatever their scale.
        prior.observe(&[0.0, 4.0], 0.5);
        assert_eq!(prior.log_weights(2.0), [-1.0, 1.0]);
        prior.observe(&[100.0, 102.0], 0.5);
        assert_eq!(prior.log_weights(2.0), [-1.5, 1.5]);
        for nothing in [[7.0, 7.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
            prior.observe(&nothing, 0.5);
            assert_eq!(prior.log_weights(1.0), [-0.75, 0.75]);
        }
    }
}
