//! `hds-index verify`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hds::index::{Manifest, Split};
use hds_indexer::inspect::grouped;
use hds_indexer::verify::verify;
use indicatif::{ProgressBar, ProgressStyle};

/// Check that an index is whole: every file, token, document and count.
///
/// Reads all of it: sizes and checksums, ids against the vocabulary, ends of documents, the document tables against the
/// shards and the manifest. Ends with 1 if anything is wrong. Changes nothing.
///
/// Example: hds-index verify pile
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The index folder
    index: PathBuf,
    /// Threads to use [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or_else(cores);
    let read = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let (manifest, _) = Manifest::load(&arguments.index)?;
    let watched = !arguments.json && std::io::stderr().is_terminal();
    let report = std::thread::scope(|scope| {
        if watched {
            scope.spawn(|| show_progress(bytes_of(&manifest), &read, &done));
        }
        let report = verify(&arguments.index, threads, &read);
        done.store(true, Ordering::Relaxed);
        report
    })?;
    if arguments.json {
        super::print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else {
        for stranger in &report.strangers {
            hds::note!("warning: {} belongs to no shard", stranger.display());
        }
        for problem in &report.problems {
            super::print(&format!("{problem}\n"))?;
        }
        if report.is_good() {
            super::print(&format!(
                "{} is good: {} shards, {} bytes read in {:.1} s\n",
                arguments.index.display(),
                report.shards,
                grouped(report.bytes),
                started.elapsed().as_secs_f64(),
            ))?;
        } else {
            hds::note!(
                "error: {} is damaged; build it again",
                arguments.index.display()
            );
        }
    }
    Ok(if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn bytes_of(manifest: &Manifest) -> u64 {
    let splits = manifest
        .domains
        .iter()
        .flat_map(|d| Split::ALL.map(|s| d.split(s)));
    let shards = splits.flat_map(|s| &s.shards);
    shards
        .flat_map(|s| [&s.tokens_file, &s.documents_file, &s.table_file])
        .fold(0, |sum, file| sum.saturating_add(file.bytes))
}

fn show_progress(bytes: u64, read: &AtomicU64, done: &AtomicBool) {
    let template = "{bar:30} {bytes} of {total_bytes} checked, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes).with_style(style);
    while !done.load(Ordering::Relaxed) {
        bar.set_position(read.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
