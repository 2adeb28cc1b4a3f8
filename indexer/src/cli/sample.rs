//! `hds-index sample`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hds::index::Split;
use hds_indexer::inspect::grouped;
use hds_indexer::sample::{SampledDocument, Selection, sample};

use super::build::load_tokenizer;
use super::export::SplitOption;

/// Print documents of an index as text, drawn at random, with what the index knows of them.
///
/// Every document of the chosen domains is drawn with the same probability. The text is what the tokens decode to, so the tokenizer must be
/// the one that the index was built with; this is checked. The same index and seed give the same documents.
///
/// Example: hds-index sample pile --tokenizer 20B_tokenizer.json --domain Github --count 3
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The index folder
    index: PathBuf,

    /// The tokenizer.json that the index was built with; not needed for one of bytes
    #[arg(short, long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,

    /// Only this domain; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,

    /// Only this split [default: both]
    #[arg(long, value_name = "SPLIT", value_enum)]
    split: Option<SplitOption>,

    /// Documents to print, at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    count: u64,

    /// Another seed draws other documents
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Characters of each text to print; 0 for all [default: 1000, with --json all]
    #[arg(long, value_name = "N")]
    characters: Option<usize>,

    /// Print a JSON object a document and line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let tokenizer = load_tokenizer(arguments.tokenizer.as_deref(), None)?;
    let selection = Selection {
        domains: arguments.domain.clone(),
        split: arguments.split.map(Split::from),
    };
    let most = match arguments.characters {
        None if arguments.json => 0,
        None => 1000,
        Some(most) => most,
    };
    let mut printed = 0;
    let mut failed = None;
    sample(
        &arguments.index,
        &selection,
        arguments.count,
        arguments.seed,
        &*tokenizer,
        |mut document| {
            let left_out = shorten(&mut document.text, most);
            let shown = if arguments.json {
                serde_json::to_string(&document).map(|line| line + "\n")
            } else {
                Ok(describe(&document, left_out))
            };
            printed += 1;
            failed = shown
                .map_err(Into::into)
                .and_then(|s| super::print(&s))
                .err();
            failed.is_none()
        },
    )?;
    if let Some(error) = failed {
        return Err(error);
    }
    if printed == 0 && arguments.count > 0 {
        anyhow::bail!(
            "{}: the chosen domains and split hold no document",
            arguments.index.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Cuts a text behind so many characters; gives the bytes left out.
fn shorten(text: &mut String, most: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(most).filter(|_| most > 0) else {
        return 0;
    };
    let left_out = text.len() - end;
    text.truncate(end);
    left_out
}

fn describe(document: &SampledDocument, left_out: usize) -> String {
    let more = match left_out {
        0 => String::new(),
        bytes => format!("… ({} bytes more)\n", grouped(bytes as u64)),
    };
    let end = if document.text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!(
        "── {}, {} document {}: {} tokens, {} bytes, {} words, MTLD {:.1}; {} at {}\n{}{end}{more}\n",
        document.domain,
        document.split,
        grouped(document.document),
        grouped(document.tokens),
        grouped(document.bytes),
        grouped(document.words),
        document.mtld,
        document.source,
        grouped(document.position),
        document.text,
    )
}
