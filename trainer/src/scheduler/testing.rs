//! What tests of policies share: a run, and observations of it.

use hds::DomainSet;

use super::{RunFacts, SchedulerConfig, build};
use crate::signals::{Gram, Observation, Rewards, StepSignals};

/// A run with uniform base weights, one layer, on the CPU.
pub(crate) fn facts(domains: &DomainSet, total_steps: u64) -> RunFacts<'_> {
    let k = domains.len();
    RunFacts {
        domains,
        base_weights: vec![1.0 / k as f64; k],
        target: vec![1.0 / k as f64; k],
        natural_tokens: vec![1000; k],
        total_steps,
        sequence_length: 128,
        layers: 1,
        model_parameters: 1_000_000,
        seed: 7,
        index: None,
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
            diversity_raw: vec![0.0; k],
            diversity: vec![0.0; k],
            stability_raw: 0.0,
            stability: 0.0,
            total: vec![0.0; k],
        },
        weights: weights.to_vec(),
    }
}

/// Checks numbers within 1e-9, relative where they are large.
pub(crate) fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(
            (g - w).abs() < 1e-9 * w.abs().max(1.0),
            "{got:?} is not {want:?}"
        );
    }
}

/// Runs a policy of three domains for 60 of 100 steps, saves it, and checks that a new one restored
/// from that decides the same for 20 steps more, and that its weights are always a mixture.
pub(crate) fn restores_bit_for_bit(config: &SchedulerConfig) {
    let set = domains(3);
    let run = facts(&set, 100);
    let seen = |step: u64, weights: &[f64]| {
        let mut seen = observation(3, step, weights);
        if step % 4 == 1 {
            seen.signals.losses[0] = None;
            seen.signals.samples[0] = 0;
        }
        seen.rewards.alignment = (0..3)
            .map(|i| (i as f64 - step as f64 * 0.3).cos())
            .collect();
        seen.rewards.total = seen.rewards.alignment.clone();
        let product =
            |i: usize, j: usize| (1.0 + i as f64) * (1.0 + j as f64) + f64::from(u8::from(i == j));
        let products = (0..9).map(|at| product(at / 3, at % 3)).collect();
        seen.signals.gram = Some(Gram {
            domains: 3,
            products,
            sequence_squares: Vec::new(),
        });
        seen
    };
    let mut policy = build(config, &run).unwrap();
    let mut weights = policy.initial();
    for step in 0..60 {
        weights = policy.next(&seen(step, &weights)).unwrap().weights;
        assert!(
            hds::Mixture::new(weights.clone(), &set).is_ok(),
            "{weights:?}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    policy.save(folder.path()).unwrap();
    let mut restored = build(config, &run).unwrap();
    restored.restore(folder.path()).unwrap();
    for step in 60..80 {
        let seen = seen(step, &weights);
        let decision = policy.next(&seen).unwrap();
        assert_eq!(decision, restored.next(&seen).unwrap(), "step {step}");
        weights = decision.weights;
    }
    let four = domains(4);
    let mut other = build(config, &facts(&four, 100)).unwrap();
    let error = other.restore(folder.path()).unwrap_err().to_string();
    // By the number of domains, or by the shape of a network that follows from it.
    let names_both = error.contains('3') && error.contains('4');
    assert!(names_both || error.contains("this run has"), "{error}");
}
