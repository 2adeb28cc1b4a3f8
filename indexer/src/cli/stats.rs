//! `hds-index stats`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds::durable;
use hds::index::Split;
use hds_indexer::stats::{Selection, stats};

use super::export::SplitOption;

/// Show how long and how lexically diverse the documents of each domain are.
///
/// Prints quantiles of tokens and MTLD, with --json of bytes and words too. Quantiles come from a histogram of fixed size: they are within
/// 0.05 % of the value of that rank, and exact for whole numbers below 2048. Reads the document tables, not the tokens.
/// --plot also writes a picture, as .svg, or as .html with all numbers beside it; it replaces a file of that name.
///
/// Example: hds-index stats pile --plot pile.html
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The index folder
    index: PathBuf,

    /// Only this domain; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,

    /// Only this split [default: both]
    #[arg(long, value_name = "SPLIT", value_enum)]
    split: Option<SplitOption>,

    /// Write a plot; the name ends with .svg or .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let kind = match &arguments.plot {
        None => None,
        Some(path) => match path.extension().and_then(|e| e.to_str()) {
            Some("svg") => Some((path, true)),
            Some("html" | "htm") => Some((path, false)),
            _ => anyhow::bail!(
                "--plot {}: a name with .svg or .html is wanted",
                path.display()
            ),
        },
    };
    let selection = Selection {
        domains: arguments.domain.clone(),
        split: arguments.split.map(Split::from),
    };
    let stats = stats(&arguments.index, &selection)?;
    if let Some((path, is_svg)) = kind {
        let content = if is_svg {
            stats.to_svg()
        } else {
            stats.to_html(&format!("Documents of {}", arguments.index.display()))
        };
        durable::write_file(path, |file| file.write_all(content.as_bytes()))?;
        hds::note!("wrote {}", path.display());
    }
    if arguments.json {
        super::print(&(serde_json::to_string_pretty(&stats)? + "\n"))?;
    } else {
        super::print(&stats.to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}
