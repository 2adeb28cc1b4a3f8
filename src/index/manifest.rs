//! The manifest: what an index holds, with every count, size and checksum.
//!
//! In: `manifest.json`. Out: entries whose counts, offsets and paths agree with each other.
//! Always holds after [`Manifest::load`]: paths stay inside the index; shards of a split follow each
//! other without gap; sums do not overflow; file sizes fit the token counts. That the files are
//! really there and as long is checked by who opens them, their content by `hds-index verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::mistaken;
use super::checksum::{Checksum, checksum_file};
use super::error::IndexError;
use super::layout::{MANIFEST_FILE, MANIFEST_SUM_FILE, PART_FILE, Split};
use crate::domain::DomainSet;
use crate::durable::{self, FileError, open_regular};

/// Name of the format.
pub const FORMAT_NAME: &str = "hds-index";
/// Version of the format that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// How a token is stored; one type for the whole index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenType {
    /// Two bytes, for vocabularies of at most 65,536 ids.
    U16,
    /// Four bytes.
    U32,
}

impl TokenType {
    /// The narrowest type that holds ids below `vocabulary`.
    pub fn for_vocabulary(vocabulary: u32) -> Self {
        if vocabulary <= 1 << 16 {
            Self::U16
        } else {
            Self::U32
        }
    }

    /// Bytes per token.
    pub fn bytes(self) -> u64 {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}

/// The tokenizer an index was built with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerEntry {
    /// A name for people: `byte`, or the stem of the tokenizer's file.
    pub name: String,
    /// Digest of what defines the ids; two indexes with the same one can be trained on together.
    pub fingerprint: String,
    /// Ids are below this.
    pub vocabulary: u32,
    /// The id that closes every document.
    pub end_of_document: u32,
}

/// MTLD over the documents of a split that have words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MtldSummary {
    /// Documents with at least one word.
    pub documents: u64,
    /// Mean over them.
    pub mean: f64,
    /// Mean weighted by tokens.
    pub token_weighted_mean: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

/// A file of the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path relative to the index, with `/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Digest of the content.
    pub blake3: Checksum,
}

/// A shard: a run of whole documents of one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Its first token's place in the split's stream.
    pub first_token: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Its first document's number in the split.
    pub first_document: u64,
    /// Number of documents.
    pub documents: u64,
    /// The tokens.
    pub tokens_file: FileEntry,
    /// The run-time document table.
    pub documents_file: FileEntry,
    /// The whole document table.
    pub table_file: FileEntry,
}

/// One split of a domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitEntry {
    /// Number of documents.
    pub documents: u64,
    /// Number of tokens, end-of-document ids counted.
    pub tokens: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Words.
    pub words: u64,
    /// Documents whose text is, byte by byte, that of one before it in the input, in whatever domain.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Lexical diversity.
    pub mtld: MtldSummary,
    /// The shards in order.
    pub shards: Vec<ShardEntry>,
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainEntry {
    /// Its name.
    pub name: String,
    /// What is sampled in training.
    pub train: SplitEntry,
    /// What is held out.
    pub valid: SplitEntry,
}

impl DomainEntry {
    /// One of the two splits.
    pub fn split(&self, split: Split) -> &SplitEntry {
        match split {
            Split::Train => &self.train,
            Split::Valid => &self.valid,
        }
    }
}

/// Why and how often something of a source was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The reason, in a word or two.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// Where it was first seen ("line 12, byte 3456").
    pub first: String,
}

/// An input the index was built from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    /// File name relative to the input given, with `/`; never an absolute path.
    pub name: String,
    /// Size of the file.
    pub bytes: u64,
    /// Documents taken.
    pub documents: u64,
    /// What was left out.
    pub skipped: Vec<Skipped>,
    /// Domains that this source names and that have no document in the index, as all their texts are empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub empty_domains: BTreeSet<String>,
}

/// The whole of `manifest.json`. Domains are in ascending order of their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT_NAME`].
    pub format: String,
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The tokenizer.
    pub tokenizer: TokenizerEntry,
    /// How tokens are stored.
    pub token_type: TokenType,
    /// The domains, in the order of every K-vector.
    pub domains: Vec<DomainEntry>,
    /// The inputs.
    pub sources: Vec<SourceEntry>,
    /// Options of the build that change what is in the index.
    pub options: BTreeMap<String, serde_json::Value>,
}

impl Manifest {
    /// A manifest larger than this is refused (256 MiB; 100,000 shards take about 60 MB).
    pub const MAX_BYTES: u64 = 256 << 20;

    /// Reads and checks the manifest of an index folder; also gives the index's fingerprint, the
    /// BLAKE3 of the manifest's bytes.
    ///
    /// # Errors
    /// If there is none, it is of another version, or a field contradicts another; the field is named.
    pub fn load(index: &Path) -> Result<(Self, Checksum), IndexError> {
        let path = index.join(MANIFEST_FILE);
        let file = open_regular(&path).map_err(|e| not_opened(index, &path, e))?;
        let mut text = Vec::new();
        file.take(Self::MAX_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(|e| io_error("read", &path, e))?;
        Ok((Self::parse(&text, &path)?, Checksum::of(&text)))
    }

    /// Parses and checks the text of a manifest; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, IndexError> {
        let parse_error = |reason: String| IndexError::Parse {
            path: path.to_owned(),
            reason,
        };
        if text.len() as u64 > Self::MAX_BYTES {
            return Err(parse_error(format!(
                "larger than {} bytes",
                Self::MAX_BYTES
            )));
        }
        #[derive(Deserialize)]
        struct Head {
            format: Option<String>,
            version: Option<u64>,
        }
        let head: Head = serde_json::from_slice(text).map_err(|e| parse_error(e.to_string()))?;
        let known = head.format.as_deref() == Some(FORMAT_NAME)
            && head.version == Some(u64::from(FORMAT_VERSION));
        if !known {
            let name = head.format.unwrap_or_else(|| "unknown".into());
            let got = match head.version {
                Some(v) => format!("{name} version {v}"),
                None => format!("{name} without version"),
            };
            return Err(IndexError::Version {
                path: path.to_owned(),
                got,
                want: FORMAT_VERSION,
            });
        }
        let manifest: Self =
            serde_json::from_slice(text).map_err(|e| parse_error(e.to_string()))?;
        manifest.check(path)?;
        Ok(manifest)
    }

    /// Writes the manifest and its checksum into an index folder, durably.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, index: &Path) -> Result<(), FileError> {
        let path = index.join(MANIFEST_FILE);
        durable::write_json(&path, self)?;
        let sum = checksum_file(&path).map_err(|e| FileError::new("read", &path, e))?;
        durable::write_file(&index.join(MANIFEST_SUM_FILE), |out| {
            writeln!(out, "{sum}  {MANIFEST_FILE}")
        })
    }

    /// Whether the manifest with this fingerprint is the one that was saved into the folder; if not, how it differs in words.
    ///
    /// # Errors
    /// If the file with its checksum is missing, or no such file, or of another manifest.
    pub fn check_sum(index: &Path, fingerprint: Checksum) -> Result<(), IndexError> {
        let path = index.join(MANIFEST_SUM_FILE);
        let bad = |reason: String| IndexError::Content {
            path: path.clone(),
            reason,
        };
        let file = open_regular(&path).map_err(|e| io_error("open", &path, e))?;
        let mut text = Vec::new();
        let read = file.take(1 << 10).read_to_end(&mut text);
        read.map_err(|e| io_error("read", &path, e))?;
        let want = format!("{fingerprint}  {MANIFEST_FILE}\n");
        if text == want.as_bytes() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&text);
        let sum = text.strip_suffix(&format!("  {MANIFEST_FILE}\n"));
        Err(bad(
            match sum.map(|sum| Checksum::try_from(sum.to_owned())) {
                Some(Ok(sum)) => format!(
                    "was written with a manifest of BLAKE3 {sum}, {MANIFEST_FILE} has {fingerprint}: one of them was changed since"
                ),
                _ => "is no line of a BLAKE3 checksum and the manifest's name".into(),
            },
        ))
    }

    /// The domains as a set.
    ///
    /// # Errors
    /// If the names are no set (cannot happen after [`Self::load`]).
    pub fn domain_set(&self, path: &Path) -> Result<DomainSet, IndexError> {
        DomainSet::new(self.domains.iter().map(|d| d.name.as_str())).map_err(|source| {
            IndexError::Domains {
                path: path.to_owned(),
                source,
            }
        })
    }

    /// Checks every rule a manifest must meet; `path` is for messages.
    ///
    /// # Errors
    /// The first rule broken, with the dotted key.
    pub fn check(&self, path: &Path) -> Result<(), IndexError> {
        let fail = |field: String, reason: String| {
            Err(IndexError::Field {
                path: path.to_owned(),
                field,
                reason,
            })
        };
        self.domain_set(path)?;
        if self.tokenizer.end_of_document >= self.tokenizer.vocabulary {
            return fail(
                "tokenizer.end_of_document".into(),
                format!(
                    "{} is not below the vocabulary of {}",
                    self.tokenizer.end_of_document, self.tokenizer.vocabulary
                ),
            );
        }
        if self.token_type == TokenType::U16
            && TokenType::for_vocabulary(self.tokenizer.vocabulary) == TokenType::U32
        {
            let reason = format!("u16 cannot hold {} ids", self.tokenizer.vocabulary);
            return fail("token_type".into(), reason);
        }
        if !self.domains.is_sorted_by(|a, b| a.name < b.name) {
            return fail("domains".into(), "not in ascending order of names".into());
        }
        for domain in &self.domains {
            for split in Split::ALL {
                let key = format!("domains.{}.{split}", domain.name);
                self.check_split(domain.split(split), &key)
                    .or_else(|(field, reason)| fail(field, reason))?;
            }
        }
        Ok(())
    }

    fn check_split(&self, split: &SplitEntry, key: &str) -> Result<(), (String, String)> {
        let mut next_token = 0u64;
        let mut next_document = 0u64;
        for (i, shard) in split.shards.iter().enumerate() {
            let at = |field: &str| format!("{key}.shards[{i}].{field}");
            if shard.first_token != next_token {
                let reason = format!("{} does not follow {next_token}", shard.first_token);
                return Err((at("first_token"), reason));
            }
            if shard.first_document != next_document {
                let reason = format!("{} does not follow {next_document}", shard.first_document);
                return Err((at("first_document"), reason));
            }
            // Each document has at least its end-of-document id.
            if shard.documents == 0 || shard.tokens < shard.documents {
                let reason = format!("{} tokens for {} documents", shard.tokens, shard.documents);
                return Err((at("tokens"), reason));
            }
            let bytes = shard.tokens.checked_mul(self.token_type.bytes());
            if bytes != Some(shard.tokens_file.bytes) {
                let reason = format!(
                    "{} bytes for {} tokens of {} bytes",
                    shard.tokens_file.bytes,
                    shard.tokens,
                    self.token_type.bytes()
                );
                return Err((at("tokens_file.bytes"), reason));
            }
            for (name, file) in [
                ("tokens_file", &shard.tokens_file),
                ("documents_file", &shard.documents_file),
                ("table_file", &shard.table_file),
            ] {
                if !is_inside(&file.path) {
                    let reason = format!("{:?} is no path inside the index", file.path);
                    return Err((at(&format!("{name}.path")), reason));
                }
            }
            next_token = next_token
                .checked_add(shard.tokens)
                .ok_or_else(|| (at("tokens"), "the sum overflows 64 bits".into()))?;
            next_document = next_document
                .checked_add(shard.documents)
                .ok_or_else(|| (at("documents"), "the sum overflows 64 bits".into()))?;
        }
        if next_token != split.tokens {
            let reason = format!("{} but its shards hold {next_token}", split.tokens);
            return Err((format!("{key}.tokens"), reason));
        }
        if split.duplicates > split.documents {
            let reason = format!("{} of {} documents", split.duplicates, split.documents);
            return Err((format!("{key}.duplicates"), reason));
        }
        if next_document != split.documents {
            let reason = format!("{} but its shards hold {next_document}", split.documents);
            return Err((format!("{key}.documents"), reason));
        }
        Ok(())
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether a relative path of plain names stays inside its folder.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0'])
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Why there is no manifest to open: often another path than an index's was given.
fn not_opened(index: &Path, manifest: &Path, error: std::io::Error) -> IndexError {
    let path = index.to_owned();
    let absent = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    match index.metadata() {
        Ok(found) if !found.is_dir() => IndexError::NotAFolder { path },
        Ok(_) if absent(&error) && index.join(PART_FILE).is_file() => IndexError::Part { path },
        Ok(_) if absent(&error) => IndexError::NoManifest { path },
        Err(e) if absent(&e) => match mistaken(index) {
            Some(reason) => IndexError::Address {
                place: path,
                reason,
            },
            None => IndexError::NoFolder { path },
        },
        _ => io_error("open", manifest, error),
    }
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> IndexError {
    IndexError::Io {
        action,
        path: PathBuf::from(path),
        source,
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
