//! What the whole of HDS costs a training step, against the same step under fixed weights, by part.
//!
//! `cargo bench -p hds-trainer --bench scheduler_overhead -- [--turns N] [--steps N] [--device cpu|cuda] [--only NAME]`;
//! threads by `OMP_NUM_THREADS`.
//!
//! One model and one optimizer take turns of `steps` steps under fixed weights, under HDS, and under HDS that waits for
//! its learning at once (`in place`), so that whatever else the machine does meets all three alike. Each turn begins
//! with a step that is not counted, which fills what goes on beside the next. Printed: GFLOP of a step of the model and of the agent, the
//! median step, the median over the turns of HDS's step over the fixed step of the same turn, and the parts of HDS's step.

use std::time::{Duration, Instant};

use hds::{DomainId, DomainSet};
use hds_trainer::gradients::{DomainGradients, GradientMode, LayerChoice, WeightNorms};
use hds_trainer::model::{Model, ModelSettings, Taps};
use hds_trainer::optimizer::{AdamW, AdamWConfig, Parameter, clip_gradient_norm};
use hds_trainer::reward::{RewardConfig, RewardModel};
use hds_trainer::scheduler::{self, Policy, RunFacts, SchedulerConfig};
use hds_trainer::signals::{Observation, StepSignals};
use tch::{Device, Kind, Tensor};

const TOTAL_STEPS: u64 = 100_000;

/// A model, its batch, and K domains.
struct Size {
    name: &'static str,
    hidden: i64,
    blocks: i64,
    vocabulary: i64,
    length: i64,
    /// Sequences of a micro-batch.
    rows: i64,
    micro_batches: usize,
    domains: usize,
    /// Transitions of an update.
    minibatch: u64,
}

const SIZES: [Size; 5] = [
    Size {
        name: "small",
        hidden: 128,
        blocks: 4,
        vocabulary: 512,
        length: 128,
        rows: 16,
        micro_batches: 1,
        domains: 6,
        minibatch: 64,
    },
    Size {
        name: "demo",
        hidden: 256,
        blocks: 6,
        vocabulary: 512,
        length: 256,
        rows: 16,
        micro_batches: 1,
        domains: 6,
        minibatch: 64,
    },
    Size {
        name: "minipile",
        hidden: 256,
        blocks: 6,
        vocabulary: 4096,
        length: 256,
        rows: 16,
        micro_batches: 2,
        domains: 20,
        minibatch: 64,
    },
    Size {
        name: "longer",
        hidden: 256,
        blocks: 6,
        vocabulary: 4096,
        length: 256,
        rows: 16,
        micro_batches: 6,
        domains: 20,
        minibatch: 64,
    },
    Size {
        name: "wider",
        hidden: 512,
        blocks: 8,
        vocabulary: 8192,
        length: 512,
        rows: 8,
        micro_batches: 2,
        domains: 20,
        minibatch: 64,
    },
];

struct Options {
    turns: usize,
    steps: usize,
    device: Device,
    only: Option<String>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            turns: 7,
            steps: 6,
            device: Device::Cpu,
            only: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value after the option");
            match argument.as_str() {
                "--turns" => options.turns = value().parse().expect("a number of turns"),
                "--steps" => options.steps = value().parse().expect("a number of steps"),
                "--device" if value() == "cuda" => options.device = Device::Cuda(0),
                "--only" => options.only = Some(value()),
                // What cargo adds, and the device that is the default.
                _ => {}
            }
        }
        options
    }
}

/// Seconds of a step, whole and by part.
#[derive(Clone, Copy, Default)]
struct Parts {
    step: f64,
    signals: f64,
    reward: f64,
    waiting: f64,
    acting: f64,
    /// Beside the step.
    learning: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Arm {
    Fixed,
    Hds,
    /// HDS that waits for its learning before the step ends.
    InPlace,
}

struct Bench {
    device: Device,
    domains: usize,
    model: Model,
    parameters: Vec<Parameter>,
    optimizer: AdamW,
    blocks: Vec<usize>,
    norms: WeightNorms,
    gradients: DomainGradients,
    reward: RewardModel,
    policy: Box<dyn Policy>,
    weights: Vec<f64>,
    step: u64,
    batches: Vec<(Tensor, Tensor)>,
    length: u64,
}

impl Bench {
    fn new(size: &Size, device: Device) -> (Self, f64, f64) {
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
        let bench = Self {
            device,
            domains: size.domains,
            parameters: model.parameters(),
            optimizer: AdamW::new(model.parameters(), AdamWConfig::default()),
            norms: WeightNorms::new(model.output_projections(&blocks)),
            gradients: DomainGradients::new(size.domains, GradientMode::default()),
            reward: RewardModel::new(RewardConfig::default(), size.domains),
            weights: policy.initial(),
            policy,
            model,
            blocks,
            step: 0,
            batches,
            length: size.length as u64,
        };
        (bench, model_flops, agent.flops_per_step)
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

    fn step(&mut self, arm: Arm) -> Parts {
        let mut parts = Parts::default();
        let begin = Instant::now();
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
            self.decide(arm, signals, &mut parts);
        }
        self.wait_for_device();
        parts.step = begin.elapsed().as_secs_f64();
        parts
    }

    fn decide(&mut self, arm: Arm, signals: StepSignals, parts: &mut Parts) {
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
        if arm == Arm::InPlace {
            let start = Instant::now();
            self.policy.settle();
            parts.waiting += start.elapsed().as_secs_f64();
        }
    }

    /// Makes up what the policy sees until it has enough transitions to learn from.
    fn fill_replay(&mut self) {
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
            self.decide(Arm::Hds, signals, &mut Parts::default());
        }
        self.policy.settle();
    }

    /// Mean parts of `steps` steps, after one that is not counted.
    fn turn(&mut self, arm: Arm, steps: usize) -> Parts {
        self.step(arm);
        let learning = self.policy.learning_time();
        let mut sum = Parts::default();
        for _ in 0..steps {
            let parts = self.step(arm);
            sum.step += parts.step;
            sum.signals += parts.signals;
            sum.reward += parts.reward;
            sum.waiting += parts.waiting;
            sum.acting += parts.acting;
        }
        // Of the last `steps` times that learning was begun and waited for.
        let learning = self.policy.learning_time() - learning;
        self.policy.settle();
        let n = steps as f64;
        Parts {
            step: sum.step / n,
            signals: sum.signals / n,
            reward: sum.reward / n,
            waiting: sum.waiting / n,
            acting: sum.acting / n,
            learning: learning.as_secs_f64() / n,
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return f64::NAN;
    }
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

fn measure(size: &Size, options: &Options) {
    let (mut bench, model_flops, agent_flops) = Bench::new(size, options.device);
    bench.fill_replay();
    let mut turns: Vec<[Parts; 3]> = Vec::new();
    for turn in 0..options.turns {
        let mut arms = [Arm::Fixed, Arm::Hds, Arm::InPlace];
        arms.rotate_left(turn % 3);
        let mut parts = [Parts::default(); 3];
        for arm in arms {
            parts[arm as usize] = bench.turn(arm, options.steps);
        }
        turns.push(parts);
    }
    let [fixed, hds, in_place] = [0, 1, 2].map(|arm| {
        let of = |part: fn(&Parts) -> f64| median(turns.iter().map(|turn| part(&turn[arm])));
        Parts {
            step: of(|p| p.step),
            signals: of(|p| p.signals),
            reward: of(|p| p.reward),
            waiting: of(|p| p.waiting),
            acting: of(|p| p.acting),
            learning: of(|p| p.learning),
        }
    });
    let over = |arm: usize| {
        let ratios: Vec<f64> = turns
            .iter()
            .map(|t| t[arm].step / t[0].step - 1.0)
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let middle = median(ratios.into_iter());
        format!(
            "{:+.2} % (turns {:+.2} to {:+.2})",
            100.0 * middle,
            100.0 * least,
            100.0 * most
        )
    };
    let part = |name: &str, value: f64, base: f64| {
        format!(
            "{name} {:.2} ms ({:.2} %)",
            1e3 * value,
            100.0 * value / base
        )
    };
    println!(
        "{}: model {:.1} GFLOP a step, agent {:.2}: {:.0} to 1; {} parameters, agent {}",
        size.name,
        model_flops / 1e9,
        agent_flops / 1e9,
        model_flops / agent_flops,
        bench.model.config().parameter_count(),
        bench.policy.parameters(),
    );
    println!(
        "  step: fixed {:.1} ms, HDS {:.1} ms, learning in place {:.1} ms",
        1e3 * fixed.step,
        1e3 * hds.step,
        1e3 * in_place.step
    );
    println!("  HDS over fixed: {}; in place: {}", over(1), over(2));
    for (name, arm) in [("HDS", hds), ("in place", in_place)] {
        let signals = (arm.signals - fixed.signals).max(0.0);
        println!(
            "  {name}: {}, {}, {}, {}; beside it: {}",
            part("signals", signals, fixed.step),
            part("reward", arm.reward, fixed.step),
            part("acting", arm.acting, fixed.step),
            part("waiting for learning", arm.waiting, fixed.step),
            part("learning", arm.learning, fixed.step),
        );
    }
}

fn main() {
    let options = Options::parse();
    println!(
        "{} threads, {:?}, medians of {} turns of {} steps",
        tch::get_num_threads(),
        options.device,
        options.turns,
        options.steps
    );
    let start = Instant::now();
    for size in SIZES
        .iter()
        .filter(|size| options.only.as_deref().is_none_or(|only| only == size.name))
    {
        measure(size, &options);
    }
    let seconds = Duration::as_secs(&start.elapsed());
    println!("in {seconds} s");
}
