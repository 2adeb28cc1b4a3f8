//! Makes small corpora, builds indexes of them, and reads indexes without the code under test.

#![allow(dead_code)] // each test binary uses its part
#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

pub mod megatron;
pub mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use hds_indexer::build::{
    BuildError, BuildOptions, BuildSummary, Duplicates, OnError, Silent, build,
};
use hds_indexer::input::{DomainFrom, RecordFields, TextExtensions};
use hds_indexer::tokenize::{ByteTokenizer, Tokenizer};

/// A folder that goes away with the value.
pub struct Scratch(pub tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Options for building these inputs into `index`, nothing held out.
    pub fn options(&self, inputs: &[&str]) -> BuildOptions {
        BuildOptions {
            inputs: inputs.iter().map(|i| self.path(i)).collect(),
            held_out: Vec::new(),
            target: self.path("index"),
            fields: RecordFields {
                text: "text".parse().unwrap(),
                domain: Default::default(),
                domain_from: DomainFrom::Auto,
                text_extensions: TextExtensions::default(),
            },
            valid_fraction: 0.0,
            on_error: OnError::Stop,
            duplicates: Duplicates::Keep,
            shard_tokens: BuildOptions::SHARD_TOKENS,
            threads: 2,
            restart: false,
            checkpoint_every: BuildOptions::CHECKPOINT_EVERY,
        }
    }
}

pub fn run(options: &BuildOptions) -> Result<BuildSummary, BuildError> {
    run_with(options, &ByteTokenizer)
}

pub fn run_with(
    options: &BuildOptions,
    tokenizer: &dyn Tokenizer,
) -> Result<BuildSummary, BuildError> {
    build(options, tokenizer, &Silent, &AtomicBool::new(false))
}

/// A line of a corpus in The Pile's format.
pub fn line(text: &str, domain: &str) -> String {
    serde_json::json!({"text": text, "meta": {"pile_set_name": domain}}).to_string() + "\n"
}

/// Every file of a folder with its content.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, top: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, top, into);
            } else {
                let name = path
                    .strip_prefix(top)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                into.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

pub fn manifest(index: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(index.join("manifest.json")).unwrap()).unwrap()
}

/// Names of the domains of an index.
pub fn domains(index: &Path) -> Vec<String> {
    let manifest = manifest(index);
    let domains = manifest["domains"].as_array().unwrap();
    domains
        .iter()
        .map(|d| d["name"].as_str().unwrap().to_owned())
        .collect()
}

/// All tokens of a split, from its shards.
pub fn tokens(index: &Path, domain: &str, split: &str) -> Vec<u32> {
    let manifest = manifest(index);
    let wide = manifest["token_type"] == "u32";
    let mut all = Vec::new();
    for shard in shards(&manifest, domain, split) {
        let bytes = fs::read(index.join(shard["tokens_file"]["path"].as_str().unwrap())).unwrap();
        if wide {
            all.extend(
                bytes
                    .chunks_exact(4)
                    .map(|c| u32::from_le_bytes(c.try_into().unwrap())),
            );
        } else {
            all.extend(
                bytes
                    .chunks_exact(2)
                    .map(|c| u32::from(u16::from_le_bytes(c.try_into().unwrap()))),
            );
        }
    }
    all
}

pub fn shards(manifest: &serde_json::Value, domain: &str, split: &str) -> Vec<serde_json::Value> {
    let domains = manifest["domains"].as_array().unwrap();
    let domain = domains.iter().find(|d| d["name"] == domain).unwrap();
    domain[split]["shards"].as_array().unwrap().clone()
}

/// `(token_offset, mtld)` of every document, from the run-time tables.
pub fn runtime_rows(index: &Path, domain: &str, split: &str) -> Vec<(u64, f32)> {
    let mut rows = Vec::new();
    for shard in shards(&manifest(index), domain, split) {
        let path = index.join(shard["documents_file"]["path"].as_str().unwrap());
        let reader =
            arrow_ipc::reader::FileReader::try_new(fs::File::open(path).unwrap(), None).unwrap();
        for batch in reader {
            let batch = batch.unwrap();
            let offsets = batch
                .column(0)
                .as_primitive::<UInt64Type>()
                .values()
                .to_vec();
            let mtld = batch
                .column(1)
                .as_primitive::<Float32Type>()
                .values()
                .to_vec();
            rows.extend(offsets.into_iter().zip(mtld));
        }
    }
    rows
}

/// The texts of a split of an index of bytes, cut at the offsets of the run-time table.
pub fn texts(index: &Path, domain: &str, split: &str) -> Vec<String> {
    let tokens = tokens(index, domain, split);
    let mut offsets: Vec<usize> = runtime_rows(index, domain, split)
        .into_iter()
        .map(|(offset, _)| offset as usize)
        .collect();
    offsets.push(tokens.len());
    offsets
        .windows(2)
        .map(|w| {
            let document = &tokens[w[0]..w[1]];
            let (end, text) = document.split_last().unwrap();
            assert_eq!(*end, 256, "a document is not closed");
            String::from_utf8(text.iter().map(|t| *t as u8).collect()).unwrap()
        })
        .collect()
}

/// The folder of shared data, or the reason why the test cannot run.
pub fn shared(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("HDS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join("data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there (set HDS_SHARED)", path.display());
    None
}
