//! The page that shows a run: what the agent did, when, and whether it was right.
//!
//! In: a run folder with `metrics.jsonl` (its records are described in ARCHITECTURE.md) and, where
//! there is one, `config.toml`. Out: `report.html` beside them, one page that needs nothing else: no
//! network, no fonts, no libraries; and a table for the terminal.
//! Always holds: memory and page size depend on the number of domains, not on the number of steps;
//! every plot is inline SVG, complete without scripts; text from the run is escaped; a plot without
//! data says why. Leaves measuring and logging to the trainer: nothing here runs a model.

mod bucket;
mod collect;
mod columns;
mod domains;
mod error;
pub(crate) mod number;
mod page;
pub(crate) mod palette;
pub(crate) mod plot;
pub mod rank;
mod reader;
mod record;
mod sections;
mod summary;

#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub use error::ReportError;
pub(crate) use page::{SCRIPT, head};
pub use record::{EvalRecord as Evaluation, RunRecord as Header};

/// The log that a report is made of.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// The resolved configuration shown on the page.
pub const CONFIG_FILE: &str = "config.toml";
/// The page.
pub const REPORT_FILE: &str = "report.html";

/// A configuration longer than this many bytes is cut on the page.
const CONFIG_BYTES: u64 = 1 << 20;

/// Reads a run folder and writes `report.html` into it, over an older one; gives the page's path.
///
/// # Errors
/// If there is no `metrics.jsonl`, if a line of it is not a record of ours, or if the page cannot be
/// written; an older page then stays as it was.
pub fn write_report(run_folder: &Path) -> Result<PathBuf, ReportError> {
    let run = collect::read_run(run_folder)?;
    let config = read_config(run_folder)?;
    let page = page::render(&run, config.as_deref());
    let path = run_folder.join(REPORT_FILE);
    hds::durable::write_file(&path, |file| file.write_all(page.as_bytes()))?;
    Ok(path)
}

/// A table for a terminal: held-out perplexity, weight and samples of every domain, first and last.
///
/// # Errors
/// As [`write_report`], but for the writing.
pub fn summary_table(run_folder: &Path) -> Result<String, ReportError> {
    Ok(summary::render(&collect::read_run(run_folder)?))
}

/// What a comparison of runs needs of one; length K where a vector.
pub struct RunSummary {
    /// The log's first line.
    pub header: Header,
    /// In order; the last one included.
    pub evaluations: Vec<Evaluation>,
    /// Sequences drawn.
    pub samples: Vec<u64>,
    /// Steps logged.
    pub steps: u64,
    /// Steps after which the run gave up, where that was its end.
    pub gave_up: Option<u64>,
    /// All steps' time.
    pub step_seconds: f64,
    /// The part that signals, rewards and policy took.
    pub scheduler_seconds: f64,
}

/// Reads the log of a run folder, also of one that is still going on.
///
/// # Errors
/// If it is missing or not a metrics log of ours, with file and line.
pub fn summarize(run_folder: &Path) -> Result<RunSummary, ReportError> {
    let run = collect::read_run(run_folder)?;
    Ok(RunSummary {
        samples: run.domains.iter().map(|d| d.samples).collect(),
        steps: run.totals.steps,
        gave_up: run.gave_up,
        step_seconds: run.totals.step_seconds,
        scheduler_seconds: run.totals.scheduler_seconds,
        header: run.header,
        evaluations: run.evaluations,
    })
}

/// The run's configuration as text; `None` where there is no such file.
fn read_config(run_folder: &Path) -> Result<Option<String>, ReportError> {
    let path = run_folder.join(CONFIG_FILE);
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReportError::Io { path, source }),
    };
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|source| ReportError::Io { path, source })?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
