//! Checks that an index is whole and that its parts agree.
//!
//! In: an index folder, from anyone. Out: a [`Report`] of everything found wrong. Checked: sizes and checksums of all files, the manifest's too; ids
//! below the vocabulary; every document closed by the end-of-document id; both document tables against each other, the
//! shards and the manifest's counts and summaries; files that do not belong. Memory: a few batches a thread.

pub(crate) mod file;
mod shard;
pub(crate) mod tables;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use hds::index::{IndexError, MANIFEST_FILE, MANIFEST_SUM_FILE, Manifest, ShardEntry, Split};
use serde::Serialize;

use crate::build::ShardSums;
use crate::guard::guarded_table;
use crate::input::walk_files;

/// Most problems that are listed; a damaged index has many of one cause.
const MOST_PROBLEMS: usize = 100;

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// BLAKE3 of the manifest.
    pub fingerprint: String,
    /// Shards looked at.
    pub shards: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Everything wrong, the first 100.
    pub problems: Vec<String>,
    /// Files that no shard names.
    pub strangers: Vec<PathBuf>,
}

impl Report {
    /// Whether nothing is wrong; a stranger is no fault of the index.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks an index; `read` is raised by the bytes looked at.
///
/// # Errors
/// If there is no manifest that can be read; everything behind it goes into the report.
pub fn verify(index: &Path, threads: usize, read: &AtomicU64) -> Result<Report, IndexError> {
    let (manifest, fingerprint) = Manifest::load(index)?;
    let mut jobs = Vec::new();
    for (number, domain) in manifest.domains.iter().enumerate() {
        for split in Split::ALL {
            let shards = domain.split(split).shards.iter();
            jobs.extend(shards.map(|shard| ((number, split), shard)));
        }
    }
    let found = check_shards(index, &manifest, &jobs, threads, read);
    let mut report = Report {
        fingerprint: fingerprint.to_string(),
        shards: jobs.len(),
        bytes: read.load(Ordering::Relaxed),
        ..Report::default()
    };
    if let Err(error) = Manifest::check_sum(index, fingerprint) {
        report.problems.push(error.finding());
    }
    let mut sums = vec![[Some(ShardSums::default()); 2]; manifest.domains.len()];
    let mut documents = vec![0u64; manifest.sources.len()];
    let mut complete = true;
    for (((domain, split), _), outcome) in jobs.iter().zip(found) {
        let sum = &mut sums[*domain][usize::from(*split == Split::Valid)];
        match outcome {
            Ok(checked) => {
                *sum = sum
                    .take()
                    .and_then(|mut sum| sum.add(&checked.sums).map(|()| sum));
                for (source, count) in checked.documents_of_source {
                    documents[source] += count;
                }
            }
            Err(problem) => {
                report.problems.push(problem);
                (*sum, complete) = (None, false);
            }
        }
    }
    check_sums(&manifest, &sums, &mut report.problems);
    if complete {
        for (source, got) in manifest.sources.iter().zip(documents) {
            if source.documents != got {
                report.problems.push(format!(
                    "manifest, sources, {}: {} documents, the tables have {got}",
                    source.name, source.documents
                ));
            }
        }
    }
    report.strangers = strangers(index, &jobs);
    report.problems.truncate(MOST_PROBLEMS);
    Ok(report)
}

type Job<'m> = ((usize, Split), &'m ShardEntry);

/// Checks the shards by several threads; outcomes are in the order of the jobs.
fn check_shards(
    index: &Path,
    manifest: &Manifest,
    jobs: &[Job<'_>],
    threads: usize,
    read: &AtomicU64,
) -> Vec<Result<shard::Checked, String>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, entry)) = jobs.get(number) else {
                        return;
                    };
                    // The tables' readers are others' code, and the file may be made to trip it.
                    let check = || shard::check(index, manifest, entry, read);
                    let outcome = guarded_table(&index.join(&entry.table_file.path), check);
                    let outcome = outcome.map_err(|e: IndexError| e.finding());
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((number, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Compares what the tables add up to with what the manifest says of each split whose shards are all good.
fn check_sums(manifest: &Manifest, sums: &[[Option<ShardSums>; 2]], problems: &mut Vec<String>) {
    for (domain, sums) in manifest.domains.iter().zip(sums) {
        for (split, sums) in Split::ALL.into_iter().zip(sums) {
            let (Some(sums), entry) = (sums, domain.split(split)) else {
                continue;
            };
            let mut compare = |field: &str, want: String, got: String| {
                if want != got {
                    problems.push(format!(
                        "manifest, domains.{}.{split}.{field}: {want}, the tables add up to {got}",
                        domain.name
                    ));
                }
            };
            let number = |n: u64| n.to_string();
            compare("documents", number(entry.documents), number(sums.documents));
            compare("tokens", number(entry.tokens), number(sums.tokens));
            compare("bytes", number(entry.bytes), number(sums.bytes));
            compare("words", number(entry.words), number(sums.words));
            compare(
                "mtld",
                format!("{:?}", entry.mtld),
                format!("{:?}", sums.mtld()),
            );
        }
    }
}

fn strangers(index: &Path, jobs: &[Job<'_>]) -> Vec<PathBuf> {
    let known: HashSet<&str> = jobs
        .iter()
        .flat_map(|(_, s)| [&s.tokens_file, &s.documents_file, &s.table_file])
        .map(|f| f.path.as_str())
        .chain([MANIFEST_FILE, MANIFEST_SUM_FILE])
        .collect();
    let mut strangers: Vec<PathBuf> = walk_files(index)
        .filter(|relative| !known.contains(relative.as_str()))
        .map(PathBuf::from)
        .collect();
    strangers.truncate(MOST_PROBLEMS);
    strangers
}
