//! What tests of policies share: a run, and observations of it.

use hds::DomainSet;

use super::RunFacts;
use crate::signals::{Observation, Rewards, StepSignals};

/// A run with uniform base weights, one layer, on the CPU.
pub(crate) fn facts(domains: &DomainSet, total_steps: u64) -> RunFacts<'_> {
    let k = domains.len();
    RunFacts {
        domains,
        base_weights: vec![1.0 / k as f64; k],
        natural_tokens: vec![1000; k],
        total_steps,
        sequence_length: 128,
        layers: 1,
        model_parameters: 1_000_000,
        seed: 7,
        device: tch::Device::Cpu,
    }
}

/// K domains `d0`, `d1`, ….
pub(crate) fn domains(k: usize) -> DomainSet {
    DomainSet::new((0..k).map(|i| format!("d{i}"))).unwrap()
}

/// What step `step` of such a run may have shown; rewards are 0.
pub(crate) fn observation(k: usize, step: u64, weights: &[f64]) -> Observation {
    Observation {
        signals: StepSignals {
            step,
            total_steps: 1000,
            sequence_length: 128,
            samples: (0..k as u64).map(|i| i % 3 + 1).collect(),
            losses: (0..k)
                .map(|i| Some(3.0 + (i as f64 + step as f64).sin()))
                .collect(),
            mtld: vec![Some(50.0); k],
            gram: None,
            weight_norms: vec![10.0],
            weight_change_norms: vec![0.1],
        },
        rewards: Rewards {
            alignment_raw: vec![0.0; k],
            alignment: vec![0.0; k],
            diversity: vec![0.0; k],
            stability: 0.0,
            total: vec![0.0; k],
        },
        weights: weights.to_vec(),
    }
}
