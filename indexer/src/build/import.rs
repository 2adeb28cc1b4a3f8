//! Builds an index from Megatron datasets.
//!
//! In: [`ImportOptions`] and the tokenizer that the ids are of. Out: an index, as [`super::build`] makes one: the ids stay as they are, each
//! document closed by the end-of-document id where it is not yet; words, MTLD, held-out choice and hash are of the decoded text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;

use super::error::BuildError;
use super::journal::SourceState;
use super::options::{BuildOptions, Duplicates, OnError};
use super::progress::Progress;
use super::summary::BuildSummary;
use super::{Build, build_whole, check, identity};
use crate::input::{
    DomainFrom, MegatronName, Plan, RecordFields, SourceKind, TextExtensions, of_fairseq,
};
use crate::record::FieldPath;
use crate::tokenize::Tokenizer;

/// What is imported, and how; fields as in [`BuildOptions`].
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Datasets whose documents are split by hash.
    pub inputs: Vec<MegatronName>,
    /// Datasets whose documents are all held out.
    pub held_out: Vec<MegatronName>,
    /// The index folder to make.
    pub target: PathBuf,
    /// Part of the documents to hold out, by the hash of the decoded text.
    pub valid_fraction: f64,
    /// What happens with bad documents.
    pub on_error: OnError,
    /// A shard is closed before the document that would take it over this many tokens.
    pub shard_tokens: u64,
    /// Threads.
    pub threads: usize,
    /// Discard what an interrupted import left.
    pub restart: bool,
    /// How often the place reached is noted.
    pub checkpoint_every: Duration,
}

/// Imports Megatron datasets.
///
/// # Errors
/// As [`super::build`]; an id that the tokenizer does not have is one.
pub fn import(
    options: &ImportOptions,
    tokenizer: &dyn Tokenizer,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<BuildSummary, BuildError> {
    let plan = Plan::of_megatron(&options.inputs, &options.held_out)?;
    for path in of_fairseq(&plan) {
        progress.note(&format!(
            "{}: written by fairseq itself, whose builder stores each id plus one; the ids are taken as they are",
            path.display()
        ));
    }
    let options = BuildOptions {
        inputs: Vec::new(),
        held_out: Vec::new(),
        target: options.target.clone(),
        fields: RecordFields {
            text: FieldPath::text(),
            domain: FieldPath::default(),
            domain_from: DomainFrom::File,
            text_extensions: TextExtensions::default(),
        },
        valid_fraction: options.valid_fraction,
        on_error: options.on_error,
        duplicates: Duplicates::Keep,
        shard_tokens: options.shard_tokens,
        threads: options.threads,
        restart: options.restart,
        checkpoint_every: options.checkpoint_every,
    };
    check(&options)?;
    let mut identity = identity(&options, tokenizer, &plan);
    let own = ["held_out_from_source", "shard_tokens", "valid_fraction"];
    let mut kept: BTreeMap<_, _> = std::mem::take(&mut identity.options);
    kept.retain(|name, _| own.contains(&name.as_str()));
    kept.insert("import".into(), json!("megatron"));
    identity.options = kept;
    let build = Build::new(&options, &plan, identity, tokenizer, progress, interrupted);
    build_whole(&build)
}

/// Warnings of the datasets of which no document came with the end-of-document id: their ids may be another tokenizer's.
pub(super) fn unclosed(
    plan: &Plan,
    states: &[SourceState],
    tokenizer: &dyn Tokenizer,
) -> Vec<String> {
    let id = tokenizer.end_of_document();
    let text = match tokenizer.decode(&[id]) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => format!(" ({text})"),
        _ => String::new(),
    };
    let datasets = plan.sources.iter().zip(states);
    let unclosed = datasets.filter(|(source, state)| {
        source.kind == SourceKind::Megatron && state.documents > 0 && state.closed == 0
    });
    unclosed
        .map(|(source, _)| {
            format!(
                "no document of {} ended with id {id}{text}, so each got it: is this the tokenizer the dataset was made with?",
                source.path.with_extension("").display()
            )
        })
        .collect()
}
