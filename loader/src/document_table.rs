//! A shard's run-time document table, read in place.
//!
//! In: the file and what the manifest says of the shard. Out: its record batches, each with token
//! offset and MTLD of up to [`BATCH_ROWS`] documents.
//! Always holds: offsets handed out lie inside the shard, and row 0's is its first; values of MTLD are
//! finite and not negative. Whether all offsets grow is the caller's to see, row by row
//! ([`crate::token_stream`]). Nothing grows with the documents but one small cell per record batch.

use std::ops::Range;
use std::sync::OnceLock;

use hds::index::{BATCH_ROWS, IndexError};

use crate::arrow_layout::{BatchRanges, ColumnRanges, read_batch, read_footer};
use crate::source_file::{SourceFile, prefetch_line};

/// Bytes read at once where the file is not mapped.
const BLOCK_BYTES: u64 = 4096;

/// Bytes of an offset and of an MTLD.
const OFFSET_BYTES: u64 = 8;
const MTLD_BYTES: u64 = 4;
/// Bytes around a place that are asked for with it: metadata shifts the columns, and searches look at neighbours.
const AROUND_BYTES: u64 = 8192;

/// The documents of one shard.
#[derive(Debug)]
pub(crate) struct DocumentTable {
    file: SourceFile,
    rows: u64,
    tokens: Range<u64>,
    batches: OnceLock<Vec<BatchCell>>,
}

/// A record batch: where it is, and where its columns are once someone looked.
#[derive(Debug)]
struct BatchCell {
    ranges: BatchRanges,
    columns: OnceLock<ColumnRanges>,
}

impl DocumentTable {
    /// Notes what the manifest says of the shard; looks into the file at the first use.
    pub(crate) fn new(file: SourceFile, rows: u64, tokens: Range<u64>) -> Self {
        Self {
            file,
            rows,
            tokens,
            batches: OnceLock::new(),
        }
    }

    /// Looks whether the file is still whole.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn look_again(&self) -> Result<(), IndexError> {
        self.file.look_again()
    }

    /// Asks for the parts of the file that a search for a token looks at first: its ends, and the columns where the
    /// token's document is if documents are of even length.
    pub(crate) fn announce(&self, token: u64) {
        let bytes = self.file.bytes();
        let row = self.likely_row(token);
        let (batch, inside) = (row / BATCH_ROWS as u64, row % BATCH_ROWS as u64);
        let first_row = batch * BATCH_ROWS as u64;
        let rows = (self.rows - first_row).min(BATCH_ROWS as u64);
        // Sizes that a manifest gives may be anything; a wrong place is asked for in vain.
        let body = first_row.saturating_mul(OFFSET_BYTES + MTLD_BYTES);
        let offset = body.saturating_add(inside * OFFSET_BYTES);
        let mtld = body.saturating_add(rows * OFFSET_BYTES + inside * MTLD_BYTES);
        for at in [0, offset, mtld, bytes] {
            let until = at.saturating_add(AROUND_BYTES).min(bytes);
            self.file.will_need(at.saturating_sub(AROUND_BYTES)..until);
        }
    }

    /// The row that a token is in if documents are of even length.
    #[inline]
    pub(crate) fn likely_row(&self, token: u64) -> u64 {
        let Range { start, end } = self.tokens;
        let part = token.saturating_sub(start) as f64 / end.saturating_sub(start).max(1) as f64;
        ((part * self.rows as f64) as u64).min(self.rows.saturating_sub(1))
    }

    /// The shard's tokens in its split's stream.
    pub(crate) fn tokens(&self) -> Range<u64> {
        self.tokens.clone()
    }

    /// Number of documents.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The record batch that a row is in.
    ///
    /// # Errors
    /// If there is no such row, or the table is damaged.
    #[inline]
    pub(crate) fn batch_of(&self, row: u64) -> Result<DocumentBatch<'_>, IndexError> {
        let cells = match self.batches.get() {
            Some(cells) => cells,
            None => self.open()?,
        };
        let number = row / BATCH_ROWS as u64;
        let cell = usize::try_from(number)
            .ok()
            .and_then(|n| cells.get(n))
            .filter(|_| row < self.rows)
            .ok_or_else(|| self.file.damaged(format!("has no row {row}")))?;
        let first_row = number * BATCH_ROWS as u64;
        let rows = (self.rows - first_row).min(BATCH_ROWS as u64);
        let columns = match cell.columns.get() {
            Some(columns) => columns,
            None => {
                let read = read_batch(&self.file, &cell.ranges, number, rows)?;
                cell.columns.get_or_init(|| read)
            }
        };
        Ok(DocumentBatch {
            table: self,
            first_row,
            rows,
            offsets: Values::new(&self.file, &columns.offsets)?,
            mtld: Values::new(&self.file, &columns.mtld)?,
        })
    }

    #[cold]
    fn open(&self) -> Result<&[BatchCell], IndexError> {
        let cell = |ranges| BatchCell {
            ranges,
            columns: OnceLock::new(),
        };
        let batches = read_footer(&self.file, self.rows)?;
        let batches = batches.into_iter().map(cell).collect();
        let cells = self.batches.get_or_init(|| batches);
        // Searches take the first row's offset as known.
        let first = self.batch_of(0)?.offsets.get(0)?.map(u64::from_le_bytes);
        if first != Some(self.tokens.start) {
            return Err(self.wrong_offset(0, first));
        }
        Ok(cells)
    }

    #[cold]
    fn wrong_offset(&self, row: u64, offset: Option<u64>) -> IndexError {
        let Range { start, end } = self.tokens;
        self.file.damaged(match offset {
            None => format!("has no row {row} where it should be"),
            Some(offset) if row == 0 => {
                format!("the first token_offset is {offset}, the manifest says {start}")
            }
            Some(offset) => format!(
                "token_offset of row {row} is {offset}, not inside the shard's tokens {start}..{end}"
            ),
        })
    }

    #[cold]
    fn wrong_mtld(&self, row: u64, mtld: Option<f32>) -> IndexError {
        self.file.damaged(match mtld {
            None => format!("has no row {row} where it should be"),
            Some(mtld) => format!("mtld of row {row} is {mtld}, must be finite and not negative"),
        })
    }
}

/// Up to [`BATCH_ROWS`] rows of a table.
#[derive(Debug)]
pub(crate) struct DocumentBatch<'a> {
    table: &'a DocumentTable,
    first_row: u64,
    rows: u64,
    offsets: Values<'a, 8>,
    mtld: Values<'a, 4>,
}

impl DocumentBatch<'_> {
    /// First row.
    pub(crate) fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Becomes the batch that a row is in.
    ///
    /// # Errors
    /// As [`DocumentTable::batch_of`].
    #[inline]
    pub(crate) fn go_to(&mut self, row: u64) -> Result<(), IndexError> {
        if row.wrapping_sub(self.first_row) >= self.rows {
            *self = self.table.batch_of(row)?;
        }
        Ok(())
    }

    /// First token of a document of this batch, in its split's stream.
    ///
    /// # Errors
    /// If the row is of another batch, or the offset lies outside the shard or is not its first
    /// where, and only where, the row is.
    #[inline]
    pub(crate) fn token_offset(&mut self, row: u64) -> Result<u64, IndexError> {
        let place = row.wrapping_sub(self.first_row) as usize;
        let offset = self.offsets.get(place)?.map(u64::from_le_bytes);
        let Range { start, end } = self.table.tokens;
        match offset {
            Some(offset) if offset < end && (offset > start || (row == 0 && offset == start)) => {
                Ok(offset)
            }
            _ => Err(self.table.wrong_offset(row, offset)),
        }
    }

    /// How many of the rows have offsets at most `token`; those outside the batch do not count.
    ///
    /// # Errors
    /// If the file cannot be read.
    #[inline]
    pub(crate) fn count_up_to(&mut self, rows: Range<u64>, token: u64) -> Result<u64, IndexError> {
        let start = rows.start.saturating_sub(self.first_row) as usize;
        let end = rows.end.saturating_sub(self.first_row).min(self.rows) as usize;
        let mut count = 0;
        match &mut self.offsets {
            Values::Mapped(offsets) => {
                for offset in offsets.get(start..end).unwrap_or_default() {
                    count += u64::from(u64::from_le_bytes(*offset) <= token);
                }
            }
            Values::Read(_) => {
                for place in start..end {
                    let offset = self.offsets.get(place)?.map(u64::from_le_bytes);
                    count += u64::from(offset.is_some_and(|offset| offset <= token));
                }
            }
        }
        Ok(count)
    }

    /// Lexical diversity of a document of this batch; 0 for one without words.
    ///
    /// # Errors
    /// If the row is of another batch, or the value is negative or not finite.
    #[inline]
    pub(crate) fn mtld(&mut self, row: u64) -> Result<f32, IndexError> {
        let place = row.wrapping_sub(self.first_row) as usize;
        let mtld = self.mtld.get(place)?.map(f32::from_le_bytes);
        match mtld {
            // False for NaN too.
            Some(mtld) if (0.0..f32::INFINITY).contains(&mtld) => Ok(mtld),
            _ => Err(self.table.wrong_mtld(row, mtld)),
        }
    }

    /// Asks the processor to fetch the offsets around a row.
    #[inline]
    pub(crate) fn prefetch_offset(&self, row: u64) {
        let place = row.wrapping_sub(self.first_row) as usize;
        // A line each for the row itself and the neighbours on both sides.
        for place in [place.saturating_sub(8), place, place.saturating_add(7)] {
            self.offsets.prefetch(place);
        }
    }

    /// Asks the processor to fetch a row's MTLD.
    #[inline]
    pub(crate) fn prefetch_mtld(&self, row: u64) {
        self.mtld
            .prefetch(row.wrapping_sub(self.first_row) as usize);
    }

    /// An error that names the table's file.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> IndexError {
        self.table.file.damaged(reason)
    }
}

/// A column of a record batch, values of N bytes.
#[derive(Debug)]
enum Values<'a, const N: usize> {
    Mapped(&'a [[u8; N]]),
    Read(Box<ReadValues<'a>>),
}

/// Values of a file that is not mapped, read in blocks.
#[derive(Debug)]
struct ReadValues<'a> {
    file: &'a SourceFile,
    bytes: Range<u64>,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a, const N: usize> Values<'a, N> {
    #[inline]
    fn new(file: &'a SourceFile, bytes: &Range<u64>) -> Result<Self, IndexError> {
        Ok(match file.mapped()? {
            Some(content) => {
                let values = content.get(bytes.start as usize..bytes.end as usize);
                Self::Mapped(values.unwrap_or_default().as_chunks().0)
            }
            None => Self::Read(Box::new(ReadValues {
                file,
                bytes: bytes.clone(),
                block: Vec::new(),
                block_at: 0,
            })),
        })
    }

    /// A value, or `None` beyond the end.
    #[inline]
    fn get(&mut self, place: usize) -> Result<Option<[u8; N]>, IndexError> {
        match self {
            Self::Mapped(values) => Ok(values.get(place).copied()),
            Self::Read(values) => values.get(place),
        }
    }

    #[inline]
    fn prefetch(&self, place: usize) {
        if let Self::Mapped(values) = self
            && let Some(value) = values.get(place)
        {
            prefetch_line(value);
        }
    }
}

impl ReadValues<'_> {
    fn get<const N: usize>(&mut self, place: usize) -> Result<Option<[u8; N]>, IndexError> {
        let Some(at) = (place as u64).checked_mul(N as u64) else {
            return Ok(None);
        };
        if at >= self.bytes.end - self.bytes.start {
            return Ok(None);
        }
        // N divides the block's size, so that no value is cut.
        let block_at = self.bytes.start + at / BLOCK_BYTES * BLOCK_BYTES;
        if self.block.is_empty() || self.block_at != block_at {
            let end = (block_at + BLOCK_BYTES).min(self.bytes.end);
            let mut block = std::mem::take(&mut self.block);
            // The file is not mapped, so the bytes are read into `block`.
            self.file.range(block_at..end, &mut block)?;
            (self.block, self.block_at) = (block, block_at);
        }
        let start = (self.bytes.start + at - block_at) as usize;
        Ok(self
            .block
            .get(start..)
            .and_then(|b| b.first_chunk().copied()))
    }
}
