//! The agent on problems whose answer is known, and that it goes on bit for bit.

use super::super::testing::{domains, facts, observation};
use super::super::{PolicyName, SchedulerConfig, build};
use super::*;

fn small() -> HdsConfig {
    HdsConfig {
        network: NetworkSize::Small,
        minibatch: 32,
        ..HdsConfig::default()
    }
}

#[test]
fn warm_up_gives_noisy_base_weights() {
    let set = domains(3);
    let mut run = facts(&set, 100);
    run.base_weights = vec![0.7, 0.3, 0.0];
    let config = HdsConfig {
        warm_up_fraction: 0.1,
        ..small()
    };
    let mut policy = HdsPolicy::new(&config, &run);
    let mut weights = policy.initial();
    for step in 0..9 {
        assert!(
            (weights[0] - 0.7).abs() < 0.1 && weights != run.base_weights,
            "{weights:?}"
        );
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let decision = policy.next(&observation(3, step, &weights)).unwrap();
        assert_eq!(decision.diagnostics["warm_up"], 1.0);
        weights = decision.weights;
    }
    let decision = policy.next(&observation(3, 9, &weights)).unwrap();
    assert_eq!(decision.diagnostics["warm_up"], 0.0);
    assert!(
        decision.weights.iter().all(|w| *w >= 0.1 / 3.0),
        "{decision:?}"
    );
}

#[test]
fn the_paper_learns_only_after_warm_up_and_a_full_minibatch() {
    let set = domains(3);
    let config = HdsConfig {
        network: NetworkSize::Small,
        warm_up_fraction: 0.1,
        minibatch: 4,
        least_transitions: 4,
        ..HdsConfig::paper()
    };
    let mut policy = HdsPolicy::new(&config, &facts(&set, 100));
    let mut weights = policy.initial();
    for step in 0..12 {
        let decision = policy.next(&observation(3, step, &weights)).unwrap();
        let learnt = if step < 9 {
            0.0
        } else {
            2.0 * (step - 8) as f64
        };
        // What a decision tells was learnt before it.
        let told = decision.diagnostics["updates"];
        assert_eq!(told, f64::max(learnt - 2.0, 0.0), "step {step}");
        policy.settle();
        assert_eq!(policy.progress.updates as f64, learnt, "step {step}");
        weights = decision.weights;
    }
}

fn rewarded(k: usize, step: u64, weights: &[f64]) -> Observation {
    let mut seen = observation(k, step, weights);
    seen.rewards.total = (0..k)
        .map(|i| (i as f64 - step as f64 * 0.3).cos())
        .collect();
    if step % 4 == 1 {
        seen.signals.losses[0] = None;
    }
    seen
}

#[test]
fn a_restored_policy_goes_on_bit_for_bit() {
    let set = domains(3);
    let config = SchedulerConfig {
        policy: PolicyName::Hds,
        hds: HdsConfig {
            minibatch: 8,
            replay_capacity: 24,
            ..small()
        },
        ..SchedulerConfig::default()
    };
    let mut run = facts(&set, 100);
    let folder = tempfile::tempdir().unwrap();
    let mut policy = build(&config, &run).unwrap();
    let mut weights = policy.initial();
    for step in 0..30 {
        weights = policy.next(&rewarded(3, step, &weights)).unwrap().weights;
    }
    policy.save(folder.path()).unwrap();
    let mut restored = build(&config, &run).unwrap();
    restored.restore(folder.path()).unwrap();
    for step in 30..40 {
        let seen = rewarded(3, step, &weights);
        let decision = policy.next(&seen).unwrap();
        assert_eq!(decision, restored.next(&seen).unwrap(), "step {step}");
        weights = decision.weights;
    }
    // The initial networks of another seed would do otherwise.
    run.seed += 1;
    let mut other = build(&config, &run).unwrap();
    other.initial();
    let fresh = other.next(&rewarded(3, 0, &weights)).unwrap();
    assert_ne!(
        fresh.weights,
        build(&config, &facts(&set, 100))
            .unwrap()
            .next(&rewarded(3, 0, &weights))
            .unwrap()
            .weights
    );
}

#[test]
fn decisions_are_the_same_in_any_timing() {
    // One is given all the time it wants after each step, one none, one now and then.
    let set = domains(3);
    let config = HdsConfig {
        minibatch: 8,
        least_transitions: 4,
        ..small()
    };
    let make = || HdsPolicy::new(&config, &facts(&set, 100));
    let (mut patient, mut hasty, mut uneven) = (make(), make(), make());
    let mut weights = patient.initial();
    assert_eq!(hasty.initial(), uneven.initial());
    for step in 0..30 {
        let seen = rewarded(3, step, &weights);
        let decision = patient.next(&seen).unwrap();
        patient.settle();
        assert_eq!(decision, hasty.next(&seen).unwrap(), "step {step}");
        assert_eq!(decision, uneven.next(&seen).unwrap(), "step {step}");
        if step % 3 == 0 {
            std::thread::sleep(Duration::from_millis(step % 7));
            uneven.settle();
        }
        weights = decision.weights;
    }
    assert!(patient.progress.updates > 40 && patient.learning_time() > Duration::ZERO);
}

#[test]
fn states_of_another_shape_or_damaged_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (three, four) = (domains(3), domains(4));
    let mut policy = HdsPolicy::new(&small(), &facts(&three, 100));
    let mut weights = policy.initial();
    for step in 0..4 {
        weights = policy.next(&rewarded(3, step, &weights)).unwrap().weights;
    }
    policy.save(folder.path()).unwrap();
    let restore = || {
        let mut fresh = HdsPolicy::new(&small(), &facts(&three, 100));
        fresh.restore(folder.path()).map_err(|e| e.to_string())
    };
    assert_eq!(restore(), Ok(()));
    let mut other = HdsPolicy::new(&small(), &facts(&four, 100));
    let error = other.restore(folder.path()).unwrap_err().to_string();
    assert!(error.contains("networks.safetensors"), "{error}");
    for file in [
        "policy.json",
        "networks.safetensors",
        "optimizers.safetensors",
        "replay.safetensors",
    ] {
        let path = folder.path().join(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let error = restore().unwrap_err();
        assert!(error.contains(file), "{file}: {error}");
        std::fs::remove_file(&path).unwrap();
        let error = restore().unwrap_err();
        assert!(error.contains(file), "{file}: {error}");
        std::fs::write(&path, &bytes).unwrap();
    }
    let text = std::fs::read_to_string(folder.path().join("policy.json")).unwrap();
    let other = text.replace("\"hds\"", "\"odm\"");
    std::fs::write(folder.path().join("policy.json"), other).unwrap();
    assert!(restore().unwrap_err().contains("odm"));
}

#[test]
fn observations_that_are_not_finite_stay_out_of_the_replay() {
    let set = domains(3);
    let mut policy = HdsPolicy::new(&small(), &facts(&set, 1000));
    let mut weights = policy.initial();
    for step in 0..40 {
        let mut seen = rewarded(3, step, &weights);
        match step % 4 {
            1 => seen.rewards.total[1] = f64::NAN,
            2 => seen.signals.losses[2] = Some(f64::INFINITY),
            _ => {}
        }
        let decision = policy.next(&seen).unwrap();
        assert!(decision.diagnostics.values().all(|v| v.is_finite()));
        weights = decision.weights;
    }
    let diagnostics = policy.next(&rewarded(3, 40, &weights)).unwrap().diagnostics;
    assert_eq!(diagnostics["rejected_transitions"], 20.0);
    assert_eq!(diagnostics["replay"], 20.0);
    assert_eq!(diagnostics["skipped_updates"], 0.0);
    assert!(diagnostics["updates"] > 0.0);
}

#[test]
fn a_network_that_is_not_finite_gives_the_last_good_weights_and_says_so() {
    let set = domains(3);
    let mut policy = HdsPolicy::new(&small(), &facts(&set, 10));
    let mut weights = policy.initial();
    for step in 0..5 {
        weights = policy.next(&rewarded(3, step, &weights)).unwrap().weights;
    }
    let agent = &policy.learning.learner().agent;
    for parameter in agent.actor.parameters.optimized() {
        let _ = tch::no_grad(|| parameter.tensor.detach().fill_(f64::NAN));
    }
    for step in 5..30 {
        let decision = policy.next(&rewarded(3, step, &weights)).unwrap();
        assert_eq!(decision.weights, weights);
        assert_eq!(decision.diagnostics["fallbacks"], (step - 4) as f64);
    }
    let last = policy.next(&rewarded(3, 30, &weights)).unwrap().diagnostics;
    assert!(last["skipped_updates"] > 0.0 && last["updates"] == last["skipped_updates"]);
}

#[test]
fn an_observation_of_another_shape_is_an_error() {
    let set = domains(3);
    let mut policy = HdsPolicy::new(&small(), &facts(&set, 10));
    let mut seen = observation(3, 0, &[0.5, 0.25, 0.25]);
    seen.signals.weight_norms = vec![1.0, 2.0];
    let error = policy.next(&seen).unwrap_err().to_string();
    assert!(error.contains("signals.weight_norms has 2"), "{error}");
    let error = policy
        .next(&observation(4, 0, &[0.25; 4]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("4 entries, the run has 3"), "{error}");
}

#[test]
fn one_domain_is_no_special_case() {
    let set = domains(1);
    let mut policy = HdsPolicy::new(&small(), &facts(&set, 100));
    let mut weights = policy.initial();
    for step in 0..30 {
        assert_eq!(weights, [1.0]);
        let decision = policy.next(&rewarded(1, step, &weights)).unwrap();
        assert_eq!(decision.diagnostics["skipped_updates"], 0.0);
        weights = decision.weights;
    }
}

#[test]
fn a_value_out_of_range_is_named_by_its_dotted_key() {
    for (text, key) in [
        ("discount = 1", "scheduler.hds.discount"),
        ("weight_floor = -0.1", "scheduler.hds.weight_floor"),
        ("minibatch = 0", "scheduler.hds.minibatch"),
        ("learning_rate = inf", "scheduler.hds.learning_rate"),
        ("replay_capacity = 4", "scheduler.hds.replay_capacity"),
        ("warm_up_fraction = 1.5", "scheduler.hds.warm_up_fraction"),
        ("polyak = 0", "scheduler.hds.polyak"),
    ] {
        let config: SchedulerConfig = toml::from_str(&format!("[hds]\n{text}")).unwrap();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    for text in [
        "[hds]\ndiscont = 0.9",
        "policy = 'sac'",
        "[hds]\ncoupling = 'none'",
    ] {
        let error = toml::from_str::<SchedulerConfig>(text)
            .unwrap_err()
            .to_string();
        assert!(error.contains("expected"), "{error}");
    }
    let config: SchedulerConfig =
        toml::from_str("hds = {preset = 'paper', discount = 0.5}").unwrap();
    assert_eq!(
        config.hds,
        HdsConfig {
            discount: 0.5,
            ..HdsConfig::paper()
        }
    );
    let text = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<SchedulerConfig>(&text).unwrap(), config);
    assert!(HdsConfig::paper().validate().is_ok() && HdsConfig::default().validate().is_ok());
}
