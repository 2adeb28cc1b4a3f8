//! Builds one part of an index, for [`super::merge`] to join.
//!
//! In: the options of the whole build, and which part of how many. Out: a folder with the part's tokens and document records:
//!
//! ```text
//! PART/
//!   part.json                                      of which build, which sources, counts, checksums
//!   domains/<domain>/<split>/00000.tokens          as in an index
//!   records/domains/<domain>/<split>/00000.records a record a document
//! ```
//!
//! Always holds: the documents, exact copies among them, and their order are those of the sources alone, so that parts joined in their order are one build. A part
//! is no index and holds perhaps no document; it goes on after an interruption as a build does.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hds::durable;
use hds::index::{Checksum, MANIFEST_FILE, PART_FILE, SourceEntry, Split};
use serde::{Deserialize, Serialize};

use super::collector::Collector;
use super::error::BuildError;
use super::journal::Identity;
use super::merge::MergeError;
use super::options::BuildOptions;
use super::progress::Progress;
use super::staging::Staging;
use super::{Build, identity, plan, sources_of};
use crate::input::{Part, Plan, RecordKind};
use crate::tokenize::Tokenizer;

/// Where the records of a part are.
pub(super) const RECORDS_FOLDER: &str = "records";
const FORMAT: &str = "hds-part";
/// Raised where the folder changes its meaning.
const VERSION: u32 = 1;
/// A larger `part.json` is refused.
const MAX_BYTES: u64 = 256 << 20;

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartManifest {
    format: String,
    version: u32,
    /// From 1.
    pub part: u32,
    pub of: u32,
    /// Of the whole build; the digest is of all sources.
    pub identity: Identity,
    /// Sources before this part's.
    pub first_source: usize,
    pub sources: Vec<SourceEntry>,
    /// What the records of each source are.
    pub record_kinds: Vec<RecordKind>,
    pub splits: Vec<PartSplit>,
}

/// A domain's split in a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartSplit {
    pub domain: String,
    pub split: Split,
    pub shards: Vec<PartShard>,
}

/// A shard of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartShard {
    pub tokens: u64,
    pub documents: u64,
    pub tokens_blake3: Checksum,
    pub records_blake3: Checksum,
}

/// What the build of a part did.
#[derive(Clone, Debug, Serialize)]
pub struct PartSummary {
    /// The folder made.
    pub path: PathBuf,
    /// The part's number, from 1.
    pub part: u32,
    /// How many parts there are.
    pub of: u32,
    /// Sources of the part.
    pub sources: usize,
    /// Documents in it.
    pub documents: u64,
    /// Tokens in it.
    pub tokens: u64,
    /// Threads used.
    pub threads: usize,
    /// What tokenised: `byte`, `fastokens` or `tokenizers`.
    pub engine: &'static str,
    /// Seconds of this run of the program.
    pub seconds: f64,
    /// 10^6 bytes of text a second in this run.
    pub megabytes_per_second: f64,
    /// Whether an interrupted build was continued.
    pub resumed: bool,
}

/// Builds a part into the options' target. All parts take the same options, but for the target, threads and restart.
///
/// # Errors
/// As [`super::build`], but a part without documents is none; the standard input cannot be shared out.
pub fn build_part(
    options: &BuildOptions,
    part: Part,
    tokenizer: &dyn Tokenizer,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<PartSummary, BuildError> {
    let started = Instant::now();
    let whole = plan(options)?;
    if !whole.is_repeatable() {
        return Err(BuildError::Option {
            option: "--shard",
            got: part.to_string(),
            want: "the standard input cannot be shared out, name files",
        });
    }
    let mut of_whole = identity(options, tokenizer, &whole);
    of_whole.sources = whole.digest();
    let range = whole.sources_of(part);
    let own = Plan {
        sources: whole.sources[range.clone()].to_vec(),
    };
    let mut of_part = Identity::new(of_whole.options.clone(), of_whole.tokenizer.clone(), &own);
    let cut = format!("{part} of {}", of_whole.sources);
    of_part.options.insert("part".into(), cut.into());
    let mut build = Build::new(options, &own, of_part, tokenizer, progress, interrupted);
    build.keeps_records = true;
    let staging = build.enter()?;
    let mut fresh = true;
    let outcome = build.run(&staging, &mut fresh).and_then(|indexed| {
        let text_bytes = indexed.collector.advance.text_bytes;
        let manifest = close(indexed.collector, &own, of_whole, part, range.start)?;
        Ok((manifest, text_bytes, indexed.resumed))
    });
    match outcome {
        Ok((manifest, text_bytes, resumed)) => {
            manifest.publish(staging)?;
            let shards = || manifest.splits.iter().flat_map(|s| &s.shards);
            let seconds = started.elapsed().as_secs_f64();
            Ok(PartSummary {
                path: options.target.clone(),
                part: part.number(),
                of: part.of(),
                sources: own.sources.len(),
                documents: shards().map(|s| s.documents).sum(),
                tokens: shards().map(|s| s.tokens).sum(),
                threads: options.threads,
                engine: tokenizer.engine(),
                seconds,
                megabytes_per_second: text_bytes as f64 / 1e6 / seconds,
                resumed,
            })
        }
        Err(error) => {
            if fresh {
                let _ = staging.discard();
            }
            Err(error)
        }
    }
}

/// Closes the shards and takes stock of them.
fn close(
    collector: Collector<'_>,
    own: &Plan,
    identity: Identity,
    part: Part,
    first_source: usize,
) -> Result<PartManifest, BuildError> {
    let sources = sources_of(own, &collector.sources);
    let mut splits = Vec::new();
    for (state, _) in collector.shards.finish()? {
        let mut shards = Vec::with_capacity(state.closed.len());
        for closed in &state.closed {
            shards.push(PartShard {
                tokens: closed.tokens,
                documents: closed.documents,
                tokens_blake3: closed.checksum,
                records_blake3: closed.records,
            });
        }
        splits.push(PartSplit {
            domain: state.domain,
            split: state.split,
            shards,
        });
    }
    Ok(PartManifest {
        format: FORMAT.into(),
        version: VERSION,
        part: part.number(),
        of: part.of(),
        identity,
        first_source,
        sources,
        record_kinds: own.sources.iter().map(|s| s.kind.record_kind()).collect(),
        splits,
    })
}

impl PartManifest {
    fn publish(&self, staging: Staging) -> Result<(), BuildError> {
        durable::write_json(&staging.index().join(PART_FILE), self)?;
        Ok(staging.publish()?)
    }

    /// Reads what a folder says of itself.
    ///
    /// # Errors
    /// If it is no part, or one of another version.
    pub fn load(folder: &Path) -> Result<Self, MergeError> {
        let path = folder.join(PART_FILE);
        let refused = |reason: String| MergeError::NoPart {
            path: folder.into(),
            reason,
        };
        let mut text = Vec::new();
        match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let reason = if folder.join(MANIFEST_FILE).exists() {
                    "it is a whole index"
                } else if !folder.is_dir() {
                    "there is no such folder"
                } else {
                    "it has no part.json"
                };
                return Err(refused(reason.into()));
            }
            Err(e) => return Err(refused(e.to_string())),
            Ok(file) => {
                _ = file
                    .take(MAX_BYTES + 1)
                    .read_to_end(&mut text)
                    .map_err(|e| refused(e.to_string()))?
            }
        }
        if text.len() as u64 > MAX_BYTES {
            return Err(refused(format!(
                "its part.json has more than {MAX_BYTES} bytes"
            )));
        }
        #[derive(Deserialize)]
        struct Head {
            format: Option<String>,
            version: Option<u64>,
        }
        let broken = |e: serde_json::Error| refused(format!("part.json: {e}"));
        let head: Head = serde_json::from_slice(&text).map_err(broken)?;
        if head.format.as_deref() != Some(FORMAT) || head.version != Some(VERSION.into()) {
            let name = head.format.unwrap_or_else(|| "something unknown".into());
            let version = head.version.map_or("none".into(), |v| v.to_string());
            return Err(refused(format!(
                "its part.json is {name} of version {version}, this program reads {FORMAT} of version {VERSION}"
            )));
        }
        let manifest: Self = serde_json::from_slice(&text).map_err(broken)?;
        if Part::new(manifest.part, manifest.of).is_none() {
            let reason = format!("its part.json is of part {}/{}", manifest.part, manifest.of);
            return Err(refused(reason));
        }
        if manifest.record_kinds.len() != manifest.sources.len() {
            return Err(refused(
                "part.json: record_kinds and sources differ in number".into(),
            ));
        }
        Ok(manifest)
    }
}
