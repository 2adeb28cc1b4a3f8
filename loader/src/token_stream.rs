//! The tokens and documents of one split of a domain, across its shards.
//!
//! In: a range of the split's token stream. Out: its ids, or the documents it overlaps with their
//! MTLD. Always holds: ids are below the vocabulary; document spans follow each other and fill the
//! range exactly. A file is mapped at its first use. Leaves windows to [`crate::order`].

use std::ops::Range;
use std::path::Path;

use hds::index::{IndexError, SplitEntry, TokenType};

use crate::batch::DocumentSpan;
use crate::document_table::DocumentTable;
use crate::error::LoaderError;
use crate::mapped_file::MappedFile;
use crate::tokens::TokensMut;

/// A split: T tokens and its documents, one after another.
#[derive(Debug)]
pub struct TokenStream {
    /// Domain and split, for messages.
    name: String,
    shards: Vec<Shard>,
    tokens: u64,
    documents: u64,
    token_type: TokenType,
    vocabulary: u32,
}

#[derive(Debug)]
struct Shard {
    first_token: u64,
    tokens: u64,
    first_document: u64,
    file: MappedFile,
    table: DocumentTable,
}

impl Shard {
    fn end_token(&self) -> u64 {
        // The manifest's check has seen that this does not overflow.
        self.first_token + self.tokens
    }
}

impl TokenStream {
    /// Takes a split of a checked manifest and looks that its files are there, with the right sizes.
    ///
    /// # Errors
    /// The first file that is missing or of another size.
    pub(crate) fn open(
        index: &Path,
        name: String,
        entry: &SplitEntry,
        token_type: TokenType,
        vocabulary: u32,
    ) -> Result<Self, IndexError> {
        let shards = entry
            .shards
            .iter()
            .map(|shard| {
                let tokens = shard.first_token..shard.first_token + shard.tokens;
                let file = index.join(&shard.tokens_file.path);
                let table = index.join(&shard.documents_file.path);
                Ok(Shard {
                    first_token: shard.first_token,
                    tokens: shard.tokens,
                    first_document: shard.first_document,
                    file: MappedFile::new(file, shard.tokens_file.bytes)?,
                    table: DocumentTable::new(
                        table,
                        shard.documents_file.bytes,
                        shard.documents,
                        tokens,
                    )?,
                })
            })
            .collect::<Result<_, IndexError>>()?;
        Ok(Self {
            name,
            shards,
            tokens: entry.tokens,
            documents: entry.documents,
            token_type,
            vocabulary,
        })
    }

    /// T, with the end-of-document ids.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Number of documents.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// N = ⌊(T − 1) / L⌋: windows of L + 1 tokens at stride L, so that each token but the first is
    /// predicted once.
    pub fn windows(&self, sequence_length: usize) -> u64 {
        let stride = sequence_length.max(1) as u64;
        self.tokens.saturating_sub(1) / stride
    }

    /// Copies the tokens from `from` on into `out`, as many as it holds.
    ///
    /// # Errors
    /// If the range leaves the stream, a file cannot be mapped, or an id is not below the vocabulary.
    pub fn read(&self, from: u64, out: TokensMut<'_>) -> Result<(), LoaderError> {
        let (_, mut shard) = self.check(from, out.len() as u64)?;
        let (mut from, mut rest) = (from, out);
        while !rest.is_empty() {
            let current = self.shard(shard)?;
            // At most the length of `rest`, so the cast is exact.
            let count = (current.end_token() - from).min(rest.len() as u64) as usize;
            let (mut head, tail) = rest.split_at(count);
            self.copy(current, from - current.first_token, &mut head)?;
            from += count as u64;
            rest = tail;
            shard += 1;
        }
        Ok(())
    }

    /// Appends the documents that the `count` tokens from `from` on overlap, in order.
    ///
    /// `start` and `length` of each are clipped to the range and count from its first token.
    ///
    /// # Errors
    /// If the range leaves the stream, or a document table is damaged.
    pub fn spans(
        &self,
        from: u64,
        count: u32,
        out: &mut Vec<DocumentSpan>,
    ) -> Result<(), LoaderError> {
        let (end, mut number) = self.check(from, u64::from(count))?;
        let mut place = from;
        while place < end {
            let shard = self.shard(number)?;
            let table = &shard.table;
            let mut row = table.row_of(place)?;
            let shard_end = shard.end_token().min(end);
            while place < shard_end {
                let next = if row + 1 < table.rows() {
                    table.token_offset(row + 1)?
                } else {
                    shard.end_token()
                };
                if next <= place {
                    let reason = format!(
                        "token_offset of row {} is {next}, not after the row before",
                        row + 1
                    );
                    return Err(table.damaged(reason).into());
                }
                let stop = next.min(shard_end);
                out.push(DocumentSpan {
                    // Both are at most `count`.
                    start: (place - from) as u32,
                    length: (stop - place) as u32,
                    mtld: table.mtld(row)?,
                    document: shard.first_document + row,
                });
                place = stop;
                row += 1;
            }
            number += 1;
        }
        Ok(())
    }

    /// The end of a range inside the stream, and the shard it begins in.
    fn check(&self, from: u64, count: u64) -> Result<(u64, usize), LoaderError> {
        match from.checked_add(count) {
            Some(end) if end <= self.tokens => {
                let after = self.shards.partition_point(|s| s.first_token <= from);
                Ok((end, after.saturating_sub(1)))
            }
            _ => Err(LoaderError::Range {
                what: self.name.clone(),
                from,
                count,
                tokens: self.tokens,
            }),
        }
    }

    fn shard(&self, number: usize) -> Result<&Shard, LoaderError> {
        self.shards.get(number).ok_or_else(|| LoaderError::Range {
            what: self.name.clone(),
            from: self.tokens,
            count: 1,
            tokens: self.tokens,
        })
    }

    /// Copies tokens of one shard, `place` counted from its first.
    fn copy(&self, shard: &Shard, place: u64, out: &mut TokensMut<'_>) -> Result<(), IndexError> {
        let bytes = shard.file.content()?;
        let width = self.token_type.bytes();
        let range = byte_range(place, out.len() as u64, width);
        let source = range.and_then(|r| bytes.get(r)).ok_or_else(|| {
            content(
                shard,
                format!("has no tokens {place}..{}", place + out.len() as u64),
            )
        })?;
        let largest = out.fill(source, self.token_type);
        if largest >= self.vocabulary {
            return Err(self.beyond_vocabulary(shard, place, source));
        }
        Ok(())
    }

    #[cold]
    fn beyond_vocabulary(&self, shard: &Shard, place: u64, source: &[u8]) -> IndexError {
        let ids: Vec<u32> = match self.token_type {
            TokenType::U16 => source
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| u32::from(u16::from_le_bytes(*b)))
                .collect(),
            TokenType::U32 => source
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b))
                .collect(),
        };
        let first = ids.iter().position(|&id| id >= self.vocabulary);
        let (at, id) = first.map_or((0, 0), |i| (i, ids[i]));
        content(
            shard,
            format!(
                "token {} is {id}, not below the vocabulary of {}",
                place + at as u64,
                self.vocabulary
            ),
        )
    }
}

fn content(shard: &Shard, reason: String) -> IndexError {
    IndexError::Content {
        path: shard.file.path().to_owned(),
        reason,
    }
}

fn byte_range(place: u64, count: u64, width: u64) -> Option<Range<usize>> {
    let start = usize::try_from(place.checked_mul(width)?).ok()?;
    let length = usize::try_from(count.checked_mul(width)?).ok()?;
    Some(start..start.checked_add(length)?)
}
