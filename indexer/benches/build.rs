//! The whole of `hds-index build` on the minipile: where the time goes, how it scales, what memory it takes, and peers beside it.
//!
//! In: the shared data folder (`HDS_SHARED`). Out: tables in Markdown on stdout. Each figure is the best of three runs (of seven, for
//! builds), all in one go, so their ratios hold on any machine; what a second thread adds is the median over the rounds, with least and most. Where the
//! system tells (Linux), stages are measured in processor time, so that they hold on a busy one too, and builds in both. Run with `cargo bench -p hds-indexer --bench build`; words behind `--` choose the parts
//! (`stages build memory peers`). `HDS_PEERS_PYTHON` names a Python with `tokenizers` and `zstandard`
//! for `peers.py`, `HDS_DOLMA` the program `dolma`.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use hds_indexer::lexical::LexicalMeter;
use hds_indexer::record::{FieldPath, Found, read_object};
use hds_indexer::tokenize::{Tokenizer, TokenizerChoice, load};

const RUNS: usize = 3;
const BUILD_ROUNDS: usize = 7;
const PARTS: [&str; 4] = ["stages", "build", "memory", "peers"];

struct Corpus {
    folder: PathBuf,
    tokenizer: PathBuf,
    files: Vec<PathBuf>,
    texts: Vec<String>,
    json_bytes: usize,
    text_bytes: usize,
}

fn corpus() -> Option<Corpus> {
    let shared = std::env::var_os("HDS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/minipile");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .ok()?
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "zst"))
        .collect();
    files.sort();
    let (mut texts, mut json_bytes) = (Vec::new(), 0);
    for file in &files {
        for line in BufReader::new(zstd::Decoder::new(File::open(file).unwrap()).unwrap()).lines() {
            let line = line.unwrap();
            json_bytes += line.len() + 1;
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            texts.push(value["text"].as_str().unwrap().to_owned());
        }
    }
    Some(Corpus {
        folder,
        tokenizer: shared.join("data/20B_tokenizer.json"),
        files,
        text_bytes: texts.iter().map(String::len).sum(),
        texts,
        json_bytes,
    })
}

fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let clock = Clock::start();
        run();
        clock.seconds()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Processor time of this thread where the system tells it, else time.
struct Clock {
    start: Instant,
    on_processor: Option<f64>,
}

impl Clock {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            on_processor: on_processor(),
        }
    }

    fn seconds(&self) -> f64 {
        match (self.on_processor, on_processor()) {
            (Some(start), Some(now)) => now - start,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

/// Seconds that this thread has run.
fn on_processor() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Seconds that children which ended have run, counted in ticks of 10 ms.
fn children_on_processor() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in parentheses the first field is the third.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    ticks.map(|t| t.parse().unwrap_or(f64::NAN)).sum::<f64>() / 100.0
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| {
        let named = PARTS.iter().any(|p| asked.iter().any(|a| a == p));
        !named || asked.iter().any(|a| a == part)
    };
    let Some(corpus) = corpus() else {
        println!("skipped: no minipile (set HDS_SHARED)");
        return;
    };
    println!(
        "{} documents, {:.1} MB of text in {:.1} MB of JSON\n",
        corpus.texts.len(),
        corpus.text_bytes as f64 / 1e6,
        corpus.json_bytes as f64 / 1e6
    );
    if wanted("stages") {
        stages(&corpus);
    }
    if wanted("build") {
        builds(&corpus);
    }
    if wanted("memory") {
        memory(&corpus);
    }
    if wanted("peers") {
        peers(&corpus);
    }
}

/// Seconds for all documents in a thread that has no caches yet, and in the same thread again.
fn tokenised(tokenizer: &dyn Tokenizer, texts: &[String]) -> (f64, f64) {
    let pass = || {
        let mut ids = Vec::new();
        let clock = Clock::start();
        for text in texts {
            ids.clear();
            tokenizer.encode_into(text, &mut ids).unwrap();
            black_box(&ids);
        }
        clock.seconds()
    };
    std::thread::scope(|scope| scope.spawn(|| (pass(), pass())).join().unwrap())
}

fn pythia(corpus: &Corpus) -> Box<dyn Tokenizer> {
    load(&TokenizerChoice::File {
        path: corpus.tokenizer.clone(),
        end_of_document: None,
    })
    .unwrap()
}

fn stages(corpus: &Corpus) {
    let megabytes = corpus.text_bytes as f64 / 1e6;
    println!("| stage, one thread | MB of text/s | ms per MB |\n|---|---|---|");
    let show = |name: &str, seconds: f64| {
        println!(
            "| {name} | {:.0} | {:.2} |",
            megabytes / seconds,
            1e3 * seconds / megabytes
        );
        seconds
    };
    let mut buffer = vec![0; 1 << 18];
    let decode = best(|| {
        for file in &corpus.files {
            let mut reader = zstd::Decoder::new(File::open(file).unwrap()).unwrap();
            while reader.read(&mut buffer).unwrap() > 0 {}
        }
    });
    show("zstd decode", decode);
    let lines: Vec<Vec<u8>> = corpus
        .files
        .iter()
        .map(|file| zstd::decode_all(File::open(file).unwrap()).unwrap())
        .collect();
    let (text, domain): (FieldPath, FieldPath) = ("text".parse().unwrap(), FieldPath::default());
    let mut found = Found::default();
    let parse = show(
        "JSON",
        best(|| {
            for line in lines.iter().flat_map(|l| l.split(|b| *b == b'\n')) {
                if !line.is_empty() {
                    read_object(line, &text, Some(&domain), &mut found).unwrap();
                }
            }
        }),
    );
    drop(lines);
    let hash = best(|| {
        for text in &corpus.texts {
            black_box(blake3::hash(text.as_bytes()));
        }
    });
    show("BLAKE3", hash);
    let mut meter = LexicalMeter::new();
    let mtld = best(|| {
        for text in &corpus.texts {
            black_box(meter.measure(text));
        }
    });
    show("words and MTLD", mtld);
    let tokenizer = pythia(corpus);
    let runs: Vec<(f64, f64)> = (0..RUNS)
        .map(|_| tokenised(&*tokenizer, &corpus.texts))
        .collect();
    let least = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
    let first = show(
        &format!("{}, first pass", tokenizer.engine()),
        least(|r| r.0),
    );
    let warm = show(&format!("{}, warm", tokenizer.engine()), least(|r| r.1));
    show(
        "limit: decode + JSON + warm tokenizer",
        decode + parse + warm,
    );
    show(
        "all stages, first pass",
        decode + parse + hash + mtld + first,
    );
    println!();
}

#[derive(Default)]
struct Built {
    megabytes_per_second: f64,
    peak_memory: f64,
    seconds: f64,
    /// With the loading of the tokenizer.
    processor_seconds: f64,
}

impl Built {
    fn or_faster(self, other: Self) -> Self {
        if other.megabytes_per_second > self.megabytes_per_second {
            other
        } else {
            self
        }
    }
}

/// One build in a process of its own.
fn build(inputs: &[PathBuf], tokenizer: &Path, threads: usize, target: &Path) -> Built {
    let before = children_on_processor();
    let output = Command::new(env!("CARGO_BIN_EXE_hds-index"))
        .arg("build")
        .args(inputs)
        .arg("--tokenizer")
        .arg(tokenizer)
        .args(["--json", "--threads", &threads.to_string(), "-o"])
        .arg(target)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::remove_dir_all(target).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| summary[key].as_f64().unwrap_or(f64::NAN);
    Built {
        megabytes_per_second: number("megabytes_per_second"),
        peak_memory: number("peak_memory_bytes") / f64::from(1 << 20),
        seconds: number("seconds"),
        processor_seconds: children_on_processor() - before,
    }
}

/// Builds of one thread, of two, and two of one thread side by side, in turn, so that a slow minute of the machine is shared by all: the
/// fastest of each, and what a second core adds in a round.
fn builds(corpus: &Corpus) {
    println!(
        "| whole build | threads | MB of text/s | seconds | times one thread: median (least to most) | processor seconds with loading | peak MiB |\n|---|---|---|---|---|---|---|"
    );
    for times in [1, 4] {
        let scratch = tempfile::tempdir().unwrap();
        let inputs = copies(corpus, times, scratch.path());
        let run = |threads: usize, name: &str| {
            build(
                &inputs,
                &corpus.tokenizer,
                threads,
                &scratch.path().join(name),
            )
        };
        let (mut one, mut two, mut apart) = (Built::default(), Built::default(), 0.0_f64);
        let (mut gains, mut gains_apart) = (Vec::new(), Vec::new());
        for _ in 0..BUILD_ROUNDS {
            let (single, double) = (run(1, "index"), run(2, "index"));
            let both: f64 = std::thread::scope(|scope| {
                let builds = ["index-a", "index-b"].map(|name| scope.spawn(move || run(1, name)));
                let rates = builds.map(|build| build.join().unwrap().megabytes_per_second);
                rates.iter().sum()
            });
            gains.push(double.megabytes_per_second / single.megabytes_per_second);
            gains_apart.push(both / single.megabytes_per_second);
            one = one.or_faster(single);
            two = two.or_faster(double);
            apart = apart.max(both);
        }
        for (threads, run, gain) in [(1, &one, "1".into()), (2, &two, spread(&mut gains))] {
            println!(
                "| {times} × minipile | {threads} | {:.1} | {:.2} | {gain} | {:.2} | {:.0} |",
                run.megabytes_per_second, run.seconds, run.processor_seconds, run.peak_memory
            );
        }
        println!(
            "| {times} × minipile, twice side by side | 1 each | {apart:.1} | | {} | | |",
            spread(&mut gains_apart)
        );
    }
    println!(
        "\nTwo builds that share nothing but the machine, side by side, show how far its second core goes.\n"
    );
}

/// The median of an odd number of figures, with the least and the most.
fn spread(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    let (least, most) = (figures[0], figures[figures.len() - 1]);
    format!(
        "{:.2} ({least:.2} to {most:.2})",
        figures[figures.len() / 2]
    )
}

/// The corpus several times over, under other names. Never by links: what writes to one writes to the corpus.
fn copies(corpus: &Corpus, times: usize, scratch: &Path) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    for copy in 0..times {
        let folder = scratch.join(format!("copy-{copy}"));
        fs::create_dir_all(&folder).unwrap();
        for file in &corpus.files {
            let name = folder.join(file.file_name().unwrap());
            if !name.exists() {
                fs::copy(file, &name).unwrap();
            }
            inputs.push(name);
        }
    }
    inputs
}

fn memory(corpus: &Corpus) {
    println!("| corpus | threads | peak MiB | MB of text/s |\n|---|---|---|---|");
    for times in [1, 4, 16] {
        let (scratch, threads) = (tempfile::tempdir().unwrap(), 2);
        let inputs = copies(corpus, times, scratch.path());
        let target = scratch.path().join("index");
        let run = build(&inputs, &corpus.tokenizer, threads, &target);
        println!(
            "| {times} × minipile | {threads} | {:.0} | {:.1} |",
            run.peak_memory, run.megabytes_per_second
        );
    }
    println!();
}

fn peers(corpus: &Corpus) {
    println!("| tokenizer alone, one thread | MB of text/s |\n|---|---|");
    let tokenizer = pythia(corpus);
    let (first, warm) = tokenised(&*tokenizer, &corpus.texts);
    let rate = |bytes: usize, seconds: f64| bytes as f64 / 1e6 / seconds;
    println!(
        "| ours ({}), first pass | {:.1} |",
        tokenizer.engine(),
        rate(corpus.text_bytes, first)
    );
    println!("| ours, warm | {:.1} |", rate(corpus.text_bytes, warm));
    // The reference would take a minute over all.
    let sample: Vec<&String> = corpus.texts.iter().step_by(10).collect();
    let bytes = sample.iter().map(|text| text.len()).sum();
    let reference = tokenizers::Tokenizer::from_file(&corpus.tokenizer).unwrap();
    let clock = Clock::start();
    for text in &sample {
        black_box(reference.encode_fast(text.as_str(), false).unwrap());
    }
    let seconds = clock.seconds();
    println!(
        "| crate tokenizers, every tenth document | {:.1} |",
        rate(bytes, seconds)
    );
    if let Some(python) = std::env::var_os("HDS_PEERS_PYTHON") {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers.py");
        let status = Command::new(python)
            .arg(script)
            .arg(&corpus.tokenizer)
            .arg(&corpus.folder)
            .status()
            .unwrap();
        assert!(status.success());
    }
    println!();
}
