//! `hds-index build`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hds_indexer::build::{BuildError, BuildOptions, BuildSummary, Duplicates, OnError, build};
use hds_indexer::input::{DomainFrom, RecordFields, TextExtensions};
use hds_indexer::inspect::{Overview, grouped};
use hds_indexer::record::FieldPath;
use hds_indexer::tokenize::{EndOfDocument, TokenizerChoice, load};

use super::progress::Shown;

/// Ended by a signal, as shells report it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Turn a corpus into an index.
///
/// INPUT is a file, a folder, or - for JSON lines on the standard input (plain, zstd or gzip).
/// Files are known by their names: .jsonl .json .ndjson (an object a line; also with .zst or .gz), .parquet, and
/// text files (a document each). A folder is read with all below it, in the order of names. Text files beside
/// record files, such as a README, are left out; hidden files too.
///
/// The domain of a document is the field meta.pile_set_name where the first record of its file has it, else the file's
/// name without extensions. For text files it is the first folder below INPUT, else the name of the folder.
///
/// The index appears under its name when it is whole; nothing that exists is overwritten. After an interruption
/// run the same command again: it goes on where it was. Documents keep their order, and the same input and
/// options give the same bytes, whatever the number of threads.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files and folders to index, or - for the standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// The index folder to make; must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// A Hugging Face tokenizer.json; without it every byte is a token
    #[arg(short, long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,

    /// The token that closes every document, by its text or id; found by its usual names where not given
    #[arg(long, value_name = "TOKEN", requires = "tokenizer")]
    end_of_document: Option<String>,

    /// Threads to use; the index does not depend on it [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// The field with the text, with dots where it lies inside another
    #[arg(long, value_name = "FIELD", default_value = "text")]
    text_field: FieldPath,

    /// The field with the domain; every record must have it [default: meta.pile_set_name, if it is there]
    #[arg(long, value_name = "FIELD")]
    domain_field: Option<FieldPath>,

    /// Where the domain comes from: the field, the file's name, or the first folder below INPUT
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "domain")]
    domain_from: Option<DomainFromOption>,

    /// One domain for everything
    #[arg(long, value_name = "NAME", conflicts_with = "domain_field")]
    domain: Option<String>,

    /// Part of the documents to hold out for evaluation, by a hash of the text: copies stay on one side
    #[arg(long, value_name = "F", default_value_t = BuildOptions::VALID_FRACTION, conflicts_with = "valid")]
    valid_fraction: f64,

    /// Hold out the documents of these files and folders instead, all of them
    #[arg(long, value_name = "INPUT", num_args = 1..)]
    valid: Vec<PathBuf>,

    /// What to do with a record that cannot be indexed
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop")]
    on_error: OnErrorOption,

    /// What to do with a document whose text is, byte by byte, that of an earlier one in any domain
    #[arg(long, value_name = "WHAT", value_enum, default_value = "keep")]
    duplicates: DuplicatesOption,

    /// Also take files with this extension as text, a document each ('*' for all files)
    #[arg(long, value_name = "EXT")]
    text_extension: Vec<String>,

    /// Tokens of a shard, at most, unless a document is longer
    #[arg(long, value_name = "N", default_value_t = BuildOptions::SHARD_TOKENS)]
    shard_tokens: u64,

    /// Discard what an interrupted build of the same target left
    #[arg(long)]
    restart: bool,

    /// Seconds of work that an interruption may cost
    #[arg(long, value_name = "SECONDS", default_value_t = BuildOptions::CHECKPOINT_EVERY.as_secs_f64(), hide = true)]
    checkpoint_every: f64,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  The Pile, with the tokenizer of Pythia:
    hds-index build pile/train/*.jsonl.zst --valid pile/val.jsonl.zst --tokenizer 20B_tokenizer.json -o index
  A folder of text files, a domain for each folder in it, bytes as tokens:
    hds-index build corpus -o index
  Parquet with the domain in a column:
    hds-index build data/*.parquet --text-field content --domain-field meta.source -t tokenizer.json -o index
  Bad records counted and left out:
    zcat crawl.gz | hds-index build - --domain web --on-error skip -o index";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DomainFromOption {
    /// The field where a file's first record has it, else the file's name; the folder for text files
    Auto,
    /// The field, which every record must have
    Field,
    /// The name of the file without its extensions
    File,
    /// The first folder below INPUT, else the folder that the file is in
    Folder,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DuplicatesOption {
    /// Index it; the manifest and the summary count it
    Keep,
    /// Leave it out and count it; takes the disk space of the tokens once more while it runs
    Drop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnErrorOption {
    /// End the build and name the place
    Stop,
    /// Leave the record out and count it in the manifest and the summary
    Skip,
}

impl Arguments {
    fn options(&self) -> BuildOptions {
        let domain_from = match (self.domain_from, &self.domain, &self.domain_field) {
            (_, Some(name), _) => DomainFrom::Named(name.clone()),
            (Some(DomainFromOption::Auto), ..) => DomainFrom::Auto,
            (Some(DomainFromOption::File), ..) => DomainFrom::File,
            (Some(DomainFromOption::Folder), ..) => DomainFrom::Folder,
            (Some(DomainFromOption::Field), ..) | (None, None, Some(_)) => DomainFrom::Field,
            (None, None, None) => DomainFrom::Auto,
        };
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        BuildOptions {
            inputs: self.inputs.clone(),
            held_out: self.valid.clone(),
            target: self.output.clone(),
            fields: RecordFields {
                text: self.text_field.clone(),
                domain: self.domain_field.clone().unwrap_or_default(),
                domain_from,
                text_extensions: TextExtensions::new(&self.text_extension),
            },
            valid_fraction: if self.valid.is_empty() {
                self.valid_fraction
            } else {
                0.0
            },
            on_error: match self.on_error {
                OnErrorOption::Stop => OnError::Stop,
                OnErrorOption::Skip => OnError::Skip,
            },
            duplicates: match self.duplicates {
                DuplicatesOption::Keep => Duplicates::Keep,
                DuplicatesOption::Drop => Duplicates::Drop,
            },
            shard_tokens: self.shard_tokens,
            threads: self.threads.unwrap_or_else(cores),
            restart: self.restart,
            checkpoint_every: Duration::try_from_secs_f64(self.checkpoint_every)
                .unwrap_or(BuildOptions::CHECKPOINT_EVERY),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let choice = match &arguments.tokenizer {
        None => TokenizerChoice::Byte,
        Some(path) => TokenizerChoice::File {
            path: path.clone(),
            end_of_document: arguments
                .end_of_document
                .as_deref()
                .map(EndOfDocument::from),
        },
    };
    let tokenizer = load(&choice)?;
    if let Some(note) = tokenizer.note() {
        eprintln!("{note}");
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program at once; the journal is whole at any moment.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            INTERRUPTED.into(),
            interrupted.clone(),
        )?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let progress = Shown::new(arguments.json);
    let outcome = build(&arguments.options(), &*tokenizer, &progress, &interrupted);
    progress.clear();
    match outcome {
        Ok(summary) => {
            show(arguments, &summary)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ BuildError::Interrupted { .. }) => {
            eprintln!("{error}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error.into()),
    }
}

fn show(arguments: &Arguments, summary: &BuildSummary) -> anyhow::Result<()> {
    if arguments.json {
        return super::print(&(serde_json::to_string_pretty(summary)? + "\n"));
    }
    super::print(&Overview::load(&summary.index)?.to_text())?;
    eprintln!(
        "indexed {} documents, {} tokens in {:.1} s ({:.1} MB of text/s, {} threads, tokenised by {}) into {}",
        grouped(summary.documents),
        grouped(summary.tokens),
        summary.seconds,
        summary.megabytes_per_second,
        summary.threads,
        summary.engine,
        summary.index.display(),
    );
    Ok(())
}
