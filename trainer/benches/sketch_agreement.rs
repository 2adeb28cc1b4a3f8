//! How far sketches of the domains' gradients agree with exact ones, on a model that has been trained.
//!
//! `cargo bench -p hds-trainer --bench sketch_agreement -- RUN [--batches N] [--per-domain N] [--seeds N]`, where RUN is the folder of a run
//! of `hds-train`: its newest checkpoint and its index are read, nothing is changed.
//!
//! Batches have the same number of training sequences of every domain. For each batch, rank and way to count a domain's own
//! term the alignment of the domains is computed from exact and from sketched gradients; printed are Spearman's rank correlation
//! and Pearson's over the domains, as mean and least over the batches. For one batch the inner products are held against
//! those of many sketches of different seeds: their mean error in standard errors shows whether they are unbiased.

#![allow(clippy::print_stdout)] // what a benchmark is for

use std::path::PathBuf;

use hds::DomainId;
use hds_loader::{EvaluationSequences, Index, Split};
use hds_trainer::gradients::{DomainGradients, GradientMode};
use hds_trainer::model::Taps;
use hds_trainer::report::rank::spearman;
use hds_trainer::reward::{OwnTerm, RewardConfig, RewardModel};
use hds_trainer::run::{EvaluateOptions, LoadedModel};
use hds_trainer::signals::{Gram, StepSignals};

const RANKS: [u32; 4] = [16, 32, 64, 128];

struct Options {
    run: PathBuf,
    batches: usize,
    per_domain: usize,
    seeds: u64,
}

impl Options {
    fn parse() -> Option<Self> {
        let mut options = Self {
            run: PathBuf::new(),
            batches: 8,
            per_domain: 2,
            seeds: 30,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value after the option");
            match argument.as_str() {
                "--batches" => options.batches = value().parse().expect("a number of batches"),
                "--per-domain" => options.per_domain = value().parse().expect("a number"),
                "--seeds" => options.seeds = value().parse().expect("a number of seeds"),
                // What cargo adds.
                "--bench" => {}
                run => options.run = run.into(),
            }
        }
        (!options.run.as_os_str().is_empty()).then_some(options)
    }
}

/// The model, the layers that its run watches, and where its text comes from.
struct Subject {
    loaded: LoadedModel,
    blocks: Vec<usize>,
    domains: usize,
    length: usize,
    sequences: Vec<EvaluationSequences>,
}

impl Subject {
    fn open(options: &Options) -> Self {
        let none = EvaluateOptions::default();
        let loaded = LoadedModel::open(&options.run, &none).expect("a run with a checkpoint");
        let config = loaded.trained.config.as_ref().expect("a run's folder");
        let layers = loaded.model.config().num_hidden_layers as usize;
        let blocks = config.signals.layers.resolve(layers);
        let length = config.data.sequence_length;
        let index = Index::open(&config.data.index).expect("the run's index");
        let most = options.batches * options.per_domain;
        let of = |id| EvaluationSequences::new(&index, id, Split::Train, length, most);
        let sequences: Vec<_> = index
            .domains()
            .ids()
            .map(|id| of(id).expect("the run's sequence length"))
            .filter(|found| found.len() == most)
            .collect();
        Self {
            blocks: blocks.expect("the run's layers"),
            domains: sequences.len(),
            length,
            sequences,
            loaded,
        }
    }

    /// The Gram matrix of a batch under each mode, out of one backward pass a mode.
    fn gram(&self, batch: usize, per_domain: usize, mode: GradientMode) -> Gram {
        let mut gradients = DomainGradients::new(self.domains, mode);
        let scale = 1.0 / (self.domains * per_domain) as f64;
        for (domain, found) in self.sequences.iter().enumerate() {
            let mut tokens = Vec::new();
            for place in 0..per_domain {
                let mut one = vec![0; self.length + 1];
                let place = batch * per_domain + place;
                found.read(place, &mut one).expect("a sequence");
                tokens.extend(one);
            }
            let model = &self.loaded.model;
            let (inputs, targets) = model.batch(&tokens, per_domain).expect("ids of the model");
            let mut taps = Taps::new(self.blocks.clone());
            let _ = model.accumulate_gradients(&inputs, &targets, scale, Some(&mut taps));
            let ids = vec![DomainId(domain as u16); per_domain];
            let added = gradients.accumulate(&mut taps, &ids, scale);
            added.expect("a backward pass has run");
        }
        gradients.finish()
    }

    fn alignment(&self, gram: &Gram, per_domain: usize, own_term: OwnTerm) -> Vec<f64> {
        let config = RewardConfig {
            own_term,
            ..RewardConfig::default()
        };
        let signals = StepSignals {
            step: 0,
            total_steps: 1,
            sequence_length: self.length as u64,
            samples: vec![per_domain as u64; self.domains],
            losses: vec![None; self.domains],
            mtld: vec![None; self.domains],
            gram: Some(gram.clone()),
            weight_norms: vec![1.0; self.blocks.len()],
            weight_change_norms: vec![0.0; self.blocks.len()],
        };
        RewardModel::new(config, self.domains)
            .rewards(&signals)
            .alignment_raw
    }
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let of = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    of(a, ma, b, mb) / (of(a, ma, a, ma) * of(b, mb, b, mb)).sqrt()
}

fn mean_and_least(values: &[f64]) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{mean:.3} (least {least:.3})")
}

/// Prints the error of the mean of many sketches' products, in standard errors.
fn bias(subject: &Subject, options: &Options, exact: &Gram, rank: u32) {
    let k = subject.domains;
    let mut sums = vec![(0.0, 0.0); k * k];
    for seed in 0..options.seeds {
        let mode = GradientMode::Sketch {
            rank,
            seed: 1000 + seed,
        };
        let gram = subject.gram(0, options.per_domain, mode);
        for (sum, product) in sums.iter_mut().zip(gram.products) {
            sum.0 += product;
            sum.1 += product * product;
        }
    }
    let n = options.seeds as f64;
    let (mut squares, mut relative, mut count) = (0.0, 0.0, 0.0);
    for i in 0..k {
        for j in i..k {
            let (sum, square) = sums[i * k + j];
            let mean = sum / n;
            let error = ((square / n - mean * mean) / (n - 1.0)).sqrt();
            squares += ((mean - exact.at(i, j)) / error).powi(2);
            relative += (mean - exact.at(i, j)) / (exact.at(i, i) * exact.at(j, j)).sqrt();
            count += 1.0;
        }
    }
    println!(
        "rank {rank}: products over {} seeds: mean error {:+.4} of the norms' product; root mean square error {:.2} standard errors (1 if unbiased)",
        options.seeds,
        relative / count,
        (squares / count).sqrt()
    );
}

fn main() {
    let Some(options) = Options::parse() else {
        println!("skipped: no run given (-- RUN)");
        return;
    };
    let subject = Subject::open(&options);
    let config = subject.loaded.model.config();
    println!(
        "{}, step {}: width {}, {} blocks, watched blocks {:?}; {} batches of {} sequences of {} tokens, {} domains",
        options.run.display(),
        subject.loaded.trained.step.unwrap_or_default(),
        config.hidden_size,
        config.num_hidden_layers,
        subject.blocks,
        options.batches,
        subject.domains * options.per_domain,
        subject.length,
        subject.domains,
    );
    let per_domain = options.per_domain;
    let exact: Vec<Gram> = (0..options.batches)
        .map(|batch| subject.gram(batch, per_domain, GradientMode::Exact))
        .collect();
    for rank in RANKS {
        let sketches: Vec<Gram> = (0..options.batches)
            .map(|batch| {
                let seed = batch as u64;
                subject.gram(batch, per_domain, GradientMode::Sketch { rank, seed })
            })
            .collect();
        for own_term in [OwnTerm::Without, OwnTerm::Unbiased] {
            let (mut ranks, mut values) = (Vec::new(), Vec::new());
            for (exact, sketch) in exact.iter().zip(&sketches) {
                let a = subject.alignment(exact, per_domain, own_term);
                let b = subject.alignment(sketch, per_domain, own_term);
                ranks.extend(spearman(&a, &b));
                values.push(pearson(&a, &b));
            }
            println!(
                "rank {rank}, own term {own_term:?}: alignment of domains, Spearman {}, Pearson {}",
                mean_and_least(&ranks),
                mean_and_least(&values)
            );
        }
    }
    for rank in [16, 64] {
        bias(&subject, &options, &exact[0], rank);
    }
}
