//! The place from which an interrupted build goes on.
//!
//! In: the state after a block. Out: `journal.json`, whole or the one before. Always holds: everything a journal counts was
//! durable before it was written, so files are cut back to it and never found short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use hds::durable::{self, FileError};
use hds::index::{Skipped, TokenizerEntry};
use serde::{Deserialize, Serialize};

use super::error::BuildError;
use super::shards::SplitState;
use super::staging::Staging;
use super::work::EMPTY_TEXT;
use crate::input::{Cursor, Plan, Split};

/// Raised where the staging folder changes its meaning.
const VERSION: u32 = 2;

/// What a build is of; only one of the same goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub options: BTreeMap<String, serde_json::Value>,
    pub tokenizer: TokenizerEntry,
    /// Digest of the sources' names, sizes and times.
    pub sources: String,
}

impl Identity {
    pub fn new(
        options: BTreeMap<String, serde_json::Value>,
        tokenizer: TokenizerEntry,
        plan: &Plan,
    ) -> Self {
        let mut hasher = blake3::Hasher::new();
        for source in &plan.sources {
            let held_out = source.split == Split::HeldOut;
            let line = serde_json::json!([source.name, source.stamp, held_out]);
            hasher.update(line.to_string().as_bytes());
        }
        Self {
            options,
            tokenizer,
            sources: hasher.finalize().to_hex().to_string(),
        }
    }

    /// In words, how another identity differs.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.tokenizer != other.tokenizer {
            return Some("another tokenizer".into());
        }
        let keys = self.options.keys().chain(other.options.keys());
        for key in keys {
            let (mine, theirs) = (self.options.get(key), other.options.get(key));
            if mine != theirs {
                let show =
                    |v: Option<&serde_json::Value>| v.map_or("absent".into(), |v| v.to_string());
                return Some(format!("{key} {} instead of {}", show(theirs), show(mine)));
            }
        }
        (self.sources != other.sources).then(|| "other inputs, or inputs changed since".into())
    }
}

/// What is known of a source so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceState {
    pub documents: u64,
    pub bytes: u64,
    pub skipped: Vec<Skipped>,
    /// Domains that an empty text was met of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub empty_domains: BTreeSet<String>,
    /// Documents of ids that came with the end-of-document id at their end.
    #[serde(default)]
    pub closed: u64,
}

/// The state after a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    version: u32,
    pub identity: Identity,
    pub cursor: Cursor,
    /// The sources up to the one at the cursor.
    pub sources: Vec<SourceState>,
    pub splits: Vec<SplitState>,
}

impl Journal {
    pub fn new(
        identity: Identity,
        cursor: Cursor,
        sources: Vec<SourceState>,
        splits: Vec<SplitState>,
    ) -> Self {
        Self {
            version: VERSION,
            identity,
            cursor,
            sources,
            splits,
        }
    }

    /// Writes the journal, durably.
    pub fn save(&self, staging: &Staging) -> Result<(), FileError> {
        durable::write_json(&staging.journal(), self)
    }

    /// Reads the journal of an interrupted build, if there is one.
    ///
    /// # Errors
    /// If it is of another build, or cannot be read.
    pub fn load(staging: &Staging, identity: &Identity) -> Result<Option<Self>, BuildError> {
        let path = staging.journal();
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| FileError::new("read", &path, e))?,
        };
        let broken = |reason: String| BuildError::Staging {
            path: path.clone(),
            reason,
        };
        let journal: Self = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
        if journal.version != VERSION {
            return Err(broken(format!(
                "is of version {}, this program writes {VERSION}",
                journal.version
            )));
        }
        if let Some(what) = identity.difference(&journal.identity) {
            return Err(BuildError::OtherBuild {
                staging: staging.folder().into(),
                what,
            });
        }
        Ok(Some(journal))
    }

    /// Refuses to go on where what is wrong ends the build, if records were left out before for what was wrong with them.
    ///
    /// # Errors
    /// [`BuildError::OtherBuild`].
    pub fn expect_whole(&self, staging: &Staging) -> Result<(), BuildError> {
        let skipped = self.sources.iter().flat_map(|source| &source.skipped);
        let faults = skipped.filter(|skip| skip.reason != EMPTY_TEXT);
        let count: u64 = faults.map(|skip| skip.count).sum();
        if count == 0 {
            return Ok(());
        }
        Err(BuildError::OtherBuild {
            staging: staging.folder().into(),
            what: format!("--on-error skip, by which {count} records were left out"),
        })
    }
}
