//! What a training step shows the scheduler: plain numbers, so that model, reward and scheduler need
//! not know each other, and so that another trainer can send the same over a socket.
//!
//! Legend: K domains. Every vector of length K is in the order of the index's domains.
//! Always holds: no tensor, no device; what a step did not show is `None`, never a made-up number.

use serde::{Deserialize, Serialize};

/// Inner products ⟨g_i, g_j⟩ of the domains' mean gradients over the selected layers, row-major K × K.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gram {
    /// Number of domains, K.
    pub domains: usize,
    /// K·K values; rows and columns of domains absent from the step are 0.
    pub products: Vec<f64>,
    /// Mean of ‖g_s‖² over the domain's sequences s; length K, 0 for absent domains. Empty where it
    /// was not measured.
    #[serde(default)]
    pub sequence_squares: Vec<f64>,
}

impl Gram {
    /// The variance of a sequence's gradient around its domain's, E‖g_s − E g_s‖², estimated without
    /// bias from the domain's `samples` sequences of this step; `None` for fewer than two.
    pub fn sequence_variance(&self, domain: usize, samples: u64) -> Option<f64> {
        let square = *self.sequence_squares.get(domain)?;
        let n = samples as f64;
        let variance = (square - self.at(domain, domain)) * n / (n - 1.0);
        (samples > 1 && variance.is_finite()).then_some(variance.max(0.0))
    }

    /// ⟨g_i, g_j⟩.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.products[i * self.domains + j]
    }
}

/// What one optimizer step showed, over its whole global batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSignals {
    /// The step, from 0.
    pub step: u64,
    /// Steps of the whole run, T.
    pub total_steps: u64,
    /// Sequence length L in tokens.
    pub sequence_length: u64,
    /// Sequences drawn per domain, n_i; length K.
    pub samples: Vec<u64>,
    /// Mean training loss in nats per token of the domain's sequences; length K, `None` where n_i = 0.
    pub losses: Vec<Option<f64>>,
    /// Mean MTLD of the domain's sequences; length K, `None` where n_i = 0.
    pub mtld: Vec<Option<f64>>,
    /// Gradient alignment, where it was measured.
    pub gram: Option<Gram>,
    /// ‖ω‖₂ of each selected layer's weight matrix before the step's update.
    pub weight_norms: Vec<f64>,
    /// ‖Δω‖₂ of each selected layer since the step before; 0 at the first step.
    pub weight_change_norms: Vec<f64>,
}

/// The rewards of a step, each term before and after scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewards {
    /// Alignment as the formula gives it; length K.
    pub alignment_raw: Vec<f64>,
    /// Alignment as it enters the total, before its weight; length K.
    pub alignment: Vec<f64>,
    /// Diversity before it is standardised; length K, 0 for a domain without MTLD.
    pub diversity_raw: Vec<f64>,
    /// Diversity as it enters the total, before its weight; length K.
    pub diversity: Vec<f64>,
    /// 1 / (change of the norms + ε), before cap and scaling; the same for every domain.
    pub stability_raw: f64,
    /// Stability as it enters the total, before its weight; the same for every domain.
    pub stability: f64,
    /// The weighted sum; length K.
    pub total: Vec<f64>,
}

impl Rewards {
    /// No reward for any of K domains: what a policy that uses none is given.
    pub fn none(domains: usize) -> Self {
        let zeros = vec![0.0; domains];
        Self {
            alignment_raw: zeros.clone(),
            alignment: zeros.clone(),
            diversity_raw: zeros.clone(),
            diversity: zeros.clone(),
            stability_raw: 0.0,
            stability: 0.0,
            total: zeros,
        }
    }
}

/// All a policy sees after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The step's signals.
    pub signals: StepSignals,
    /// The step's rewards.
    pub rewards: Rewards,
    /// The weights that governed the step; length K, sum 1.
    pub weights: Vec<f64>,
}
