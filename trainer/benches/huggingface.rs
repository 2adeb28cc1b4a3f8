//! A training step on the CPU beside the same step in PyTorch eager: Hugging Face's `GPTNeoXForCausalLM` (sdpa) with torch's fused AdamW.
//!
//! In: `HDS_PEERS_PYTHON`, a Python with `torch` and `transformers`. Out: a Markdown table on stdout, a row for each shape and number
//! of threads. Both sides start from the same weights, train on the same tokens in fp32 and take turns of a few steps, one waiting
//! while the other works; a row compares the medians of all steps, says which part of our step its matrix products take when
//! they run alone, and gives the largest difference of the losses and the most memory each process has held (resident).
//!
//! `HDS_PEERS_PYTHON=venv/bin/python cargo bench --workspace --bench huggingface`; words behind `--` choose: `first` or `second` the
//! shape, `1` and `2` the numbers of threads, `turns=N` how often each side takes its turn of three steps.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use hds_trainer::model::{Model, ModelSettings};
use hds_trainer::optimizer::{AdamW, AdamWConfig, clip_factor, gradient_norm};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

/// Different batches, gone through again and again, so that the losses fall.
const BATCHES: usize = 4;
/// Steps of a turn.
const TURN: usize = 3;
const TURNS: usize = 8;
const LAYERS: i64 = 6;
const LEARNING_RATE: f64 = 1e-3;

#[derive(Clone, Copy)]
struct Shape {
    hidden: i64,
    vocabulary: i64,
    length: i64,
    batch: i64,
}

const SHAPES: [Shape; 2] = [
    Shape {
        hidden: 256,
        vocabulary: 4096,
        length: 256,
        batch: 16,
    },
    Shape {
        hidden: 512,
        vocabulary: 8192,
        length: 512,
        batch: 4,
    },
];

/// A side's steps: seconds and losses.
#[derive(Default)]
struct Steps {
    seconds: Vec<f64>,
    losses: Vec<f64>,
}

impl Steps {
    fn median(&self) -> f64 {
        // The first turn warms up.
        let mut seconds = self.seconds[TURN..].to_vec();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    }
}

struct Ours {
    model: Model,
    optimizer: AdamW,
    batches: Vec<Tensor>,
}

impl Ours {
    fn new(shape: &Shape) -> Self {
        let settings = ModelSettings {
            vocab_size: Some(shape.vocabulary),
            hidden_size: Some(shape.hidden),
            num_hidden_layers: Some(LAYERS),
            num_attention_heads: Some(8),
            ..ModelSettings::default()
        };
        let config = settings
            .resolve(shape.vocabulary as u64, shape.length as u64)
            .unwrap();
        let model = Model::new(&config, Device::Cpu, Kind::Float, 1).unwrap();
        tch::manual_seed(1);
        let size = [shape.batch, shape.length + 1];
        let batch = |_| Tensor::randint(shape.vocabulary, size, (Kind::Int64, Device::Cpu));
        Self {
            optimizer: AdamW::new(model.parameters(), AdamWConfig::default()),
            model,
            batches: (0..BATCHES).map(batch).collect(),
        }
    }

    /// What the other side needs: the weights, and `tokens.json` of [batches][B][L + 1].
    fn save(&self, folder: &Path) {
        self.model.save_huggingface(folder).unwrap();
        let ids = |batch: &Tensor| Vec::<Vec<i64>>::try_from(batch).unwrap();
        let tokens: Vec<_> = self.batches.iter().map(ids).collect();
        let file = std::fs::File::create(folder.join("tokens.json")).unwrap();
        serde_json::to_writer(file, &tokens).unwrap();
    }

    fn turn(&mut self, steps: &mut Steps) {
        let parameters = self.model.parameters();
        for _ in 0..TURN {
            let ids = &self.batches[steps.losses.len() % BATCHES];
            let (batch, length) = (ids.size()[0], ids.size()[1] - 1);
            let start = Instant::now();
            self.optimizer.forget_gradients();
            let losses = self.model.accumulate_gradients(
                &ids.narrow(1, 0, length),
                &ids.narrow(1, 1, length),
                1.0 / batch as f64,
                None,
            );
            let factor = clip_factor(gradient_norm(&parameters), 1.0);
            self.optimizer.step_scaled(LEARNING_RATE, factor);
            let loss = losses.mean(Kind::Double).double_value(&[]);
            steps.seconds.push(start.elapsed().as_secs_f64());
            steps.losses.push(loss);
        }
    }
}

/// The other side, in a process of its own that waits between turns.
struct Theirs {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Theirs {
    fn start(python: &str, folder: &Path, threads: i32) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/huggingface.py");
        let AdamWConfig {
            betas,
            epsilon,
            weight_decay,
        } = AdamWConfig::default();
        let settings = json!({
            "threads": threads,
            "lr": LEARNING_RATE,
            "betas": [betas.0, betas.1],
            "eps": epsilon,
            "weight_decay": weight_decay,
            "turn": TURN,
        });
        let mut process = Command::new(python)
            .arg(script)
            .arg(folder)
            .arg(settings.to_string())
            .env("OMP_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut ready = String::new();
        output.read_line(&mut ready).unwrap();
        println!("<!-- Python: {} -->", ready.trim());
        Self {
            process,
            input,
            output,
        }
    }

    fn turn(&mut self, steps: &mut Steps) {
        writeln!(self.input, "turn").unwrap();
        self.input.flush().unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).expect("the Python side answers in JSON");
        let numbers = |key: &str| -> Vec<f64> {
            let values = answer[key].as_array().unwrap();
            values.iter().map(|v| v.as_f64().unwrap()).collect()
        };
        steps.seconds.extend(numbers("seconds"));
        steps.losses.extend(numbers("losses"));
    }

    /// Ends it; gives the most memory it has held, in MB.
    fn end(self) -> f64 {
        let Self {
            mut process,
            input,
            mut output,
        } = self;
        drop(input);
        let mut last = String::new();
        output.read_line(&mut last).unwrap();
        let status = process.wait().unwrap();
        assert!(status.success(), "the Python side ended with {status}");
        last.trim().parse().unwrap()
    }
}

/// The most memory this process has held, in MB.
fn own_peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    words[1].parse::<f64>().unwrap() / 1024.0
}

/// Seconds that the matrix products of a step take by themselves: forward, and back into inputs and weights.
fn products(shape: &Shape) -> f64 {
    let rows = shape.batch * shape.length;
    let hidden = shape.hidden;
    let options = (Kind::Float, Device::Cpu);
    let linear = |inputs: i64, outputs: i64| {
        let (x, w) = (
            Tensor::randn([rows, inputs], options),
            Tensor::randn([outputs, inputs], options),
        );
        let (y, dx, dw) = (
            Tensor::randn([rows, outputs], options),
            x.empty_like(),
            w.empty_like(),
        );
        let mut seconds: Vec<f64> = (0..7)
            .map(|_| {
                let start = Instant::now();
                let _ = x.mm_out(&y, &w.tr());
                let _ = y.mm_out(&dx, &w);
                let _ = y.tr().mm_out(&dw, &x);
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    let layer = linear(hidden, 3 * hidden)
        + linear(hidden, hidden)
        + linear(hidden, 4 * hidden)
        + linear(4 * hidden, hidden);
    LAYERS as f64 * layer + linear(hidden, shape.vocabulary)
}

fn main() {
    hds_trainer::memory::keep();
    let Ok(python) = std::env::var("HDS_PEERS_PYTHON") else {
        println!(
            "skipped: HDS_PEERS_PYTHON names no Python that has torch and transformers installed"
        );
        return;
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named: Vec<Shape> = ["first", "second"]
        .iter()
        .zip(SHAPES)
        .filter(|(name, _)| words.iter().any(|word| word == *name))
        .map(|(_, shape)| shape)
        .collect();
    let shapes = if named.is_empty() {
        SHAPES.to_vec()
    } else {
        named
    };
    let chosen: Vec<i32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let threads = if chosen.is_empty() {
        vec![1, 2]
    } else {
        chosen
    };
    let turns = words.iter().find_map(|word| word.strip_prefix("turns="));
    let turns = turns.map_or(TURNS, |turns| turns.parse().unwrap());
    println!(
        "| hidden, vocabulary, L, B | threads | ours, tokens/s | Hugging Face, tokens/s | ratio | products alone | loss first and last | largest difference | peak MB, ours and theirs |\n|---|---|---|---|---|---|---|---|---|"
    );
    for shape in &shapes {
        for &threads in &threads {
            tch::set_num_threads(threads);
            let folder = tempfile::tempdir().unwrap();
            let mut ours = Ours::new(shape);
            ours.save(folder.path());
            let mut theirs = Theirs::start(&python, folder.path(), threads);
            let (mut a, mut b) = (Steps::default(), Steps::default());
            for _ in 0..turns {
                ours.turn(&mut a);
                theirs.turn(&mut b);
            }
            let (own_peak, their_peak) = (own_peak(), theirs.end());
            let products = products(shape);
            let tokens = (shape.batch * shape.length) as f64;
            let differences = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs());
            println!(
                "| {}, {}, {}, {} | {threads} | {:.0} | {:.0} | {:.2} | {:.0} % | {:.4} → {:.4} | {:.1e} | {own_peak:.0}, {their_peak:.0} |",
                shape.hidden,
                shape.vocabulary,
                shape.length,
                shape.batch,
                tokens / a.median(),
                tokens / b.median(),
                b.median() / a.median(),
                100.0 * products / a.median(),
                a.losses[0],
                a.losses[a.losses.len() - 1],
                differences.fold(0.0, f64::max)
            );
        }
    }
}
