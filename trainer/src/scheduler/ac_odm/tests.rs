//! AC-ODM against its formulas, and its saved state.

use super::super::testing::{domains, facts, observation, restores_bit_for_bit};
use super::super::{PolicyName, SchedulerConfig};
use super::*;

fn small() -> AcOdmConfig {
    AcOdmConfig {
        width: 32,
        layers: 2,
        minibatch: 16,
        least_transitions: 8,
        polyak: 0.02,
        learning_rate: 2e-3,
        ..AcOdmConfig::default()
    }
}

/// Runs a bandit whose best domain is 1; mean weight of it over the last 50 steps.
fn best_weight(policy: &mut AcOdmPolicy, steps: u64) -> f64 {
    let mut weights = policy.initial();
    let mut total = 0.0;
    for step in 0..steps {
        let mut seen = observation(3, step, &weights);
        seen.rewards.alignment = vec![0.0, 1.0, 0.0];
        // Only alignment is this policy's reward.
        seen.rewards.total = vec![100.0, 0.0, 0.0];
        weights = policy.next(&seen).unwrap().weights;
        if step + 50 >= steps {
            total += weights[1] / 50.0;
        }
    }
    total
}

#[test]
fn the_best_domain_of_a_bandit_is_found_and_reused_by_another_run() {
    let set = domains(3);
    let mut policy = AcOdmPolicy::new(&small(), &facts(&set, 400)).unwrap();
    let weight = best_weight(&mut policy, 400);
    assert!(weight > 0.6, "{weight}");
    let folder = tempfile::tempdir().unwrap();
    policy.save(folder.path()).unwrap();
    let config = AcOdmConfig {
        policy_from: Some(folder.path().to_owned()),
        learn: false,
        ..small()
    };
    let mut reused = AcOdmPolicy::new(&config, &facts(&set, 100)).unwrap();
    let weight = best_weight(&mut reused, 60);
    assert!(weight > 0.6, "{weight}");
    let error = AcOdmPolicy::new(&config, &facts(&domains(4), 100))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("networks.safetensors"), "{error}");
}

#[test]
fn a_restored_policy_goes_on_bit_for_bit() {
    restores_bit_for_bit(&SchedulerConfig {
        policy: PolicyName::AcOdm,
        ac_odm: small(),
        ..SchedulerConfig::default()
    });
}

#[test]
fn numbers_that_are_not_finite_harm_nothing() {
    let set = domains(3);
    let mut policy = AcOdmPolicy::new(&small(), &facts(&set, 100)).unwrap();
    let mut weights = policy.initial();
    for step in 0..40 {
        let mut seen = observation(3, step, &weights);
        seen.rewards.alignment[0] = if step % 2 == 1 { f64::NAN } else { 1.0 };
        let decision = policy.next(&seen).unwrap();
        assert_eq!(decision.diagnostics["fallbacks"], 0.0);
        weights = decision.weights;
    }
    assert_eq!(policy.learning.learner().replay.len(), 19);
    for parameter in policy
        .learning
        .learner()
        .learner
        .actor
        .parameters
        .optimized()
    {
        let _ = tch::no_grad(|| parameter.tensor.detach().fill_(f64::NAN));
    }
    let decision = policy.next(&observation(3, 40, &weights)).unwrap();
    assert_eq!(decision.weights, weights);
    assert_eq!(decision.diagnostics["fallbacks"], 1.0);
}

#[test]
fn a_policy_that_neither_learns_nor_was_learnt_is_refused() {
    let config = AcOdmConfig {
        learn: false,
        ..small()
    };
    let error = config.validate().unwrap_err().to_string();
    assert!(error.contains("scheduler.ac_odm.policy_from"), "{error}");
    let config = AcOdmConfig {
        least_transitions: 10_001,
        ..AcOdmConfig::default()
    };
    let error = config.validate().unwrap_err().to_string();
    assert!(
        error.contains("scheduler.ac_odm.least_transitions"),
        "{error}"
    );
    assert!(AcOdmConfig::default().validate().is_ok());
}
