//! What a build is asked to do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::input::{DomainFrom, RecordFields};

/// What happens when a record cannot be indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The build ends with an error that names the place.
    #[default]
    Stop,
    /// The record is left out; the manifest and the summary count it and name the first place.
    Skip,
}

/// What happens with documents whose text is that of one before, byte by byte, in whatever domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// They are indexed; the manifest counts them.
    #[default]
    Keep,
    /// They are left out and counted so; the first copy of the input stays.
    Drop,
}

/// Options of a build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Files, folders, or `-`, whose documents are split by hash.
    pub inputs: Vec<PathBuf>,
    /// Files and folders whose documents are all held out.
    pub held_out: Vec<PathBuf>,
    /// The index folder to make.
    pub target: PathBuf,
    /// Fields and domains.
    pub fields: RecordFields,
    /// Part of the documents to hold out, 0 to 1.
    ///
    /// A document is held out if the first 8 bytes of its text's BLAKE3, read as a big-endian number, are below this
    /// part of 2^64. So the choice depends on the text alone: exact copies are never on both sides, and it stays the
    /// same when documents are added, left out or reordered.
    pub valid_fraction: f64,
    /// What happens with bad records.
    pub on_error: OnError,
    /// What happens with exact copies.
    pub duplicates: Duplicates,
    /// A shard is closed before the document that would take it over this many tokens.
    pub shard_tokens: u64,
    /// Threads that read, tokenise and write. The index does not depend on it.
    pub threads: usize,
    /// Discard what an interrupted build left.
    pub restart: bool,
    /// How often the place reached is noted, to go on from after an interruption.
    pub checkpoint_every: Duration,
}

impl BuildOptions {
    /// Held out of every domain by default: 0.5 %, enough for a stable perplexity, little enough not to be missed.
    pub const VALID_FRACTION: f64 = 0.005;
    /// Tokens of a shard by default: 512 MiB as u16; large enough for sequential reading, small enough to copy and check alone.
    pub const SHARD_TOKENS: u64 = 1 << 28;
    /// Seconds of work that an interruption may cost by default.
    pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);

    /// The options that change what is in the index, as the manifest keeps them.
    pub(super) fn for_manifest(&self, held_out_from: Option<usize>) -> BTreeMap<String, Value> {
        let fields = &self.fields;
        let from = match &fields.domain_from {
            DomainFrom::Auto => json!("auto"),
            DomainFrom::Field => json!("field"),
            DomainFrom::File => json!("file"),
            DomainFrom::Folder => json!("folder"),
            DomainFrom::Named(name) => json!({ "name": name }),
        };
        let mut options = BTreeMap::from([
            ("domain_field".into(), json!(fields.domain.to_string())),
            ("domain_from".into(), from),
            ("shard_tokens".into(), json!(self.shard_tokens)),
            ("text_field".into(), json!(fields.text.to_string())),
            ("valid_fraction".into(), json!(self.valid_fraction)),
        ]);
        if self.duplicates == Duplicates::Drop {
            options.insert("duplicates".into(), json!("drop"));
        }
        if !fields.text_extensions.names().is_empty() {
            let names = json!(fields.text_extensions.names());
            options.insert("text_extensions".into(), names);
        }
        if let Some(number) = held_out_from {
            options.insert("held_out_from_source".into(), json!(number));
        }
        options
    }
}
