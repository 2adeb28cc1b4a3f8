//! `hds-index inspect`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds_indexer::inspect::Overview;

/// Show what an index holds: its domains, documents, tokens, words and lexical diversity.
///
/// Reads the manifest only. MTLD is the mean over the documents to train on; the share is of the tokens to train on.
///
/// Example: hds-index inspect pile
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The index folder
    index: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let overview = Overview::load(&arguments.index)?;
    if arguments.json {
        super::print(&(serde_json::to_string_pretty(&overview)? + "\n"))?;
    } else {
        super::print(&overview.to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}
