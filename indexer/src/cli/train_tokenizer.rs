//! `hds-index train-tokenizer`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds_indexer::input::{TextExtensions, expand, read_list};
use hds_indexer::inspect::grouped;
use hds_indexer::record::FieldPath;
use hds_indexer::train_tokenizer::{TrainOptions, train_tokenizer};

use super::build::OnErrorOption;

/// Train a byte-level BPE tokenizer on a sample of a corpus.
///
/// INPUT is what `hds-index build` takes. Every input gives its first documents, in proportion to its size. The tokenizer is of the kind of
/// Pythia's and GPT-NeoX's: NFC, words cut by GPT-2's expression, bytes as the alphabet, <|endoftext|> = 0, <|padding|> = 1. Any text decodes to
/// itself but for NFC. The file is a Hugging Face tokenizer.json, for `hds-index build --tokenizer` and everything else that reads them.
///
/// Memory grows with the number of different words in the sample. Nothing that exists is overwritten.
///
/// Example: hds-index train-tokenizer pile/*.jsonl.zst --vocabulary 50304 -o tokenizer.json
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Files, folders and patterns to train on, or - for the standard input
    #[arg(required_unless_present = "files_from", value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// Also train on the files and folders in LIST, a path a line (- reads the list from the standard input)
    #[arg(long, value_name = "LIST")]
    files_from: Vec<PathBuf>,

    /// The tokenizer.json to make; must not exist
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Ids of the tokenizer; the 256 bytes and the special tokens are among them
    #[arg(long, value_name = "N")]
    vocabulary: usize,

    /// Bytes of text to train on, about; all of it if there is less
    #[arg(long, value_name = "N", default_value_t = 1 << 30)]
    sample_bytes: u64,

    /// Do not join pairs that are rarer than this
    #[arg(long, value_name = "N", default_value_t = 2)]
    least_count: u64,

    /// Another special token, behind <|endoftext|> and <|padding|>; may be given several times
    #[arg(long, value_name = "TOKEN")]
    special_token: Vec<String>,

    /// The field with the text, with dots where it lies inside another
    #[arg(long, value_name = "FIELD", default_value = "text")]
    text_field: FieldPath,

    /// Also take files with this extension as text, a document each ('*' for all files)
    #[arg(long, value_name = "EXT", value_parser = super::build::text_extension)]
    text_extension: Vec<String>,

    /// What to do with a record that cannot be read
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop")]
    on_error: OnErrorOption,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut inputs = expand(&arguments.inputs)?;
    for list in &arguments.files_from {
        inputs.extend(read_list(list)?);
    }
    let summary = train_tokenizer(&TrainOptions {
        inputs,
        text_field: arguments.text_field.clone(),
        text_extensions: TextExtensions::new(&arguments.text_extension),
        vocabulary: arguments.vocabulary,
        sample_bytes: arguments.sample_bytes,
        least_count: arguments.least_count,
        special_tokens: arguments.special_token.clone(),
        skip_faults: matches!(arguments.on_error, OnErrorOption::Skip),
        target: arguments.output.clone(),
    })?;
    if arguments.json {
        super::print(&(serde_json::to_string_pretty(&summary)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if summary.skipped > 0 {
        hds::note!(
            "left out {} records that cannot be read",
            grouped(summary.skipped)
        );
    }
    if (summary.vocabulary as usize) < arguments.vocabulary {
        hds::note!(
            "warning: {} ids instead of {}: the sample has no more pairs that occur {} times",
            grouped(summary.vocabulary.into()),
            grouped(arguments.vocabulary as u64),
            arguments.least_count
        );
    }
    hds::note!(
        "trained {} ids on {} documents, {} bytes of text in {:.1} s into {}",
        grouped(summary.vocabulary.into()),
        grouped(summary.documents),
        grouped(summary.text_bytes),
        summary.seconds,
        summary.path.display()
    );
    Ok(ExitCode::SUCCESS)
}
