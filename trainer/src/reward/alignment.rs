//! Alignment: how well a step on a domain serves the target.
//!
//! # Source
//! Paper, reward 1: r_align,i = ⟨g_i, Σ_{j≠i} g_j⟩ over the selected layers; the authors' code divides
//! by the mean ‖g_j‖, standardises over the domains and clamps to ±3. Our choice: the sum is weighted
//! by K·τ_j for a target τ (uniform gives the paper's sum), and may have the own term j = i, as the
//! first-order decrease of Σ_j τ_j L_j has. From a batch, E‖g_i‖² = ‖E g_i‖² + σ_i²/n_i, with σ_i² the variance of a sequence's
//! gradient; at a few sequences a domain the second part is the larger one.

use serde::{Deserialize, Serialize};

use super::config::{OwnTerm, RewardConfig};
use super::statistics::standardize;
use crate::signals::{Gram, StepSignals};

/// Weight of the past in the remembered σ_i². Our choice: it is used only where a step shows a single
/// sequence of a domain, and has to follow gradients that shrink as the run goes on.
const VARIANCE_DECAY: f64 = 0.9;

/// σ_i² as the steps so far showed it; `None` for a domain that none showed two sequences of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SequenceVariances(Vec<Option<f64>>);

impl SequenceVariances {
    pub(super) fn new(domains: usize) -> Self {
        Self(vec![None; domains])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// σ_i² of every domain, from this step where it shows two sequences, else from those before, else
    /// the mean of the other domains'; 0 where there is none at all.
    fn update(&mut self, gram: &Gram, samples: &[u64]) -> Vec<f64> {
        let fresh: Vec<Option<f64>> = (0..self.0.len())
            .map(|i| gram.sequence_variance(i, samples.get(i).copied().unwrap_or(0)))
            .collect();
        for (held, fresh) in self.0.iter_mut().zip(&fresh) {
            if let Some(now) = *fresh {
                *held = Some(held.map_or(now, |then| {
                    VARIANCE_DECAY * then + (1.0 - VARIANCE_DECAY) * now
                }));
            }
        }
        let known: Vec<f64> = self.0.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let held = self.0.iter().map(|held| held.unwrap_or(mean));
        fresh
            .iter()
            .zip(held)
            .map(|(fresh, held)| fresh.unwrap_or(held))
            .collect()
    }
}

/// The alignment by the formula (length K = `target.len()`, 0 for absent domains), and what of it was
/// measured, scaled as configured.
pub(super) fn alignment(
    config: &RewardConfig,
    signals: &StepSignals,
    target: &[f64],
    variances: &mut SequenceVariances,
) -> (Vec<f64>, Vec<Option<f64>>) {
    let domains = target.len();
    let nothing = || (vec![0.0; domains], vec![None; domains]);
    let Some(gram) = well_formed(signals.gram.as_ref(), domains) else {
        return nothing();
    };
    let present: Vec<bool> = (0..domains)
        .map(|i| signals.samples.get(i).is_some_and(|&n| n > 0) && gram.at(i, i).is_finite())
        .collect();
    // Of a domain that is only held out, the run measures the gradient and draws nothing: it has a part in the target.
    let measured: Vec<bool> = (0..domains).map(|j| gram.at(j, j).is_finite()).collect();
    let variances = variances.update(gram, &signals.samples);
    let mut raw = vec![0.0; domains];
    let mut norms = 0.0;
    for i in (0..domains).filter(|&i| present[i]) {
        norms += gram.at(i, i).max(0.0).sqrt();
        let own = match config.own_term {
            OwnTerm::Without => 0.0,
            OwnTerm::Measured => gram.at(i, i),
            OwnTerm::Unbiased => gram.at(i, i) - variances[i] / signals.samples[i] as f64,
        };
        let others = (0..domains)
            .filter(|&j| measured[j] && j != i)
            .map(|j| domains as f64 * target[j] * gram.at(i, j));
        raw[i] = domains as f64 * target[i] * own + others.sum::<f64>();
    }
    if raw.iter().any(|value| !value.is_finite()) {
        return nothing();
    }
    let seen = |values: Vec<f64>| -> Vec<Option<f64>> {
        values
            .into_iter()
            .zip(&present)
            .map(|(v, &there)| there.then_some(v))
            .collect()
    };
    if !config.scale_alignment {
        return (raw.clone(), seen(raw));
    }
    let count = present.iter().filter(|&&there| there).count().max(1) as f64;
    let mean_norm = norms / count + config.epsilon;
    let scaled = seen(raw.iter().map(|value| value / mean_norm).collect());
    (raw, standardize(config, &scaled))
}

fn well_formed(gram: Option<&Gram>, domains: usize) -> Option<&Gram> {
    gram.filter(|g| g.domains == domains && g.products.len() == domains * domains)
}
