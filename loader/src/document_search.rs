//! Finds the document that a token lies in, in steps that other work can go between.
//!
//! In: a shard's document table and a token. Out: the row of the token's document.
//! Always holds: a search ends after a number of steps logarithmic in the rows, whatever the offsets
//! are; with growing offsets the row is right. Offsets it goes by pass the table's checks.
//!
//! Why in steps: the places looked at are rarely in the processor's cache. Each step asks for the memory
//! that the next one reads, so that whoever has more to do can do it in between.

use hds::index::IndexError;

use crate::document_table::{DocumentBatch, DocumentTable};

/// Looks guided by proportion before bisection takes over.
const INTERPOLATIONS: u32 = 5;
/// From this one on a look takes in the neighbours too, as the row is likely among them.
const WIDE_LOOK: u32 = 2;
/// Rows on each side that a wide look takes in: two or three cache lines in all.
const WIDE: u64 = 8;

/// A search for the document of one token.
///
/// # Source
/// Interpolation search (Peterson, 1957): documents of a shard are alike enough that a few steps end
/// near. Then bisection, so that the worst case stays logarithmic. Our choice.
#[derive(Debug)]
pub(crate) struct DocumentSearch<'a> {
    batch: DocumentBatch<'a>,
    token: u64,
    // offset(low) = low_offset <= token < high_offset = offset(high); `rows` stands for the end.
    low: u64,
    low_offset: u64,
    high: u64,
    high_offset: u64,
    looks: u32,
    /// The row to look at next, which the processor has been asked to fetch.
    planned: Option<u64>,
}

impl<'a> DocumentSearch<'a> {
    /// Starts a search for a token inside the table's shard.
    ///
    /// # Errors
    /// If the table is damaged.
    #[inline(always)] // built where it is kept: a move costs as much as a look
    pub(crate) fn new(table: &'a DocumentTable, token: u64) -> Result<Self, IndexError> {
        let tokens = table.tokens();
        let token = token.clamp(tokens.start, tokens.end.saturating_sub(1));
        let (rows, planned) = (table.rows(), table.likely_row(token));
        let batch = table.batch_of(planned)?;
        batch.prefetch_offset(planned);
        Ok(Self {
            batch,
            token,
            low: 0,
            low_offset: tokens.start,
            high: rows,
            high_offset: tokens.end,
            looks: 0,
            // Row 0 is known.
            planned: (planned > 0).then_some(planned),
        })
    }

    /// The row found, once [`Self::look`] has nothing left to do, and the batch it is in.
    pub(crate) fn found(&mut self) -> (u64, &mut DocumentBatch<'a>) {
        (self.low, &mut self.batch)
    }

    /// Looks at the place planned before and plans the next; whether there is one.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<bool, IndexError> {
        if let Some(row) = self.planned.take() {
            self.looks += 1;
            if (WIDE_LOOK..=INTERPOLATIONS).contains(&self.looks) {
                self.look_around(row)?;
            } else {
                self.learn(row)?;
            }
        }
        let gap = self.high - self.low;
        if gap <= 1 {
            self.batch.go_to(self.low)?;
            self.batch.prefetch_mtld(self.low);
            return Ok(false);
        }
        let row = if self.looks < INTERPOLATIONS {
            // token is in low_offset..high_offset, so this is a part of the gap.
            let part =
                (self.token - self.low_offset) as f64 / (self.high_offset - self.low_offset) as f64;
            self.inside(self.low + (part * gap as f64) as u64)
        } else {
            self.low + gap / 2
        };
        self.batch.go_to(row)?;
        self.batch.prefetch_offset(row);
        self.planned = Some(row);
        Ok(true)
    }

    /// Looks at a row and its neighbours at once.
    fn look_around(&mut self, row: u64) -> Result<(), IndexError> {
        let first = row.saturating_sub(WIDE).max(self.batch.first_row());
        let count = self
            .batch
            .count_up_to(first..row.saturating_add(WIDE), self.token)?;
        // With growing offsets the first `count` of them are those up to the token: the row before the
        // border and the one after it are the two that close the search.
        self.learn(self.inside((first + count).saturating_sub(1)))?;
        if self.high - self.low > 1 {
            self.learn(self.inside(first + count))?;
        }
        Ok(())
    }

    /// A row to look at: not one already known.
    fn inside(&self, row: u64) -> u64 {
        row.clamp(self.low + 1, self.high - 1)
    }

    /// Moves one end of the gap to a row inside it.
    #[inline]
    fn learn(&mut self, row: u64) -> Result<(), IndexError> {
        self.batch.go_to(row)?;
        let offset = self.batch.token_offset(row)?;
        if offset <= self.token {
            (self.low, self.low_offset) = (row, offset);
        } else {
            (self.high, self.high_offset) = (row, offset);
        }
        Ok(())
    }
}
