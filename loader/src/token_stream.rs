//! The tokens and documents of one split of a domain, across its shards.
//!
//! In: a range of the split's token stream. Out: its ids, or the documents it overlaps with their
//! MTLD. Always holds: ids are below the vocabulary; document spans follow each other and fill the
//! range exactly. A file is mapped at its first use. Leaves windows to [`crate::order`].

use std::ops::Range;

use hds::index::{IndexError, SplitEntry, TokenType};

use crate::batch::DocumentSpan;
use crate::config::Packing;
use crate::document_search::DocumentSearch;
use crate::document_table::DocumentTable;
use crate::error::{LoaderError, make_room_for_one};
use crate::place::Place;
use crate::source_file::SourceFile;
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
    file: SourceFile,
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
        place: &Place,
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
                let table = place.file(&shard.documents_file)?;
                Ok(Shard {
                    first_token: shard.first_token,
                    tokens: shard.tokens,
                    first_document: shard.first_document,
                    file: place.file(&shard.tokens_file)?,
                    table: DocumentTable::new(table, shard.documents, tokens),
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

    /// Looks whether all files are still whole.
    ///
    /// # Errors
    /// The first that is not.
    pub(crate) fn look_again(&self) -> Result<(), IndexError> {
        self.shards.iter().try_for_each(|shard| {
            shard.file.look_again()?;
            shard.table.look_again()
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

    /// Number of different sequences: windows, or documents.
    pub fn samples(&self, packing: Packing, sequence_length: usize) -> u64 {
        match packing {
            Packing::Windows => self.windows(sequence_length),
            Packing::Documents => self.documents,
        }
    }

    /// The place of a sequence: a window of L + 1 tokens, or the first of them of a document.
    ///
    /// # Errors
    /// If there is no such sequence, or a document table is damaged.
    pub(crate) fn sample(
        &self,
        packing: Packing,
        sequence_length: usize,
        number: u64,
    ) -> Result<StreamRange<'_>, LoaderError> {
        let (length, width) = (sequence_length as u64, sequence_length as u64 + 1);
        match packing {
            // A window of a good number does not overflow; one of a bad number is outside either way.
            Packing::Windows => self.range(number.saturating_mul(length), width),
            Packing::Documents => {
                let document = self.document(number)?;
                self.range(document.start, (document.end - document.start).min(width))
            }
        }
    }

    /// The tokens of a document.
    fn document(&self, number: u64) -> Result<Range<u64>, LoaderError> {
        let after = self.shards.partition_point(|s| s.first_document <= number);
        let shard = after
            .checked_sub(1)
            .and_then(|place| self.shards.get(place));
        let Some(shard) = shard.filter(|s| number - s.first_document < s.table.rows()) else {
            return Err(self.outside(self.tokens, 1));
        };
        let row = number - shard.first_document;
        let mut batch = shard.table.batch_of(row)?;
        let start = batch.token_offset(row)?;
        let end = if row + 1 < shard.table.rows() {
            batch.go_to(row + 1)?;
            batch.token_offset(row + 1)?
        } else {
            shard.end_token()
        };
        if end <= start {
            let reason = format!(
                "token_offset of row {} is {end}, not after row {row}'s",
                row + 1
            );
            return Err(batch.damaged(reason).into());
        }
        Ok(start..end)
    }

    /// Copies the tokens from `from` on into `out`, as many as it holds.
    ///
    /// # Errors
    /// If the range leaves the stream, a file cannot be mapped, an id is not below the vocabulary, or
    /// u32 ids are to be read as u16.
    pub fn read(&self, from: u64, out: TokensMut<'_>) -> Result<(), LoaderError> {
        self.range(from, out.len() as u64)?.read(out)
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
        let range = self.range(from, u64::from(count))?;
        if count > 0 {
            let mut search = range.search()?;
            while search.look()? {}
            range.spans(&mut search, out)?;
        }
        Ok(())
    }

    /// A range of the stream, to do several things with.
    ///
    /// # Errors
    /// If it leaves the stream.
    #[inline]
    pub(crate) fn range(&self, from: u64, count: u64) -> Result<StreamRange<'_>, LoaderError> {
        match from.checked_add(count) {
            Some(end) if end <= self.tokens => {
                let after = self.shards.partition_point(|s| s.first_token <= from);
                Ok(StreamRange {
                    stream: self,
                    shards: self
                        .shards
                        .get(after.saturating_sub(1)..)
                        .unwrap_or_default(),
                    from,
                    end,
                })
            }
            _ => Err(self.outside(from, count)),
        }
    }

    #[cold]
    pub(crate) fn outside(&self, from: u64, count: u64) -> LoaderError {
        LoaderError::Range {
            what: self.name.clone(),
            from,
            count,
            tokens: self.tokens,
        }
    }

    /// Copies tokens of a shard from `place` on, as they are stored, and looks at each.
    ///
    /// # Errors
    /// If an id is not below the vocabulary.
    #[inline]
    fn copy(
        &self,
        shard: &Shard,
        place: u64,
        source: &[u8],
        out: &mut TokensMut<'_>,
    ) -> Result<(), IndexError> {
        let largest = out.fill(source, self.token_type);
        if !source.is_empty() && largest >= self.vocabulary {
            return Err(self.beyond_vocabulary(shard, place, source));
        }
        Ok(())
    }

    #[cold]
    fn beyond_vocabulary(&self, shard: &Shard, place: u64, source: &[u8]) -> IndexError {
        let width = self.token_type.bytes() as usize;
        let id_of = |bytes: &[u8]| bytes.iter().rev().fold(0, |id, &b| id << 8 | u32::from(b));
        let ids = source.chunks_exact(width).map(id_of);
        let first = (place..).zip(ids).find(|(_, id)| *id >= self.vocabulary);
        let (at, id) = first.unwrap_or((place, self.vocabulary));
        let vocabulary = self.vocabulary;
        shard.file.damaged(format!(
            "token {at} is {id}, not below the vocabulary of {vocabulary}"
        ))
    }
}

/// A range inside a stream: `from..end`, beginning in the first of `shards`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRange<'a> {
    stream: &'a TokenStream,
    shards: &'a [Shard],
    from: u64,
    end: u64,
}

impl<'a> StreamRange<'a> {
    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        // Ranges of sequences are short; others are only read.
        (self.end - self.from) as usize
    }

    /// The tokens as they are stored, where they are in one file and that is mapped.
    ///
    /// # Errors
    /// If the file cannot be opened, or was seen with another size.
    #[inline]
    pub(crate) fn mapped(&self) -> Result<Option<&'a [u8]>, LoaderError> {
        match self.shards.first() {
            Some(shard) if self.end <= shard.end_token() => {
                let place = self.from - shard.first_token;
                let width = self.stream.token_type.bytes();
                let bytes = byte_range(place, self.end - self.from, width);
                let content = shard.file.mapped()?;
                Ok(content.and_then(|c| c.get(bytes.start as usize..bytes.end as usize)))
            }
            _ => Ok(None),
        }
    }

    /// The shards that the range is in, each with the bytes of it there.
    #[inline]
    fn parts(self) -> impl Iterator<Item = (&'a Shard, Range<u64>)> {
        let width = self.stream.token_type.bytes();
        self.shards.iter().map_while(move |shard| {
            let start = self.from.max(shard.first_token);
            let stop = self.end.min(shard.end_token());
            let inside = start < stop;
            inside.then(|| {
                (
                    shard,
                    byte_range(start - shard.first_token, stop - start, width),
                )
            })
        })
    }

    /// Asks a remote index's server for what the range needs, as far as that is known without looking; does not
    /// wait. Nothing for local files.
    pub(crate) fn announce(&self) {
        self.announce_tokens();
        for shard in self.shards.iter().filter(|s| s.file.is_remote()) {
            let start = self.from.max(shard.first_token);
            if start >= self.end {
                break;
            }
            shard.table.announce(start);
        }
    }

    /// As [`Self::announce`], without the documents.
    pub(crate) fn announce_tokens(&self) {
        for (shard, bytes) in self.parts().filter(|(s, _)| s.file.is_remote()) {
            shard.file.will_need(bytes);
        }
    }

    /// Asks the system for the tokens and documents, which are read in a while. The thread may wait for
    /// the documents; errors are left to the later read.
    pub(crate) fn will_need(&self) {
        for (shard, bytes) in self.parts() {
            shard.file.will_need(bytes);
            if shard.table.look_again().is_err() {
                return;
            }
        }
        // The places that a search looks at are only known by searching.
        if let Ok(mut search) = self.search() {
            while let Ok(true) = search.look() {}
            let _ = self.spans(&mut search, &mut Vec::new());
        }
    }

    /// As [`TokenStream::read`]; `out` is as long as the range.
    ///
    /// # Errors
    /// As [`TokenStream::read`].
    pub(crate) fn read(&self, out: TokensMut<'_>) -> Result<(), LoaderError> {
        let stream = self.stream;
        if stream.token_type == TokenType::U32 && matches!(out, TokensMut::U16(_)) {
            return Err(LoaderError::Narrow {
                what: stream.name.clone(),
                largest: stream.vocabulary.saturating_sub(1),
            });
        }
        let (mut from, mut rest) = (self.from, out);
        let mut scratch = Vec::new();
        for shard in self.shards {
            // At most the length of `rest`, so the cast is exact.
            let count = (shard.end_token() - from).min(rest.len() as u64) as usize;
            let (mut head, tail) = rest.split_at(count);
            let place = from - shard.first_token;
            let bytes = byte_range(place, count as u64, stream.token_type.bytes());
            let source = shard.file.range(bytes, &mut scratch)?;
            stream.copy(shard, place, source, &mut head)?;
            from += count as u64;
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// As [`Self::read`], from what [`Self::mapped`] gave; in the type that is stored.
    ///
    /// # Errors
    /// If an id is not below the vocabulary, or the file was seen with another size since.
    #[inline]
    pub(crate) fn copy(&self, mapped: &[u8], mut out: TokensMut<'_>) -> Result<(), LoaderError> {
        let Some(shard) = self.shards.first() else {
            return Err(self.stream.outside(self.from, self.end - self.from));
        };
        shard.file.mapped()?;
        let place = self.from - shard.first_token;
        Ok(self.stream.copy(shard, place, mapped, &mut out)?)
    }

    /// A search for the document that the range begins in; the range is not empty.
    ///
    /// # Errors
    /// If the document table is damaged.
    #[inline(always)] // as the search itself
    pub(crate) fn search(&self) -> Result<DocumentSearch<'a>, LoaderError> {
        match self.shards.first() {
            Some(shard) => Ok(DocumentSearch::new(&shard.table, self.from)?),
            None => Err(self.stream.outside(self.from, self.end - self.from)),
        }
    }

    /// As [`TokenStream::spans`], with the result of [`Self::search`]; shorter than 2^32 tokens.
    ///
    /// # Errors
    /// If the document table is damaged.
    pub(crate) fn spans(
        &self,
        search: &mut DocumentSearch<'a>,
        out: &mut Vec<DocumentSpan>,
    ) -> Result<(), LoaderError> {
        let (mut row, batch) = search.found();
        let mut later;
        let mut batch = batch;
        let mut place = self.from;
        for (number, shard) in self.shards.iter().enumerate() {
            if place >= self.end {
                break;
            }
            if number > 0 {
                later = shard.table.batch_of(0)?;
                (row, batch) = (0, &mut later);
            }
            let shard_end = shard.end_token().min(self.end);
            while place < shard_end {
                batch.go_to(row)?;
                let mtld = batch.mtld(row)?;
                row += 1;
                let next = if row < shard.table.rows() {
                    batch.go_to(row)?;
                    batch.token_offset(row)?
                } else {
                    shard.end_token()
                };
                if next <= place {
                    let reason =
                        format!("token_offset of row {row} is {next}, not after the row before");
                    return Err(batch.damaged(reason).into());
                }
                let stop = next.min(shard_end);
                make_room_for_one(out)?;
                out.push(DocumentSpan {
                    // Both are at most the length of the range.
                    start: (place - self.from) as u32,
                    length: (stop - place) as u32,
                    mtld,
                    document: shard.first_document + row - 1,
                });
                place = stop;
            }
        }
        Ok(())
    }
}

/// Bytes of `count` tokens from `place` on in their file; inside a shard they do not overflow.
fn byte_range(place: u64, count: u64, width: u64) -> Range<u64> {
    let start = place.saturating_mul(width);
    start..start.saturating_add(count.saturating_mul(width))
}
