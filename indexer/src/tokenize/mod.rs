//! Text to token ids, exactly as Hugging Face's `encode(text, add_special_tokens=False)` gives them.
//!
//! In: a [`TokenizerChoice`] once, then document texts. Out: `u32` ids below [`Tokenizer::vocabulary`]. The same
//! choice and text always give the same ids, on any thread. One tokenizer is shared by all threads of a build. It reads
//! its own file and nothing else, and does not append the end-of-document id: the index writer does.
//!
//! Two engines encode a `tokenizer.json`: `fastokens` where it can and where it agrees with the reference
//! on a check at loading, else `tokenizers`, the reference itself. `encode` cuts or pads documents where the file
//! asks for truncation or padding; for an index both are left out.
//!
//! A document that spells a special token (`<|endoftext|>`) gets that token's id, as with Hugging Face.

mod byte;
mod check;
mod document;
mod error;
mod fast;
mod file;
mod reference;

use std::path::PathBuf;

pub use byte::ByteTokenizer;
pub use error::TokenizeError;

/// Turns text into ids and back.
pub trait Tokenizer: Send + Sync {
    /// Appends the ids of a text, with no special tokens added around it.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`] where the engine refuses the text; `ids` may then hold a part of it.
    fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError>;

    /// The text of some ids, special tokens written out. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`TokenizeError::UnknownId`] for an id that the tokenizer does not have.
    fn decode(&self, ids: &[u32]) -> Result<String, TokenizeError>;

    /// Ids are below this: the largest id, added tokens included, plus one.
    fn vocabulary(&self) -> u32;

    /// The id that closes a document.
    fn end_of_document(&self) -> u32;

    /// `byte`, or the stem of the tokenizer's file.
    fn name(&self) -> &str;

    /// BLAKE3, in hexadecimal, of what defines the ids: for a file the hash of its bytes, as `b3sum` prints it.
    fn fingerprint(&self) -> String;

    /// What encodes: `byte`, `fastokens` or `tokenizers`.
    fn engine(&self) -> &'static str;

    /// What a user should know: why the engine is not the fastest one, that an ordinary token closes documents.
    fn note(&self) -> Option<&str> {
        None
    }
}

/// Which tokenizer to load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// The built-in one: a byte is an id, 256 closes a document.
    #[default]
    Byte,
    /// A Hugging Face `tokenizer.json`.
    File {
        /// Where it lies.
        path: PathBuf,
        /// What closes a document; found from the usual names where none is given.
        end_of_document: Option<EndOfDocument>,
    },
}

/// The token that closes a document, as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndOfDocument {
    /// By its text, such as `</s>`.
    Token(String),
    /// By its id.
    Id(u32),
}

impl From<&str> for EndOfDocument {
    /// Digits are an id, anything else is a token's text.
    fn from(named: &str) -> Self {
        named
            .parse()
            .map_or_else(|_| Self::Token(named.to_owned()), Self::Id)
    }
}

/// Loads a tokenizer.
///
/// # Errors
/// [`TokenizeError`]: the file is missing, not JSON, not a tokenizer, not supported, has ids out of range, or no token to close documents.
pub fn load(choice: &TokenizerChoice) -> Result<Box<dyn Tokenizer>, TokenizeError> {
    match choice {
        TokenizerChoice::Byte => Ok(Box::new(ByteTokenizer)),
        TokenizerChoice::File {
            path,
            end_of_document,
        } => file::load(path, end_of_document.as_ref()),
    }
}
