//! Builds an index from a corpus.
//!
//! In: [`BuildOptions`], a tokenizer, someone who hears the progress. Out: the index, by one rename, and a [`BuildSummary`]. Always
//! holds: the same inputs and options give the same bytes, for any number of threads and interruptions; the target is absent or
//! whole. Memory: a few blocks a thread plus the largest record; counts of shards and sources; nothing a document.
//!
//! ```text
//! Reader ─block─▶ Worker (a thread each) ─product─▶ Collector ─▶ Shards ─▶ finish ─▶ publish
//!                                                       └▶ Journal
//! ```

mod collector;
mod document;
mod duplicates;
mod error;
mod finish;
mod import;
mod journal;
mod merge;
mod options;
mod part;
mod part_sources;
mod pipeline;
mod progress;
mod shard_files;
mod shards;
mod staging;
mod summary;
mod sums;
mod tables;
mod work;
mod write_behind;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use hds::durable::FileError;
use hds::index::{
    DomainEntry, FORMAT_NAME, FORMAT_VERSION, MANIFEST_FILE, Manifest, SourceEntry, TokenType,
    TokenizerEntry,
};

pub(crate) use document::DocumentRecord;
pub use error::BuildError;
pub use import::{ImportOptions, import};
pub use merge::{MergeError, MergeSummary, merge};
pub use options::{BuildOptions, Duplicates, OnError};
pub use part::{PartSummary, build_part};
pub use progress::{Advance, Progress, Silent};
pub use summary::{BuildSummary, SkippedTotal, skipped_of, warnings_of};

use crate::input::{Cursor, Plan, PlanOptions, Reader, Split};
use crate::tokenize::Tokenizer;
pub(crate) use sums::ShardSums;

use collector::{Collector, add_skip};
use journal::{Identity, Journal, SourceState};
use shards::{Shards, SplitPaths, SplitState};
pub(crate) use staging::Staging;
use work::{WorkOptions, held_out_below};

/// More than any machine has cores: a larger number is a slip.
const MOST_THREADS: usize = 1024;

/// Builds an index. Ends early, with [`BuildError::Interrupted`], when `interrupted` becomes true.
///
/// # Errors
/// [`BuildError`]; the target is then absent. What was done may lie in `<target>.building/`, from where the same build goes on.
pub fn build(
    options: &BuildOptions,
    tokenizer: &dyn Tokenizer,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<BuildSummary, BuildError> {
    let plan = plan(options)?;
    let identity = identity(options, tokenizer, &plan);
    let build = Build::new(options, &plan, identity, tokenizer, progress, interrupted);
    build_whole(&build)
}

/// Builds everything of a plan.
fn build_whole(build: &Build<'_>) -> Result<BuildSummary, BuildError> {
    let started = Instant::now();
    let (options, tokenizer) = (build.options, build.tokenizer);
    let staging = build.enter()?;
    let mut fresh = true;
    let outcome = build.run(&staging, &mut fresh).and_then(|indexed| {
        let advance = indexed.collector.advance;
        let unclosed = import::unclosed(build.plan, &indexed.collector.sources, tokenizer);
        let manifest = build.finish(indexed.collector)?;
        Ok((manifest, advance, indexed.resumed, unclosed))
    });
    match outcome {
        Ok((manifest, advance, resumed, unclosed)) => {
            let (manifest, fingerprint) = publish(manifest, staging)?;
            let seconds = started.elapsed().as_secs_f64();
            Ok(BuildSummary {
                index: options.target.clone(),
                fingerprint,
                domains: manifest.domains.len(),
                documents: total(&manifest, |s| s.documents),
                tokens: total(&manifest, |s| s.tokens),
                text_bytes: total(&manifest, |s| s.bytes),
                duplicates: total(&manifest, |s| s.duplicates),
                skipped: skipped_of(&manifest),
                warnings: [warnings_of(&manifest), unclosed].concat(),
                threads: options.threads,
                engine: tokenizer.engine(),
                seconds,
                text_bytes_this_run: advance.text_bytes,
                megabytes_per_second: advance.text_bytes as f64 / 1e6 / seconds,
                peak_memory_bytes: summary::peak_memory(),
                resumed,
            })
        }
        Err(error) => {
            // Without a journal nothing there could be gone on from.
            if fresh {
                let _ = staging.discard();
            }
            Err(error)
        }
    }
}

/// The inputs of a build in their order.
///
/// # Errors
/// An option out of its range, or an input that cannot be read, holds nothing, is of unknown format, or is given twice.
pub fn plan(options: &BuildOptions) -> Result<Plan, BuildError> {
    check(options)?;
    let plan = Plan::new(
        &options.inputs,
        &options.held_out,
        &PlanOptions {
            text_extensions: options.fields.text_extensions.clone(),
            skip_faults: options.on_error == OnError::Skip,
        },
    )?;
    let inputs = options.inputs.iter().chain(&options.held_out);
    staging::check_outside(&options.target, inputs)?;
    Ok(plan)
}

/// Writes the manifest and gives the index its name; gives the manifest as read back, and its digest.
fn publish(manifest: Manifest, staging: Staging) -> Result<(Manifest, String), BuildError> {
    manifest.save(&staging.index())?;
    let (manifest, fingerprint) = Manifest::load(&staging.index())?;
    staging.publish()?;
    Ok((manifest, fingerprint.to_string()))
}

fn total(manifest: &Manifest, of: impl Fn(&hds::index::SplitEntry) -> u64) -> u64 {
    let splits = manifest.domains.iter().flat_map(|d| [&d.train, &d.valid]);
    splits.map(of).sum()
}

fn check(options: &BuildOptions) -> Result<(), BuildError> {
    let wrong = |option, got: String, want| Err(BuildError::Option { option, got, want });
    if !(0.0..=1.0).contains(&options.valid_fraction) {
        let got = options.valid_fraction.to_string();
        return wrong("--valid-fraction", got, "a number from 0 to 1 is wanted");
    }
    if options.shard_tokens == 0 {
        return wrong("--shard-tokens", "0".into(), "at least 1 is wanted");
    }
    if options.threads == 0 {
        return wrong("--threads", "0".into(), "at least 1 is wanted");
    }
    if options.threads > MOST_THREADS {
        let got = options.threads.to_string();
        return wrong("--threads", got, "at most 1024 is wanted");
    }
    if options.fields.text == options.fields.domain {
        let got = options.fields.domain.to_string();
        return wrong(
            "--domain-field",
            got,
            "a field other than the text's is wanted",
        );
    }
    Ok(())
}

fn identity(options: &BuildOptions, tokenizer: &dyn Tokenizer, plan: &Plan) -> Identity {
    let held_out_from = plan.sources.iter().position(|s| s.split == Split::HeldOut);
    let entry = TokenizerEntry {
        name: tokenizer.name().to_owned(),
        fingerprint: tokenizer.fingerprint(),
        vocabulary: tokenizer.vocabulary(),
        end_of_document: tokenizer.end_of_document(),
    };
    Identity::new(options.for_manifest(held_out_from), entry, plan)
}

struct Build<'b> {
    options: &'b BuildOptions,
    tokenizer: &'b dyn Tokenizer,
    progress: &'b dyn Progress,
    interrupted: &'b AtomicBool,
    plan: &'b Plan,
    identity: Identity,
    token_type: TokenType,
    /// Whether the document records stay beside the tokens, instead of the tables made from them.
    keeps_records: bool,
}

/// Everything read and written, but for the tables and the manifest.
struct Indexed<'b> {
    collector: Collector<'b>,
    resumed: bool,
}

impl<'b> Build<'b> {
    fn new(
        options: &'b BuildOptions,
        plan: &'b Plan,
        identity: Identity,
        tokenizer: &'b dyn Tokenizer,
        progress: &'b dyn Progress,
        interrupted: &'b AtomicBool,
    ) -> Self {
        Self {
            options,
            tokenizer,
            progress,
            interrupted,
            plan,
            identity,
            token_type: TokenType::for_vocabulary(tokenizer.vocabulary()),
            keeps_records: false,
        }
    }

    fn enter(&self) -> Result<Staging, BuildError> {
        let staging = Staging::enter(&self.options.target)?;
        if let Some(why) = &staging.unlocked {
            self.progress.note(&format!(
                "this file system has no locks ({why}): see to it that no other build writes here"
            ));
        }
        if self.options.restart {
            staging.clear()?;
        }
        Ok(staging)
    }

    /// Everything up to the tables; `fresh` is set to false once a journal lies in the staging folder.
    fn run<'s>(
        &'s self,
        staging: &'s Staging,
        fresh: &mut bool,
    ) -> Result<Indexed<'s>, BuildError> {
        let options = self.options;
        let journal = match Journal::load(staging, &self.identity) {
            Ok(journal) => journal,
            Err(error) => {
                // Another build's work is the user's to discard.
                *fresh = false;
                return Err(error);
            }
        };
        match &journal {
            None => staging.clear()?,
            Some(journal) if options.on_error == OnError::Stop => journal.expect_whole(staging)?,
            Some(_) => {}
        }
        // Where copies are to be left out, the index is made from all documents at the end; a part keeps all.
        let gathered = match options.duplicates {
            Duplicates::Drop if !self.keeps_records => staging.all(),
            _ => staging.index(),
        };
        let records = if self.keeps_records {
            staging.index().join(part::RECORDS_FOLDER)
        } else {
            staging.records()
        };
        for folder in [&gathered, &records] {
            fs::create_dir_all(folder).map_err(|e| FileError::new("create", folder, e))?;
        }
        let input_bytes = Arc::new(AtomicU64::new(0));
        let resumed = journal.is_some();
        *fresh = !resumed;
        let mut collector = Collector {
            plan: self.plan,
            staging,
            identity: &self.identity,
            progress: self.progress,
            on_error: options.on_error,
            checkpoint_every: self
                .plan
                .is_repeatable()
                .then_some(options.checkpoint_every),
            input_bytes: input_bytes.clone(),
            shards: Shards::new(gathered, records, self.token_type, options.shard_tokens),
            cursor: Cursor::default(),
            sources: Vec::new(),
            advance: Advance::default(),
            has_journal: resumed,
            last_checkpoint: Instant::now(),
            pending: BTreeMap::new(),
            spare: Vec::new(),
            next: 0,
            counted: 0,
        };
        if let Some(journal) = journal {
            let documents: u64 = journal.sources.iter().map(|s| s.documents).sum();
            self.progress.note(&format!(
                "going on with the interrupted build in {} behind {documents} documents",
                staging.folder().display()
            ));
            collector.shards.restore(journal.splits)?;
            (collector.cursor, collector.sources) = (journal.cursor, journal.sources);
        }
        self.progress.begins(self.plan.bytes());
        let reader = Reader::new(self.plan, &options.fields, collector.cursor, input_bytes);
        let work = WorkOptions {
            tokenizer: self.tokenizer,
            token_type: self.token_type,
            fields: &options.fields,
            held_out_below: held_out_below(options.valid_fraction),
            on_error: options.on_error,
        };
        let outcome = pipeline::run(
            reader,
            &work,
            &mut collector,
            options.threads,
            self.interrupted,
        );
        *fresh = !collector.has_journal;
        // Both end between two blocks; after a failed write the files are only as good as the journal before.
        if collector.has_journal && matches!(outcome, Ok(true) | Err(BuildError::Input(_))) {
            collector.checkpoint()?;
        }
        if outcome? {
            return Err(ended_early(collector.has_journal, staging));
        }
        self.progress.finishes();
        if collector.checkpoint_every.is_some() && collector.has_journal {
            collector.checkpoint()?;
        }
        Ok(Indexed { collector, resumed })
    }

    fn finish(&self, collector: Collector<'_>) -> Result<Manifest, BuildError> {
        let sources = sources_of(self.plan, &collector.sources);
        let place_of = |source: usize, position| {
            let kind = self.plan.sources[source].kind.record_kind();
            kind.place_of(position)
        };
        Finish {
            staging: collector.staging,
            identity: &self.identity,
            token_type: self.token_type,
            duplicates: self.options.duplicates,
            shard_tokens: self.options.shard_tokens,
            threads: self.options.threads,
            interrupted: self.interrupted,
            has_journal: collector.has_journal,
        }
        .run(collector.shards.finish()?, sources, &place_of)
    }
}

/// The error of a build that the user ended.
fn ended_early(has_journal: bool, staging: &Staging) -> BuildError {
    let kept = if has_journal {
        format!(
            "what is done lies in {}; run the same command again to go on",
            staging.folder().display()
        )
    } else {
        "nothing was kept".into()
    };
    BuildError::Interrupted { kept }
}

/// The sources as the manifest names them.
fn sources_of(plan: &Plan, states: &[SourceState]) -> Vec<SourceEntry> {
    let entry = |(source, state): (&crate::input::Source, &SourceState)| SourceEntry {
        name: source.name.clone(),
        bytes: state.bytes,
        documents: state.documents,
        skipped: state.skipped.clone(),
        empty_domains: state.empty_domains.clone(),
    };
    plan.sources.iter().zip(states).map(entry).collect()
}

/// What makes an index of closed shards.
struct Finish<'f> {
    staging: &'f Staging,
    identity: &'f Identity,
    token_type: TokenType,
    duplicates: Duplicates,
    shard_tokens: u64,
    threads: usize,
    interrupted: &'f AtomicBool,
    /// Whether an interrupted build can be gone on with.
    has_journal: bool,
}

impl Finish<'_> {
    /// Counts copies or leaves them out, writes the tables and gives the manifest; `place_of` says in words where a record of a source is.
    ///
    /// # Errors
    /// If a file cannot be read or written, nothing is left to train on, or the user ends it.
    fn run(
        self,
        mut splits: Vec<(SplitState, SplitPaths)>,
        mut sources: Vec<SourceEntry>,
        place_of: &dyn Fn(usize, u64) -> String,
    ) -> Result<Manifest, BuildError> {
        let staging = self.staging;
        let mut copies = vec![0; splits.len()];
        match self.duplicates {
            Duplicates::Keep => copies = duplicates::count(&splits, &staging.duplicates())?,
            Duplicates::Drop => {
                let (kept, left_out) = duplicates::leave_out(
                    &splits,
                    &staging.duplicates(),
                    (staging.index(), staging.kept()),
                    self.token_type,
                    self.shard_tokens,
                )?;
                splits = kept;
                for (number, left_out) in left_out {
                    let number = number as usize;
                    let source = &mut sources[number];
                    source.documents = source.documents.saturating_sub(left_out.count);
                    let place = place_of(number, left_out.first);
                    add_skip(&mut source.skipped, "exact copy", left_out.count, place);
                }
            }
        }
        let domains = finish::finish(
            &splits,
            &copies,
            self.token_type,
            self.threads,
            self.interrupted,
        )?;
        let domains = domains.ok_or_else(|| ended_early(self.has_journal, staging))?;
        assemble(self.identity, self.token_type, domains, sources)
    }
}

/// The manifest of an index.
///
/// # Errors
/// If there is nothing to train on.
fn assemble(
    identity: &Identity,
    token_type: TokenType,
    domains: Vec<DomainEntry>,
    mut sources: Vec<SourceEntry>,
) -> Result<Manifest, BuildError> {
    let there = |name: &str| {
        domains
            .binary_search_by(|d| d.name.as_str().cmp(name))
            .is_ok()
    };
    for source in &mut sources {
        source.empty_domains.retain(|name| !there(name));
    }
    let manifest = Manifest {
        format: FORMAT_NAME.into(),
        version: FORMAT_VERSION,
        tokenizer: identity.tokenizer.clone(),
        token_type,
        domains,
        sources,
        options: identity.options.clone(),
    };
    let documents = total(&manifest, |s| s.documents);
    if documents == 0 {
        let skipped = skipped_of(&manifest);
        let shown: Vec<String> = skipped
            .iter()
            .map(|s| format!("{} × {} (first: {})", s.count, s.reason, s.first))
            .collect();
        let more = if shown.is_empty() {
            String::new()
        } else {
            format!("; left out: {}", shown.join(", "))
        };
        return Err(BuildError::NoDocument { more });
    }
    if manifest.domains.iter().all(|d| d.train.documents == 0) {
        return Err(BuildError::NothingToTrain { documents });
    }
    manifest.check(std::path::Path::new(MANIFEST_FILE))?;
    Ok(manifest)
}
