//! `cargo xtask`: the commands of this workspace.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hds_tools::check::{self, Step};
use hds_tools::corpus;
use hds_tools::demo;
use hds_tools::project::Project;
use hds_tools::settings;
use hds_tools::setup::{self, Flavour};

/// Set up, try and check the Holistic Data Scheduler.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 110
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get libtorch into .libtorch/ (once; the other commands do it by themselves).
    ///
    /// Checks the C++ compiler, then downloads the pinned packages with pip, checks their SHA-256 and puts them
    /// in place when whole. Nothing outside the checkout is changed. A LIBTORCH of your own is used instead.
    Setup {
        /// Also get the CUDA libraries that training on an NVIDIA GPU needs (about 2.4 GB more to download).
        #[arg(long)]
        cuda: bool,
    },
    /// Make a corpus of several domains from text that this machine has.
    ///
    /// Reads the sources of the crates in Cargo.lock, libtorch's headers and Python code, the toolchain's books, the
    /// system's manuals and licences. Writes one DOMAIN.jsonl.zst a domain in The Pile's format; a corpus that is
    /// there already is replaced when the new one is whole. Prints a table.
    ///
    /// Example: cargo xtask corpus --out out/corpus --max-mb 20
    Corpus {
        /// Folder for the corpus.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Most text in all, in megabytes.
        #[arg(long, value_name = "N", default_value_t = corpus::DEFAULT_MEGABYTES, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        max_mb: u32,
    },
    /// Make a variant of a corpus in which no fixed mixture is right, for `hds-train compare`.
    ///
    /// Reads a folder of DOMAIN.jsonl.zst files in The Pile's format and writes a new folder of such files: domains that are to be
    /// scarce keep their first documents, and two useless domains may be added, ShuffledWords and Repeated (200 documents over and
    /// over). What `hds-index build --valid-fraction` would hold out of a scarce domain is kept whole. Prints a table of what was made.
    ///
    /// Examples:
    ///   cargo xtask settings --corpus minipile --out scarce --scarce Github=0.5 --scarce ArxivLatex=0.6
    ///   cargo xtask settings --corpus minipile --out useless --useless 3.5
    #[command(verbatim_doc_comment)]
    Settings {
        /// Folder of the corpus.
        #[arg(long, value_name = "DIR")]
        corpus: PathBuf,
        /// Folder to make.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// A domain to make scarce, and the megabytes of text that it keeps to train on (may be given several times).
        #[arg(long, value_name = "NAME=MB", value_parser = scarce)]
        scarce: Vec<(String, u64)>,
        /// The part of the documents that the index will hold out.
        #[arg(long, value_name = "PART", default_value_t = 0.05)]
        valid_fraction: f64,
        /// Megabytes of text in each of two useless domains; none are added without it.
        #[arg(long, value_name = "MB", value_parser = megabytes, default_value = "0")]
        useless: u64,
    },
    /// Run the whole of HDS once: corpus, index, training under live weights, report.
    ///
    /// Sets up libtorch, builds, makes a corpus of several domains from text that this machine has, indexes it,
    /// trains a small model for a few minutes and writes a report that opens in a browser. Everything is in out/demo/;
    /// steps that are done are not repeated, a run that was stopped goes on.
    ///
    /// Example: cargo xtask demo --minutes 10
    Demo {
        /// About how long to train, from a few timed steps [default: the steps in trainer/recipes/demo.toml].
        #[arg(long, value_name = "M", value_parser = positive_minutes)]
        minutes: Option<f64>,
        /// A smaller corpus and a short training, in out/demo-quick/.
        #[arg(long)]
        quick: bool,
        /// Remove what earlier runs have made and start over.
        #[arg(long)]
        fresh: bool,
    },
    /// Check everything: format, house rules, lints, documentation, build, tests.
    ///
    /// Sets up libtorch first. Every step is run even where an earlier one fails; the table at the end names the
    /// command that repeats a failed one. The last line counts tests: `N passed, N failed, N skipped`.
    ///
    /// Example: cargo xtask test --only tidy --only fmt
    Test {
        /// Run this step only (may be given several times).
        #[arg(long, value_name = "STEP")]
        only: Vec<Step>,
        /// Leave this step out (may be given several times).
        #[arg(long, value_name = "STEP")]
        skip: Vec<Step>,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse(), &Project::locate()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, project: &Project) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::Setup { cuda } => {
            let flavour = if *cuda { Flavour::Cuda } else { Flavour::Cpu };
            setup::run(project, flavour)?;
        }
        Command::Corpus { out, max_mb } => {
            print!("{}", corpus::table(&corpus::run(project, out, *max_mb)?));
        }
        Command::Settings {
            corpus,
            out,
            scarce,
            valid_fraction,
            useless,
        } => {
            let options = settings::Options {
                scarce: scarce.clone(),
                valid_fraction: *valid_fraction,
                useless_bytes: *useless,
            };
            print!(
                "{}",
                settings::table(&settings::run(corpus, out, &options)?)
            );
        }
        Command::Demo {
            minutes,
            quick,
            fresh,
        } => {
            demo::run(
                project,
                &demo::Options {
                    minutes: *minutes,
                    quick: *quick,
                    fresh: *fresh,
                },
            )?;
        }
        Command::Test { only, skip } => {
            if !check::run(project, only, skip) {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn positive_minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes.is_finite() => Ok(minutes),
        _ => Err("give a number above 0".into()),
    }
}

/// Megabytes (10^6 bytes) as bytes.
fn megabytes(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.0..1e6).contains(&n) => Ok((n * 1e6).round() as u64),
        _ => Err(format!("{text:?} is no number of megabytes from 0")),
    }
}

fn scarce(text: &str) -> Result<(String, u64), String> {
    let (name, bytes) = text.split_once('=').ok_or("NAME=MB is wanted")?;
    Ok((name.to_owned(), megabytes(bytes)?))
}
