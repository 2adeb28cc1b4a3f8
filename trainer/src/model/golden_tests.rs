//! The model against `transformers`: logits, hidden states, losses, gradients, and the weights after
//! three optimizer steps of tiny checkpoints of both residual kinds.

#![allow(clippy::print_stdout)] // what a test tells with --show-output

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{Device, Kind, Tensor, no_grad};

use super::*;
use crate::optimizer::{AdamW, AdamWConfig, clip_gradient_norm};
use crate::tensors;

const VARIANTS: [&str; 2] = ["parallel", "sequential"];

fn golden(variant: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("HDS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/gptneox_golden").join(variant);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no {}", folder.display());
    None
}

fn load(folder: &Path) -> (Model, HashMap<String, Tensor>, Value) {
    let model = Model::load_huggingface(folder, Device::Cpu, Kind::Float).unwrap();
    let forward = tensors::read(&folder.join("golden_forward.safetensors"), Device::Cpu).unwrap();
    let text = std::fs::read(folder.join("golden.json")).unwrap();
    (model, forward, serde_json::from_slice(&text).unwrap())
}

/// Inputs and targets [B, L] from token ids [B, L + 1].
fn split(ids: &Tensor) -> (Tensor, Tensor) {
    let length = ids.size()[1] - 1;
    (ids.narrow(1, 0, length), ids.narrow(1, 1, length))
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

#[test]
fn logits_and_hidden_states_are_those_of_transformers() {
    for variant in VARIANTS {
        let Some(folder) = golden(variant) else {
            return;
        };
        let (model, forward, _) = load(&folder);
        let ids = &forward["input_ids"];
        let mut states = Vec::new();
        let (logits, last) = no_grad(|| {
            let last = model.hidden_states(ids, None, None, |state| states.push(state.copy()));
            (model.forward(ids, None), last)
        });
        let difference = largest_difference(&logits, &forward["logits"]);
        assert!(difference < 1e-4, "{variant}: logits {difference}");
        // The reference's last state is the one after the final norm.
        let count = states.len();
        states[count - 1] = last;
        for (i, state) in states.iter().enumerate() {
            let want = &forward[&format!("hidden_states.{i}")];
            let difference = largest_difference(&state.view_as(want), want);
            assert!(difference < 1e-4, "{variant}: state {i} {difference}");
        }
    }
}

#[test]
fn losses_are_those_of_transformers() {
    for variant in VARIANTS {
        let Some(folder) = golden(variant) else {
            return;
        };
        let (model, forward, values) = load(&folder);
        let (tokens, targets) = split(&forward["input_ids"]);
        let logits = no_grad(|| model.forward(&tokens, None));
        let nll = loss::token_losses(&logits, &targets);
        let mut means = Vec::new();
        for (b, row) in values["nll"].as_array().unwrap().iter().enumerate() {
            let row: Vec<f64> = row
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect();
            for (l, want) in row.iter().enumerate() {
                let got = nll.double_value(&[b as i64, l as i64]);
                assert!((got - want).abs() < 1e-4, "{variant} {b} {l}: {got} {want}");
            }
            means.push(row.iter().sum::<f64>() / row.len() as f64);
        }
        let losses = [
            sequence_losses(&logits, &targets),
            model.evaluate_losses(&tokens, &targets),
        ];
        for losses in losses {
            for (b, want) in means.iter().enumerate() {
                assert!((losses.double_value(&[b as i64]) - want).abs() < 1e-5);
            }
        }
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        assert!((mean - values["loss"].as_f64().unwrap()).abs() < 1e-5);
    }
}

fn assert_golden_gradients(model: &Model, folder: &Path, how: &str) {
    let want = tensors::read(&folder.join("golden_grads.safetensors"), Device::Cpu).unwrap();
    let parameters = model.parameters();
    assert_eq!(parameters.len(), want.len());
    for parameter in &parameters {
        let want = &want[&parameter.name];
        let error = (parameter.tensor.grad() - want).norm().double_value(&[]);
        let relative = error / want.norm().double_value(&[]).max(1e-12);
        assert!(
            relative < 1e-3,
            "{}, {how}, {}: {relative}",
            folder.display(),
            parameter.name
        );
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    for variant in VARIANTS {
        let Some(folder) = golden(variant) else {
            return;
        };
        let (model, forward, _) = load(&folder);
        let (tokens, targets) = split(&forward["input_ids"]);
        let losses = model.accumulate_gradients(&tokens, &targets, 0.5, None);
        assert_eq!(losses.size(), [2]);
        assert_golden_gradients(&model, &folder, "chunked");
        // Twice half the gradient, now that every gradient exists.
        no_grad(|| {
            for parameter in model.parameters() {
                let _ = parameter.tensor.grad().zero_();
            }
        });
        for _ in 0..2 {
            let _ = model.accumulate_gradients(&tokens, &targets, 0.25, None);
        }
        assert_golden_gradients(&model, &folder, "accumulated");

        let (model, ..) = load(&folder);
        let logits = model.forward(&tokens, None);
        sequence_losses(&logits, &targets)
            .mean(Kind::Float)
            .backward();
        assert_golden_gradients(&model, &folder, "whole");
    }
}

#[test]
fn three_optimizer_steps_are_those_of_torch() {
    for variant in VARIANTS {
        let Some(folder) = golden(variant) else {
            return;
        };
        let (model, forward, values) = load(&folder);
        let (tokens, targets) = split(&forward["input_ids"]);
        let parameters = model.parameters_decaying(DecayOn::All);
        let mut optimizer = AdamW::new(
            model.parameters_decaying(DecayOn::All),
            AdamWConfig {
                betas: (0.9, 0.95),
                epsilon: 1e-8,
                weight_decay: 0.1,
            },
        );
        let expected = &values["adamw"];
        for step in 0..3 {
            optimizer.zero_gradients();
            let losses = model.accumulate_gradients(&tokens, &targets, 0.5, None);
            let loss = losses.mean(Kind::Float).double_value(&[]);
            let norm = clip_gradient_norm(&parameters, 1.0);
            let want = expected["loss_before_step"][step].as_f64().unwrap();
            assert!(
                (loss - want).abs() < 1e-4,
                "{variant} {step}: {loss} {want}"
            );
            let want = expected["grad_norm_before_clip"][step].as_f64().unwrap();
            assert!(
                (norm - want).abs() < 1e-4,
                "{variant} {step}: {norm} {want}"
            );
            optimizer.step(1e-3);
        }
        let after =
            tensors::read(&folder.join("after_3_adamw_steps.safetensors"), Device::Cpu).unwrap();
        let gradients =
            tensors::read(&folder.join("golden_grads.safetensors"), Device::Cpu).unwrap();
        // Adam divides a gradient by its own size, so a gradient that is 0 but for rounding (a key's
        // bias does not change a softmax) still moves by up to a whole step, in a direction that
        // only rounding decides. Such entries are held to three steps, all others to the golden
        // weights.
        let (mut worst, mut judged) = (0f64, 0i64);
        for parameter in &parameters {
            let difference = (parameter.tensor.detach() - &after[&parameter.name]).abs();
            assert!(difference.max().double_value(&[]) < 3e-3);
            let gradient = &gradients[&parameter.name];
            let real = gradient.abs().gt(1e-5).logical_or(&gradient.eq(0.0));
            judged += real.sum(Kind::Int64).int64_value(&[]);
            worst = worst.max((difference * real).max().double_value(&[]));
        }
        assert!(worst < 1e-5, "{variant}: {worst}");
        assert!(judged > 78_000, "{variant}: only {judged} entries judged");
        println!("{variant}: largest difference of a weight {worst:e}, of {judged}");
    }
}
