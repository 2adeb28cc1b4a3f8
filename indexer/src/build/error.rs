//! Why there is no index.

use std::path::PathBuf;

use hds::durable::FileError;
use hds::index::IndexError;
use thiserror::Error;

use crate::input::{InputError, Place, PlanError};
use crate::record::Fault;
use crate::tokenize::TokenizeError;

/// Why a build ended without an index. The target is then as it was before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The inputs make no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A record cannot be indexed.
    #[error("{}; {}", .0, advice(.0))]
    Input(InputError),
    /// The tokenizer cannot be loaded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizeError),
    /// Nothing was indexed at all.
    #[error("the input holds no document{more}; no index was written")]
    NoDocument {
        /// What was left out, with a leading separator, or nothing.
        more: String,
    },
    /// Everything was held out.
    #[error(
        "no domain has anything to train on: all {documents} documents are held out; give a smaller --valid-fraction"
    )]
    NothingToTrain {
        /// How many documents there are.
        documents: u64,
    },
    /// More domains than an index can have.
    #[error(
        "{path}: more than {most} domains ({example:?} is one too many); is {field:?} really a domain? \
         `--domain-from file`, `folder` or `--domain NAME` take another"
    )]
    TooManyDomains {
        /// Where it was met.
        path: PathBuf,
        /// The limit.
        most: usize,
        /// The domain's name.
        example: String,
        /// Where domains come from.
        field: String,
    },
    /// The target is there already.
    #[error(
        "{path} exists; nothing published is ever overwritten: remove it or name another target with -o"
    )]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target would lie among the input.
    #[error(
        "{target} would lie in the input folder {folder}, and be input of the next build; name a target outside it with -o"
    )]
    TargetInInput {
        /// The target.
        target: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The place of the staging folder is taken.
    #[error(
        "{path} is where an unfinished build is kept, but there is {entry}, which no build made; move it away or name another target"
    )]
    InTheWay {
        /// Where the staging folder belongs.
        path: PathBuf,
        /// What is there.
        entry: String,
    },
    /// Another build writes to the same target.
    #[error(
        "another build is writing {target} (it holds {lock}); wait for it or name another target"
    )]
    Locked {
        /// The target.
        target: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// An interrupted build of something else lies there.
    #[error(
        "{staging} holds an interrupted build with {what}; give the same again to go on, or --restart to discard it"
    )]
    OtherBuild {
        /// The staging folder.
        staging: PathBuf,
        /// What differs.
        what: String,
    },
    /// What an interrupted build left cannot be used.
    #[error("{path}: {reason}; give --restart to discard the interrupted build")]
    Staging {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An option is out of its range.
    #[error("{option} is {got}; {want}")]
    Option {
        /// The option as typed.
        option: &'static str,
        /// Its value.
        got: String,
        /// What is possible.
        want: &'static str,
    },
    /// The user ended the build.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// What is kept and how to go on.
        kept: String,
    },
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A table cannot be written.
    #[error("cannot write {path}: {reason}")]
    Table {
        /// The file.
        path: PathBuf,
        /// What the writer says.
        reason: String,
    },
    /// The manifest breaks its own rules, which is a fault of this program.
    #[error(transparent)]
    Manifest(#[from] IndexError),
}

/// What to do about a record or a source that cannot be indexed.
fn advice(error: &InputError) -> &'static str {
    match (&error.fault, error.place) {
        // Nothing of it would be left.
        (Fault::Megatron { .. }, Place::Whole) => {
            "give the dataset's .idx and .bin whole, or leave it out of the import"
        }
        (fault, _) if fault.is_ours() => "give another tokenizer",
        _ => "`--on-error skip` leaves out and counts what is like it",
    }
}
