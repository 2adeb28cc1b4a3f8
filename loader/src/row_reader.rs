//! Fills the rows of a batch: windows, documents, tokens.
//!
//! In: which sample of which domain each row is. Out: its window, its document spans and MTLD, its
//! tokens. Always holds: rows are filled in order and each from its own sample alone.
//!
//! Why in turns: a row's tokens and documents are at random places of large files, and nearly all
//! time goes into waiting for memory. So each row is announced to the processor first ([`FETCH`]),
//! looked up and copied some turns later, while the rows after it are on their way; and its tokens are asked
//! for a few lines at a time, between the work on the others ([`Ahead`]).

use hds::index::Split;

use crate::batch::{Batch, token_weighted_mtld};
use crate::config::{LoaderConfig, Packing};
use crate::document_search::DocumentSearch;
use crate::error::{LoaderError, make_room};
use crate::index::Index;
use crate::order::WindowOrder;
use crate::source_file::{CACHE_LINE_BYTES, prefetch, prefetch_line};
use crate::token_stream::StreamRange;

/// Turn of a row in which its memory is first asked for.
const FETCH: usize = 0;
/// Turns in which the search for its first document goes on.
const SEARCH: std::ops::Range<usize> = 1..4;
/// Turn in which the search ends, the documents are noted and the tokens copied: the last one.
const READ: usize = 4;
/// Bytes of the smallest pages there are.
const PAGE_BYTES: usize = 4096;

struct Row<'a> {
    range: StreamRange<'a>,
    /// Its tokens as they are stored, where they lie in one mapped file.
    mapped: Option<&'a [u8]>,
}

/// Fills rows whose `samples` have domain and count, and sets their epoch and window. Rows of short
/// documents end in the padding token.
///
/// # Errors
/// If the index is damaged, or there is no memory for the batch. A domain without a window, which the weights' check refuses, is one too.
pub(crate) fn read_rows(
    index: &Index,
    config: &LoaderConfig,
    order: &mut WindowOrder,
    batch: &mut Batch,
) -> Result<(), LoaderError> {
    let length = batch.sequence_length;
    let width = length + 1;
    let token_type = index.manifest().token_type;
    let end_of_document = index.manifest().tokenizer.end_of_document;
    let padding = config.padding_token.unwrap_or(end_of_document);
    let count = batch.samples.len();
    batch.tokens.resize(token_type, count * width)?;
    batch.spans.clear();
    batch.span_ends.clear();
    batch.mtld.clear();
    order.place_each(&mut batch.samples).map_err(|domain| {
        let stream = index.split(domain, Split::Train);
        stream.outside(0, width as u64)
    })?;
    // A server is asked for the windows of all rows at once; whoever reads them waits for each in turn.
    let announced = index.is_remote() && config.packing == Packing::Windows;
    let mut rows: Vec<Row<'_>> = Vec::new();
    make_room(&mut rows, count)?;
    let mut searches: Vec<DocumentSearch<'_>> = Vec::new();
    make_room(&mut searches, count)?;
    make_room(&mut batch.mtld, count)?;
    make_room(&mut batch.span_ends, count)?;
    for sample in &batch.samples {
        let stream = index.split(sample.domain, Split::Train);
        let range = stream.sample(config.packing, length, sample.window)?;
        if announced {
            range.announce();
        }
        let mapped = range.mapped()?;
        rows.push(Row { range, mapped });
    }
    // Where a page is in memory is looked up before anything of it is fetched, for some pages side by side; asked for
    // one by one, each would be waited for.
    for tokens in rows.iter().filter_map(|row| row.mapped) {
        tokens.chunks(PAGE_BYTES).for_each(prefetch_line);
        prefetch_line(&tokens[tokens.len().saturating_sub(1)..]);
    }
    let mut ahead = Ahead::default();
    for turn in 0..rows.len() + READ {
        if let Some(row) = rows.get(turn - FETCH) {
            ahead = Ahead::new(row.mapped.unwrap_or_default());
            searches.push(row.range.search()?);
        }
        ahead.fetch_part();
        for stage in SEARCH {
            if let Some(search) = turn.checked_sub(stage).and_then(|r| searches.get_mut(r)) {
                search.look()?;
            }
            ahead.fetch_part();
        }
        if let Some(number) = turn.checked_sub(READ) {
            let (Row { range, mapped }, search) = (&rows[number], &mut searches[number]);
            while search.look()? {}
            let first = batch.spans.len();
            range.spans(search, &mut batch.spans)?;
            batch.mtld.push(token_weighted_mtld(&batch.spans[first..]));
            batch.span_ends.push(batch.spans.len());
            ahead.fetch_part();
            let (start, filled) = (number * width, range.len());
            let out = batch.tokens.part_mut(start..start + filled);
            match mapped {
                Some(mapped) => range.copy(mapped, out)?,
                None => range.read(out)?,
            }
            if filled < width {
                let rest = start + filled..start + width;
                batch.tokens.part_mut(rest).fill_with(padding);
            }
        }
        ahead.fetch_rest();
    }
    Ok(())
}

/// The tokens of the newest row, which the processor is asked for part by part.
///
/// The processor waits for so many lines at once and no more: asked for all of a row's, it would stand still until
/// most of them are there, and then have nothing under way while it works on the other rows.
#[derive(Default)]
struct Ahead<'a> {
    tokens: &'a [u8],
    part: usize,
}

impl<'a> Ahead<'a> {
    /// Parts of a row; it is asked for at six places of a turn, and the last takes what is left.
    const PARTS: usize = 6;

    fn new(tokens: &'a [u8]) -> Self {
        let lines = tokens.len().div_ceil(CACHE_LINE_BYTES);
        let part = lines.div_ceil(Self::PARTS) * CACHE_LINE_BYTES;
        Self { tokens, part }
    }

    #[inline]
    fn fetch_part(&mut self) {
        let (now, later) = self.tokens.split_at(self.tokens.len().min(self.part));
        prefetch(now);
        self.tokens = later;
    }

    #[inline]
    fn fetch_rest(&mut self) {
        prefetch(std::mem::take(&mut self.tokens));
    }
}
