//! The agent on problems whose best action is known: every coupling, and the choices that let the actor learn.
//!
//! Floors, noise and the entropy that α holds keep a policy from being the best action itself; every test says what
//! the best is worth, and what uniform weights are.

use super::super::testing::{domains, facts, observation};
use super::*;
use crate::reward::{OwnTerm, RewardConfig, RewardModel};
use crate::signals::Gram;

fn small(coupling: Coupling) -> HdsConfig {
    HdsConfig {
        network: NetworkSize::Small,
        minibatch: 32,
        coupling,
        learning_rate: 3e-3,
        polyak: 0.02,
        ..HdsConfig::default()
    }
}

/// Mean weights of the last 60 of `steps` steps of a bandit that pays `reward(weights, step)`, and the last diagnostics.
fn play(
    config: &HdsConfig,
    k: usize,
    steps: u64,
    mut reward: impl FnMut(&[f64], u64) -> Vec<f64>,
) -> (Vec<f64>, BTreeMap<String, f64>) {
    let set = domains(k);
    let mut policy = HdsPolicy::new(config, &facts(&set, steps));
    let mut weights = policy.initial();
    let (mut mean, mut diagnostics) = (vec![0.0; k], BTreeMap::new());
    for step in 0..steps {
        let mut seen = observation(k, step, &weights);
        seen.signals.total_steps = steps;
        seen.rewards.total = reward(&weights, step);
        let decision = policy.next(&seen).unwrap();
        weights = decision.weights;
        diagnostics = decision.diagnostics;
        if step + 60 >= steps {
            mean.iter_mut()
                .zip(&weights)
                .for_each(|(m, w)| *m += w / 60.0);
        }
    }
    assert_eq!(diagnostics["skipped_updates"], 0.0);
    (mean, diagnostics)
}

/// Domain `best` is worth 1, the others 0.
fn one_pays(k: usize, best: usize) -> Vec<f64> {
    (0..k).map(|i| f64::from(u8::from(i == best))).collect()
}

/// −16 (a_i − a*_i)² each: head by head, as a sum, and in expectation, a* is the best action.
fn square_loss(weights: &[f64], best: &[f64]) -> Vec<f64> {
    let off = weights.iter().zip(best).map(|(a, b)| a - b);
    off.map(|off| -16.0 * off * off).collect()
}

fn distance(weights: &[f64], best: &[f64]) -> f64 {
    weights.iter().zip(best).map(|(a, b)| (a - b).abs()).sum()
}

#[test]
fn the_best_domain_is_found_by_the_expected_reward_of_a_draw() {
    // Uniform weights are worth 0.25, the floor allows 0.925.
    for (coupling, steps) in [(Coupling::Factored, 150), (Coupling::Expected, 300)] {
        let (weights, told) = play(&small(coupling), 4, steps, |_, _| one_pays(4, 2));
        assert!(weights[2] > 0.6, "{coupling:?}: {weights:?} {told:?}");
    }
}

#[test]
fn a_best_domain_that_changes_is_followed() {
    // It moves after 100 steps.
    for (coupling, steps) in [(Coupling::Factored, 300), (Coupling::Expected, 500)] {
        let best = |step| if step < 100 { 2 } else { 0 };
        let (weights, told) = play(&small(coupling), 4, steps, |_, t| one_pays(4, best(t)));
        assert!(weights[0] > 0.5, "{coupling:?}: {weights:?} {told:?}");
    }
}

#[test]
fn a_policy_relative_to_a_prior_is_there_sooner_and_follows_a_change() {
    // The best domain moves after 60 of 120 steps; without a prior an agent is on its way to it.
    let config = HdsConfig {
        prior_strength: 2.0,
        prior_decay: 0.9,
        exploration: 0.2,
        ..small(Coupling::Factored)
    };
    let alone = small(Coupling::Factored);
    let best = |step| if step < 60 { 2 } else { 0 };
    let paid = |_: &[f64], t| one_pays(4, best(t));
    let (with, told) = play(&config, 4, 120, paid);
    let (without, _) = play(&alone, 4, 120, paid);
    assert!(
        with[0] > 0.6 && with[0] > without[0] + 0.1,
        "{with:?} {without:?} {told:?}"
    );
}

#[test]
fn the_authors_coupling_learns_nothing_from_rewards_that_are_no_function_of_the_action() {
    let (weights, _) = play(&small(Coupling::Vector), 4, 200, |_, _| one_pays(4, 2));
    assert!(weights[2] < 0.4, "{weights:?}");
}

#[test]
fn every_coupling_finds_a_best_mixture() {
    // Uniform weights are 0.6 away.
    let best = [0.5, 0.3, 0.15, 0.05];
    for coupling in [Coupling::Vector, Coupling::Expected, Coupling::Factored] {
        let (weights, told) = play(&small(coupling), 4, 300, |a, _| square_loss(a, &best));
        assert!(
            distance(&weights, &best) < 0.25,
            "{coupling:?}: {weights:?} {told:?}"
        );
    }
}

#[test]
fn every_coupling_follows_a_best_mixture_that_changes() {
    let (first, then) = ([0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]);
    for coupling in [Coupling::Vector, Coupling::Expected, Coupling::Factored] {
        let reward = |a: &[f64], t| square_loss(a, if t < 150 { &first } else { &then });
        let (weights, told) = play(&small(coupling), 4, 500, reward);
        assert!(
            distance(&weights, &then) < 0.35,
            "{coupling:?}: {weights:?} {told:?}"
        );
    }
}

#[test]
fn an_entropy_that_can_be_held_lets_the_policy_settle_and_the_papers_does_not() {
    // K = 8: no density on the simplex has an entropy above −8.5, the paper asks for −8.
    let run = |entropy_target| {
        let config = HdsConfig {
            entropy_target,
            weight_floor: 0.0,
            ..small(Coupling::Factored)
        };
        let (weights, told) = play(&config, 8, 200, |_, _| one_pays(8, 3));
        (weights[3], told["alpha"])
    };
    let (weight, alpha) = run(EntropyTarget::Relative);
    let (papers_weight, papers_alpha) = run(EntropyTarget::Paper);
    assert!(weight > 0.5 && alpha < 0.2, "{weight} {alpha}");
    assert!(
        papers_weight < weight && papers_alpha > 0.2,
        "{papers_weight} {papers_alpha}"
    );
}

#[test]
fn a_constant_that_drowns_the_rewards_is_taken_out_by_scaling_them() {
    // The paper's stability term at its cap: 50 in every reward.
    let run = |normalize_rewards| {
        let config = HdsConfig {
            normalize_rewards,
            ..small(Coupling::Factored)
        };
        let paid = |_: &[f64], _| one_pays(4, 2).iter().map(|r| r + 50.0).collect();
        let (weights, told) = play(&config, 4, 150, paid);
        (weights[2], told["critic_loss"])
    };
    let ((scaled, loss), (raw, raw_loss)) = (run(true), run(false));
    assert!(scaled > 0.6, "{scaled}");
    assert!(
        raw < 0.5 && raw_loss > 10.0 * loss,
        "{raw} {raw_loss} {loss}"
    );
}

#[test]
fn each_form_of_the_own_term_leads_to_the_domain_that_it_pays() {
    // Four domains of 32 sequences a step. Domain 0 learns fast and helps nobody; 1 and 2 help each other a little; 3 is
    // noise alone: its gradients' mean is 0 and their variance 200.
    let squares = [4.0, 0.5, 0.5, 0.0];
    let variances = [1.0, 1.0, 1.0, 200.0];
    let run = |own_term| {
        let config = RewardConfig {
            own_term,
            diversity_weight: 0.0,
            stability_weight: 0.0,
            ..RewardConfig::default()
        };
        let mut model = RewardModel::new(config, 4);
        let reward = |weights: &[f64], step| {
            let mut seen = observation(4, step, weights);
            let samples: Vec<u64> = weights
                .iter()
                .map(|w| (w * 32.0).round().max(2.0) as u64)
                .collect();
            let mut products = vec![0.0; 16];
            for i in 0..4 {
                products[5 * i] = squares[i] + variances[i] / samples[i] as f64;
            }
            products[6] = 0.4;
            products[9] = 0.4;
            seen.signals.samples = samples;
            seen.signals.gram = Some(Gram {
                domains: 4,
                products,
                sequence_squares: (0..4).map(|i| squares[i] + variances[i]).collect(),
            });
            model.rewards(&seen.signals).total
        };
        let (weights, _) = play(&small(Coupling::Factored), 4, 150, reward);
        weights
    };
    let without = run(OwnTerm::Without);
    assert!(without[1] + without[2] > 0.6, "{without:?}");
    let measured = run(OwnTerm::Measured);
    assert!(measured[3] > measured[0], "{measured:?}");
    let unbiased = run(OwnTerm::Unbiased);
    assert!(unbiased[0] > 0.6, "{unbiased:?}");
}
