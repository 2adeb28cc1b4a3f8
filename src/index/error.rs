//! What can be wrong with an index; each message names the file and the field.

use std::path::PathBuf;

use thiserror::Error;

use crate::domain::DomainError;

/// What messages about a damaged file end with.
const ADVICE: &str = "; run `hds-index verify`";

/// Why an index cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder has no manifest.
    #[error(
        "{path} is no index: it has no manifest.json; build one with `hds-index build INPUT -o {path}`, or join parts with `hds-index merge`"
    )]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not there.
    #[error(
        "{path} is no index: there is no such folder; check the path, or build one with `hds-index build INPUT -o {path}`"
    )]
    NoFolder {
        /// Where it should be.
        path: PathBuf,
    },
    /// Something that is no folder and was meant as a URL.
    #[error("cannot read an index from {place}: {reason}")]
    Address {
        /// What was given.
        place: PathBuf,
        /// What is wrong with it, and what to write.
        reason: String,
    },
    /// A file where the folder is wanted.
    #[error("{path} is no index but a file; give the index's folder, which holds manifest.json")]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// What one of several builds made.
    #[error(
        "{path} is no index but one part of one (it has part.json); join all parts with `hds-index merge PART... -o INDEX`"
    )]
    Part {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest is not JSON of the right shape.
    #[error("manifest {path}: {reason}")]
    Parse {
        /// The manifest.
        path: PathBuf,
        /// What the parser says.
        reason: String,
    },
    /// Another format, or a version this code does not know.
    #[error("manifest {path} has format {got}, this program reads hds-index version {want}")]
    Version {
        /// The manifest.
        path: PathBuf,
        /// What it says it is.
        got: String,
        /// The version known here.
        want: u32,
    },
    /// A field contradicts another or a rule.
    #[error("manifest {path}, {field}: {reason}")]
    Field {
        /// The manifest.
        path: PathBuf,
        /// Dotted key of the field.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// The domains are no set of domains.
    #[error("manifest {path}, domains: {source}")]
    Domains {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        source: DomainError,
    },
    /// A file is not as long as the manifest says.
    #[error("{path} holds {got} bytes, the manifest says {want}; run `hds-index verify`")]
    Size {
        /// The file.
        path: PathBuf,
        /// Bytes it should have.
        want: u64,
        /// Bytes it has.
        got: u64,
    },
    /// A file's content is not what the manifest says.
    #[error(
        "{path} has checksum {got}, the manifest says {want}: it was changed or damaged; run `hds-index verify`"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Expected BLAKE3.
        want: String,
        /// Found BLAKE3.
        got: String,
    },
    /// An object of a remote index cannot be had, or is not what the manifest says.
    #[error("cannot read {url}: {reason}")]
    Remote {
        /// Where it is.
        url: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The local copy of a remote index cannot be kept.
    #[error(
        "cannot {action} {path}, in the cache of a remote index: {source}; give a cache folder on a local disk with room that this user may write to"
    )]
    Cache {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file's inside is not what the format says.
    #[error("{path}: {reason}; run `hds-index verify`")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl IndexError {
    /// The message without the advice to run `hds-index verify`, for that program itself.
    pub fn finding(&self) -> String {
        let mut text = self.to_string();
        if text.ends_with(ADVICE) {
            text.truncate(text.len() - ADVICE.len());
        }
        text
    }
}
