//! Appends runs of documents to the open shard of each domain and split.
//!
//! In: [`Run`]s in input order. Out: token files in their final place in the staging folder, and a file of document records
//! beside each. Always holds: documents are never cut by a shard; a file's first n bytes do not depend on when it was
//! flushed; no file is held open, so the number of domains is not bounded by the system's limit. Memory: at most
//! [`BUFFERED_BYTES`] for all domains together, and the counts of every shard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hds::durable::FileError;
use hds::index::{Checksum, Split, TokenType, domain_folder, shard_stem};
use serde::{Deserialize, Serialize};

use super::document::DocumentRecord;
use super::error::BuildError;
use super::shard_files::{append_to, check_content, check_size, cut, digest, remove_others};
use super::work::Run;
use super::write_behind::{BYTES_BEFORE_WRITING, WriteBehind};

/// Bytes that wait in memory for all shards together.
const BUFFERED_BYTES: usize = 64 << 20;
/// Bytes that wait in memory for one shard.
const BUFFERED_BYTES_OF_SHARD: usize = 1 << 20;
/// Files that are made durable at a time.
const SYNCED_AT_ONCE: usize = 8;

/// A shard that gets no more documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClosedShard {
    pub tokens: u64,
    pub documents: u64,
    /// Of the tokens.
    pub checksum: Checksum,
    /// Of the document records.
    pub records: Checksum,
}

/// How far a domain's split is, on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitState {
    pub domain: String,
    pub split: Split,
    pub closed: Vec<ClosedShard>,
    /// Tokens of the open shard.
    pub tokens: u64,
    /// Documents of the open shard.
    pub documents: u64,
    /// Of the open shard's tokens and records, where the state was noted.
    pub checksums: Option<(Checksum, Checksum)>,
}

/// The paths of a split's files in the staging folder.
#[derive(Clone, Debug)]
pub(super) struct SplitPaths {
    index: PathBuf,
    records: PathBuf,
    folder: String,
}

impl SplitPaths {
    pub fn new(index: &Path, records: &Path, domain: &str, split: Split) -> Self {
        Self {
            index: index.to_owned(),
            records: records.to_owned(),
            folder: domain_folder(domain, split),
        }
    }

    /// A file's path relative to the index, as the manifest has it.
    pub fn relative(&self, shard: u64, extension: &str) -> String {
        format!("{}/{}.{extension}", self.folder, shard_stem(shard))
    }

    /// Where a file of the index is being written.
    pub fn file(&self, shard: u64, extension: &str) -> PathBuf {
        self.index.join(self.relative(shard, extension))
    }

    /// Where the document records of a shard are.
    pub fn records(&self, shard: u64) -> PathBuf {
        self.records.join(self.relative(shard, "records"))
    }

    fn create_folders(&self) -> Result<(), FileError> {
        for top in [&self.index, &self.records] {
            let folder = top.join(&self.folder);
            fs::create_dir_all(&folder).map_err(|e| FileError::new("create", &folder, e))?;
        }
        Ok(())
    }
}

struct OpenSplit {
    paths: SplitPaths,
    state: SplitState,
    tokens: Vec<u8>,
    records: Vec<u8>,
    hasher: blake3::Hasher,
    records_hasher: blake3::Hasher,
    /// Written to since the files were last made durable.
    dirty: bool,
    /// Bytes of tokens given to the system since it was last asked to write them to disk.
    waiting: usize,
    /// Made with the first bytes, so that a wrong domain field costs no thousands of folders.
    has_folders: bool,
}

/// The writers of a build.
pub(super) struct Shards {
    index: PathBuf,
    records: PathBuf,
    token_bytes: u64,
    shard_tokens: u64,
    splits: BTreeMap<(Arc<str>, Split), OpenSplit>,
    buffered: usize,
    behind: WriteBehind,
}

impl Shards {
    /// Starts without any domain.
    pub fn new(index: PathBuf, records: PathBuf, token_type: TokenType, shard_tokens: u64) -> Self {
        Self {
            index,
            records,
            token_bytes: token_type.bytes(),
            shard_tokens,
            splits: BTreeMap::new(),
            buffered: 0,
            behind: WriteBehind::start(),
        }
    }

    /// Cuts the files back to a noted state and goes on from it. What was written of other splits since is removed.
    ///
    /// # Errors
    /// If a file is missing or not as it was written: closed shards by their sizes (their content is looked at when it is read again, and by
    /// `hds-index verify`), the open one by its content.
    pub fn restore(&mut self, states: Vec<SplitState>) -> Result<(), BuildError> {
        let known: BTreeSet<String> = states
            .iter()
            .map(|state| domain_folder(&state.domain, state.split))
            .collect();
        for top in [&self.index, &self.records] {
            remove_others(top, &known)?;
        }
        for state in states {
            let paths = SplitPaths::new(&self.index, &self.records, &state.domain, state.split);
            let number = state.closed.len() as u64;
            let token_bytes = state.tokens.saturating_mul(self.token_bytes);
            let record_bytes = state.documents.saturating_mul(DocumentRecord::BYTES as u64);
            for (shard, closed) in (0..).zip(&state.closed) {
                let bytes = closed.tokens.saturating_mul(self.token_bytes);
                check_size(&paths.file(shard, "tokens"), bytes)?;
                let bytes = closed
                    .documents
                    .saturating_mul(DocumentRecord::BYTES as u64);
                check_size(&paths.records(shard), bytes)?;
            }
            paths.create_folders()?;
            cut(&paths.file(number, "tokens"), token_bytes)?;
            cut(&paths.records(number), record_bytes)?;
            for later in number + 1.. {
                let mut any = false;
                for path in [paths.file(later, "tokens"), paths.records(later)] {
                    any |= fs::remove_file(path).is_ok();
                }
                if !any {
                    break;
                }
            }
            let hasher = digest(&paths.file(number, "tokens"))?;
            let records_hasher = digest(&paths.records(number))?;
            let (tokens, records) = state.checksums.unzip();
            check_content(
                &paths.file(number, "tokens"),
                hasher.finalize().into(),
                tokens,
            )?;
            check_content(
                &paths.records(number),
                records_hasher.finalize().into(),
                records,
            )?;
            let key = (Arc::from(state.domain.as_str()), state.split);
            self.splits.insert(
                key,
                OpenSplit {
                    paths,
                    state,
                    tokens: Vec::new(),
                    records: Vec::new(),
                    hasher,
                    records_hasher,
                    dirty: false,
                    waiting: 0,
                    has_folders: true,
                },
            );
        }
        Ok(())
    }

    /// Number of different domains.
    pub fn domains(&self) -> usize {
        let mut names: Vec<&str> = self.splits.keys().map(|(d, _)| &**d).collect();
        names.dedup();
        names.len()
    }

    /// Whether a domain has documents already.
    pub fn knows(&self, domain: &str) -> bool {
        let name: Arc<str> = domain.into();
        Split::ALL
            .into_iter()
            .any(|split| self.splits.contains_key(&(name.clone(), split)))
    }

    /// Appends documents.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn append(&mut self, run: &Run) -> Result<(), FileError> {
        let key = (run.domain.clone(), run.split);
        let open = match self.splits.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let paths = SplitPaths::new(&self.index, &self.records, &run.domain, run.split);
                entry.insert(OpenSplit::new(paths, &run.domain, run.split))
            }
        };
        let before = open.buffered();
        let mut rest = &run.tokens[..];
        for document in &run.documents {
            let full = open.state.tokens.saturating_add(document.tokens) > self.shard_tokens;
            if full && open.state.documents > 0 {
                open.close_shard()?;
            }
            let bytes = (document.tokens * self.token_bytes) as usize;
            let (tokens, behind) = rest.split_at(bytes);
            rest = behind;
            open.tokens.extend_from_slice(tokens);
            document.write(&mut open.records);
            open.state.tokens += document.tokens;
            open.state.documents += 1;
        }
        if open.buffered() > BUFFERED_BYTES_OF_SHARD {
            open.flush()?;
            if open.waiting > BYTES_BEFORE_WRITING {
                open.waiting = 0;
                self.behind.hint(open.paths.file(open.number(), "tokens"));
            }
        }
        self.buffered = (self.buffered + open.buffered()).saturating_sub(before);
        if self.buffered > BUFFERED_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes out what waits in memory.
    fn flush(&mut self) -> Result<(), FileError> {
        for open in self.splits.values_mut() {
            open.flush()?;
        }
        self.buffered = 0;
        Ok(())
    }

    /// Makes all files durable, several at once: each waits for the disk and not for a core.
    fn sync(&mut self) -> Result<(), FileError> {
        self.behind.settle()?;
        let dirty: Vec<&mut OpenSplit> = self.splits.values_mut().filter(|s| s.dirty).collect();
        let queue = Mutex::new(dirty.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..SYNCED_AT_ONCE)
                .map(|_| {
                    scope.spawn(|| {
                        while let Some(open) = next() {
                            open.sync()?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// Makes everything durable and gives the state that a later [`Self::restore`] takes.
    ///
    /// # Errors
    /// If a file cannot be written or synced.
    pub fn checkpoint(&mut self) -> Result<Vec<SplitState>, FileError> {
        self.flush()?;
        self.sync()?;
        let noted = |split: &OpenSplit| SplitState {
            checksums: Some(split.checksums()),
            ..split.state.clone()
        };
        Ok(self.splits.values().map(noted).collect())
    }

    /// Closes every shard and gives all of them.
    ///
    /// # Errors
    /// If a file cannot be written or synced.
    pub fn finish(mut self) -> Result<Vec<(SplitState, SplitPaths)>, FileError> {
        self.flush()?;
        self.sync()?;
        let mut all = Vec::with_capacity(self.splits.len());
        for (_, mut open) in std::mem::take(&mut self.splits) {
            if open.state.documents > 0 {
                open.close_shard()?;
            }
            all.push((open.state, open.paths));
        }
        Ok(all)
    }
}

impl OpenSplit {
    fn new(paths: SplitPaths, domain: &str, split: Split) -> Self {
        Self {
            paths,
            state: SplitState {
                domain: domain.to_owned(),
                split,
                closed: Vec::new(),
                tokens: 0,
                documents: 0,
                checksums: None,
            },
            tokens: Vec::new(),
            records: Vec::new(),
            hasher: blake3::Hasher::new(),
            records_hasher: blake3::Hasher::new(),
            dirty: false,
            waiting: 0,
            has_folders: false,
        }
    }

    fn buffered(&self) -> usize {
        self.tokens.len() + self.records.len()
    }

    fn number(&self) -> u64 {
        self.state.closed.len() as u64
    }

    fn flush(&mut self) -> Result<(), FileError> {
        if self.buffered() == 0 {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_folders, true) {
            self.paths.create_folders()?;
        }
        self.hasher.update(&self.tokens);
        self.records_hasher.update(&self.records);
        append_to(&self.paths.file(self.number(), "tokens"), &self.tokens)?;
        append_to(&self.paths.records(self.number()), &self.records)?;
        self.dirty = true;
        self.waiting += self.tokens.len();
        // Capacity is kept while it is in the usual range, so that steady writing allocates nothing.
        for buffer in [&mut self.tokens, &mut self.records] {
            buffer.clear();
            buffer.shrink_to(2 * BUFFERED_BYTES_OF_SHARD);
        }
        Ok(())
    }

    /// Makes what was written durable.
    fn sync(&mut self) -> Result<(), FileError> {
        if !self.dirty {
            return Ok(());
        }
        for path in [
            self.paths.file(self.number(), "tokens"),
            self.paths.records(self.number()),
        ] {
            // A shard that was just opened has no file yet.
            match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other
                    .and_then(|f| f.sync_data())
                    .map_err(|e| FileError::new("sync", &path, e))?,
            }
        }
        self.dirty = false;
        Ok(())
    }

    fn close_shard(&mut self) -> Result<(), FileError> {
        self.flush()?;
        self.sync()?;
        let (checksum, records) = self.checksums();
        self.hasher.reset();
        self.records_hasher.reset();
        self.state.closed.push(ClosedShard {
            tokens: std::mem::take(&mut self.state.tokens),
            documents: std::mem::take(&mut self.state.documents),
            checksum,
            records,
        });
        Ok(())
    }

    /// Of what was written of the open shard.
    fn checksums(&self) -> (Checksum, Checksum) {
        let (tokens, records) = (self.hasher.finalize(), self.records_hasher.finalize());
        (tokens.into(), records.into())
    }
}

#[cfg(test)]
#[path = "shards_tests.rs"]
mod tests;
