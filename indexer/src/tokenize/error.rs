//! What can go wrong with a tokenizer.

use std::path::PathBuf;

/// An error of loading or using a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The file cannot be read.
    #[error("tokenizer {path}: cannot be read")]
    Read {
        /// The file asked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not JSON.
    #[error("tokenizer {path}: not JSON ({why}); a Hugging Face tokenizer.json is wanted")]
    NotJson {
        /// The file asked for.
        path: PathBuf,
        /// What the parser met, and where.
        why: String,
    },
    /// The file is JSON of another kind.
    #[error("tokenizer {path}: this is {found}, not a tokenizer; give the model's tokenizer.json")]
    NotATokenizer {
        /// The file asked for.
        path: PathBuf,
        /// What the file seems to be.
        found: String,
    },
    /// A tokenizer, but not one that can be used.
    #[error("tokenizer {path}: {why}")]
    Unusable {
        /// The file asked for.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// An id in the file is not an id.
    #[error("tokenizer {path}: {field} has the id {got}; ids are whole numbers from 0 to {most}")]
    IdOutOfRange {
        /// The file asked for.
        path: PathBuf,
        /// The place in the file.
        field: String,
        /// The value there.
        got: String,
        /// The largest id allowed.
        most: u32,
    },
    /// No token is known to close documents.
    #[error(
        "tokenizer {path}: no end-of-document token found (looked for {}); name one with --end-of-document TOKEN",
        looked_for.join(" ")
    )]
    NoEndOfDocument {
        /// The file asked for.
        path: PathBuf,
        /// The names looked for.
        looked_for: Vec<&'static str>,
    },
    /// The token asked for to close documents does not exist.
    #[error(
        "tokenizer {path}: has no token {wanted:?} to close documents with (--end-of-document)"
    )]
    UnknownEndOfDocument {
        /// The file asked for.
        path: PathBuf,
        /// The token or id asked for.
        wanted: String,
    },
    /// The engine refused a text.
    #[error("tokenizer {name}: cannot encode the text: {why}")]
    Encode {
        /// The tokenizer's name.
        name: String,
        /// What the engine says.
        why: String,
    },
    /// An id that the tokenizer does not have.
    #[error(
        "tokenizer {name}: has no token with the id {id} (the vocabulary holds {vocabulary} ids)"
    )]
    UnknownId {
        /// The tokenizer's name.
        name: String,
        /// The id met.
        id: u32,
        /// Ids are below this.
        vocabulary: u32,
    },
    /// The engine refused the ids.
    #[error("tokenizer {name}: cannot decode: {why}")]
    Decode {
        /// The tokenizer's name.
        name: String,
        /// What the engine says.
        why: String,
    },
}
