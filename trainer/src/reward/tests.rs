//! Each formula against values worked out by hand on tiny inputs.

use super::*;
use crate::signals::Gram;

/// Three domains, the last absent. g_0 = (1, 0), g_1 = (1, 2).
fn signals(step: u64) -> StepSignals {
    StepSignals {
        step,
        total_steps: 100,
        sequence_length: 102,
        samples: vec![3, 1, 0],
        losses: vec![Some(2.0), Some(3.0), None],
        mtld: vec![Some(22.0), Some(52.0), None],
        gram: Some(Gram {
            domains: 3,
            products: vec![1.0, 1.0, 0.0, 1.0, 5.0, 0.0, 0.0, 0.0, 0.0],
            sequence_squares: Vec::new(),
        }),
        weight_norms: vec![10.0, 20.0],
        weight_change_norms: vec![0.0, 0.0],
    }
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(
            (g - w).abs() < 1e-6 * w.abs().max(1.0),
            "{got:?} is not {want:?}"
        );
    }
}

fn unscaled() -> RewardConfig {
    RewardConfig {
        scale_alignment: false,
        ..RewardConfig::paper()
    }
}

#[test]
fn alignment_is_the_inner_product_with_the_other_domains() {
    let rewards = RewardModel::new(unscaled(), 3).rewards(&signals(0));
    close(&rewards.alignment_raw, &[1.0, 1.0, 0.0]);
    close(&rewards.alignment, &[1.0, 1.0, 0.0]);
    let own = RewardConfig {
        own_term: OwnTerm::Measured,
        ..unscaled()
    };
    let rewards = RewardModel::new(own.clone(), 3).rewards(&signals(0));
    // ⟨(1,0), (2,2)⟩ = 2 and ⟨(1,2), (2,2)⟩ = 6.
    close(&rewards.alignment_raw, &[2.0, 6.0, 0.0]);
    // τ = (1, 0, 0) and K = 3: 3⟨g_i, g_0⟩.
    let mut model = RewardModel::new(own, 3)
        .with_target(&[2.0, 0.0, 0.0])
        .unwrap();
    close(&model.rewards(&signals(0)).alignment_raw, &[3.0, 3.0, 0.0]);
}

#[test]
fn a_domain_that_is_only_held_out_has_a_part_in_the_target() {
    // The third domain is never drawn; its gradient (0, 1) is measured on held-out text, and it is the target.
    let mut seen = signals(0);
    let gram = seen.gram.as_mut().unwrap();
    gram.products = vec![1.0, 1.0, 0.0, 1.0, 5.0, 2.0, 0.0, 2.0, 1.0];
    let mut model = RewardModel::new(unscaled(), 3)
        .with_target(&[0.0, 0.0, 1.0])
        .unwrap();
    let rewards = model.rewards(&seen);
    close(&rewards.alignment_raw, &[0.0, 6.0, 0.0]);
    close(model.target(), &[0.0, 0.0, 1.0]);
}

#[test]
fn each_term_can_be_turned_off() {
    let total = |off: fn(&mut RewardConfig), change: fn(&mut StepSignals)| {
        let mut config = RewardConfig::paper();
        off(&mut config);
        let mut model = RewardModel::new(config, 3);
        model.rewards(&signals(40));
        let mut seen = signals(50);
        seen.weight_norms = vec![10.5, 20.5];
        change(&mut seen);
        model.rewards(&seen).total
    };
    type Turn = fn(&mut RewardConfig);
    type Change = fn(&mut StepSignals);
    let cases: [(Turn, Change); 3] = [
        (
            |c| c.alignment_weight = 0.0,
            |s| s.gram.as_mut().unwrap().products[1] = -7.0,
        ),
        (|c| c.diversity_weight = 0.0, |s| s.mtld[0] = Some(90.0)),
        (
            |c| c.stability_weight = 0.0,
            |s| s.weight_norms = vec![13.0, 28.0],
        ),
    ];
    for (off, change) in cases {
        assert_eq!(total(off, |_| ()), total(off, change));
        assert_ne!(total(|_| (), |_| ()), total(|_| (), change));
    }
}

#[test]
fn the_unbiased_own_term_does_not_depend_on_the_number_of_sequences() {
    // Gradients of sequences: (1, 0), by turns plus and less (2, 2).
    let noise = |s: u64| if s.is_multiple_of(2) { 2.0 } else { -2.0 };
    let step = |samples: u64| {
        let all: Vec<[f64; 2]> = (0..samples).map(|s| [1.0 + noise(s), noise(s)]).collect();
        let mean = [0, 1].map(|d| all.iter().map(|g| g[d]).sum::<f64>() / samples as f64);
        let square = |g: &[f64; 2]| g[0] * g[0] + g[1] * g[1];
        let mut step = signals(0);
        step.samples = vec![samples, 0, 0];
        let mut products = vec![0.0; 9];
        products[0] = square(&mean);
        let squares = all.iter().map(square).sum::<f64>() / samples as f64;
        step.gram = Some(Gram {
            domains: 3,
            products,
            sequence_squares: vec![squares, 0.0, 0.0],
        });
        step
    };
    let own = |own_term, steps: &[u64]| {
        let config = RewardConfig {
            own_term,
            ..unscaled()
        };
        let mut model = RewardModel::new(config, 3);
        let all: Vec<f64> = steps
            .iter()
            .map(|&samples| model.rewards(&step(samples)).alignment_raw[0])
            .collect();
        all[all.len() - 1]
    };
    // Two sequences, (3, 2) and (−1, −2): their inner product is what has no square of noise in it.
    close(&[own(OwnTerm::Unbiased, &[2])], &[-7.0]);
    // One: its square less the variance that the step before showed, 16.
    close(&[own(OwnTerm::Unbiased, &[2, 1])], &[13.0 - 16.0]);
    close(&[own(OwnTerm::Measured, &[1])], &[13.0]);
    // Many: both come near ‖(1, 0)‖².
    close(&[own(OwnTerm::Measured, &[1000])], &[1.0]);
    let many = own(OwnTerm::Unbiased, &[1000]);
    assert!((many - 1.0).abs() < 0.01, "{many}");
}

#[test]
fn scaled_alignment_is_standardised_over_the_domains_of_the_step() {
    let config = RewardConfig {
        own_term: OwnTerm::Measured,
        ..RewardConfig::paper()
    };
    let rewards = RewardModel::new(config, 3).rewards(&signals(0));
    // Two values, 2 and 6 over a common factor: one standard deviation to either side.
    close(&rewards.alignment, &[-1.0, 1.0, 0.0]);
    // 12 domains, one of which stands out by more than 3 standard deviations.
    let mut step = signals(0);
    step.samples = vec![1; 12];
    let mut products = vec![0.0; 144];
    for i in 0..12 {
        products[i * 12 + i] = 1.0;
    }
    products[0] = 1000.0;
    step.gram = Some(Gram {
        domains: 12,
        products,
        sequence_squares: Vec::new(),
    });
    let config = RewardConfig {
        own_term: OwnTerm::Measured,
        ..RewardConfig::paper()
    };
    let rewards = RewardModel::new(config, 12).rewards(&step);
    assert_eq!(rewards.alignment[0], 3.0);
    // The others: −1 / √11 of a standard deviation.
    close(&rewards.alignment[1..], &[-1.0 / 11f64.sqrt(); 11]);
}

#[test]
fn paper_diversity_is_progress_over_normalised_mtld() {
    // MTLD_norm = (22 − 2)/100 = 0.2 and (52 − 2)/100 = 0.5; t' = 0.5.
    let rewards = RewardModel::new(RewardConfig::paper(), 3).rewards(&signals(50));
    close(&rewards.diversity, &[2.5, 1.0, 0.0]);
    close(&rewards.diversity_raw, &[2.5, 1.0, 0.0]);
    let mut step = signals(50);
    step.mtld = vec![Some(1.0), Some(5000.0), None];
    let config = RewardConfig {
        epsilon: 0.01,
        ..RewardConfig::paper()
    };
    let rewards = RewardModel::new(config, 3).rewards(&step);
    close(&rewards.diversity, &[50.0, 0.5 / 1.01, 0.0]);
}

#[test]
fn curriculum_prefers_simple_text_first_and_complex_text_last() {
    let diversity = |step| {
        RewardModel::new(RewardConfig::default(), 3)
            .rewards(&signals(step))
            .diversity
    };
    close(&diversity(0), &[1.0, -1.0, 0.0]);
    close(&diversity(50), &[0.0, 0.0, 0.0]);
    close(&diversity(75), &[-0.5, 0.5, 0.0]);
    // Before it is standardised: (2 t' − 1) MTLD_norm.
    let rewards = RewardModel::new(RewardConfig::default(), 3).rewards(&signals(75));
    close(&rewards.diversity_raw, &[0.1, 0.25, 0.0]);
}

#[test]
fn stability_is_the_capped_inverse_of_the_summed_change_of_norms() {
    let mut model = RewardModel::new(RewardConfig::paper(), 3);
    assert_eq!(model.rewards(&signals(0)).stability, 5.0);
    let mut step = signals(1);
    // |10.3 − 10| + |19.8 − 20| = 0.5, inverse 2.
    step.weight_norms = vec![10.3, 19.8];
    close(&[model.rewards(&step).stability], &[2.0]);
    step.weight_norms = vec![10.31, 19.81];
    // 0.02 → 50, capped.
    let rewards = model.rewards(&step);
    close(&[rewards.stability, rewards.stability_raw], &[5.0, 50.0]);
}

#[test]
fn a_constant_stability_is_scaled_to_nothing() {
    let mut model = RewardModel::new(RewardConfig::default(), 3);
    for step in 0..50 {
        let rewards = model.rewards(&signals(step));
        assert!(rewards.stability.abs() < 1e-6, "{}", rewards.stability);
    }
    let mut step = signals(50);
    step.weight_norms = vec![14.0, 20.0];
    // A fall from 5 to 0.25 after a constant past: far below the mean.
    assert!(model.rewards(&step).stability < -2.0);
}

#[test]
fn running_statistics_match_their_definition() {
    // Values 1, 3, 2 with decay 0.5: weights 1/7, 2/7, 4/7.
    let config = RewardConfig {
        statistics_decay: 0.5,
        ..RewardConfig::default()
    };
    let mut statistics = statistics::RunningStatistics::default();
    let mut last = 0.0;
    for value in [1.0, 3.0, 2.0] {
        last = statistics.scale(&config, value);
    }
    let mean = (1.0 + 6.0 + 8.0) / 7.0;
    let variance: f64 =
        ((1.0f64 - mean).powi(2) + 2.0 * (3.0f64 - mean).powi(2) + 4.0 * (2.0f64 - mean).powi(2))
            / 7.0;
    close(&[last], &[(2.0 - mean) / variance.sqrt()]);
}

#[test]
fn the_total_weighs_the_terms() {
    let rewards = RewardModel::new(unscaled(), 3).rewards(&signals(50));
    // 1·1 + 10·2.5 + 10·5, 1·1 + 10·1 + 10·5, 10·5.
    close(&rewards.total, &[76.0, 61.0, 50.0]);
}

#[test]
fn an_absent_domain_keeps_its_last_value_for_a_while() {
    let config = RewardConfig {
        absent_age_steps: 2,
        ..RewardConfig::default()
    };
    let mut model = RewardModel::new(config, 3);
    let first = model.rewards(&signals(0));
    for step in 1..5 {
        let mut later = signals(step);
        later.samples[0] = 0;
        later.mtld[0] = None;
        for i in 0..3 {
            let gram = later.gram.as_mut().unwrap();
            gram.products[i] = 0.0;
            gram.products[3 * i] = 0.0;
        }
        let rewards = model.rewards(&later);
        let held = if step <= 2 { first.alignment[0] } else { 0.0 };
        assert_eq!(rewards.alignment[0], held, "step {step}");
        assert_eq!(rewards.diversity[0] == first.diversity[0], step <= 2);
    }
    let mut zero = RewardModel::new(RewardConfig::paper(), 3);
    zero.rewards(&signals(0));
    let mut later = signals(1);
    later.samples[1] = 0;
    assert_eq!(zero.rewards(&later).alignment[1], 0.0);
}

#[test]
fn numbers_that_are_not_finite_count_as_absent() {
    let mut model = RewardModel::new(RewardConfig::default(), 3);
    model.rewards(&signals(0));
    let before = model.save().unwrap();
    let mut bad = signals(1);
    bad.mtld = vec![Some(f64::NAN), Some(f64::INFINITY), None];
    bad.weight_norms = vec![f64::NAN, 20.0];
    bad.gram.as_mut().unwrap().products.fill(f64::NAN);
    let rewards = model.rewards(&bad);
    let all = [
        rewards.alignment_raw,
        rewards.alignment,
        rewards.diversity,
        rewards.total,
    ];
    assert!(all.iter().flatten().all(|v| v.is_finite()) && rewards.stability == 0.0);
    assert_eq!(model.save().unwrap(), before);
    // One bad row takes only its own domain out.
    let mut bad = signals(1);
    for at in [1, 3, 4, 5, 7] {
        bad.gram.as_mut().unwrap().products[at] = f64::NAN;
    }
    close(
        &RewardModel::new(RewardConfig::default(), 3)
            .rewards(&bad)
            .alignment_raw,
        &[1.0, 0.0, 0.0],
    );
    // Vectors of a wrong length are no reason to panic.
    bad.samples.clear();
    bad.mtld.clear();
    bad.weight_norms.clear();
    bad.gram = Some(Gram {
        domains: 7,
        products: vec![1.0],
        sequence_squares: Vec::new(),
    });
    assert_eq!(
        RewardModel::new(RewardConfig::default(), 3)
            .rewards(&bad)
            .total
            .len(),
        3
    );
}

#[test]
fn a_restored_model_goes_on_equally() {
    let step = |t: u64| {
        let mut s = signals(t);
        s.weight_norms = vec![10.0 + (t as f64).sin(), 20.0];
        s.samples[(t % 3) as usize] = 0;
        s
    };
    let mut model = RewardModel::new(RewardConfig::default(), 3);
    for t in 0..5 {
        model.rewards(&step(t));
    }
    let text = serde_json::to_string(&model.save().unwrap()).unwrap();
    let mut restored = RewardModel::new(RewardConfig::default(), 3);
    restored
        .restore(&serde_json::from_str(&text).unwrap())
        .unwrap();
    for t in 5..10 {
        assert_eq!(model.rewards(&step(t)), restored.rewards(&step(t)));
    }
    let mut other = RewardModel::new(RewardConfig::default(), 4);
    let error = other
        .restore(&model.save().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains('3') && error.contains('4'), "{error}");
    assert!(other.restore(&serde_json::json!({"alignment": 1})).is_err());
}

#[test]
fn a_value_out_of_range_is_named_by_its_dotted_key() {
    let config = RewardConfig {
        epsilon: 0.0,
        ..RewardConfig::default()
    };
    assert!(
        config
            .validate()
            .unwrap_err()
            .to_string()
            .contains("reward.epsilon")
    );
    let config = RewardConfig {
        diversity_weight: f64::NAN,
        ..RewardConfig::default()
    };
    assert!(
        config
            .validate()
            .unwrap_err()
            .to_string()
            .contains("reward.diversity_weight")
    );
    assert!(RewardConfig::default().validate().is_ok() && RewardConfig::paper().validate().is_ok());
    let error = toml::from_str::<RewardConfig>("alignement_weight = 2").unwrap_err();
    assert!(error.to_string().contains("alignement_weight"), "{error}");
    let config: RewardConfig = toml::from_str("preset = 'paper'\nstability_weight = 0").unwrap();
    assert_eq!(
        config,
        RewardConfig {
            stability_weight: 0.0,
            ..RewardConfig::paper()
        }
    );
}

#[test]
fn a_target_must_weigh_the_domains() {
    for bad in [&[1.0][..], &[0.0, 0.0], &[f64::NAN, 1.0], &[-1.0, 2.0]] {
        assert!(
            RewardModel::new(RewardConfig::default(), 2)
                .with_target(bad)
                .is_err()
        );
    }
}
