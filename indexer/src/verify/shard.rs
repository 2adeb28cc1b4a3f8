//! Checks one shard: its three files alone, then against each other.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hds::index::{IndexError, Manifest, ShardEntry, TokenType};

use super::file::{check_file, compare_checksum, io_error, open_sized};
use super::tables::{RuntimeRows, TableRows};
use crate::build::{DocumentRecord, ShardSums};

/// Bytes read at once; a multiple of every token's size.
const CHUNK_BYTES: usize = 1 << 20;

/// What a good shard adds up to.
pub(super) struct Checked {
    pub sums: ShardSums,
    pub documents_of_source: BTreeMap<usize, u64>,
}

/// Checks a shard.
///
/// # Errors
/// The first thing wrong with it.
pub(super) fn check(
    index: &Path,
    manifest: &Manifest,
    shard: &ShardEntry,
    read: &AtomicU64,
) -> Result<Checked, IndexError> {
    // Checksums first: what follows then reads files that are at least those that were written.
    let runtime = index.join(&shard.documents_file.path);
    let table = index.join(&shard.table_file.path);
    for (path, entry) in [
        (&runtime, &shard.documents_file),
        (&table, &shard.table_file),
    ] {
        check_file(path, entry, |n| _ = read.fetch_add(n, Ordering::Relaxed))?;
    }
    check_tokens(index, manifest, shard, read)?;
    check_tables(manifest, shard, &runtime, &table)
}

/// Every id below the vocabulary, every document closed.
fn check_tokens(
    index: &Path,
    manifest: &Manifest,
    shard: &ShardEntry,
    read: &AtomicU64,
) -> Result<(), IndexError> {
    let path = index.join(&shard.tokens_file.path);
    let mut file = open_sized(&path, &shard.tokens_file)?;
    let mut ends = DocumentEnds::new(&index.join(&shard.documents_file.path), shard)?;
    let mut next_end = ends.next().transpose()?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    let mut ids: Vec<u32> = Vec::new();
    let mut first = 0u64;
    let mut problem = None;
    loop {
        buffer.clear();
        file.by_ref()
            .take(CHUNK_BYTES as u64)
            .read_to_end(&mut buffer)
            .map_err(|e| io_error("read", &path, e))?;
        if buffer.is_empty() {
            break;
        }
        hasher.update(&buffer);
        read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if problem.is_some() {
            continue;
        }
        widen(&buffer, manifest.token_type, &mut ids);
        let vocabulary = manifest.tokenizer.vocabulary;
        if let Some(at) = ids.iter().position(|id| *id >= vocabulary) {
            let (place, id) = (first + at as u64, ids[at]);
            problem = Some(format!(
                "token {place} is {id}, the vocabulary has {vocabulary} ids"
            ));
        }
        let behind = first + ids.len() as u64;
        while let Some(end) = next_end.filter(|end| *end <= behind) {
            let id = ids[(end - 1 - first) as usize];
            if id != manifest.tokenizer.end_of_document && problem.is_none() {
                problem = Some(format!(
                    "token {} should close a document with {}, it is {id}",
                    end - 1,
                    manifest.tokenizer.end_of_document
                ));
            }
            next_end = ends.next().transpose()?;
        }
        first = behind;
    }
    // A damaged file is first of all a damaged file.
    compare_checksum(&path, &shard.tokens_file, hasher.finalize().into())?;
    match problem {
        None => Ok(()),
        Some(reason) => Err(IndexError::Content { path, reason }),
    }
}

fn widen(bytes: &[u8], token_type: TokenType, ids: &mut Vec<u32>) {
    ids.clear();
    match token_type {
        TokenType::U16 => ids.extend(
            bytes
                .chunks_exact(2)
                .map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))),
        ),
        TokenType::U32 => ids.extend(
            bytes
                .chunks_exact(4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        ),
    }
}

/// The places in the shard behind each document, from the run-time table; checks that they ascend and end with the shard.
struct DocumentEnds {
    rows: RuntimeRows,
    path: PathBuf,
    first_token: u64,
    tokens: u64,
    start: Option<u64>,
    ended: bool,
}

impl DocumentEnds {
    fn new(path: &Path, shard: &ShardEntry) -> Result<Self, IndexError> {
        let mut ends = Self {
            rows: RuntimeRows::open(path, shard.documents)?,
            path: path.into(),
            first_token: shard.first_token,
            tokens: shard.tokens,
            start: None,
            ended: false,
        };
        let first = ends.rows.next().transpose()?.map(|row| row.0);
        if first != Some(shard.first_token) {
            let got = first.map_or("nothing".into(), |f| f.to_string());
            let reason = format!("starts at token {got}, the shard at {}", shard.first_token);
            return Err(IndexError::Content {
                path: path.into(),
                reason,
            });
        }
        ends.start = Some(0);
        Ok(ends)
    }
}

impl Iterator for DocumentEnds {
    type Item = Result<u64, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let end = match self.rows.next() {
            Some(Err(error)) => return Some(Err(error)),
            Some(Ok((offset, _))) => offset.checked_sub(self.first_token),
            None => {
                self.ended = true;
                Some(self.tokens)
            }
        };
        let good = end.filter(|end| Some(*end) > self.start && *end <= self.tokens);
        self.start = good;
        Some(good.ok_or_else(|| {
            self.ended = true;
            IndexError::Content {
                path: self.path.clone(),
                reason: "token_offset does not ascend inside the shard".into(),
            }
        }))
    }
}

/// Both tables, row by row.
fn check_tables(
    manifest: &Manifest,
    shard: &ShardEntry,
    runtime_path: &Path,
    table_path: &Path,
) -> Result<Checked, IndexError> {
    let wrong = |row: u64, reason: String| IndexError::Content {
        path: table_path.into(),
        reason: format!("row {row}: {reason}"),
    };
    let mut runtime = RuntimeRows::open(runtime_path, shard.documents)?;
    let mut checked = Checked {
        sums: ShardSums::default(),
        documents_of_source: BTreeMap::new(),
    };
    let mut rows = 0;
    for row in TableRows::open(table_path, shard.documents)? {
        let row = row?;
        let record: &DocumentRecord = &row.record;
        let Some((offset, mtld)) = runtime.next().transpose()? else {
            return Err(wrong(rows, "is not in the run-time table".into()));
        };
        let document = shard.first_document + rows;
        if row.document != document {
            return Err(wrong(
                rows,
                format!("document {} instead of {document}", row.document),
            ));
        }
        let want = shard.first_token + checked.sums.tokens;
        if row.token_offset != want || offset != want {
            let reason = format!(
                "token_offset {}, in the run-time table {offset}; the documents before have tokens up to {want}",
                row.token_offset
            );
            return Err(wrong(rows, reason));
        }
        if (record.mtld as f32).to_bits() != mtld.to_bits() {
            return Err(wrong(
                rows,
                format!("mtld {}, in the run-time table {mtld}", record.mtld),
            ));
        }
        if !record.mtld.is_finite() || record.mtld < 0.0 {
            return Err(wrong(rows, format!("mtld {}", record.mtld)));
        }
        let source = record.source as usize;
        if source >= manifest.sources.len() {
            let reason = format!("source {source}, there are {}", manifest.sources.len());
            return Err(wrong(rows, reason));
        }
        *checked.documents_of_source.entry(source).or_default() += 1;
        checked
            .sums
            .count(record)
            .ok_or_else(|| wrong(rows, "a sum overflows 64 bits".into()))?;
        rows += 1;
    }
    if (rows, checked.sums.tokens) != (shard.documents, shard.tokens) {
        let reason = format!(
            "holds {rows} documents of {} tokens, the shard has {} of {}",
            checked.sums.tokens, shard.documents, shard.tokens
        );
        return Err(IndexError::Content {
            path: table_path.into(),
            reason,
        });
    }
    Ok(checked)
}
