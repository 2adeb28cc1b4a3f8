//! Joins the parts of a build into the index that one build would have made.
//!
//! In: all parts, in any order. Out: the index, by one rename, and a [`MergeSummary`]. Always holds: its bytes are those of one build with
//! the same inputs and options, as documents keep their order and shards are cut by the same rule; nothing is tokenised
//! again; every byte of a part is held against its checksum. Memory: what [`Shards`] holds, and the largest document.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hds::DomainSet;
use hds::durable::FileError;
use hds::index::{Checksum, ChecksumReader, TokenType, domain_folder, shard_stem};
use serde::Serialize;
use thiserror::Error;

use super::document::DocumentRecord;
use super::error::BuildError;
use super::options::Duplicates;
use super::part::{PartManifest, PartShard, RECORDS_FOLDER};
use super::part_sources::{SourceDocuments, check_sums};
use super::progress::{Advance, Progress};
use super::shards::Shards;
use super::staging::{Staging, check_outside};
use super::work::Run;
use super::{Finish, publish, total};
use crate::input::RecordKind;

/// Bytes of tokens that go to the writers at once, unless a document has more.
const RUN_BYTES: u64 = 1 << 20;

/// Why parts cannot be joined. The target is then as it was before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// No part at all.
    #[error("no part is given; `hds-index build --shard i/n` makes them")]
    Nothing,
    /// A folder that is no part.
    #[error("{path} is no part of an index: {reason}; `hds-index build --shard i/n` makes parts")]
    NoPart {
        /// The folder.
        path: PathBuf,
        /// Why it is none.
        reason: String,
    },
    /// Parts of different builds.
    #[error("{path} is a part of another build than {first}: {what}")]
    OtherBuild {
        /// The part.
        path: PathBuf,
        /// The part it was compared with.
        first: PathBuf,
        /// What differs.
        what: String,
    },
    /// Not all parts are there.
    #[error(
        "{count} of {of} parts are missing: {numbers}; `hds-index build --shard i/{of}` makes them"
    )]
    Missing {
        /// How many.
        count: usize,
        /// Of how many.
        of: u32,
        /// Which, in words.
        numbers: String,
    },
    /// A part was given twice.
    #[error("{path} and {first} are both part {number} of {of}")]
    Twice {
        /// The second.
        path: PathBuf,
        /// The first.
        first: PathBuf,
        /// Its number.
        number: u32,
        /// Of how many.
        of: u32,
    },
    /// A part is not as its `part.json` says.
    #[error("{path}: {reason}; the part is damaged, build it again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The index cannot be written.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl From<FileError> for MergeError {
    fn from(error: FileError) -> Self {
        Self::Build(error.into())
    }
}

/// What joining did.
#[derive(Clone, Debug, Serialize)]
pub struct MergeSummary {
    /// The index made.
    pub index: PathBuf,
    /// BLAKE3 of its manifest, by which checkpoints and loaders know it.
    pub fingerprint: String,
    /// Number of parts.
    pub parts: usize,
    /// Number of domains.
    pub domains: usize,
    /// Documents in both splits.
    pub documents: u64,
    /// Tokens in both splits.
    pub tokens: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Joins all parts of one build.
///
/// # Errors
/// [`MergeError`]; the target is then absent, and nothing of it is kept.
pub fn merge(
    parts: &[PathBuf],
    target: &Path,
    threads: usize,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<MergeSummary, MergeError> {
    let started = Instant::now();
    if threads == 0 {
        let (option, got) = ("--threads", "0".into());
        let want = "at least 1 is wanted";
        return Err(BuildError::Option { option, got, want }.into());
    }
    check_outside(target, parts.iter())?;
    let parts = in_order(parts)?;
    let staging = Staging::enter_anew(target)?;
    let outcome = join(&parts, &staging, threads, progress, interrupted);
    let manifest = match outcome {
        Ok(manifest) => manifest,
        Err(error) => {
            let _ = staging.discard();
            return Err(error);
        }
    };
    let (manifest, fingerprint) = publish(manifest, staging)?;
    Ok(MergeSummary {
        index: target.into(),
        fingerprint,
        parts: parts.len(),
        domains: manifest.domains.len(),
        documents: total(&manifest, |s| s.documents),
        tokens: total(&manifest, |s| s.tokens),
        seconds: started.elapsed().as_secs_f64(),
    })
}

struct LoadedPart {
    folder: PathBuf,
    manifest: PartManifest,
}

/// Reads what the parts say of themselves and sorts them; all are there, of one build.
fn in_order(folders: &[PathBuf]) -> Result<Vec<LoadedPart>, MergeError> {
    let mut parts: Vec<LoadedPart> = Vec::with_capacity(folders.len());
    for folder in folders {
        let manifest = PartManifest::load(folder)?;
        if let Some(first) = parts.first() {
            let (ours, theirs) = (&first.manifest, &manifest);
            let what = if ours.of != theirs.of {
                Some(format!(
                    "it is one of {} parts, not of {}",
                    theirs.of, ours.of
                ))
            } else {
                ours.identity.difference(&theirs.identity)
            };
            if let Some(what) = what {
                return Err(MergeError::OtherBuild {
                    path: folder.clone(),
                    first: first.folder.clone(),
                    what,
                });
            }
        }
        if let Some(same) = parts.iter().find(|p| p.manifest.part == manifest.part) {
            return Err(MergeError::Twice {
                path: folder.clone(),
                first: same.folder.clone(),
                number: manifest.part,
                of: manifest.of,
            });
        }
        let folder = folder.clone();
        parts.push(LoadedPart { folder, manifest });
    }
    let of = parts.first().ok_or(MergeError::Nothing)?.manifest.of;
    parts.sort_by_key(|p| p.manifest.part);
    check_complete(&parts, of)?;
    let mut sources = 0;
    for part in &parts {
        if part.manifest.first_source != sources {
            return Err(MergeError::Damaged {
                path: part.folder.clone(),
                reason: format!(
                    "starts at source {}, the parts before end at {sources}",
                    part.manifest.first_source
                ),
            });
        }
        sources += part.manifest.sources.len();
    }
    check_sums(parts.iter().map(|p| (p.folder.as_path(), &p.manifest)))?;
    Ok(parts)
}

fn check_complete(parts: &[LoadedPart], of: u32) -> Result<(), MergeError> {
    if parts.len() == of as usize {
        return Ok(());
    }
    const SHOWN: usize = 20;
    let given: std::collections::HashSet<u32> = parts.iter().map(|p| p.manifest.part).collect();
    let missing = || (1..=of).filter(|n| !given.contains(n));
    let mut numbers: Vec<String> = missing().take(SHOWN).map(|n| n.to_string()).collect();
    let count = of as usize - parts.len();
    if count > SHOWN {
        numbers.push("…".into());
    }
    Err(MergeError::Missing {
        count,
        of,
        numbers: numbers.join(", "),
    })
}

fn join(
    parts: &[LoadedPart],
    staging: &Staging,
    threads: usize,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<hds::index::Manifest, MergeError> {
    let identity = &parts[0].manifest.identity;
    let token_type = TokenType::for_vocabulary(identity.tokenizer.vocabulary);
    let shard_tokens = identity
        .options
        .get("shard_tokens")
        .and_then(|v| v.as_u64());
    let shard_tokens = shard_tokens.ok_or_else(|| MergeError::NoPart {
        path: parts[0].folder.clone(),
        reason: "its part.json does not say how many tokens a shard has".into(),
    })?;
    let drops = identity.options.get("duplicates").and_then(|v| v.as_str()) == Some("drop");
    // Copies are left out at the end, as one build does it.
    let (duplicates, gathered) = if drops {
        (Duplicates::Drop, staging.all())
    } else {
        (Duplicates::Keep, staging.index())
    };
    for folder in [gathered.clone(), staging.records()] {
        fs::create_dir_all(&folder).map_err(|e| FileError::new("create", &folder, e))?;
    }
    let mut joiner = Joiner {
        shards: Shards::new(gathered, staging.records(), token_type, shard_tokens),
        token_bytes: token_type.bytes(),
        progress,
        interrupted,
        advance: Advance::default(),
        of_sources: SourceDocuments::new(0),
    };
    progress.begins(
        parts
            .iter()
            .map(|p| p.bytes(token_type))
            .fold(0, u64::saturating_add),
    );
    for part in parts {
        joiner.of_sources = SourceDocuments::new(part.manifest.sources.len());
        for split in &part.manifest.splits {
            let damaged = |e: hds::DomainError| MergeError::Damaged {
                path: part.folder.clone(),
                reason: e.to_string(),
            };
            DomainSet::check_name(&split.domain).map_err(damaged)?;
            let folder = domain_folder(&split.domain, split.split);
            let mut run = Run {
                domain: Arc::from(split.domain.as_str()),
                split: split.split,
                tokens: Vec::new(),
                documents: Vec::new(),
            };
            for (number, shard) in (0..).zip(&split.shards) {
                let stem = format!("{folder}/{}", shard_stem(number));
                joiner.shard(part, &stem, shard, &mut run)?;
            }
        }
        joiner.of_sources.compare(&part.folder, &part.manifest)?;
    }
    progress.finishes();
    let sources = parts.iter().flat_map(|p| p.manifest.sources.clone());
    let kinds: Vec<RecordKind> = parts
        .iter()
        .flat_map(|p| p.manifest.record_kinds.clone())
        .collect();
    let manifest = Finish {
        staging,
        identity,
        token_type,
        duplicates,
        shard_tokens,
        threads,
        interrupted,
        has_journal: false,
    }
    .run(
        joiner.shards.finish()?,
        sources.collect(),
        &|source, position| kinds[source].place_of(position),
    )?;
    Ok(manifest)
}

fn ended_early() -> MergeError {
    let kept = "nothing was kept".into();
    BuildError::Interrupted { kept }.into()
}

impl LoadedPart {
    /// Bytes of its files, as far as they are believed.
    fn bytes(&self, token_type: TokenType) -> u64 {
        let shards = self.manifest.splits.iter().flat_map(|s| &s.shards);
        shards.fold(0u64, |sum, s| {
            sum.saturating_add(s.tokens.saturating_mul(token_type.bytes()))
        })
    }
}

struct Joiner<'p> {
    shards: Shards,
    token_bytes: u64,
    progress: &'p dyn Progress,
    interrupted: &'p AtomicBool,
    advance: Advance,
    /// Of the part being joined.
    of_sources: SourceDocuments,
}

impl Joiner<'_> {
    /// Appends the documents of a shard; `stem` is its files' path in the part without extension.
    fn shard(
        &mut self,
        part: &LoadedPart,
        stem: &str,
        shard: &PartShard,
        run: &mut Run,
    ) -> Result<(), MergeError> {
        let tokens_path = part.folder.join(format!("{stem}.tokens"));
        let records_path = part
            .folder
            .join(RECORDS_FOLDER)
            .join(format!("{stem}.records"));
        let damaged = |path: &Path, reason: String| MergeError::Damaged {
            path: path.into(),
            reason,
        };
        let bytes = shard.tokens.checked_mul(self.token_bytes);
        let record_bytes = shard.documents.checked_mul(DocumentRecord::BYTES as u64);
        let mut tokens = open(&tokens_path, bytes)?;
        let mut records = open(&records_path, record_bytes)?;
        let sources = part.manifest.sources.len();
        let mut left = shard.tokens;
        for number in 0..shard.documents {
            let mut record = [0; DocumentRecord::BYTES];
            records
                .read_exact(&mut record)
                .map_err(|e| FileError::new("read", &records_path, e))?;
            let mut record = DocumentRecord::read(&record);
            left = match left.checked_sub(record.tokens) {
                Some(left) if record.tokens > 0 => left,
                _ => {
                    let reason = format!(
                        "record {number} has {} tokens, {left} are left",
                        record.tokens
                    );
                    return Err(damaged(&records_path, reason));
                }
            };
            let source = part.manifest.first_source + record.source as usize;
            record.source = match u32::try_from(source) {
                Ok(source) if (record.source as usize) < sources => source,
                _ => {
                    let reason = format!(
                        "record {number} is of source {}, the part has {sources}",
                        record.source
                    );
                    return Err(damaged(&records_path, reason));
                }
            };
            self.of_sources.count(source - part.manifest.first_source);
            // Not above the file's size, which was looked at.
            let (start, bytes) = (run.tokens.len(), record.tokens * self.token_bytes);
            run.tokens.resize(start + bytes as usize, 0);
            tokens
                .read_exact(&mut run.tokens[start..])
                .map_err(|e| FileError::new("read", &tokens_path, e))?;
            run.documents.push(record);
            // A sum that passes 64 bits is refused with the tables.
            self.advance.text_bytes = self.advance.text_bytes.saturating_add(record.bytes);
            if run.tokens.len() as u64 >= RUN_BYTES {
                self.append(run)?;
            }
        }
        self.append(run)?;
        if left > 0 {
            return Err(damaged(
                &tokens_path,
                format!("{left} tokens are of no document"),
            ));
        }
        for (path, want, got) in [
            (&tokens_path, shard.tokens_blake3, digest(tokens)),
            (&records_path, shard.records_blake3, digest(records)),
        ] {
            if want != got {
                let reason = format!("has checksum {got}, part.json says {want}");
                return Err(damaged(path, reason));
            }
        }
        Ok(())
    }

    fn append(&mut self, run: &mut Run) -> Result<(), MergeError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(ended_early());
        }
        self.shards.append(run)?;
        self.advance.documents += run.documents.len() as u64;
        self.advance.input_bytes += run.tokens.len() as u64;
        self.progress.advances(self.advance);
        run.tokens.clear();
        run.tokens.shrink_to(2 * RUN_BYTES as usize);
        run.documents.clear();
        Ok(())
    }
}

type Input = BufReader<ChecksumReader<fs::File>>;

/// Opens a file that has so many bytes; no number where they do not fit one.
fn open(path: &Path, bytes: Option<u64>) -> Result<Input, MergeError> {
    let file = fs::File::open(path).map_err(|e| FileError::new("open", path, e))?;
    let got = file
        .metadata()
        .map_err(|e| FileError::new("open", path, e))?
        .len();
    if Some(got) != bytes {
        let want = bytes.map_or("more than 2^64".into(), |b| b.to_string());
        return Err(MergeError::Damaged {
            path: path.into(),
            reason: format!("holds {got} bytes, part.json says {want}"),
        });
    }
    Ok(BufReader::with_capacity(1 << 18, ChecksumReader::new(file)))
}

/// Of a file read to its end.
fn digest(input: Input) -> Checksum {
    input.into_inner().finish()
}
