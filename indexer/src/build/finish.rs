//! From token shards and document records to an index.
//!
//! In: the closed shards of every domain and split. Out: their document tables, and the manifest's entries. Each shard is worked
//! on alone, by as many threads as the build has; sums are taken in the order of the shards. Memory: a row group a thread.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hds::index::{DomainEntry, FileEntry, ShardEntry, Split, SplitEntry, TokenType};

use super::duplicates::Splits;
use super::error::BuildError;
use super::shard_files::RecordFile;
use super::shards::{ClosedShard, SplitPaths};
use super::sums::ShardSums;
use super::tables::write_tables;

/// One shard to finish.
struct Job<'s> {
    split: usize,
    shard: u64,
    first_token: u64,
    first_document: u64,
    closed: &'s ClosedShard,
    paths: &'s SplitPaths,
}

/// Writes the tables of all shards, of splits with so many documents that occurred before, and gives the domains in the order of their names;
/// `None` if `interrupted` became true before all were written.
///
/// # Errors
/// If a file cannot be read or written.
pub(super) fn finish(
    splits: &Splits,
    duplicates: &[u64],
    token_type: TokenType,
    threads: usize,
    interrupted: &AtomicBool,
) -> Result<Option<Vec<DomainEntry>>, BuildError> {
    let mut jobs = Vec::new();
    for (number, (state, paths)) in splits.iter().enumerate() {
        let (mut first_token, mut first_document) = (0, 0);
        for (shard, closed) in (0..).zip(&state.closed) {
            jobs.push(Job {
                split: number,
                shard,
                first_token,
                first_document,
                closed,
                paths,
            });
            first_token += closed.tokens;
            first_document += closed.documents;
        }
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(number) else { return };
                if interrupted.load(Ordering::Relaxed) {
                    return;
                }
                let outcome = finish_shard(job, token_type);
                if outcome.is_err() {
                    next.store(jobs.len(), Ordering::Relaxed);
                }
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.insert(number, outcome);
            }
        };
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    if done.values().all(Result::is_ok) && done.len() < jobs.len() {
        return Ok(None);
    }
    let mut entries: Vec<(SplitEntry, ShardSums)> =
        splits.iter().map(|_| Default::default()).collect();
    for (number, outcome) in done {
        let (shard, sums) = outcome?;
        let (entry, total) = &mut entries[jobs[number].split];
        entry.shards.push(shard);
        let shard = jobs[number].shard;
        total.add(&sums).ok_or_else(|| BuildError::Staging {
            path: jobs[number].paths.records(shard),
            reason: "a sum overflows 64 bits".into(),
        })?;
    }
    let mut domains: BTreeMap<&str, DomainEntry> = BTreeMap::new();
    for (((state, _), (mut entry, sums)), copies) in splits.iter().zip(entries).zip(duplicates) {
        entry.duplicates = *copies;
        entry.documents = sums.documents;
        entry.tokens = sums.tokens;
        entry.bytes = sums.bytes;
        entry.words = sums.words;
        entry.mtld = sums.mtld();
        let domain = domains.entry(&state.domain).or_insert_with(|| DomainEntry {
            name: state.domain.clone(),
            train: SplitEntry::default(),
            valid: SplitEntry::default(),
        });
        match state.split {
            Split::Train => domain.train = entry,
            Split::Valid => domain.valid = entry,
        }
    }
    Ok(Some(domains.into_values().collect()))
}

fn finish_shard(
    job: &Job<'_>,
    token_type: TokenType,
) -> Result<(ShardEntry, ShardSums), BuildError> {
    let records = RecordFile::open(job.paths.records(job.shard), job.closed)?;
    let file = |extension: &str| job.paths.file(job.shard, extension);
    let tables = write_tables(
        records,
        job.first_token,
        job.first_document,
        &file("documents.arrow"),
        &file("documents.parquet"),
    )?;
    let sums = tables.sums;
    if (sums.tokens, sums.documents) != (job.closed.tokens, job.closed.documents) {
        return Err(BuildError::Staging {
            path: job.paths.records(job.shard),
            reason: format!(
                "{} documents of {} tokens, the shard has {} of {}",
                sums.documents, sums.tokens, job.closed.documents, job.closed.tokens
            ),
        });
    }
    let entry = |extension: &str, bytes, blake3| FileEntry {
        path: job.paths.relative(job.shard, extension),
        bytes,
        blake3,
    };
    let (runtime, table) = (tables.runtime, tables.table);
    let shard = ShardEntry {
        first_token: job.first_token,
        tokens: job.closed.tokens,
        first_document: job.first_document,
        documents: job.closed.documents,
        tokens_file: entry(
            "tokens",
            job.closed.tokens * token_type.bytes(),
            job.closed.checksum,
        ),
        documents_file: entry("documents.arrow", runtime.0, runtime.1),
        table_file: entry("documents.parquet", table.0, table.1),
    };
    Ok((shard, sums))
}
