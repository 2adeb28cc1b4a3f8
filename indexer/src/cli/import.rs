//! `hds-index import`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds_indexer::build::{BuildError, BuildOptions, ImportOptions, import};
use hds_indexer::input::MegatronName;

use super::build::{OnErrorOption, load_tokenizer, show};
use super::progress::Shown;
use super::signal;

/// Turn Megatron datasets (.bin and .idx) into an index.
///
/// PREFIX is the path of both files without their extensions, or of either; DOMAIN=PREFIX names the domain, which is else the name of
/// the file. Both formats of the .idx are read, MMIDIDX and the older TNTIDX. The ids stay as they are; a document that does not end with
/// the end-of-document id gets it. Words, MTLD and the choice of what is held out come from the decoded text, so the
/// tokenizer must be the one that the ids are of.
///
/// The index appears under its name when it is whole; nothing that exists is overwritten. After an interruption
/// run the same command again: it goes on where it was.
///
/// Example: hds-index import web=data/web_text_document books=data/books -t 20B_tokenizer.json -o index
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Datasets to import
    #[arg(required = true, value_name = "[DOMAIN=]PREFIX")]
    inputs: Vec<String>,

    /// The index folder to make; must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// The Hugging Face tokenizer.json that the ids are of; without it the ids are bytes, and 256 closes a document
    #[arg(short, long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,

    /// The token that closes every document, by its text or id; found by its usual names where not given
    #[arg(long, value_name = "TOKEN", requires = "tokenizer")]
    end_of_document: Option<String>,

    /// Threads to use; the index does not depend on it [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Part of the documents to hold out for evaluation, by a hash of the text: copies stay on one side
    #[arg(long, value_name = "F", default_value_t = BuildOptions::VALID_FRACTION, conflicts_with = "valid")]
    valid_fraction: f64,

    /// Hold out the documents of these datasets instead, all of them
    #[arg(long, value_name = "[DOMAIN=]PREFIX", num_args = 1..)]
    valid: Vec<String>,

    /// What to do with a document that cannot be indexed
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop")]
    on_error: OnErrorOption,

    /// Tokens of a shard, at most, unless a document is longer
    #[arg(long, value_name = "N", default_value_t = BuildOptions::SHARD_TOKENS)]
    shard_tokens: u64,

    /// Discard what an interrupted import of the same target left
    #[arg(long)]
    restart: bool,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let names = |named: &[String]| named.iter().map(|n| MegatronName::parse(n)).collect();
    let options = ImportOptions {
        inputs: names(&arguments.inputs),
        held_out: names(&arguments.valid),
        target: arguments.output.clone(),
        valid_fraction: if arguments.valid.is_empty() {
            arguments.valid_fraction
        } else {
            0.0
        },
        on_error: arguments.on_error.into(),
        shard_tokens: arguments.shard_tokens,
        threads: arguments.threads.unwrap_or_else(cores),
        restart: arguments.restart,
        checkpoint_every: BuildOptions::CHECKPOINT_EVERY,
    };
    let end_of_document = arguments.end_of_document.as_deref();
    let tokenizer = load_tokenizer(arguments.tokenizer.as_deref(), end_of_document)?;
    let interrupted = signal::interrupted()?;
    let progress = Shown::new(arguments.json);
    let outcome = import(&options, &*tokenizer, &progress, &interrupted);
    progress.clear();
    match outcome {
        Ok(summary) => show(arguments.json, &summary)?,
        Err(error @ BuildError::Interrupted { .. }) => {
            hds::note!("{error}");
            return Ok(ExitCode::from(signal::INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}
