//! Text engines, in bytes of text a second on one core: words and MTLD, and both tokenizer engines side by side.
//!
//! On the minipile of the shared data folder (`HDS_SHARED`) where it is there, else on this workspace's own sources. Run with
//! `cargo bench -p hds-indexer --bench text`; the ratio of the tokenizer engines is printed at the end.

#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    hint::black_box,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hds_indexer::{
    lexical::LexicalMeter,
    tokenize::{Tokenizer, TokenizerChoice, load},
};

/// Domains shown by themselves: prose, code, LaTeX, short documents, ideographs.
const TYPICAL: &[&str] = &["Gutenberg", "Github", "ArxivLatex", "GSM8K", "WikipediaZh"];

/// Text of each domain that is measured, in bytes.
const DOMAIN_BYTES: usize = 2 << 20;

struct Corpus {
    domains: Vec<(String, Vec<String>)>,
}

impl Corpus {
    fn bytes(documents: &[String]) -> u64 {
        documents.iter().map(|text| text.len() as u64).sum()
    }

    fn all(&self) -> Vec<String> {
        self.domains
            .iter()
            .flat_map(|(_, documents)| documents.clone())
            .collect()
    }
}

fn shared() -> PathBuf {
    std::env::var_os("HDS_SHARED")
        .map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
            PathBuf::from,
        )
        .join("data")
}

fn corpus() -> Corpus {
    let folder = shared().join("minipile");
    let Ok(files) = fs::read_dir(&folder) else {
        eprintln!(
            "no minipile in {}; measuring on this workspace's sources",
            folder.display()
        );
        let mut documents = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
            &mut documents,
        );
        return Corpus {
            domains: vec![("sources".to_owned(), documents)],
        };
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "zst"));
    files.sort();
    let domain = |file: PathBuf| {
        let name = file
            .file_name()
            .unwrap()
            .to_string_lossy()
            .replace(".jsonl.zst", "");
        let (mut documents, mut bytes) = (Vec::new(), 0);
        for line in BufReader::new(zstd::Decoder::new(File::open(file).unwrap()).unwrap()).lines() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let text = line["text"].as_str().unwrap().to_owned();
            bytes += text.len();
            documents.push(text);
            if bytes >= DOMAIN_BYTES {
                break;
            }
        }
        (name, documents)
    };
    Corpus {
        domains: files.into_iter().map(domain).collect(),
    }
}

fn sources(folder: &Path, documents: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, documents);
        } else if let Ok(text) = fs::read_to_string(&path) {
            documents.push(text);
        }
    }
}

fn words_and_mtld(criterion: &mut Criterion) {
    let corpus = corpus();
    let mut group = criterion.benchmark_group("words and MTLD");
    let mut meter = LexicalMeter::new();
    let mut measure = |name: &str, documents: &[String]| {
        group.throughput(Throughput::Bytes(Corpus::bytes(documents)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                documents
                    .iter()
                    .map(|text| meter.measure(text).words)
                    .sum::<u64>()
            });
        });
    };
    for (name, documents) in &corpus.domains {
        if TYPICAL.contains(&name.as_str()) {
            measure(name, documents);
        }
    }
    measure("all domains", &corpus.all());
}

fn tokenizers(criterion: &mut Criterion) {
    let path = shared().join("20B_tokenizer.json");
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return;
    }
    let documents = corpus().all();
    let fast = load(&TokenizerChoice::File {
        path: path.clone(),
        end_of_document: None,
    })
    .unwrap();
    eprintln!("engine: {} {}", fast.engine(), fast.note().unwrap_or(""));
    let mut ids = Vec::new();
    let mut group = criterion.benchmark_group("tokenizer");
    group
        .sample_size(10)
        .throughput(Throughput::Bytes(Corpus::bytes(&documents)));
    group.bench_function(fast.engine(), |bencher| {
        bencher.iter(|| {
            for text in &documents {
                ids.clear();
                fast.encode_into(text, &mut ids).unwrap();
                black_box(&ids);
            }
        });
    });
    group.finish();
    ratio(&*fast, &path, &documents);
}

/// Both engines on the same sample, once each: the slow one would take Criterion minutes.
fn ratio(fast: &dyn Tokenizer, path: &Path, documents: &[String]) {
    let sample: Vec<&String> = documents
        .iter()
        .step_by(documents.len().div_ceil(400))
        .collect();
    let bytes: usize = sample.iter().map(|text| text.len()).sum();
    let reference = tokenizers::Tokenizer::from_file(path).unwrap();
    let start = Instant::now();
    let want: Vec<Vec<u32>> = sample
        .iter()
        .map(|text| {
            reference
                .encode_fast(text.as_str(), false)
                .unwrap()
                .get_ids()
                .to_vec()
        })
        .collect();
    let slow_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut got = Vec::new();
    for text in &sample {
        let mut ids = Vec::new();
        fast.encode_into(text, &mut ids).unwrap();
        got.push(ids);
    }
    let fast_seconds = start.elapsed().as_secs_f64();
    assert_eq!(got, want, "the engines differ");
    let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
    println!(
        "tokenizer engines on {:.1} MB: {} {:.1} MB/s, tokenizers {:.1} MB/s, ratio {:.1}, ids equal",
        bytes as f64 / 1e6,
        fast.engine(),
        rate(fast_seconds),
        rate(slow_seconds),
        slow_seconds / fast_seconds
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = words_and_mtld, tokenizers
}
criterion_main!(benches);
