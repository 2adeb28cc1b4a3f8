//! Draws documents of an index and gives their text back.
//!
//! In: an index from anyone, what is wanted of it, a seed, and the tokenizer that it was built with. Out: [`SampledDocument`]s. Always holds: every
//! document of the chosen domains is drawn with the same probability, none twice; the same index and seed give the same documents.
//! Files are held against the manifest's sizes; their checksums are for `hds-index verify`. Memory: one document.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use hds::DomainId;
use hds::index::{IndexError, Manifest, ShardEntry, TokenType};
use hds::permutation::Permutation;
use serde::Serialize;
use thiserror::Error;

use crate::guard::guarded_table;
pub use crate::selection::Selection;
use crate::selection::{Chosen, shard_of};
use crate::tokenize::{TokenizeError, Tokenizer};
use crate::verify::file::open_sized;
use crate::verify::tables::{Row, TableRows};

/// A document that was drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampledDocument {
    /// Its domain.
    pub domain: String,
    /// `train` or `valid`.
    pub split: &'static str,
    /// Its number in the split, from 0.
    pub document: u64,
    /// The input that it came from.
    pub source: String,
    /// Line, row or file number in the input, from 0.
    pub position: u64,
    /// Tokens, the end-of-document id counted.
    pub tokens: u64,
    /// Bytes of the text that was indexed.
    pub bytes: u64,
    /// Its words.
    pub words: u64,
    /// Its lexical diversity; 0 without words.
    pub mtld: f64,
    /// First half of the BLAKE3 of the text that was indexed, in hexadecimal.
    pub content_hash: String,
    /// What its ids decode to.
    pub text: String,
}

/// Why no document was given.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Ids that cannot be decoded.
    #[error(transparent)]
    Decode(#[from] TokenizeError),
    /// Another tokenizer than the index was built with.
    #[error(
        "give the tokenizer.json of {want:?} with --tokenizer: the index was built with it ({want_fingerprint}), \
         not with {got:?} ({got_fingerprint})"
    )]
    OtherTokenizer {
        /// Name of the one the index was built with.
        want: String,
        /// Its digest.
        want_fingerprint: String,
        /// Name of the one given.
        got: String,
        /// Its digest.
        got_fingerprint: String,
    },
}

/// Draws documents and calls with each; ends early where the call says `false`.
///
/// # Errors
/// If the index is damaged, a domain unknown, or the tokenizer another one.
pub fn sample(
    index: &Path,
    selection: &Selection,
    count: u64,
    seed: u64,
    tokenizer: &dyn Tokenizer,
    mut each: impl FnMut(SampledDocument) -> bool,
) -> Result<(), SampleError> {
    let (manifest, _) = Manifest::load(index)?;
    let known = &manifest.tokenizer;
    if known.fingerprint != tokenizer.fingerprint() {
        return Err(SampleError::OtherTokenizer {
            want: known.name.clone(),
            want_fingerprint: known.fingerprint.clone(),
            got: tokenizer.name().to_owned(),
            got_fingerprint: tokenizer.fingerprint(),
        });
    }
    let chosen = selection.of(index, &manifest)?;
    let documents = chosen
        .iter()
        .fold(0u64, |sum, c| sum.saturating_add(c.entry.documents));
    let order = Permutation::of_epoch(seed, DomainId(0), 0, documents);
    for place in 0..count.min(documents) {
        let Some(mut number) = order.at(place) else {
            break;
        };
        // The split that the number falls into when all are laid end to end.
        for split in &chosen {
            if let Some(left) = number.checked_sub(split.entry.documents) {
                number = left;
                continue;
            }
            if !each(document(index, &manifest, split, number, tokenizer)?) {
                return Ok(());
            }
            break;
        }
    }
    Ok(())
}

fn document(
    index: &Path,
    manifest: &Manifest,
    split: &Chosen<'_>,
    number: u64,
    tokenizer: &dyn Tokenizer,
) -> Result<SampledDocument, SampleError> {
    let shard = shard_of(split.entry, number).ok_or_else(|| IndexError::Content {
        path: index.into(),
        reason: format!("no shard holds document {number} of {:?}", split.domain),
    })?;
    let path = index.join(&shard.table_file.path);
    let wrong = |reason: String| IndexError::Content {
        path: path.clone(),
        reason,
    };
    // Of a large table little is read: its checksum would take far longer than the document.
    open_sized(&path, &shard.table_file)?;
    let row = guarded_table(&path, || -> Result<Row, IndexError> {
        let mut rows = TableRows::open_at(&path, shard.documents, number - shard.first_document)?;
        rows.next()
            .unwrap_or_else(|| Err(wrong(format!("has no row for document {number}"))))
    })?;
    if row.document != number {
        return Err(wrong(format!("has document {} for {number}", row.document)).into());
    }
    let source = manifest
        .sources
        .get(row.record.source as usize)
        .ok_or_else(|| {
            let (got, known) = (row.record.source, manifest.sources.len());
            wrong(format!(
                "document {number} is of source {got}, there are {known}"
            ))
        })?;
    let mut ids = Vec::new();
    read_tokens(index, manifest.token_type, shard, &row, &mut ids)?;
    if ids.pop() != Some(manifest.tokenizer.end_of_document) {
        return Err(wrong(format!("document {number} is not closed")).into());
    }
    let hash = row.record.content_hash;
    Ok(SampledDocument {
        domain: split.domain.to_owned(),
        split: split.split.name(),
        document: number,
        source: source.name.clone(),
        position: row.record.position,
        tokens: row.record.tokens,
        bytes: row.record.bytes,
        words: row.record.words,
        mtld: row.record.mtld,
        content_hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        text: tokenizer.decode(&ids)?,
    })
}

fn read_tokens(
    index: &Path,
    token_type: TokenType,
    shard: &ShardEntry,
    row: &Row,
    ids: &mut Vec<u32>,
) -> Result<(), IndexError> {
    let path = index.join(&shard.tokens_file.path);
    let refused = |action| {
        let path = path.clone();
        move |source| IndexError::Io {
            action,
            path,
            source,
        }
    };
    let inside = row
        .token_offset
        .checked_sub(shard.first_token)
        .filter(|start| {
            start
                .checked_add(row.record.tokens)
                .is_some_and(|end| end <= shard.tokens)
        });
    let Some(start) = inside else {
        return Err(IndexError::Content {
            path,
            reason: format!("document {} lies outside", row.document),
        });
    };
    let mut file = open_sized(&path, &shard.tokens_file)?;
    // Inside a file whose size was looked at.
    let mut bytes = vec![0; (row.record.tokens * token_type.bytes()) as usize];
    file.seek(SeekFrom::Start(start * token_type.bytes()))
        .map_err(refused("read"))?;
    file.read_exact(&mut bytes).map_err(refused("read"))?;
    match token_type {
        TokenType::U16 => ids.extend(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| u32::from(u16::from_le_bytes(*b))),
        ),
        TokenType::U32 => ids.extend(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))),
    }
    Ok(())
}
