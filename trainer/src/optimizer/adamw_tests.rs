//! AdamW against its formulas, and its saved state.

use std::collections::HashMap;

use tch::{Kind, Tensor, no_grad};

use super::*;
use crate::optimizer::clip_gradient_norm;

/// One scalar of AdamW in f64, written from the papers' algorithm.
struct Scalar {
    weight: f64,
    first: f64,
    second: f64,
}

impl Scalar {
    fn step(&mut self, gradient: f64, rate: f64, decay: f64, t: i32) {
        let (b1, b2) = (0.9_f64, 0.95_f64);
        self.first = b1 * self.first + (1.0 - b1) * gradient;
        self.second = b2 * self.second + (1.0 - b2) * gradient * gradient;
        let first = self.first / (1.0 - b1.powi(t));
        let second = self.second / (1.0 - b2.powi(t));
        self.weight -= rate * (first / (second.sqrt() + 1e-8) + decay * self.weight);
    }
}

fn parameter(name: &str, values: &Tensor, decays: bool) -> Parameter {
    Parameter {
        name: name.to_owned(),
        tensor: values.copy().set_requires_grad(true),
        decays,
    }
}

/// Accumulates the gradient of Σ w·c, which is c.
fn give_gradient(parameter: &Parameter, gradient: &Tensor) {
    (&parameter.tensor * gradient).sum(Kind::Double).backward();
}

#[test]
fn steps_follow_the_published_algorithm_over_blocks() {
    // More than two blocks, and not a multiple of one.
    let length = 2 * CPU_BLOCK + 123;
    let options = (Kind::Double, Device::Cpu);
    let start = Tensor::arange(length, options).sin();
    let decaying = parameter("decaying", &start, true);
    let plain = parameter("plain", &start, false);
    let mut optimizer = AdamW::new(
        vec![decaying.shallow_clone(), plain.shallow_clone()],
        AdamWConfig::default(),
    );
    let probes = [0, 1, 777, CPU_BLOCK, 2 * CPU_BLOCK + 122];
    let mut expected: Vec<[Scalar; 2]> = probes
        .iter()
        .map(|&i| {
            [0, 1].map(|_| Scalar {
                weight: (i as f64).sin(),
                first: 0.0,
                second: 0.0,
            })
        })
        .collect();
    for t in 1..=4 {
        let gradient = (Tensor::arange(length, options) * (0.1 * f64::from(t))).cos();
        optimizer.zero_gradients();
        give_gradient(&decaying, &gradient);
        give_gradient(&plain, &gradient);
        let rate = 1e-2 / f64::from(t);
        optimizer.step(rate);
        for (&i, scalars) in probes.iter().zip(&mut expected) {
            let gradient = (i as f64 * (0.1 * f64::from(t))).cos();
            scalars[0].step(gradient, rate, 0.1, t);
            scalars[1].step(gradient, rate, 0.0, t);
            for (scalar, tensor) in scalars.iter().zip([&decaying.tensor, &plain.tensor]) {
                let got = tensor.double_value(&[i]);
                assert!(
                    (got - scalar.weight).abs() < 1e-12,
                    "t {t}, i {i}: {got} {}",
                    scalar.weight
                );
            }
        }
    }
}

#[test]
fn a_restored_optimizer_takes_the_same_steps() {
    let start = Tensor::from_slice(&[1.0f32, -2.0, 3.0]);
    let gradient = Tensor::from_slice(&[0.5f32, 0.25, -1.0]);
    let run = |optimizer: &mut AdamW, parameter: &Parameter| {
        optimizer.zero_gradients();
        give_gradient(parameter, &gradient);
        optimizer.step(0.1);
    };
    let one = parameter("w", &start, true);
    let mut first = AdamW::new(vec![one.shallow_clone()], AdamWConfig::default());
    run(&mut first, &one);
    run(&mut first, &one);
    let saved: HashMap<String, Tensor> = first
        .state()
        .into_iter()
        .map(|(name, tensor)| (name, tensor.copy()))
        .collect();
    let two = parameter("w", &one.tensor.detach(), true);
    let mut second = AdamW::new(vec![two.shallow_clone()], AdamWConfig::default());
    second.load_state(&saved).unwrap();
    run(&mut first, &one);
    run(&mut second, &two);
    assert_eq!(second.steps(), 3);
    assert!(one.tensor.equal(&two.tensor));

    let refuse = |change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut state: HashMap<String, Tensor> = saved
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.copy()))
            .collect();
        change(&mut state);
        let mut optimizer = AdamW::new(vec![two.shallow_clone()], AdamWConfig::default());
        optimizer.load_state(&state).unwrap_err().to_string()
    };
    assert!(
        refuse(&|s| {
            s.remove("w.second_moment");
        })
        .contains("w.second_moment")
    );
    assert!(
        refuse(&|s| {
            s.insert("v.first_moment".to_owned(), start.copy());
        })
        .contains("v.first_moment")
    );
    assert!(
        refuse(&|s| {
            s.insert("w.first_moment".to_owned(), Tensor::from_slice(&[1.0f32]));
        })
        .contains("[1]")
    );
    assert!(
        refuse(&|s| {
            s.insert("step".to_owned(), Tensor::from_slice(&[-1i64]));
        })
        .contains("step")
    );
}

#[test]
fn a_parameter_without_gradient_is_left_alone() {
    let used = parameter("used", &Tensor::from_slice(&[1.0f32]), true);
    let unused = parameter("unused", &Tensor::from_slice(&[1.0f32]), true);
    let mut optimizer = AdamW::new(
        vec![used.shallow_clone(), unused.shallow_clone()],
        AdamWConfig::default(),
    );
    give_gradient(&used, &Tensor::from_slice(&[1.0f32]));
    optimizer.step(0.1);
    assert_eq!(unused.tensor.double_value(&[0]), 1.0);
    assert!(used.tensor.double_value(&[0]) < 1.0);
}

#[test]
fn clipping_scales_all_gradients_to_the_norm() {
    let a = parameter("a", &Tensor::from_slice(&[0.0f32]), true);
    let b = parameter("b", &Tensor::from_slice(&[0.0f32]), true);
    give_gradient(&a, &Tensor::from_slice(&[3.0f32]));
    give_gradient(&b, &Tensor::from_slice(&[4.0f32]));
    let both = [a, b];
    assert!((clip_gradient_norm(&both, 10.0) - 5.0).abs() < 1e-6);
    assert_eq!(both[0].tensor.grad().double_value(&[0]), 3.0);
    assert!((clip_gradient_norm(&both, 1.0) - 5.0).abs() < 1e-6);
    assert!((both[0].tensor.grad().double_value(&[0]) - 3.0 / (5.0 + 1e-6)).abs() < 1e-7);
    assert!((both[1].tensor.grad().double_value(&[0]) - 4.0 / (5.0 + 1e-6)).abs() < 1e-7);
    no_grad(|| {
        let _ = both[0].tensor.grad().fill_(f64::INFINITY);
    });
    assert!(!clip_gradient_norm(&both, 1.0).is_finite());
    assert!((both[1].tensor.grad().double_value(&[0]) - 0.8).abs() < 1e-5);
}

#[test]
fn settings_out_of_range_are_named() {
    let config = AdamWConfig {
        betas: (0.9, 1.0),
        ..AdamWConfig::default()
    };
    assert!(
        config
            .validate()
            .unwrap_err()
            .to_string()
            .contains("betas[1]")
    );
    assert!(AdamWConfig::default().validate().is_ok());
    // 0 in 32 bits.
    let config = AdamWConfig {
        epsilon: 1e-60,
        ..AdamWConfig::default()
    };
    let error = config.validate().unwrap_err().to_string();
    assert!(
        error.contains("epsilon") && error.contains("1e-30"),
        "{error}"
    );
}

#[test]
fn rates_and_epsilons_that_32_bits_do_not_hold_spoil_no_weight() {
    let start = Tensor::from_slice(&[1f32, 2.0]);
    for (rate, epsilon) in [(1e-39, 1e-8), (1e-45, 1e-30), (1e20, 1e-30), (1e-3, 1e-60)] {
        let config = AdamWConfig {
            epsilon,
            weight_decay: 0.0,
            ..AdamWConfig::default()
        };
        let weight = parameter("w", &start, true);
        let mut optimizer = AdamW::new(vec![weight.shallow_clone()], config);
        // A weight that a step has nothing to say of, as of ids that a batch does not have.
        give_gradient(&weight, &Tensor::from_slice(&[0f32, 1.0]));
        optimizer.step(rate);
        let moved = Vec::<f32>::try_from(weight.tensor.detach()).unwrap();
        assert_eq!(moved[0], 1.0, "{rate} {epsilon}: {moved:?}");
        assert!(moved[1].is_finite() && moved[1] <= 2.0, "{moved:?}");
    }
}

#[test]
fn shares_of_an_optimizer_move_and_restore_what_the_whole_one_does() {
    let length = CPU_BLOCK + 75;
    let options = (Kind::Float, Device::Cpu);
    let start = Tensor::arange(length, options).sin().view([7, -1]);
    let gradient = Tensor::arange(length, options).cos().view([7, -1]);
    let config = AdamWConfig::default();
    let whole = parameter("w", &start, true);
    let shared = parameter("w", &start, true);
    let mut one = AdamW::new(vec![whole.shallow_clone()], config);
    let cuts = [0, 5, 5, CPU_BLOCK + 70, length];
    let shares = |cuts: &[i64]| -> Vec<AdamW> {
        cuts.windows(2)
            .map(|cut| {
                let elements = std::iter::once(cut[0]..cut[1]).collect();
                AdamW::sharded(vec![shared.shallow_clone()], elements, config)
            })
            .collect()
    };
    let mut many = shares(&cuts);
    for parameter in [&whole, &shared] {
        give_gradient(parameter, &gradient);
    }
    for rate in [0.1, 0.05] {
        one.step(rate);
        many.iter_mut().for_each(|share| share.step(rate));
    }
    // Vector kernels round the elements at the edges of a share in another way.
    let same = || assert!(whole.tensor.allclose(&shared.tensor, 1e-6, 1e-7, false));
    same();
    // Other shares go on from the state of the whole.
    let saved: HashMap<String, Tensor> = one.state().into_iter().collect();
    let mut others = shares(&[0, length / 2, length]);
    for share in &mut others {
        share.load_state(&saved).unwrap();
    }
    one.step(0.02);
    others.iter_mut().for_each(|share| share.step(0.02));
    same();
}
