//! Puts products back into input order and writes them.
//!
//! In: [`Product`]s in any order. Out: documents appended to their shards in input order, counts per source, a journal every
//! now and then. Always holds: what was written is the input up to one cursor, so a journal may be taken after any product.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hds::DomainSet;
use hds::index::Skipped;

use super::error::BuildError;
use super::journal::{Identity, Journal, SourceState};
use super::options::OnError;
use super::progress::{Advance, Progress};
use super::shards::Shards;
use super::staging::Staging;
use super::work::Product;
use crate::input::{BLOCK_BYTES, Cursor, InputError, Place, Plan, SourceKind};
use crate::record::Fault;

/// Spare memory that is kept, in buffers of at most a block's size.
const MOST_SPARE: usize = 8;

/// The writing side of a build.
pub(super) struct Collector<'b> {
    pub plan: &'b Plan,
    pub staging: &'b Staging,
    pub identity: &'b Identity,
    pub progress: &'b dyn Progress,
    pub on_error: OnError,
    /// Between two journals; `None` where an interrupted build cannot go on.
    pub checkpoint_every: Option<Duration>,
    pub input_bytes: Arc<AtomicU64>,
    pub shards: Shards,
    pub cursor: Cursor,
    pub sources: Vec<SourceState>,
    pub advance: Advance,
    /// Whether a journal lies in the staging folder.
    pub has_journal: bool,
    pub last_checkpoint: Instant,
    pub pending: BTreeMap<u64, Product>,
    /// Memory of tokens that were written, for [`Collector::spare_tokens`].
    pub spare: Vec<Vec<u8>>,
    pub next: u64,
    /// Input bytes at the end of the source before, to tell the standard input's size.
    pub counted: u64,
}

impl Collector<'_> {
    /// Takes a product and writes all that are next in order; gives the weight of those written.
    ///
    /// # Errors
    /// The first fault in input order, or a file that cannot be written. Nothing may be delivered after.
    pub fn deliver(&mut self, product: Product) -> Result<usize, BuildError> {
        self.pending.insert(product.sequence, product);
        let mut freed = 0;
        while let Some(product) = self.pending.remove(&self.next) {
            self.next += 1;
            freed += product.weight;
            self.write(product)?;
        }
        self.advance.input_bytes = self.input_bytes.load(Ordering::Relaxed);
        self.progress.advances(self.advance);
        if self
            .checkpoint_every
            .is_some_and(|every| self.last_checkpoint.elapsed() >= every)
        {
            self.checkpoint()?;
        }
        Ok(freed)
    }

    /// Memory for the tokens of a block to come.
    pub fn spare_tokens(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    fn write(&mut self, product: Product) -> Result<(), BuildError> {
        if let Some(error) = product.fault {
            return Err(BuildError::Input(error));
        }
        let number = product.source as usize;
        self.open_sources(number + 1);
        for run in &product.runs {
            if run.documents.is_empty() {
                continue;
            }
            if !self.shards.knows(&run.domain) && self.shards.domains() == DomainSet::MAX {
                return Err(BuildError::TooManyDomains {
                    path: self.plan.sources[number].path.clone(),
                    most: DomainSet::MAX,
                    example: run.domain.to_string(),
                    field: self.identity.options["domain_field"]
                        .as_str()
                        .unwrap_or_default()
                        .into(),
                });
            }
            self.shards.append(run)?;
            let documents = run.documents.len() as u64;
            self.sources[number].documents += documents;
            self.advance.documents += documents;
        }
        self.sources[number].closed += product.closed;
        self.advance.text_bytes += product.text_bytes;
        for skip in product.skipped {
            add_skip(
                &mut self.sources[number].skipped,
                skip.kind,
                skip.count,
                skip.first,
            );
        }
        let empty = &mut self.sources[number].empty_domains;
        // Names are told to people, who need not read more than a corpus may have.
        let room = DomainSet::MAX.saturating_sub(empty.len());
        empty.extend(product.empty_domains.into_iter().take(room));
        if product.ends_source {
            self.end_source(number)?;
        }
        self.cursor = product.after;
        let used = product.runs.into_iter().map(|run| run.tokens);
        // One for each of the threads that may be here is enough, and none that one great document made.
        let room = MOST_SPARE.saturating_sub(self.spare.len());
        self.spare
            .extend(used.filter(|t| t.capacity() <= BLOCK_BYTES).take(room));
        Ok(())
    }

    /// Makes the states of the sources up to a number.
    fn open_sources(&mut self, count: usize) {
        while self.sources.len() < count {
            let source = &self.plan.sources[self.sources.len()];
            let mut state = SourceState {
                bytes: source.bytes,
                ..SourceState::default()
            };
            for left in &source.left_out {
                add_skip(
                    &mut state.skipped,
                    left.reason,
                    left.count,
                    left.first.clone(),
                );
            }
            self.sources.push(state);
        }
    }

    fn end_source(&mut self, number: usize) -> Result<(), BuildError> {
        let source = &self.plan.sources[number];
        let state = &mut self.sources[number];
        if source.kind == SourceKind::StandardInput {
            state.bytes = self.input_bytes.load(Ordering::Relaxed) - self.counted;
        }
        self.counted = self.input_bytes.load(Ordering::Relaxed);
        if state.documents > 0 || source.kind == SourceKind::Nothing {
            return Ok(());
        }
        let fault = Fault::NoDocument;
        if self.on_error == OnError::Stop {
            return Err(BuildError::Input(InputError {
                path: source.path.clone(),
                place: Place::Whole,
                fault,
            }));
        }
        add_skip(
            &mut state.skipped,
            fault.kind(),
            1,
            Place::Whole.to_string(),
        );
        Ok(())
    }

    /// Notes the place reached, so that the build can go on from here.
    ///
    /// # Errors
    /// If a file cannot be written or synced.
    pub fn checkpoint(&mut self) -> Result<(), BuildError> {
        let splits = self.shards.checkpoint()?;
        let identity = self.identity.clone();
        Journal::new(identity, self.cursor, self.sources.clone(), splits).save(self.staging)?;
        self.has_journal = true;
        self.last_checkpoint = Instant::now();
        Ok(())
    }
}

/// Counts what was left out of a source.
pub(super) fn add_skip(skipped: &mut Vec<Skipped>, reason: &str, count: u64, first: String) {
    match skipped.iter_mut().find(|s| s.reason == reason) {
        Some(known) => known.count += count,
        None => skipped.push(Skipped {
            reason: reason.to_owned(),
            count,
            first,
        }),
    }
}
