//! `hds-index build`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use hds_indexer::build::{
    BuildError, BuildOptions, BuildSummary, Duplicates, OnError, PartSummary, build, build_part,
};
use hds_indexer::input::{DomainFrom, RecordFields, TextExtensions, expand, read_list};
use hds_indexer::inspect::{Overview, grouped};
use hds_indexer::record::FieldPath;
use hds_indexer::tokenize::{EndOfDocument, Tokenizer, TokenizerChoice, load};

use super::progress::Shown;
use super::shard::ShardOption;
use super::signal;

/// Turn a corpus into an index.
///
/// INPUT is a file, a folder, a quoted pattern such as 'data/**/*.parquet', or - for JSON lines on the standard input (plain,
/// zstd or gzip). Files are known by their names: .jsonl .json .ndjson (an object a line; also with .zst or .gz),
/// .parquet, .arrow .feather .ipc (Arrow IPC, file or stream), and text files (a document each). A folder is read with all
/// below it, in the order of names. Text files beside record files, such as a README, are left out; hidden files too.
///
/// The domain of a document is the field meta.pile_set_name where the first record of its file has it, else the file's
/// name without extensions. For text files it is the first folder below INPUT, else the name of the folder.
///
/// The index appears under its name when it is whole; nothing that exists is overwritten. After an interruption
/// run the same command again: it goes on where it was. Documents keep their order, and the same input and
/// options give the same bytes, whatever the number of threads.
///
/// With --shard, n machines make a part each, which `hds-index merge` joins to the same bytes. Every machine gets the
/// same inputs and options; a part takes whole files, so there is nothing to gain from more parts than files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files, folders and patterns to index, or - for the standard input
    #[arg(required_unless_present = "files_from", value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// Also index the files and folders in LIST, a path a line, behind the INPUTs (- reads the list from the standard input)
    #[arg(long, value_name = "LIST")]
    files_from: Vec<PathBuf>,

    /// The index folder to make, or the part's with --shard; must not exist
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
    #[arg(long, value_name = "EXT", value_parser = text_extension)]
    text_extension: Vec<String>,

    /// Tokens of a shard, at most, unless a document is longer
    #[arg(long, value_name = "N", default_value_t = BuildOptions::SHARD_TOKENS)]
    shard_tokens: u64,

    /// Make part i of n only, for `hds-index merge`; auto takes both from a SLURM array, auto/n takes i from one with ids from
    /// 0, or from the JOB_COMPLETION_INDEX of a Kubernetes job
    #[arg(long, value_name = "i/n")]
    shard: Option<ShardOption>,

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
    zcat crawl.gz | hds-index build - --domain web --on-error skip -o index
  On eight machines of a SLURM cluster, and joined:
    sbatch --array=0-7 --wrap 'hds-index build /data/pile --shard auto/8 -o /data/parts/$SLURM_ARRAY_TASK_ID'
    hds-index merge /data/parts/* -o /data/index";

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
pub(super) enum OnErrorOption {
    /// End and name the place
    Stop,
    /// Leave the document out and count it in the summary, and in the manifest of an index
    Skip,
}

impl Arguments {
    fn options(&self) -> anyhow::Result<BuildOptions> {
        let mut inputs = expand(&self.inputs)?;
        for list in &self.files_from {
            inputs.extend(read_list(list)?);
        }
        let domain_from = match (self.domain_from, &self.domain, &self.domain_field) {
            (_, Some(name), _) => DomainFrom::Named(name.clone()),
            (Some(DomainFromOption::Auto), ..) => DomainFrom::Auto,
            (Some(DomainFromOption::File), ..) => DomainFrom::File,
            (Some(DomainFromOption::Folder), ..) => DomainFrom::Folder,
            (Some(DomainFromOption::Field), ..) | (None, None, Some(_)) => DomainFrom::Field,
            (None, None, None) => DomainFrom::Auto,
        };
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(BuildOptions {
            inputs,
            held_out: expand(&self.valid)?,
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
            on_error: self.on_error.into(),
            duplicates: match self.duplicates {
                DuplicatesOption::Keep => Duplicates::Keep,
                DuplicatesOption::Drop => Duplicates::Drop,
            },
            shard_tokens: self.shard_tokens,
            threads: self.threads.unwrap_or_else(cores),
            restart: self.restart,
            checkpoint_every: Duration::try_from_secs_f64(self.checkpoint_every)
                .unwrap_or(BuildOptions::CHECKPOINT_EVERY),
        })
    }
}

impl From<OnErrorOption> for OnError {
    fn from(option: OnErrorOption) -> Self {
        match option {
            OnErrorOption::Stop => Self::Stop,
            OnErrorOption::Skip => Self::Skip,
        }
    }
}

/// An extension of text files, with or without its dot.
pub(super) fn text_extension(given: &str) -> Result<String, &'static str> {
    if given.trim_start_matches('.').is_empty() {
        return Err("an extension is empty; name one such as .rtf, or '*' for all files");
    }
    Ok(given.to_owned())
}

/// Loads the tokenizer of a file, or the one of bytes; says on stderr where it is not the fastest.
pub(super) fn load_tokenizer(
    file: Option<&Path>,
    end_of_document: Option<&str>,
) -> anyhow::Result<Box<dyn Tokenizer>> {
    let tokenizer = load(&match file {
        None => TokenizerChoice::Byte,
        Some(path) => TokenizerChoice::File {
            path: path.into(),
            end_of_document: end_of_document.map(EndOfDocument::from),
        },
    })?;
    if let Some(note) = tokenizer.note() {
        hds::note!("{note}");
    }
    Ok(tokenizer)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let options = arguments.options()?;
    let end_of_document = arguments.end_of_document.as_deref();
    let tokenizer = load_tokenizer(arguments.tokenizer.as_deref(), end_of_document)?;
    let interrupted = signal::interrupted()?;
    let progress = Shown::new(arguments.json);
    let outcome = match arguments.shard {
        None => build(&options, &*tokenizer, &progress, &interrupted)
            .map(|summary| Done::Whole(Box::new(summary))),
        Some(shard) => {
            let part = shard.part(|name| std::env::var(name).ok())?;
            build_part(&options, part, &*tokenizer, &progress, &interrupted).map(Done::Part)
        }
    };
    progress.clear();
    match outcome {
        Ok(Done::Whole(summary)) => show(arguments.json, &summary)?,
        Ok(Done::Part(summary)) => show_part(arguments, &summary)?,
        Err(error @ BuildError::Interrupted { .. }) => {
            hds::note!("{error}");
            return Ok(ExitCode::from(signal::INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a user must know who sees an error after the work was done.
fn whole_but_not_shown(path: &Path) -> String {
    let path = path.display();
    format!("{path} is whole and in place, but the summary could not be shown")
}

enum Done {
    Whole(Box<BuildSummary>),
    Part(PartSummary),
}

/// So many of a thing.
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number))
}

fn show_part(arguments: &Arguments, summary: &PartSummary) -> anyhow::Result<()> {
    if arguments.json {
        return super::print(&(serde_json::to_string_pretty(summary)? + "\n"))
            .with_context(|| whole_but_not_shown(&summary.path));
    }
    hds::note!(
        "part {} of {}: indexed {}, {} of {} in {:.1} s ({:.1} MB of text/s, {}, tokenised \
         by {}) into {}; `hds-index merge` joins all parts",
        summary.part,
        summary.of,
        counted(summary.documents, "document"),
        counted(summary.tokens, "token"),
        counted(summary.sources as u64, "source"),
        summary.seconds,
        summary.megabytes_per_second,
        counted(summary.threads as u64, "thread"),
        summary.engine,
        summary.path.display(),
    );
    Ok(())
}

/// Shows what a finished build gave.
pub(super) fn show(json: bool, summary: &BuildSummary) -> anyhow::Result<()> {
    show_summary(json, summary).with_context(|| whole_but_not_shown(&summary.index))
}

fn show_summary(json: bool, summary: &BuildSummary) -> anyhow::Result<()> {
    if json {
        return super::print(&(serde_json::to_string_pretty(summary)? + "\n"));
    }
    let overview = Overview::load(&summary.index)?;
    super::print(&overview.to_text())?;
    // Those of the index itself are among the overview's.
    let is_new = |warning: &&String| !overview.warnings.contains(warning);
    for warning in summary.warnings.iter().filter(is_new) {
        hds::note!("warning: {warning}");
    }
    hds::note!(
        "indexed {}, {} in {:.1} s ({:.1} MB of text/s, {}, tokenised by {}) into {}",
        counted(summary.documents, "document"),
        counted(summary.tokens, "token"),
        summary.seconds,
        summary.megabytes_per_second,
        counted(summary.threads as u64, "thread"),
        summary.engine,
        summary.index.display(),
    );
    Ok(())
}
