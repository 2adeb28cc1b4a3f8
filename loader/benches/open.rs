//! Opening an index of 200 million documents: time, and memory before and after batches are read from it.
//!
//! Two hundred domains of a million documents each; as every domain's files are alike, they are one file under
//! two hundred names. Prints one line a step. A second process opens, so that memory is the loader's alone.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

#[path = "../tests/loader/builder.rs"]
mod builder;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use hds::index::{FileEntry, Manifest, Split};
use hds::{LiveWeights, Mixture};
use hds_loader::{Index, Loader, LoaderConfig};

const DOMAINS: usize = 200;
const DOCUMENTS: u32 = 1_000_000;
const BATCHES: usize = 2000;
/// Tells the program to measure, and on which index.
const CHILD: &str = "HDS_BENCH_OPEN";

/// Memory of this process that is resident: all of it, and without pages of files, in MB.
fn resident() -> (f64, f64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    (field("VmRSS:"), field("RssAnon:"))
}

fn main() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return measure(Path::new(&folder));
    }
    // Writing takes memory that would hide what opening takes: another process opens.
    let folder = index();
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, folder.path())
        .status();
    assert!(child.unwrap().success());
}

fn measure(folder: &Path) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        let index = Index::open(folder).unwrap();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        drop(index);
    }
    let index = Index::open(folder).unwrap();
    let documents: u64 = index
        .domains()
        .ids()
        .map(|id| index.split(id, Split::Train).documents())
        .sum();
    let (all, own) = resident();
    println!("open             {documents} documents in {best:.1} ms (best of 5)");
    println!("resident         {all:.1} MB, {own:.1} MB of it not pages of files");
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let mut loader = Loader::new(index, live, LoaderConfig::new(1024, 32, 0)).unwrap();
    let mut batch = loader.next_batch().unwrap();
    for _ in 0..BATCHES {
        loader.next_batch_into(&mut batch).unwrap();
    }
    let (all, own) = resident();
    println!(
        "{BATCHES} batches later {all:.1} MB, {own:.1} MB of it not pages of files (those are the system's to take back)"
    );
}

/// Writes one domain and gives it two hundred names.
fn index() -> builder::TestIndex {
    let domain = builder::Domain {
        name: "domain-000".into(),
        train: vec![builder::documents(0, DOCUMENTS, |d| 20 + d % 61)],
        valid: vec![],
    };
    let files = builder::write(&[domain], 50_277);
    let (mut manifest, _) = Manifest::load(files.path()).unwrap();
    let first = manifest.domains[0].clone();
    for number in 1..DOMAINS {
        let mut domain = first.clone();
        domain.name = format!("domain-{number:03}");
        for shard in &mut domain.train.shards {
            for file in [
                &mut shard.tokens_file,
                &mut shard.documents_file,
                &mut shard.table_file,
            ] {
                link(&files, file, number);
            }
        }
        manifest.domains.push(domain);
    }
    builder::save(&manifest, files.path());
    files
}

fn link(files: &builder::TestIndex, file: &mut FileEntry, number: usize) {
    let old = files.path().join(&file.path);
    file.path = file
        .path
        .replace("domain-000", &format!("domain-{number:03}"));
    let new = files.path().join(&file.path);
    fs::create_dir_all(new.parent().unwrap()).unwrap();
    fs::hard_link(old, new).unwrap();
}
