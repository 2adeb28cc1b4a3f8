//! A training step on the CPU beside the same step in PyTorch eager: Hugging Face's `GPTNeoXForCausalLM` (sdpa) with torch's fused AdamW.
//!
//! In: `HDS_PEERS_PYTHON`, a Python with `torch` and `transformers`. Out: a Markdown table on stdout, a row for each shape and number
//! of threads. Both sides start from the same weights, train on the same tokens in fp32 and take turns of a few steps, one waiting
//! while the other works; a row compares the medians of all steps and ends with the largest difference of the losses.
//!
//! `HDS_PEERS_PYTHON=venv/bin/python cargo bench --workspace --bench huggingface`; words behind `--` choose the numbers of threads.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use hds_trainer::model::{Model, ModelSettings};
use hds_trainer::optimizer::{AdamW, AdamWConfig, clip_gradient_norm};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

/// Different batches, gone through again and again, so that the losses fall.
const BATCHES: usize = 4;
/// Steps of a turn.
const TURN: usize = 3;
const TURNS: usize = 8;
const LEARNING_RATE: f64 = 1e-3;

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
            num_hidden_layers: Some(6),
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
            self.optimizer.zero_gradients();
            let losses = self.model.accumulate_gradients(
                &ids.narrow(1, 0, length),
                &ids.narrow(1, 1, length),
                1.0 / batch as f64,
                None,
            );
            clip_gradient_norm(&parameters, 1.0);
            self.optimizer.step(LEARNING_RATE);
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

    fn end(self) {
        let Self {
            mut process, input, ..
        } = self;
        drop(input);
        let status = process.wait().unwrap();
        assert!(status.success(), "the Python side ended with {status}");
    }
}

fn main() {
    let Ok(python) = std::env::var("HDS_PEERS_PYTHON") else {
        println!(
            "skipped: HDS_PEERS_PYTHON names no Python that has torch and transformers installed"
        );
        return;
    };
    let chosen: Vec<i32> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let threads = if chosen.is_empty() {
        vec![1, 2]
    } else {
        chosen
    };
    println!(
        "| hidden, vocabulary, L, B | threads | ours, tokens/s | Hugging Face, tokens/s | ratio | loss first and last | largest difference |\n|---|---|---|---|---|---|---|"
    );
    for shape in &SHAPES {
        for &threads in &threads {
            tch::set_num_threads(threads);
            let folder = tempfile::tempdir().unwrap();
            let mut ours = Ours::new(shape);
            ours.save(folder.path());
            let mut theirs = Theirs::start(&python, folder.path(), threads);
            let (mut a, mut b) = (Steps::default(), Steps::default());
            for _ in 0..TURNS {
                ours.turn(&mut a);
                theirs.turn(&mut b);
            }
            theirs.end();
            let tokens = (shape.batch * shape.length) as f64;
            let differences = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs());
            println!(
                "| {}, {}, {}, {} | {threads} | {:.0} | {:.0} | {:.2} | {:.4} → {:.4} | {:.1e} |",
                shape.hidden,
                shape.vocabulary,
                shape.length,
                shape.batch,
                tokens / a.median(),
                tokens / b.median(),
                b.median() / a.median(),
                a.losses[0],
                a.losses[a.losses.len() - 1],
                differences.fold(0.0, f64::max)
            );
        }
    }
}
