//! An index to read, and what was read of it as one checksum a batch; in this process or in another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hds::index::Checksum;
use hds::{LiveWeights, Mixture};
use hds_loader::{
    Access, ByteSize, Fetch, Index, IndexError, Loader, LoaderConfig, LoaderError, Packing,
    RemoteOptions,
};
use serde::{Deserialize, Serialize};

use crate::builder::{Domain, TestIndex, documents, write};

/// Tells the test program to be a reader.
const READER: &str = "HDS_REMOTE_TEST_READER";

/// What a reader is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub place: String,
    pub cache: PathBuf,
    pub cache_limit: u64,
    pub piece: u64,
    pub fetch: Fetch,
    pub patience_millis: u64,
    pub batches: usize,
    pub read_ahead: usize,
    pub packing: Packing,
}

impl Task {
    pub fn new(place: impl Into<String>, cache: &Path) -> Self {
        Self {
            place: place.into(),
            cache: cache.to_owned(),
            cache_limit: 1 << 30,
            piece: 4096,
            fetch: Fetch::Pieces,
            patience_millis: 20_000,
            batches: 300,
            read_ahead: 2,
            packing: Packing::Windows,
        }
    }

    pub fn open(&self) -> Result<Index, IndexError> {
        let options = RemoteOptions {
            cache: Some(self.cache.clone()),
            cache_limit: ByteSize(self.cache_limit),
            piece: ByteSize(self.piece),
            fetch: self.fetch,
            connections: 8,
            patience: Duration::from_millis(self.patience_millis),
        };
        Index::open_from(self.place.as_ref(), Access::Map, &options)
    }

    /// A loader, and the handle that sets its weights.
    pub fn loader(&self) -> Result<(Loader, LiveWeights), LoaderError> {
        let index = self.open()?;
        let live = LiveWeights::new(mixture(&index, 0));
        let config = LoaderConfig {
            read_ahead_batches: self.read_ahead,
            packing: self.packing,
            ..LoaderConfig::new(100, 6, 11)
        };
        Ok((Loader::new(index, live.clone(), config)?, live))
    }

    /// Reads, with other weights for each batch: one checksum of everything in it.
    pub fn run(&self) -> Result<Vec<String>, LoaderError> {
        let (mut loader, live) = self.loader()?;
        (0..self.batches)
            .map(|_| next(&mut loader, &live))
            .collect()
    }

    /// As [`Self::run`], in a process of its own, to which these variables are given.
    pub fn spawn(&self, environment: &[(&str, String)]) -> Child {
        self.spawn_by(Command::new("env"), environment)
    }

    /// As [`Self::spawn`], by a program that runs the one it is given.
    pub fn spawn_by(&self, mut by: Command, environment: &[(&str, String)]) -> Child {
        by.arg(std::env::current_exe().unwrap())
            .args(["reader::a_reader_of_another_process", "--exact"])
            .arg("--nocapture")
            .env(READER, serde_json::to_string(self).unwrap())
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            .env_remove("AWS_PROFILE")
            .envs(environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// What a reader that was spawned has read, or its error.
pub fn outcome(child: Child) -> Result<Vec<String>, String> {
    outcome_and_notes(child).0
}

/// As [`outcome`], with what the reader said on standard error.
pub fn outcome_and_notes(child: Child) -> (Result<Vec<String>, String>, String) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}{notes}");
    let (_, text) = text.split_once("<<<").unwrap();
    let (text, _) = text.split_once(">>>").unwrap();
    (serde_json::from_str(text).unwrap(), notes)
}

#[test]
#[allow(clippy::print_stdout)] // what the other process reads
fn a_reader_of_another_process() {
    // As an ordinary test it reads an index in a folder twice.
    let Ok(task) = std::env::var(READER) else {
        let (files, cache) = (small_index(), tempfile::tempdir().unwrap());
        let task = Task::new(files.path().to_str().unwrap(), cache.path());
        assert_eq!(task.run().unwrap(), outcome(task.spawn(&[])).unwrap());
        return;
    };
    let task: Task = serde_json::from_str(&task).unwrap();
    let read = task.run().map_err(|e| e.to_string());
    // What is still being fetched ahead is not to be cut off.
    std::thread::sleep(Duration::from_millis(300));
    println!("<<<{}>>>", serde_json::to_string(&read).unwrap());
}

fn mixture(index: &Index, step: u64) -> Mixture {
    let raw = [1.0 + (step % 4) as f64, 0.5, (step % 3) as f64];
    Mixture::normalized(raw.to_vec(), index.domains()).unwrap()
}

/// Reads a batch and sets other weights for the next one.
pub fn next(loader: &mut Loader, live: &LiveWeights) -> Result<String, LoaderError> {
    let batch = loader.next_batch()?;
    live.publish(mixture(loader.index(), batch.step + 1));
    let spans: Vec<_> = (0..batch.rows()).map(|row| batch.spans(row)).collect();
    let all = format!(
        "{:?} {:?} {spans:?} {:?} {:?}",
        batch.tokens, batch.samples, batch.mtld, batch.global_samples
    );
    Ok(Checksum::of(all.as_bytes()).to_string())
}

/// Three domains with several shards, about 1 MB; one has a name that URLs must escape.
pub fn small_index() -> TestIndex {
    index_with_vocabulary(50_000)
}

pub fn index_with_vocabulary(vocabulary: u32) -> TestIndex {
    let domain = |name: &str, number: u32, shards: u32, count: u32| Domain {
        name: name.into(),
        train: (0..shards)
            .map(|shard| documents(number + 10 * shard, count, |d| 2 + (d * 37 + number) % 400))
            .collect(),
        valid: vec![documents(number + 7, 40, |d| 2 + d % 90)],
    };
    let domains = [
        domain("Books", 1, 2, 700),
        domain("Wikipedia (en)", 2, 3, 300),
        domain("web", 3, 1, 900),
    ];
    write(&domains, vocabulary)
}

/// Copies an index to where a server has it.
pub fn upload(index: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(index).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            upload(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The pieces in a cache that are whole, with their sizes.
pub fn pieces(cache: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = vec![];
    for folder in fs::read_dir(cache.join("files")).into_iter().flatten() {
        for file in fs::read_dir(folder.unwrap().path()).into_iter().flatten() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.parse::<u64>().is_ok()
                && let Ok(metadata) = path.metadata()
            {
                found.push((path, metadata.len()));
            }
        }
    }
    found
}
