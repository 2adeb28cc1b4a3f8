//! Gives an index to other programs.
//!
//! In: an index from anyone. Out: [`export_documents`], the document tables of all domains as one Parquet file; [`export_megatron`], the tokens as
//! Megatron's `.bin` and `.idx`. Always holds: what is written is whole or absent; files are held against the manifest's sizes and
//! checksums, tables before they are read and tokens while they are. Memory: one batch of rows.

mod documents;
mod megatron;

use std::path::{Path, PathBuf};

use hds::durable::FileError;
use hds::index::IndexError;
use thiserror::Error;

pub use crate::selection::Selection;
pub use documents::{DocumentsSummary, export_documents};
pub use megatron::{MegatronDataset, export_megatron};

use crate::build::BuildError;

/// Why nothing was exported. The target is then as it was before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The target cannot be made.
    #[error(transparent)]
    Target(#[from] BuildError),
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The target is there already.
    #[error("{path} exists; nothing is overwritten: remove it or name another target with -o")]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// Nothing was chosen.
    #[error("{path}: the chosen domains and split hold no document")]
    Nothing {
        /// The index.
        path: PathBuf,
    },
    /// Something that the other format cannot hold.
    #[error("{path}, domain {domain:?}: {what}, which the format cannot hold")]
    TooLarge {
        /// The index.
        path: PathBuf,
        /// The domain.
        domain: String,
        /// What it is.
        what: String,
    },
}

fn must_be_absent(path: &Path) -> Result<(), ExportError> {
    if path.symlink_metadata().is_ok() {
        return Err(ExportError::TargetExists { path: path.into() });
    }
    Ok(())
}
