//! Alignment: how well a step on a domain serves the target.
//!
//! # Source
//! Paper, reward 1: r_align,i = ⟨g_i, Σ_{j≠i} g_j⟩ over the selected layers; the authors' code divides
//! by the mean ‖g_j‖, standardises over the domains and clamps to ±3. Our choice: the sum is weighted
//! by K·τ_j for a target τ (uniform gives the paper's sum), and may have the own term j = i, as the
//! first-order decrease of Σ_j τ_j L_j has.

use super::config::RewardConfig;
use super::statistics::standardize;
use crate::signals::{Gram, StepSignals};

/// The alignment by the formula (length K = `target.len()`, 0 for absent domains), and what of it was
/// measured, scaled as configured.
pub(super) fn alignment(
    config: &RewardConfig,
    signals: &StepSignals,
    target: &[f64],
) -> (Vec<f64>, Vec<Option<f64>>) {
    let domains = target.len();
    let nothing = || (vec![0.0; domains], vec![None; domains]);
    let Some(gram) = well_formed(signals.gram.as_ref(), domains) else {
        return nothing();
    };
    let present: Vec<bool> = (0..domains)
        .map(|i| signals.samples.get(i).is_some_and(|&n| n > 0) && gram.at(i, i).is_finite())
        .collect();
    let mut raw = vec![0.0; domains];
    let mut norms = 0.0;
    for i in (0..domains).filter(|&i| present[i]) {
        norms += gram.at(i, i).max(0.0).sqrt();
        raw[i] = (0..domains)
            .filter(|&j| present[j] && (config.own_term || j != i))
            .map(|j| domains as f64 * target[j] * gram.at(i, j))
            .sum();
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
