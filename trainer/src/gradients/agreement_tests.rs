//! Sketches against exact gradients on a small model that has learnt something: unbiased, and of one opinion on domains.

#![allow(clippy::print_stdout)] // what a test tells with --show-output

use hds::DomainId;
use hds::random::{Purpose, RandomStream};
use tch::{Device, Kind, Tensor};

use super::*;
use crate::model::{Initialization, Model, ModelConfig, Taps};
use crate::optimizer::{AdamW, AdamWConfig};
use crate::reward::{OwnTerm, RewardConfig, RewardModel};
use crate::signals::{Gram, StepSignals};

const K: usize = 8;
const ROWS: usize = 24;
const LENGTH: i64 = 32;
const VOCABULARY: i64 = 64;
const BLOCKS: [usize; 2] = [1, 2];

fn model() -> Model {
    let config = ModelConfig {
        vocab_size: VOCABULARY,
        hidden_size: 96,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        intermediate_size: 384,
        max_position_embeddings: 64,
        rotary_pct: 0.25,
        rotary_emb_base: 10_000.0,
        layer_norm_eps: 1e-5,
        use_parallel_residual: true,
        initialization: Initialization::SmallWang,
    };
    Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap()
}

/// Text of domain d: mostly steps of d + 1 through a range of ids that it shares with its neighbours, and some noise.
fn batch(step: u64) -> (Tensor, Tensor, Vec<DomainId>) {
    let mut sequence = RandomStream::new(9, Purpose::Sketch).sequence(step);
    let mut ids = Vec::new();
    let mut domains = Vec::new();
    for row in 0..ROWS {
        let domain = row % K;
        let first = 6 * domain as u64;
        let mut id = sequence.next_below(20);
        for _ in 0..=LENGTH {
            ids.push((first + id) as i64);
            id = match sequence.next_below(10) {
                0..=2 => sequence.next_below(20),
                _ => (id + domain as u64 + 1) % 20,
            };
        }
        domains.push(DomainId(domain as u16));
    }
    let ids = Tensor::from_slice(&ids).view([ROWS as i64, LENGTH + 1]);
    (ids.narrow(1, 0, LENGTH), ids.narrow(1, 1, LENGTH), domains)
}

fn trained() -> Model {
    let model = model();
    let mut optimizer = AdamW::new(model.parameters(), AdamWConfig::default());
    let scale = 1.0 / ROWS as f64;
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..60 {
        let (tokens, targets, _) = batch(step);
        optimizer.zero_gradients();
        let losses = model.accumulate_gradients(&tokens, &targets, scale, None);
        optimizer.step(3e-3);
        last = losses.mean(Kind::Double).double_value(&[]);
        if step == 0 {
            first = last;
        }
    }
    assert!(
        last < 0.8 * first,
        "the model learnt nothing: {first} {last}"
    );
    model
}

fn gram(model: &Model, step: u64, mode: GradientMode) -> Gram {
    let (tokens, targets, domains) = batch(step);
    let mut taps = Taps::new(BLOCKS.to_vec());
    let mut gradients = DomainGradients::new(K, mode);
    let scale = 1.0 / ROWS as f64;
    let _ = model.accumulate_gradients(&tokens, &targets, scale, Some(&mut taps));
    gradients.accumulate(&mut taps, &domains, scale).unwrap();
    gradients.finish()
}

fn alignment(gram: Gram, own_term: OwnTerm) -> Vec<f64> {
    let config = RewardConfig {
        own_term,
        ..RewardConfig::default()
    };
    let signals = StepSignals {
        step: 0,
        total_steps: 100,
        sequence_length: LENGTH as u64,
        samples: vec![(ROWS / K) as u64; K],
        losses: vec![None; K],
        mtld: vec![None; K],
        gram: Some(gram),
        weight_norms: vec![1.0; 2],
        weight_change_norms: vec![0.0; 2],
    };
    RewardModel::new(config, K).rewards(&signals).alignment_raw
}

/// Spearman's rank correlation of vectors without ties.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let below = |v: &f64| values.iter().filter(|w| *w < v).count() as f64;
        values.iter().map(below).collect()
    };
    let n = a.len() as f64;
    let squares: f64 = ranks(a)
        .iter()
        .zip(ranks(b))
        .map(|(x, y)| (x - y).powi(2))
        .sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

#[test]
fn a_sketch_ranks_the_domains_of_a_trained_model_as_exact_gradients_do() {
    let model = trained();
    assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[5.0, 6.0, 9.0]), 1.0);
    assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[9.0, 6.0, 5.0]), -1.0);
    let batches = 12;
    let mut means = Vec::new();
    for rank in [16, 32, 64] {
        for own_term in [OwnTerm::Without, OwnTerm::Unbiased] {
            let sum: f64 = (0..batches)
                .map(|i| {
                    let exact = gram(&model, 100 + i, GradientMode::Exact);
                    let sketch = gram(&model, 100 + i, GradientMode::Sketch { rank, seed: i });
                    rank_correlation(&alignment(exact, own_term), &alignment(sketch, own_term))
                })
                .sum();
            let mean = sum / batches as f64;
            println!(
                "sketch of rank {rank}, own term {own_term:?}: rank correlation with exact alignment {mean:.3} \
                 (mean of {batches} batches, {K} domains, layers of 96 x 384)"
            );
            means.push(mean);
        }
    }
    // The default rank, and more is better.
    assert!(means[4..].iter().all(|mean| *mean > 0.8), "{means:?}");
    assert!(means[0] < means[4] && means[1] < means[5], "{means:?}");
}

#[test]
fn sketches_of_a_trained_model_are_unbiased() {
    let model = trained();
    let exact = gram(&model, 200, GradientMode::Exact);
    let seeds = 100u64;
    let mut sums = vec![(0.0, 0.0); K * K];
    for seed in 0..seeds {
        let sketch = gram(&model, 200, GradientMode::Sketch { rank: 16, seed });
        for (sum, product) in sums.iter_mut().zip(sketch.products) {
            sum.0 += product;
            sum.1 += product * product;
        }
    }
    let n = seeds as f64;
    let mut far = 0;
    for (at, (sum, squares)) in sums.iter().enumerate() {
        let (i, j) = (at / K, at % K);
        let mean = sum / n;
        let error = ((squares / n - mean * mean) / n).sqrt();
        let size = (exact.at(i, i) * exact.at(j, j)).sqrt();
        assert!(
            error < 0.05 * size,
            "the test has no power: {error} of {size}"
        );
        far += usize::from((mean - exact.at(i, j)).abs() > 4.0 * error);
    }
    // 36 distinct products; one beyond four standard errors has a chance of 1 in 440.
    assert_eq!(far, 0);
}
