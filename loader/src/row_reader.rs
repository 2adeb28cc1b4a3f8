//! Fills the rows of a batch: windows, documents, tokens.
//!
//! In: which sample of which domain each row is. Out: its window, its document spans and MTLD, its
//! tokens. Always holds: rows are filled in order and each from its own sample alone.
//!
//! Why in turns: a row's tokens and documents are at random places of large files, and nearly all
//! time goes into waiting for memory. So each row is announced to the processor first ([`FETCH`]),
//! looked up and copied some turns later, while the rows after it are on their way.

use hds::index::Split;

use crate::batch::{Batch, token_weighted_mtld};
use crate::config::{LoaderConfig, Packing};
use crate::document_search::DocumentSearch;
use crate::error::LoaderError;
use crate::index::Index;
use crate::order::WindowOrder;
use crate::token_stream::StreamRange;

/// Turn of a row in which its window is chosen and its first memory asked for.
const FETCH: usize = 0;
/// Turns in which the search for its first document goes on.
const SEARCH: std::ops::Range<usize> = 1..3;
/// Turn in which the search ends and the documents are noted.
const DOCUMENTS: usize = 3;
/// Turn in which the tokens are copied: the last one.
const COPY: usize = 4;

struct Row<'a> {
    range: StreamRange<'a>,
    search: DocumentSearch<'a>,
}

/// Asks a server for the windows of all rows at once, those there are; whoever reads them waits for each in turn.
fn announce(index: &Index, config: &LoaderConfig, order: &mut WindowOrder, batch: &Batch) {
    for sample in &batch.samples {
        let stream = index.split(sample.domain, Split::Train);
        if let Some(place) = order.place(sample.domain, sample.count)
            && let Ok(range) = stream.sample(config.packing, config.sequence_length, place.window)
        {
            range.announce();
        }
    }
}

/// Fills rows whose `samples` have domain and count, and sets their epoch and window. Rows of short
/// documents end in the padding token.
///
/// # Errors
/// If the index is damaged. A domain without a window, which the weights' check refuses, is one too.
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
    batch.tokens.resize(token_type, batch.samples.len() * width);
    batch.spans.clear();
    batch.span_ends.clear();
    batch.mtld.clear();
    if index.is_remote() && config.packing == Packing::Windows {
        announce(index, config, order, batch);
    }
    // All at once: a permutation is a long chain of dependent steps, and the processor works on several side by side.
    for sample in &mut batch.samples {
        let place = order.place(sample.domain, sample.count).ok_or_else(|| {
            let stream = index.split(sample.domain, Split::Train);
            stream.outside(0, width as u64)
        })?;
        (sample.epoch, sample.window) = (place.epoch, place.window);
    }
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(batch.samples.len());
    for turn in 0..batch.samples.len() + COPY {
        if let Some(sample) = batch.samples.get(turn - FETCH) {
            let stream = index.split(sample.domain, Split::Train);
            let range = stream.sample(config.packing, length, sample.window)?;
            range.prefetch()?;
            let search = range.search()?;
            rows.push(Row { range, search });
        }
        for stage in SEARCH {
            if let Some(row) = turn.checked_sub(stage).and_then(|r| rows.get_mut(r)) {
                row.search.look()?;
            }
        }
        if let Some(row) = turn.checked_sub(DOCUMENTS).and_then(|r| rows.get_mut(r)) {
            while row.search.look()? {}
            let first = batch.spans.len();
            row.range.spans(&mut row.search, &mut batch.spans)?;
            batch.mtld.push(token_weighted_mtld(&batch.spans[first..]));
            batch.span_ends.push(batch.spans.len());
        }
        if let Some(number) = turn.checked_sub(COPY) {
            let range = &rows[number].range;
            let (start, filled) = (number * width, range.len());
            range.read(batch.tokens.part_mut(start..start + filled))?;
            if filled < width {
                let rest = start + filled..start + width;
                batch.tokens.part_mut(rest).fill_with(padding);
            }
        }
    }
    Ok(())
}
