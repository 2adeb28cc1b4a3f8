//! The fast engine: the crate `fastokens`, for BPE.
//!
//! In: a checked [`Document`]. Out: the ids of the reference engine, some fifty times faster. What it cannot do
//! it refuses at loading; [`super::check`] then holds it against the reference.
//!
//! Memory: each thread caches the ids of words it has met, at most 2^21 short words (64 MiB, and their longer id lists)
//! and 32 MiB of long ones; a full cache is emptied. It does not grow with the corpus. The engine's own caches of whole inputs stay off.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::document::Document;

/// A loaded fast engine.
pub(super) struct Fast(Box<fastokens::Tokenizer>);

impl Fast {
    /// Builds the engine, or says why it cannot do this tokenizer.
    pub(super) fn build(document: &Document) -> Result<Self, String> {
        match catch_unwind(AssertUnwindSafe(|| {
            fastokens::Tokenizer::from_json(document.json.clone())
        })) {
            Ok(Ok(tokenizer)) => Ok(Self(Box::new(tokenizer))),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the file makes the engine panic".to_owned()),
        }
    }

    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let encoded = self.0.encode(text).map_err(|error| error.to_string())?;
        if ids.is_empty() {
            *ids = encoded;
        } else {
            ids.extend_from_slice(&encoded);
        }
        Ok(())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.0.decode(ids, false).map_err(|error| error.to_string())
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
}
