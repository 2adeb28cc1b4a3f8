//! The series of a run: which number of a step goes into which column of the timeline.
//!
//! Legend: K domains. In: step records. Out: columns of a [`Timeline`]. Also computes the figures that
//! a log has only implicitly: what a draw was worth, how far the weights were from the base weights.

use std::collections::BTreeMap;

use super::bucket::{ColumnId, Timeline};
use super::record::{Maybe, StepRecord};

/// Diagnostics plotted, by name; a policy has a handful.
const DIAGNOSTICS: usize = 32;

/// Columns of the run's timeline.
pub struct Columns {
    pub loss: ColumnId,
    pub learning_rate: ColumnId,
    pub gradient_norm: ColumnId,
    pub tokens_per_second: ColumnId,
    pub step_seconds: ColumnId,
    pub scheduler_seconds: ColumnId,
    /// Σ_i a_i r_i of the total reward under the weights in force, the base weights, uniform weights.
    pub expected_reward: [ColumnId; 3],
    pub stability: ColumnId,
    /// ½ Σ_i |a_i − b_i| between the weights in force and the base weights.
    pub departure: ColumnId,
    /// exp of the entropy of the weights in force.
    pub effective_domains: ColumnId,
    /// Length K each.
    pub weights: Vec<ColumnId>,
    pub alignment_raw: Vec<ColumnId>,
    pub alignment: Vec<ColumnId>,
    pub diversity: Vec<ColumnId>,
    pub total: Vec<ColumnId>,
    /// The policy's diagnostics by name.
    pub policy: BTreeMap<String, ColumnId>,
}

impl Columns {
    /// Makes the columns of a run of so many domains.
    pub fn new(timeline: &mut Timeline, domains: usize) -> Self {
        let mut each = || (0..domains).map(|_| timeline.column(false)).collect();
        Self {
            weights: each(),
            alignment_raw: each(),
            alignment: each(),
            diversity: each(),
            total: each(),
            loss: timeline.column(true),
            learning_rate: timeline.column(false),
            gradient_norm: timeline.column(true),
            tokens_per_second: timeline.column(true),
            step_seconds: timeline.column(true),
            scheduler_seconds: timeline.column(true),
            expected_reward: [(); 3].map(|()| timeline.column(false)),
            stability: timeline.column(true),
            departure: timeline.column(false),
            effective_domains: timeline.column(false),
            policy: BTreeMap::new(),
        }
    }

    /// Takes a step in; the timeline has begun it, and its vectors have the header's length.
    pub fn add_step(&mut self, timeline: &mut Timeline, record: &StepRecord, base: &[Maybe]) {
        timeline.add(self.loss, record.loss);
        timeline.add(self.learning_rate, record.learning_rate);
        timeline.add(self.gradient_norm, record.gradient_norm);
        if let Some(timing) = &record.timing {
            timeline.add(self.tokens_per_second, timing.tokens_per_second);
            timeline.add(self.step_seconds, timing.step_seconds);
            timeline.add(self.scheduler_seconds, timing.scheduler_seconds);
        }
        add_each(timeline, &self.weights, &record.weights);
        timeline.add(self.departure, departure(&record.weights, base));
        timeline.add(self.effective_domains, effective_domains(&record.weights));
        if let Some(rewards) = &record.rewards {
            add_each(timeline, &self.alignment_raw, &rewards.alignment_raw);
            add_each(timeline, &self.alignment, &rewards.alignment);
            add_each(timeline, &self.diversity, &rewards.diversity);
            add_each(timeline, &self.total, &rewards.total);
            timeline.add(self.stability, rewards.stability);
            let uniform = vec![Some(1.0 / base.len() as f64); base.len()];
            let [acting, under_base, under_uniform] = self.expected_reward;
            timeline.add(acting, expected(&record.weights, &rewards.total));
            timeline.add(under_base, expected(base, &rewards.total));
            timeline.add(under_uniform, expected(&uniform, &rewards.total));
        }
        for (name, value) in record.policy.iter().flatten() {
            let full = self.policy.len() >= DIAGNOSTICS;
            if name == "warm_up" || full && !self.policy.contains_key(name) {
                continue;
            }
            let id = *self
                .policy
                .entry(name.clone())
                .or_insert_with(|| timeline.column(true));
            timeline.add(id, *value);
        }
    }
}

fn add_each(timeline: &mut Timeline, columns: &[ColumnId], values: &[Maybe]) {
    for (column, value) in columns.iter().zip(values) {
        timeline.add(*column, *value);
    }
}

/// Σ_i a_i r_i.
fn expected(weights: &[Maybe], rewards: &[Maybe]) -> Maybe {
    let pairs = weights.iter().zip(rewards);
    pairs.map(|(a, r)| Some((*a)? * (*r)?)).sum()
}

/// Total variation distance, ½ Σ_i |a_i − b_i|.
pub fn departure(weights: &[Maybe], base: &[Maybe]) -> Maybe {
    let pairs = weights.iter().zip(base);
    let sum: Maybe = pairs.map(|(a, b)| Some(((*a)? - (*b)?).abs())).sum();
    // What rounding leaves of equal weights is no departure.
    sum.map(|s| if s < 1e-9 { 0.0 } else { s / 2.0 })
}

/// exp(−Σ_i a_i ln a_i).
pub fn effective_domains(weights: &[Maybe]) -> Maybe {
    let terms = weights.iter();
    let sum: Maybe = terms
        .map(|a| a.map(|a| if a > 0.0 { -a * a.ln() } else { 0.0 }))
        .sum();
    sum.map(f64::exp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implicit_figures_equal_values_by_hand() {
        let weights = [Some(0.5), Some(0.25), Some(0.25)];
        let base = [Some(0.2), Some(0.3), Some(0.5)];
        // 0.5·2 + 0.25·(−4) + 0.25·1
        let rewards = [Some(2.0), Some(-4.0), Some(1.0)];
        assert_eq!(expected(&weights, &rewards), Some(0.25));
        assert_eq!(expected(&weights, &[Some(2.0), None, Some(1.0)]), None);
        // ½ (0.3 + 0.05 + 0.25)
        let far = departure(&weights, &base).expect("finite");
        assert!((far - 0.3).abs() < 1e-15);
        // H = 0.5 ln 2 + 0.5 ln 4 = 1.5 ln 2
        let effective = effective_domains(&weights).expect("finite");
        assert!((effective - 2f64.powf(1.5)).abs() < 1e-12);
        let one = effective_domains(&[Some(1.0), Some(0.0)]).expect("finite");
        assert!((one - 1.0).abs() < 1e-15);
    }
}
