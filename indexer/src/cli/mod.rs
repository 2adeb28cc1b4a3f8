//! The commands of `hds-index`.
//!
//! Data goes to stdout, everything else to stderr. The program ends with 0; with 1 and one `error:` line; with 2 where the command line
//! is wrong; with 130 where a signal ended it.

mod build;
mod export;
mod import;
mod inspect;
mod merge;
mod progress;
mod sample;
mod shard;
mod signal;
mod stats;
mod train_tokenizer;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Make and look at token indexes for training with domain weights that change at run time.
///
/// An index is a folder of token shards and document tables, one set a domain, which a loader maps into memory.
#[derive(Debug, Parser)]
#[command(name = "hds-index", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // one value in a process
enum Command {
    Build(build::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Inspect(inspect::Arguments),
    Merge(merge::Arguments),
    Sample(sample::Arguments),
    Stats(stats::Arguments),
    TrainTokenizer(train_tokenizer::Arguments),
    Verify(verify::Arguments),
}

pub(crate) fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Build(arguments) => build::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Sample(arguments) => sample::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::TrainTokenizer(arguments) => train_tokenizer::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            hds::note!("error: {}", hds::message::with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Prints to stdout; a reader that went away is no error.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(hds::message::print(text)?)
}
