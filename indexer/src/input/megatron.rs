//! Documents of a Megatron dataset (`.bin` and `.idx`) as ids.
//!
//! In: the path of an `.idx` with its `.bin` beside it. Out: [`TokenBlock`]s of about a block's bytes, documents in their order. Whether an
//! id is one of the tokenizer's is for who takes the block. Leaves the `.idx` to [`super::megatron_index`].

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lines::{BLOCK_BYTES, LONGEST_LINE};
use super::megatron_index::{MegatronIndex, Sequence, broken};
use super::plan::{Plan, PlanError, Source, SourceKind, Split, name_of, stamp};
use crate::record::Fault;

/// Documents as ids, in order.
#[derive(Debug)]
pub struct TokenBlock {
    /// Number of the first document in its source, from 0.
    pub first_document: u64,
    /// The ids of all documents; `u32::MAX` stands for what is no `u32`.
    pub ids: Vec<u32>,
    /// Where each document ends in `ids`.
    pub ends: Vec<usize>,
}

/// A Megatron dataset as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MegatronName {
    /// The domain, which may not be empty; the name of the file where none is given.
    pub domain: Option<String>,
    /// The path of both files without `.bin` and `.idx`, or of either.
    pub prefix: PathBuf,
}

impl MegatronName {
    /// Takes `PREFIX` or `DOMAIN=PREFIX`; a file whose path has the `=` itself is taken as it is.
    pub fn parse(named: &str) -> Self {
        let whole = Self {
            domain: None,
            prefix: named.into(),
        };
        match named.split_once('=') {
            Some((domain, prefix)) if !whole.with("idx").exists() => Self {
                domain: Some(domain.into()),
                prefix: prefix.into(),
            },
            _ => whole,
        }
    }

    fn with(&self, extension: &str) -> PathBuf {
        let mut path = match self.prefix.extension() {
            Some(e) if e == "bin" || e == "idx" => self.prefix.with_extension(""),
            _ => self.prefix.clone(),
        }
        .into_os_string();
        path.push(".");
        path.push(extension);
        path.into()
    }
}

impl Plan {
    /// The plan of an import: `inputs` to be split by hash, `held_out` whole.
    ///
    /// # Errors
    /// A domain that is empty, or a file that cannot be looked at or is given twice.
    pub fn of_megatron(
        inputs: &[MegatronName],
        held_out: &[MegatronName],
    ) -> Result<Self, PlanError> {
        if inputs.is_empty() {
            return Err(PlanError::Nothing);
        }
        let mut sources: Vec<Source> = Vec::with_capacity(inputs.len() + held_out.len());
        let mut seen = std::collections::HashSet::new();
        let splits = inputs.iter().map(|n| (n, Split::ByHash));
        for (name, split) in splits.chain(held_out.iter().map(|n| (n, Split::HeldOut))) {
            if name.domain.as_deref() == Some("") {
                let prefix = name.prefix.clone();
                return Err(PlanError::NoDomain { prefix });
            }
            let (path, bin) = (name.with("idx"), name.with("bin"));
            let look_at = |path: &Path| {
                fs::metadata(path).map_err(|source| PlanError::Read {
                    path: path.into(),
                    source,
                })
            };
            let (idx_metadata, bin_metadata) = (look_at(&path)?, look_at(&bin)?);
            let identity = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if !seen.insert(identity) {
                return Err(PlanError::Twice { path });
            }
            let stem = path.with_extension("");
            sources.push(Source {
                name: name_of(&path),
                bytes: idx_metadata.len().saturating_add(bin_metadata.len()),
                stamp: format!("{}, {}", stamp(&idx_metadata), stamp(&bin_metadata)),
                kind: SourceKind::Megatron,
                file_domain: name.domain.clone().unwrap_or_else(|| name_of(&stem)),
                folder_domain: String::new(),
                split,
                left_out: Vec::new(),
                path,
            });
        }
        Ok(Self { sources })
    }
}

/// The datasets of a plan that are of fairseq's own format, whose builder stores every id plus one.
pub fn of_fairseq(plan: &Plan) -> Vec<PathBuf> {
    let is_fairseq = |source: &&Source| {
        source.kind == SourceKind::Megatron
            && MegatronIndex::open(&source.path, u64::MAX).is_ok_and(|index| index.is_fairseq)
    };
    let found = plan.sources.iter().filter(is_fairseq);
    found.map(|source| source.path.clone()).collect()
}

/// An open dataset.
pub(super) struct MegatronFile {
    index: MegatronIndex,
    bin: File,
    at: u64,
    sequences: Vec<Sequence>,
    bytes: Vec<u8>,
    failed: Option<Fault>,
    ended: bool,
    count: Arc<AtomicU64>,
}

impl MegatronFile {
    /// Opens the dataset of an `.idx` behind its first documents.
    pub fn open(path: &Path, first_document: u64, count: &Arc<AtomicU64>) -> Result<Self, Fault> {
        let refused = |e: std::io::Error| Fault::Read { why: e.to_string() };
        let bin_path = path.with_extension("bin");
        let bin = hds::durable::open_regular(&bin_path).map_err(|e| Fault::Read {
            why: format!("{}: {e}", bin_path.display()),
        })?;
        let bin_bytes = bin.metadata().map_err(refused)?.len();
        let index = MegatronIndex::open(path, bin_bytes)?;
        let mut file = Self {
            index,
            bin,
            at: 0,
            sequences: Vec::new(),
            bytes: Vec::new(),
            failed: None,
            ended: false,
            count: count.clone(),
        };
        while file.index.next_document() < first_document
            && file.index.document(&mut file.sequences)?.is_some()
        {}
        Ok(file)
    }

    /// Documents behind the reader.
    pub fn next_document(&self) -> u64 {
        self.index.next_document()
    }

    /// The next documents, or `None` at the end. After an error the file is at its end.
    pub fn next_block(&mut self) -> Result<Option<TokenBlock>, Fault> {
        if let Some(fault) = self.failed.take() {
            self.ended = true;
            return Err(fault);
        }
        let mut block = TokenBlock {
            first_document: self.index.next_document(),
            ids: Vec::new(),
            ends: Vec::new(),
        };
        while !self.ended
            && block.ids.len() * 4 < BLOCK_BYTES
            && block.ends.len() < BLOCK_BYTES / 64
        {
            match self.document(&mut block.ids) {
                Ok(true) => block.ends.push(block.ids.len()),
                Ok(false) => self.ended = true,
                // What is before it is good.
                Err(fault) => {
                    block.ids.truncate(block.ends.last().copied().unwrap_or(0));
                    self.failed = Some(fault);
                    break;
                }
            }
        }
        if !block.ends.is_empty() {
            return Ok(Some(block));
        }
        match self.failed.take() {
            Some(fault) => {
                self.ended = true;
                Err(fault)
            }
            None => Ok(None),
        }
    }

    fn document(&mut self, ids: &mut Vec<u32>) -> Result<bool, Fault> {
        if self.index.document(&mut self.sequences)?.is_none() {
            return Ok(false);
        }
        let most = LONGEST_LINE as u64;
        // In range: together they are not longer than the file.
        let whole: u64 = self.sequences.iter().map(|s| s.bytes).sum();
        if whole > most {
            return Err(Fault::TooLong { most });
        }
        for Sequence { start, bytes } in &self.sequences {
            let refused = |e: std::io::Error| broken(format!("the .bin cannot be read: {e}"));
            if *start != self.at {
                self.bin.seek(SeekFrom::Start(*start)).map_err(refused)?;
            }
            // At most `most`.
            self.bytes.resize(*bytes as usize, 0);
            self.bin.read_exact(&mut self.bytes).map_err(refused)?;
            self.at = start + bytes;
            self.index.id_type.append(&self.bytes, ids);
        }
        self.count.fetch_add(whole + 20, Ordering::Relaxed);
        Ok(true)
    }
}
