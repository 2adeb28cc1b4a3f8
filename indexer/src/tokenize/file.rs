//! A tokenizer from a `tokenizer.json`: the choice of an engine and of the end-of-document token.

use std::path::Path;

use super::{
    EndOfDocument, TokenizeError, Tokenizer, check, document::Document, fast::Fast,
    reference::Reference,
};
use crate::guard::guarded;

/// Tokens that close a document in published tokenizers, the first found counts.
const END_OF_DOCUMENT_NAMES: &[&str] = &[
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<EOS>",
    "<｜end▁of▁sentence｜>",
    "<|endofdocument|>",
    "<EOD>",
    "<eod>",
    "[SEP]",
];

enum Engine {
    Fast(Fast),
    Reference(Reference),
}

/// A tokenizer that a file defines.
struct FileTokenizer {
    engine: Engine,
    note: Option<String>,
    name: String,
    fingerprint: String,
    vocabulary: u32,
    end_of_document: u32,
}

/// Loads a `tokenizer.json`.
pub(super) fn load(
    path: &Path,
    end_of_document: Option<&EndOfDocument>,
) -> Result<Box<dyn Tokenizer>, TokenizeError> {
    let document = Document::read(path)?;
    let reference = Reference::build(&document).map_err(|why| document.unusable(why))?;
    let largest = reference
        .largest_id()
        .ok_or_else(|| document.unusable("the vocabulary is empty"))?;
    let named = end_of_document.is_some();
    let end_of_document = find_end_of_document(&document, &reference, end_of_document)?;
    let ordinary = reference
        .token_of(end_of_document)
        .filter(|token| named && !document.added.contains(token))
        .map(|token| {
            format!(
                "warning: {token:?} closes documents (--end-of-document), and is an ordinary token, which texts hold too"
            )
        });
    let fast = Fast::build(&document).and_then(|fast| {
        guarded(|| check::agree(&fast, &reference, &document))
            .unwrap_or_else(|| Err("a text makes an engine panic".into()))
            .map(|()| fast)
    });
    let (engine, note) = match fast {
        Ok(fast) => (Engine::Fast(fast), None),
        Err(why) => (
            Engine::Reference(reference),
            Some(format!("fastokens is not used for this tokenizer: {why}")),
        ),
    };
    let note = match (ordinary, note) {
        (Some(ordinary), Some(note)) => Some(format!("{ordinary}\n{note}")),
        (ordinary, note) => ordinary.or(note),
    };
    Ok(Box::new(FileTokenizer {
        engine,
        note,
        name: path
            .file_stem()
            .map_or_else(|| "tokenizer".into(), |stem| stem.to_string_lossy())
            .into_owned(),
        fingerprint: document.fingerprint,
        vocabulary: largest + 1,
        end_of_document,
    }))
}

fn find_end_of_document(
    document: &Document,
    reference: &Reference,
    wanted: Option<&EndOfDocument>,
) -> Result<u32, TokenizeError> {
    let unknown = |wanted: String| TokenizeError::UnknownEndOfDocument {
        path: document.path.clone(),
        wanted,
    };
    match wanted {
        Some(EndOfDocument::Token(token)) => {
            reference.id_of(token).ok_or_else(|| unknown(token.clone()))
        }
        Some(EndOfDocument::Id(id)) => reference
            .token_of(*id)
            .map(|_| *id)
            .ok_or_else(|| unknown(id.to_string())),
        None => END_OF_DOCUMENT_NAMES
            .iter()
            .find_map(|name| reference.id_of(name))
            .ok_or_else(|| TokenizeError::NoEndOfDocument {
                path: document.path.clone(),
                looked_for: END_OF_DOCUMENT_NAMES.to_vec(),
            }),
    }
}

impl Tokenizer for FileTokenizer {
    fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError> {
        guarded(|| match &self.engine {
            Engine::Fast(fast) => fast.encode_into(text, ids),
            Engine::Reference(reference) => reference.encode_into(text, ids),
        })
        .unwrap_or_else(|| Err("the text makes the engine panic".into()))
        .map_err(|why| TokenizeError::Encode {
            name: self.name.clone(),
            why,
        })
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizeError> {
        if let Some(&id) = ids.iter().find(|id| **id >= self.vocabulary) {
            return Err(TokenizeError::UnknownId {
                name: self.name.clone(),
                id,
                vocabulary: self.vocabulary,
            });
        }
        guarded(|| match &self.engine {
            Engine::Fast(fast) => fast.decode(ids),
            Engine::Reference(reference) => reference.decode(ids),
        })
        .unwrap_or_else(|| Err("the ids make the engine panic".into()))
        .map_err(|why| TokenizeError::Decode {
            name: self.name.clone(),
            why,
        })
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn end_of_document(&self) -> u32 {
        self.end_of_document
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn engine(&self) -> &'static str {
        match self.engine {
            Engine::Fast(_) => "fastokens",
            Engine::Reference(_) => "tokenizers",
        }
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}
