//! Text to the ids that a model was trained on.
//!
//! In: an index's entry of its tokenizer and, unless that is bytes, the `tokenizer.json` that it was built with. Out: ids. Always
//! holds: a file is used only if it is, byte for byte, the one that made the index; special tokens are not added.
//!
//! The reference implementation (`tokenizers`) is used, which is what Hugging Face's own tools run.

use std::path::{Path, PathBuf};

use hds::index::TokenizerEntry;
use thiserror::Error;

/// Why text cannot be turned into ids.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A file that cannot be read.
    #[error("cannot read tokenizer {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is no tokenizer.
    #[error("{path} is no usable tokenizer.json: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file other than the one that the index was built with.
    #[error(
        "{path} is not the tokenizer of the index: its BLAKE3 is {got}, the index was built with {name:?} of {want}"
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// Its fingerprint.
        got: String,
        /// The index's name for its own.
        name: String,
        /// The index's fingerprint.
        want: String,
    },
    /// No file is given.
    #[error(
        "the index was built with the tokenizer {name:?}, which it does not hold; give the file by --tokenizer"
    )]
    NotGiven {
        /// Its name.
        name: String,
    },
    /// A text that it refuses.
    #[error("tokenizer {name}: {reason}")]
    Encode {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

enum Engine {
    Bytes,
    File(Box<tokenizers::Tokenizer>),
}

/// A tokenizer.
pub struct Tokenizer {
    name: String,
    engine: Engine,
}

/// Name of the indexer's built-in tokenizer: every byte is an id.
const BYTES: &str = "byte";
/// Longest tokenizer.json.
const MOST_BYTES: u64 = 1 << 30;

impl Tokenizer {
    /// The tokenizer of an index; `file` is its `tokenizer.json`, where it is not bytes.
    ///
    /// # Errors
    /// A file that is missing, another than the index's, or damaged.
    pub fn of_index(entry: &TokenizerEntry, file: Option<&Path>) -> Result<Self, TokenizerError> {
        let Some(path) = file else {
            if entry.name == BYTES && entry.vocabulary == 257 {
                return Ok(Self {
                    name: BYTES.to_owned(),
                    engine: Engine::Bytes,
                });
            }
            return Err(TokenizerError::NotGiven {
                name: entry.name.clone(),
            });
        };
        let bytes = read(path)?;
        let got = blake3::hash(&bytes).to_hex().to_string();
        if got != entry.fingerprint {
            return Err(TokenizerError::Other {
                path: path.to_owned(),
                got,
                name: entry.name.clone(),
                want: entry.fingerprint.clone(),
            });
        }
        Self::from_bytes(path, &bytes)
    }

    /// A tokenizer from a file.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        Self::from_bytes(path, &read(path)?)
    }

    fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, TokenizerError> {
        let fail = |reason: String| TokenizerError::File {
            path: path.to_owned(),
            reason,
        };
        // The crate meets some malformed files with a panic.
        let read = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
        let mut tokenizer = match read {
            Ok(Ok(tokenizer)) => tokenizer,
            Ok(Err(error)) => return Err(fail(error.to_string())),
            Err(_) => return Err(fail("the file makes the engine panic".to_owned())),
        };
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|e| fail(e.to_string()))?;
        Ok(Self {
            name: path.display().to_string(),
            engine: Engine::File(Box::new(tokenizer)),
        })
    }

    /// The text of a special or ordinary token; `None` for an id that there is not, and for bytes.
    pub fn token(&self, id: u32) -> Option<String> {
        match &self.engine {
            Engine::Bytes => None,
            Engine::File(tokenizer) => tokenizer.id_to_token(id),
        }
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// A text that the tokenizer refuses.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, TokenizerError> {
        match &self.engine {
            Engine::Bytes => Ok(text.bytes().map(i64::from).collect()),
            Engine::File(tokenizer) => {
                let encoding =
                    tokenizer
                        .encode_fast(text, false)
                        .map_err(|e| TokenizerError::Encode {
                            name: self.name.clone(),
                            reason: e.to_string(),
                        })?;
                Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    hds::durable::read_regular(path, MOST_BYTES).map_err(|source| TokenizerError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, fingerprint: &str, vocabulary: u32) -> TokenizerEntry {
        TokenizerEntry {
            name: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
            vocabulary,
            end_of_document: 0,
        }
    }

    #[test]
    fn bytes_need_no_file_and_others_the_very_one() {
        let bytes = Tokenizer::of_index(&entry("byte", "f", 257), None).unwrap();
        assert_eq!(bytes.encode("é").unwrap(), [0xc3, 0xa9]);
        let other = entry("20B_tokenizer", "f", 50_277);
        let text = |file: Option<&Path>| match Tokenizer::of_index(&other, file) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("used"),
        };
        assert!(text(None).contains("--tokenizer"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        assert!(text(Some(&path)).contains("cannot read"));
        std::fs::write(&path, "{}").unwrap();
        assert!(text(Some(&path)).contains("is not the tokenizer of the index"));
        let Err(error) = Tokenizer::from_file(&path) else {
            panic!("{{}} is a tokenizer");
        };
        assert!(error.to_string().contains("no usable tokenizer"), "{error}");
    }
}
