//! `hds-index merge`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds_indexer::build::{BuildError, MergeError, merge};
use hds_indexer::inspect::{Overview, grouped};

use super::progress::Shown;
use super::signal;

/// Join the parts of a build into one index.
///
/// PART is a folder that `hds-index build --shard i/n` made; all n of one build are wanted, in any order. The index is, byte for byte, the one
/// that a single build of the same inputs and options makes. Nothing is tokenised again: the work is to read and write the tokens
/// once. Every byte of a part is held against its checksum; parts of different builds are refused. The parts stay as they are.
///
/// The index appears under its name when it is whole; nothing that exists is overwritten.
///
/// Example: hds-index merge parts/* -o index
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folders of all parts
    #[arg(required = true, value_name = "PART")]
    parts: Vec<PathBuf>,

    /// The index folder to make; must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Threads that write the document tables [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let interrupted = signal::interrupted()?;
    let progress = Shown::new(arguments.json);
    let outcome = merge(
        &arguments.parts,
        &arguments.output,
        arguments.threads.unwrap_or_else(cores),
        &progress,
        &interrupted,
    );
    progress.clear();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(MergeError::Build(error @ BuildError::Interrupted { .. })) => {
            hds::note!("{error}");
            return Ok(ExitCode::from(signal::INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        super::print(&(serde_json::to_string_pretty(&summary)? + "\n"))?;
    } else {
        super::print(&Overview::load(&summary.index)?.to_text())?;
        hds::note!(
            "joined {} parts, {} documents, {} tokens in {:.1} s into {}",
            summary.parts,
            grouped(summary.documents),
            grouped(summary.tokens),
            summary.seconds,
            summary.index.display(),
        );
    }
    Ok(ExitCode::SUCCESS)
}
