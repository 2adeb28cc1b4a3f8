//! `hds-index export`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hds::index::Split;
use hds_indexer::export::{Selection, export_documents, export_megatron};
use hds_indexer::inspect::grouped;

/// Give an index to other programs: the table of its documents, or its tokens.
///
/// `documents` writes one Parquet file, a row a document, for DuckDB, polars or pandas: domain, split, number, place and number of tokens,
/// bytes, words, MTLD, source, position and hash of the text.
///
/// `megatron` writes a folder with DOMAIN_SPLIT.bin and .idx for Megatron-LM and GPT-NeoX, a document a sequence, and prints a line for each:
/// its number of tokens and its path as --data-path takes it.
///
/// What is written appears under its name when it is whole; nothing that exists is overwritten.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to export
    #[arg(value_enum)]
    what: What,

    /// The index folder
    index: PathBuf,

    /// The file or folder to make; must not exist
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,

    /// Only this domain; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,

    /// Only this split [default: both]
    #[arg(long, value_name = "SPLIT", value_enum)]
    split: Option<SplitOption>,

    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hds-index export documents index -o documents.parquet
  hds-index export megatron index -o megatron --domain Github --domain Books --split train";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// The table of documents, as Parquet
    Documents,
    /// The tokens, as Megatron's .bin and .idx
    Megatron,
}

/// A split as a user names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SplitOption {
    /// What is trained on
    Train,
    /// What is held out
    Valid,
}

impl From<SplitOption> for Split {
    fn from(option: SplitOption) -> Self {
        match option {
            SplitOption::Train => Self::Train,
            SplitOption::Valid => Self::Valid,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let selection = Selection {
        domains: arguments.domain.clone(),
        split: arguments.split.map(Split::from),
    };
    let (index, output) = (&arguments.index, &arguments.output);
    match arguments.what {
        What::Documents => {
            let summary = export_documents(index, &selection, output)?;
            if arguments.json {
                super::print(&(serde_json::to_string_pretty(&summary)? + "\n"))?;
            } else {
                let documents = grouped(summary.documents);
                hds::note!("wrote {documents} documents into {}", output.display());
            }
        }
        What::Megatron => {
            let datasets = export_megatron(index, &selection, output)?;
            if arguments.json {
                super::print(&(serde_json::to_string_pretty(&datasets)? + "\n"))?;
            } else {
                let line = |d: &hds_indexer::export::MegatronDataset| {
                    format!("{} {}\n", d.tokens, d.prefix.display())
                };
                super::print(&datasets.iter().map(line).collect::<String>())?;
                let tokens = datasets.iter().map(|d| d.tokens).sum();
                hds::note!(
                    "wrote {} datasets of {} tokens into {}",
                    datasets.len(),
                    grouped(tokens),
                    output.display()
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
