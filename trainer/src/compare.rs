//! Policies compared: the same model, data and budget under each policy and seed, and what came of them.
//!
//! In: a [`CompareConfig`]: one run's configuration, policies as overrides of it, seeds. Out: a folder of runs, each of which
//! is an ordinary run folder; a table, `compare.json` and `compare.html` of what they show. Always holds: a finished run is
//! not run again, nor one that gave up; a stopped one goes on where it was; a run that fails stops no other; figures come from the runs' own logs alone.
//! Leaves training to `hds-train run`, which it starts as programs of their own, so that one may crash alone.
//!
//! # Source
//! The tables of the HDS paper (arXiv:2606.24133), section on results: final perplexity, steps to a baseline's final perplexity.

mod config;
mod figures;
mod launch;
mod page;
mod paper;
mod statistics;
mod table;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};
use thiserror::Error;

pub use config::{CompareConfig, PolicyEntry};
pub use figures::{Comparison, Mean, PolicyFigures, RunFigures};
pub use launch::{Launch, Outcome};

use crate::report::ReportError;
use crate::run::{ConfigError, RunError};

/// What a comparison found, as JSON.
pub const FIGURES_FILE: &str = "compare.json";
/// The same as a page.
pub const PAGE_FILE: &str = "compare.html";

/// Why policies cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The file cannot be read or is no comparison.
    #[error("comparison {path}: {reason}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A run's configuration is wrong.
    #[error("policy {policy:?}: {source}")]
    Run {
        /// The policy.
        policy: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// A run that is there was made otherwise.
    #[error("{source}; remove that folder, or compare into another one")]
    OtherRun {
        /// What differs.
        source: Box<RunError>,
    },
    /// Runs on different data.
    #[error("{first} and {other} are of different indexes; compare them in folders of their own")]
    OtherIndex {
        /// One run.
        first: PathBuf,
        /// Another.
        other: PathBuf,
    },
    /// Another comparison is at work there.
    #[error("another process is comparing in {path}")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A run's log cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A program cannot be started or waited for.
    #[error("cannot {action}: {source}")]
    Process {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is nothing to compare.
    #[error("no run in {path} has been evaluated yet")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
}

/// A comparison that was written.
#[derive(Debug)]
pub struct Written {
    /// For a terminal.
    pub table: String,
    /// Runs that are not finished, and so not in it.
    pub unfinished: usize,
    /// Runs that gave up, which are in it with infinite losses: their folders, and steps.
    pub gave_up: Vec<(PathBuf, u64)>,
}

/// Reads the runs there are, writes `compare.json` and `compare.html` into `out`, and gives the table.
///
/// # Errors
/// If no run has been evaluated, a log is damaged, or a file cannot be written.
pub fn write_comparison(config: &CompareConfig, out: &Path) -> Result<Written, CompareError> {
    let comparison = Comparison::read(config, out)?;
    durable::write_json(&out.join(FIGURES_FILE), &comparison)?;
    let page = page::render(&comparison, config, out);
    durable::write_file(&out.join(PAGE_FILE), |file| file.write_all(page.as_bytes()))?;
    let gave_up = config.policy.iter().zip(&comparison.policies);
    let gave_up = gave_up.flat_map(|(entry, policy)| {
        policy.runs.iter().filter_map(move |run| {
            let folder = CompareConfig::folder(out, entry, run.seed);
            Some((folder, run.gave_up?))
        })
    });
    Ok(Written {
        gave_up: gave_up.collect(),
        table: table::render(&comparison),
        unfinished: comparison.policies.iter().map(|p| p.unfinished).sum(),
    })
}
