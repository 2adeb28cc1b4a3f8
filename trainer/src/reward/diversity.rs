//! Lexical diversity: which text is worth reading at this point of the run.
//!
//! # Source
//! Paper, reward 2: r_div,i = t' / (MTLD_norm(B_i) + ε), t' = t/T,
//! MTLD_norm = clamp((MTLD − 2) / (L − 2), 0, 1). Its stated purpose, simple text early and complex
//! text late, is not what it does; `curriculum` is our choice that does:
//! r_div,i = (2t' − 1) · z_i, z = MTLD_norm standardised over the step's domains and clamped.

use super::config::{Diversity, RewardConfig};
use super::statistics::standardize;
use crate::signals::StepSignals;

/// The diversity reward of each of K domains before anything is standardised, 0 for those the step has no MTLD of; and as it counts, `None`
/// for those.
pub(super) fn diversity(
    config: &RewardConfig,
    signals: &StepSignals,
    domains: usize,
) -> (Vec<f64>, Vec<Option<f64>>) {
    let progress = signals.step as f64 / signals.total_steps.max(1) as f64;
    let span = (signals.sequence_length as f64 - 2.0).max(1.0);
    let normalized: Vec<Option<f64>> = (0..domains)
        .map(|i| {
            let mtld = signals
                .mtld
                .get(i)
                .copied()
                .flatten()
                .filter(|m| m.is_finite())?;
            Some(((mtld - 2.0) / span).clamp(0.0, 1.0))
        })
        .collect();
    let each = |values: &[Option<f64>], of: &dyn Fn(f64) -> f64| -> Vec<Option<f64>> {
        values.iter().map(|value| value.map(of)).collect()
    };
    let turn = |value: f64| (2.0 * progress - 1.0) * value;
    let (raw, counted) = match config.diversity {
        Diversity::Paper => {
            let literal = each(&normalized, &|v| progress / (v + config.epsilon));
            let counted = if config.scale_diversity {
                standardize(config, &literal)
            } else {
                literal.clone()
            };
            (literal, counted)
        }
        Diversity::Curriculum => (
            each(&normalized, &turn),
            each(&standardize(config, &normalized), &turn),
        ),
    };
    let raw = raw.into_iter().map(Option::unwrap_or_default).collect();
    (raw, counted)
}
