//! A `tokenizer.json` read and judged before any engine sees it.
//!
//! In: a path. Out: [`Document`]: the JSON with what an index must not have taken out, and its fingerprint. After
//! this, every id in the file is in range, the model has no dropout, and neither truncation nor padding is set.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::TokenizeError;

/// The largest id that a file may hold. Far above any real vocabulary; keeps tables indexed by id of a sane size.
pub(super) const LARGEST_ID: u32 = (1 << 24) - 1;

/// A checked `tokenizer.json`.
pub(super) struct Document {
    pub(super) path: PathBuf,
    pub(super) json: Value,
    pub(super) fingerprint: String,
    /// The texts of the added tokens, in the file's order.
    pub(super) added: Vec<String>,
}

impl Document {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// As [`super::load`], up to the choice of an engine.
    pub(super) fn read(path: &Path) -> Result<Self, TokenizeError> {
        let bytes = std::fs::read(path).map_err(|source| TokenizeError::Read {
            path: path.to_owned(),
            source,
        })?;
        let not_json = |why: String| TokenizeError::NotJson {
            path: path.to_owned(),
            why,
        };
        if let Some(kind) = binary_kind(&bytes) {
            return Err(not_json(kind.to_owned()));
        }
        let json: Value =
            serde_json::from_slice(&bytes).map_err(|error| not_json(error.to_string()))?;
        let fingerprint = blake3::hash(&bytes).to_hex().to_string();
        let mut object = match json {
            Value::Object(object) if object.get("model").is_some_and(Value::is_object) => object,
            other => {
                return Err(TokenizeError::NotATokenizer {
                    path: path.to_owned(),
                    found: describe(&other),
                });
            }
        };
        object.insert("truncation".to_owned(), Value::Null);
        object.insert("padding".to_owned(), Value::Null);
        check_dropout(path, &object)?;
        check_model_ids(path, &object["model"])?;
        let added = check_added_tokens(path, object.get("added_tokens"))?;
        Ok(Self {
            path: path.to_owned(),
            json: Value::Object(object),
            fingerprint,
            added,
        })
    }

    pub(super) fn unusable(&self, why: impl Into<String>) -> TokenizeError {
        TokenizeError::Unusable {
            path: self.path.clone(),
            why: why.into(),
        }
    }
}

/// Dropout makes ids random, so an index could not be rebuilt.
fn check_dropout(path: &Path, object: &Map<String, Value>) -> Result<(), TokenizeError> {
    match object["model"].get("dropout").and_then(Value::as_f64) {
        Some(dropout) if dropout != 0.0 => Err(TokenizeError::Unusable {
            path: path.to_owned(),
            why: format!(
                "model.dropout is {dropout}, which makes ids random; set it to null in a copy of the file"
            ),
        }),
        _ => Ok(()),
    }
}

/// Checks the ids of `model.vocab`, where it maps tokens to ids (BPE, WordPiece, WordLevel; Unigram has a list).
fn check_model_ids(path: &Path, model: &Value) -> Result<(), TokenizeError> {
    match model.get("vocab") {
        Some(Value::Object(vocab)) => vocab
            .iter()
            .try_for_each(|(token, id)| check_id(path, || format!("model.vocab[{token:?}]"), id)),
        _ => Ok(()),
    }
}

fn check_added_tokens(path: &Path, added: Option<&Value>) -> Result<Vec<String>, TokenizeError> {
    let mut texts = Vec::new();
    for (index, token) in added
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        check_id(
            path,
            || format!("added_tokens[{index}].id"),
            token.get("id").unwrap_or(&Value::Null),
        )?;
        if let Some(text) = token.get("content").and_then(Value::as_str) {
            texts.push(text.to_owned());
        }
    }
    Ok(texts)
}

fn check_id(path: &Path, field: impl Fn() -> String, id: &Value) -> Result<(), TokenizeError> {
    match id.as_u64() {
        Some(id) if id <= u64::from(LARGEST_ID) => Ok(()),
        _ => Err(TokenizeError::IdOutOfRange {
            path: path.to_owned(),
            field: field(),
            got: id.to_string(),
            most: LARGEST_ID,
        }),
    }
}

/// Names the binary files that people mistake for a `tokenizer.json`.
fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("an empty file"),
        [0x1f, 0x8b, ..] => Some("a gzip archive"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("a zstd archive"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive"),
        [0x0a, ..]
            if bytes.iter().take(64).any(|byte| *byte == 0)
                || bytes.get(2..7) == Some(b"\n\x05<unk") =>
        {
            Some("binary, perhaps a SentencePiece tokenizer.model")
        }
        _ if bytes.starts_with(b"version https://git-lfs") => {
            Some("a Git LFS pointer; fetch the file with git lfs pull")
        }
        _ => None,
    }
}

/// Says what a JSON value that is no tokenizer seems to be.
fn describe(json: &Value) -> String {
    let Value::Object(object) = json else {
        return match json {
            Value::Array(items) => format!("a JSON array of {} items", items.len()),
            Value::String(_) => "a JSON string".to_owned(),
            _ => format!("the JSON value {json}"),
        };
    };
    let has = |key: &str| object.contains_key(key);
    if has("tokenizer_class") || has("added_tokens_decoder") {
        "a tokenizer_config.json (settings, no vocabulary)".to_owned()
    } else if has("model_type") || has("architectures") {
        "a model's config.json".to_owned()
    } else if has("eos_token") || has("unk_token") {
        "a special_tokens_map.json".to_owned()
    } else if !object.is_empty() && object.values().all(Value::is_u64) {
        format!(
            "a vocabulary of {} entries (vocab.json), without merges",
            object.len()
        )
    } else {
        let mut keys: Vec<&str> = object.keys().take(5).map(String::as_str).collect();
        if object.len() > keys.len() {
            keys.push("…");
        }
        format!(
            "a JSON object with the keys [{}] and no \"model\"",
            keys.join(", ")
        )
    }
}
