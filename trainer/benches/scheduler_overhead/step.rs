//! One training step on made-up tokens, under fixed weights or under HDS, with what each part of it took.
//!
//! In: a [`Size`]. Out: [`Parts`]. The step is that of `run::step` without the files: passes over the micro-batches, clipping, update, norms of the watched
//! weights; and for HDS the gradients of each domain, the reward, the policy. The tokens are the same at every step; the domains
//! of the sequences follow the weights.

use std::time::Instant;

use hds::{DomainId, DomainSet};
use hds_trainer::gradients::{DomainGradients, GradientMode, LayerChoice, WeightNorms};
use hds_trainer::model::{Model, ModelSettings, Taps};
use hds_trainer::optimizer::{AdamW, AdamWConfig, Parameter, clip_gradient_norm};
use hds_trainer::reward::{RewardConfig, RewardModel};
use hds_trainer::scheduler::{self, Policy, PolicyName, RunFacts, SchedulerConfig};
use hds_trainer::signals::{Observation, StepSignals};
use rustix::time::{ClockId, clock_gettime};
use tch::{Device, Kind, Tensor};

use crate::sizes::Size;

const TOTAL_STEPS: u64 = 100_000;

/// Seconds of a step, whole and by part.
#[derive(Clone, Copy, Default)]
pub struct Parts {
    pub step: f64,
    /// Of all threads of the process.
    pub processor: f64,
    pub signals: f64,
    pub reward: f64,
    pub waiting: f64,
    pub acting: f64,
    /// Beside the step.
    pub learning: f64,
}

/// Who chooses the weights, and how gradients are kept.
#[derive(Clone, Copy, PartialEq)]
pub enum Arm {
    Fixed,
    /// HDS with sketches.
    Sketch,
    /// HDS with exact gradients.
    Exact,
}

/// What takes the steps.
pub struct Bench {
    device: Device,
    domains: usize,
    pub model: Model,
    pub model_flops: f64,
    pub agent_flops: f64,
    parameters: Vec<Parameter>,
    optimizer: AdamW,
    blocks: Vec<usize>,
    norms: WeightNorms,
    gradients: DomainGradients,
    reward: RewardModel,
    pub policy: Box<dyn Policy>,
    weights: Vec<f64>,
    step: u64,
    batches: Vec<(Tensor, Tensor)>,
    length: u64,
    /// What the last step under HDS showed.
    last: Option<StepSignals>,
}

impl Bench {
    /// Ready for steps of `arm`, and of [`Arm::Fixed`] beside it.
    pub fn new(size: &Size, device: Device, arm: Arm) -> Self {
        let settings = ModelSettings {
            vocab_size: Some(size.vocabulary),
            hidden_size: Some(size.hidden),
            num_hidden_layers: Some(size.blocks),
            num_attention_heads: Some(8),
            ..ModelSettings::default()
        };
        let config = settings
            .resolve(size.vocabulary as u64, size.length as u64)
            .expect("the benchmark's shapes are valid");
        let model =
            Model::new(&config, device, Kind::Float, 1).expect("the configuration is valid");
        let blocks = LayerChoice::default()
            .resolve(size.blocks as usize)
            .expect("there are blocks");
        let set = DomainSet::new((0..size.domains).map(|i| format!("d{i}"))).expect("names differ");
        let mut scheduler_config = SchedulerConfig::default();
        if arm == Arm::Fixed {
            scheduler_config.policy = PolicyName::Fixed;
        }
        scheduler_config.hds.minibatch = size.minibatch;
        scheduler_config.hds.warm_up_fraction = 0.0;
        let facts = RunFacts {
            domains: &set,
            base_weights: vec![1.0 / size.domains as f64; size.domains],
            target: vec![1.0 / size.domains as f64; size.domains],
            natural_tokens: vec![1; size.domains],
            total_steps: TOTAL_STEPS,
            sequence_length: size.length as u64,
            layers: blocks.len(),
            model_parameters: config.parameter_count(),
            seed: 1,
            index: None,
            device,
        };
        let mut policy =
            scheduler::build(&scheduler_config, &facts).expect("the configuration is valid");
        let agent = scheduler::size(
            &scheduler_config,
            size.domains,
            blocks.len(),
            config.parameter_count(),
        );
        let batches = (0..size.micro_batches)
            .map(|_| {
                let shape = [size.rows, size.length + 1];
                let ids = Tensor::randint(size.vocabulary, shape, (Kind::Int64, device));
                (ids.narrow(1, 0, size.length), ids.narrow(1, 1, size.length))
            })
            .collect();
        let tokens = size.rows as f64 * size.micro_batches as f64 * size.length as f64;
        let model_flops = tokens * config.training_flops_per_token(size.length as u64);
        let gradients = match arm {
            Arm::Exact => GradientMode::Exact,
            _ => GradientMode::default(),
        };
        Self {
            device,
            domains: size.domains,
            parameters: model.parameters(),
            optimizer: AdamW::new(model.parameters(), AdamWConfig::default()),
            norms: WeightNorms::new(model.output_projections(&blocks)),
            gradients: DomainGradients::new(size.domains, gradients),
            reward: RewardModel::new(RewardConfig::default(), size.domains),
            weights: policy.initial(),
            policy,
            model,
            model_flops,
            agent_flops: agent.flops_per_step,
            blocks,
            step: 0,
            batches,
            length: size.length as u64,
            last: None,
        }
    }

    /// Domains of all rows, in proportion to the weights.
    fn draw(&self, rows: usize) -> Vec<DomainId> {
        let mut drawn = Vec::with_capacity(rows);
        let (mut domain, mut sum) = (0, self.weights[0]);
        for row in 0..rows {
            let place = (row as f64 + 0.5) / rows as f64;
            while place > sum && domain + 1 < self.domains {
                domain += 1;
                sum += self.weights[domain];
            }
            drawn.push(DomainId(domain as u16));
        }
        drawn
    }

    fn wait_for_device(&self) {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
    }

    /// A step; one under HDS begins with learning under way, and nothing is under way after it.
    pub fn timed(&mut self, arm: Arm) -> Parts {
        if arm != Arm::Fixed
            && let Some(signals) = self.last.clone()
        {
            self.decide(signals, &mut Parts::default());
        }
        self.wait_for_device();
        let learnt = self.policy.learning_time();
        let mut parts = self.step(arm);
        if arm != Arm::Fixed {
            // The step has waited for what was under way, and no more is done than begun.
            parts.learning = (self.policy.learning_time() - learnt).as_secs_f64();
            self.policy.settle();
        }
        parts
    }

    fn step(&mut self, arm: Arm) -> Parts {
        let mut parts = Parts::default();
        let (begin, processor) = (Instant::now(), processor_seconds());
        let rows = self.batches[0].0.size()[0] as usize;
        let all = rows * self.batches.len();
        let domains = self.draw(all);
        let scale = 1.0 / all as f64;
        let mut losses = Vec::new();
        let signals =
            |parts: &mut Parts, start: Instant| parts.signals += start.elapsed().as_secs_f64();
        self.optimizer.zero_gradients();
        for (i, (tokens, targets)) in self.batches.iter().enumerate() {
            let mut taps = (arm != Arm::Fixed).then(|| Taps::new(self.blocks.clone()));
            let losses_b = self
                .model
                .accumulate_gradients(tokens, targets, scale, taps.as_mut());
            if let Some(taps) = &mut taps {
                let start = Instant::now();
                let range = i * rows..(i + 1) * rows;
                self.gradients
                    .accumulate(taps, &domains[range], scale)
                    .expect("a backward pass has run");
                signals(&mut parts, start);
            }
            losses.push(losses_b.to_device(Device::Cpu).to_kind(Kind::Double));
        }
        let losses: Vec<f64> =
            Vec::try_from(Tensor::cat(&losses, 0)).expect("one loss for each sequence");
        clip_gradient_norm(&self.parameters, 1.0);
        // A run under fixed weights measures the norms too: they are in its records.
        let start = Instant::now();
        let weight_norms = self.norms.norms();
        let weight_change_norms = self.norms.changes().to_vec();
        self.norms.before_update();
        signals(&mut parts, start);
        self.optimizer.step(1e-4);
        let start = Instant::now();
        self.norms.after_update();
        let gram = (arm != Arm::Fixed).then(|| self.gradients.finish());
        signals(&mut parts, start);
        if arm != Arm::Fixed {
            let mut sums = vec![(0.0, 0u64); self.domains];
            for (domain, loss) in domains.iter().zip(&losses) {
                let sum = &mut sums[domain.index()];
                *sum = (sum.0 + loss, sum.1 + 1);
            }
            let signals = StepSignals {
                step: self.step,
                total_steps: TOTAL_STEPS,
                sequence_length: self.length,
                samples: sums.iter().map(|s| s.1).collect(),
                losses: sums
                    .iter()
                    .map(|s| (s.1 > 0).then(|| s.0 / s.1 as f64))
                    .collect(),
                mtld: sums.iter().map(|s| (s.1 > 0).then_some(50.0)).collect(),
                gram,
                weight_norms,
                weight_change_norms,
            };
            self.last = Some(signals.clone());
            self.decide(signals, &mut parts);
        }
        self.wait_for_device();
        parts.step = begin.elapsed().as_secs_f64();
        parts.processor = processor_seconds() - processor;
        parts
    }

    fn decide(&mut self, signals: StepSignals, parts: &mut Parts) {
        let start = Instant::now();
        let observation = Observation {
            rewards: self.reward.rewards(&signals),
            signals,
            weights: self.weights.clone(),
        };
        parts.reward = start.elapsed().as_secs_f64();
        let start = Instant::now();
        self.policy.settle();
        parts.waiting = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let decision = self.policy.next(&observation).expect("the shapes fit");
        parts.acting = start.elapsed().as_secs_f64();
        self.weights = decision.weights;
        self.step += 1;
    }

    /// Makes up what the policy sees until it has enough transitions to learn from.
    pub fn fill_replay(&mut self) {
        for _ in 0..40 {
            let wave = |i: usize| (i as f64 + self.step as f64).sin();
            let signals = StepSignals {
                step: self.step,
                total_steps: TOTAL_STEPS,
                sequence_length: self.length,
                samples: vec![2; self.domains],
                losses: (0..self.domains).map(|i| Some(6.0 + wave(i))).collect(),
                mtld: vec![Some(50.0); self.domains],
                gram: None,
                weight_norms: vec![10.0; self.blocks.len()],
                weight_change_norms: vec![0.1; self.blocks.len()],
            };
            self.decide(signals, &mut Parts::default());
        }
        self.policy.settle();
    }
}

/// Processor time of all threads of this process.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}
