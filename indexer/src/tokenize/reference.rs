//! The reference engine: the crate `tokenizers`.
//!
//! In: a checked [`Document`]. Out: ids as Hugging Face gives them, by definition. Slow (a few MB of text a second
//! for byte-level BPE); it is the measure of the fast engine, and the fallback for what that one cannot do.

use super::document::Document;
use crate::guard::guarded;

/// A loaded reference engine.
pub(super) struct Reference(Box<tokenizers::Tokenizer>);

impl Reference {
    /// Builds the engine, or says why the file is refused.
    pub(super) fn build(document: &Document) -> Result<Self, String> {
        let json = document.json.to_string();
        // The crate meets some malformed files with a panic.
        match guarded(|| tokenizers::Tokenizer::from_bytes(json)) {
            Some(Ok(tokenizer)) => Ok(Self(Box::new(tokenizer))),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the file makes the engine panic".to_owned()),
        }
    }

    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let encoding = self
            .0
            .encode_fast(text, false)
            .map_err(|error| error.to_string())?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.0.decode(ids, false).map_err(|error| error.to_string())
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    pub(super) fn token_of(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    /// The largest id of all, added tokens included; `None` for an empty vocabulary.
    pub(super) fn largest_id(&self) -> Option<u32> {
        self.0.get_vocab(true).into_values().max()
    }
}
