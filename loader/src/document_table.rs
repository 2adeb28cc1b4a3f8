//! A shard's run-time document table, read in place from its mapped Arrow IPC file.
//!
//! In: the file and what the manifest says of the shard. Out: token offset and MTLD of any row, and
//! the row a token lies in, by binary search.
//! Always holds: the footer and each record batch's metadata pass the flatbuffers verifier and lie
//! inside the file before they are used, a batch's on its first use; offsets handed out lie inside the
//! shard. Whether all offsets grow is the caller's to see, row by row ([`crate::token_stream`]).
//!
//! # Source
//! Arrow columnar format, "IPC File Format" and "Encapsulated message format". Read here without
//! building arrays: a row costs one bounds check, and nothing grows with the documents but one small
//! cell per record batch of [`BATCH_ROWS`] rows.

use std::path::PathBuf;
use std::sync::OnceLock;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Block, Endianness, MetadataVersion, RecordBatch, root_as_footer, root_as_message};
use hds::index::{BATCH_ROWS, IndexError, runtime_schema};

use crate::mapped_file::MappedFile;

const MAGIC: &[u8; 6] = b"ARROW1";
/// Footer length and magic at the end of the file.
const TRAILER_BYTES: usize = 4 + MAGIC.len();
/// Before each message: the continuation marker and the metadata length.
const PREFIX_BYTES: usize = 8;

/// The documents of one shard.
#[derive(Debug)]
pub(crate) struct DocumentTable {
    file: MappedFile,
    rows: u64,
    first_token: u64,
    end_token: u64,
    batches: OnceLock<Vec<BatchCell>>,
}

/// A record batch: where it is, and where its columns are once someone looked.
#[derive(Debug)]
struct BatchCell {
    metadata: std::ops::Range<usize>,
    body: std::ops::Range<usize>,
    columns: OnceLock<Columns>,
}

/// First byte of each column's values; all rows of both are inside the file.
#[derive(Clone, Copy, Debug)]
struct Columns {
    offsets_at: usize,
    mtld_at: usize,
}

impl DocumentTable {
    /// Notes what the manifest says; checks the file's size and nothing else yet.
    ///
    /// # Errors
    /// If the file is missing or of another size.
    pub(crate) fn new(
        path: PathBuf,
        bytes: u64,
        rows: u64,
        tokens: std::ops::Range<u64>,
    ) -> Result<Self, IndexError> {
        Ok(Self {
            file: MappedFile::new(path, bytes)?,
            rows,
            first_token: tokens.start,
            end_token: tokens.end,
            batches: OnceLock::new(),
        })
    }

    /// Number of documents.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// First token of a document, in its split's stream.
    ///
    /// # Errors
    /// If the table is damaged, or the offset lies outside the shard.
    pub(crate) fn token_offset(&self, row: u64) -> Result<u64, IndexError> {
        let (columns, bytes, place) = self.locate(row)?;
        let offset = read::<8>(bytes, columns.offsets_at, place)
            .map(u64::from_le_bytes)
            .ok_or_else(|| self.damaged(format!("row {row} lies outside the file")))?;
        if !(self.first_token..self.end_token).contains(&offset) {
            return Err(self.damaged(format!(
                "token_offset of row {row} is {offset}, outside the shard's tokens {}..{}",
                self.first_token, self.end_token
            )));
        }
        Ok(offset)
    }

    /// Lexical diversity of a document; 0 for one without words.
    ///
    /// # Errors
    /// If the table is damaged, or the value is negative or not finite.
    pub(crate) fn mtld(&self, row: u64) -> Result<f32, IndexError> {
        let (columns, bytes, place) = self.locate(row)?;
        let mtld = read::<4>(bytes, columns.mtld_at, place)
            .map(f32::from_le_bytes)
            .ok_or_else(|| self.damaged(format!("row {row} lies outside the file")))?;
        if !mtld.is_finite() || mtld < 0.0 {
            return Err(self.damaged(format!(
                "mtld of row {row} is {mtld}, must be finite and not negative"
            )));
        }
        Ok(mtld)
    }

    /// The row whose document holds `token`, which must be inside the shard.
    ///
    /// Ends after log2(rows) steps, whatever the offsets are; with growing offsets it is right.
    ///
    /// # Errors
    /// If the table is damaged.
    pub(crate) fn row_of(&self, token: u64) -> Result<u64, IndexError> {
        let first = self.token_offset(0)?;
        if first != self.first_token {
            return Err(self.damaged(format!(
                "the first token_offset is {first}, the manifest says {}",
                self.first_token
            )));
        }
        // token_offset(low) <= token < token_offset(high), high = rows standing for the end.
        let (mut low, mut high) = (0, self.rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.token_offset(middle)? <= token {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// An error that names this file.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> IndexError {
        IndexError::Content {
            path: self.file.path().to_owned(),
            reason: reason.into(),
        }
    }

    /// The columns of a row's batch, the file's bytes, and the row's place in the batch.
    #[inline]
    fn locate(&self, row: u64) -> Result<(Columns, &[u8], usize), IndexError> {
        let bytes = self.file.content()?;
        let batches = match self.batches.get() {
            Some(batches) => batches,
            None => {
                let parsed = self.parse_footer(bytes)?;
                self.batches.get_or_init(|| parsed)
            }
        };
        let number = row / BATCH_ROWS as u64;
        let batch = usize::try_from(number)
            .ok()
            .and_then(|n| batches.get(n))
            .filter(|_| row < self.rows)
            .ok_or_else(|| self.damaged(format!("has no row {row}")))?;
        let columns = match batch.columns.get() {
            Some(columns) => *columns,
            None => {
                let first_row = number * BATCH_ROWS as u64;
                let rows = (self.rows - first_row).min(BATCH_ROWS as u64);
                let parsed = self.parse_batch(bytes, batch, number, rows)?;
                *batch.columns.get_or_init(|| parsed)
            }
        };
        Ok((columns, bytes, (row % BATCH_ROWS as u64) as usize))
    }

    #[cold]
    fn parse_footer(&self, bytes: &[u8]) -> Result<Vec<BatchCell>, IndexError> {
        let bad = |reason: &str| self.damaged(format!("is no document table: {reason}"));
        let trailer_at = bytes
            .len()
            .checked_sub(TRAILER_BYTES)
            .filter(|&at| at >= MAGIC.len() + 2)
            .ok_or_else(|| bad("too short for an Arrow IPC file"))?;
        let (content, trailer) = bytes.split_at(trailer_at);
        if !content.starts_with(MAGIC) || !trailer.ends_with(MAGIC) {
            return Err(bad("it does not start and end with ARROW1"));
        }
        let footer_bytes = read::<4>(trailer, 0, 0)
            .map(i32::from_le_bytes)
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n <= content.len())
            .ok_or_else(|| bad("the footer length does not fit the file"))?;
        let blocks_end = content.len() - footer_bytes;
        let footer =
            root_as_footer(&content[blocks_end..]).map_err(|e| bad(&format!("footer: {e}")))?;
        check_version(footer.version()).map_err(|reason| bad(&reason))?;
        let schema = footer.schema().ok_or_else(|| bad("no schema"))?;
        if schema.endianness() != Endianness::Little {
            return Err(bad("its numbers are not little-endian"));
        }
        let found = try_fb_to_schema(schema).map_err(|e| bad(&e.to_string()))?;
        let wanted = runtime_schema();
        if found.fields() != wanted.fields() {
            let (found, wanted) = (found.fields(), wanted.fields());
            return Err(bad(&format!("its columns are {found:?}, not {wanted:?}")));
        }
        let blocks = footer.recordBatches().ok_or_else(|| bad("no batches"))?;
        let wanted = self.rows.div_ceil(BATCH_ROWS as u64);
        if blocks.len() as u64 != wanted {
            let got = blocks.len();
            return Err(bad(&format!("{got} batches for {wanted} in the manifest")));
        }
        blocks
            .iter()
            .enumerate()
            .map(|(i, block)| {
                cell(block, blocks_end)
                    .ok_or_else(|| bad(&format!("batch {i} lies outside the file")))
            })
            .collect()
    }

    #[cold]
    fn parse_batch(
        &self,
        bytes: &[u8],
        cell: &BatchCell,
        number: u64,
        rows: u64,
    ) -> Result<Columns, IndexError> {
        let bad = |reason: &str| self.damaged(format!("record batch {number}: {reason}"));
        let metadata = &bytes[cell.metadata.clone()];
        if read::<4>(metadata, 0, 0) != Some([0xff; 4]) {
            return Err(bad("no continuation marker"));
        }
        let message = read::<4>(metadata, 4, 0)
            .map(i32::from_le_bytes)
            .and_then(|n| usize::try_from(n).ok())
            .and_then(|n| metadata[PREFIX_BYTES..].get(..n))
            .ok_or_else(|| bad("the metadata length does not fit"))?;
        let message = root_as_message(message).map_err(|e| bad(&e.to_string()))?;
        check_version(message.version()).map_err(|reason| bad(&reason))?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| bad("the message is no record batch"))?;
        if batch.compression().is_some() {
            return Err(bad("it is compressed"));
        }
        if u64::try_from(batch.length()) != Ok(rows) {
            return Err(bad(&format!("{} rows for {rows}", batch.length())));
        }
        let body = cell.body.clone();
        let columns = Columns {
            offsets_at: column(&batch, &body, 0, 8, rows).map_err(|r| bad(&r))?,
            mtld_at: column(&batch, &body, 1, 4, rows).map_err(|r| bad(&r))?,
        };
        Ok(columns)
    }
}

fn check_version(version: MetadataVersion) -> Result<(), String> {
    if version == MetadataVersion::V5 || version == MetadataVersion::V4 {
        Ok(())
    } else {
        Err(format!("Arrow metadata {version:?}, expected V5"))
    }
}

/// Where a block is, if it lies before `end` and has room for its prefix.
fn cell(block: &Block, end: usize) -> Option<BatchCell> {
    let start = usize::try_from(block.offset()).ok()?;
    let metadata_bytes = usize::try_from(block.metaDataLength()).ok()?;
    let body_bytes = usize::try_from(block.bodyLength()).ok()?;
    let body_start = start.checked_add(metadata_bytes)?;
    let body_end = body_start.checked_add(body_bytes)?;
    (metadata_bytes >= PREFIX_BYTES && body_end <= end).then(|| BatchCell {
        metadata: start..body_start,
        body: body_start..body_end,
        columns: OnceLock::new(),
    })
}

/// First byte of the values of a fixed-width column without nulls: buffer 2c + 1, after its validity.
fn column(
    batch: &RecordBatch<'_>,
    body: &std::ops::Range<usize>,
    number: usize,
    width: u64,
    rows: u64,
) -> Result<usize, String> {
    let nodes = batch.nodes().filter(|n| n.len() == 2);
    let node = nodes.ok_or("not two columns")?.get(number);
    if u64::try_from(node.length()) != Ok(rows) || node.null_count() != 0 {
        return Err(format!("column {number} has nulls or another length"));
    }
    let buffers = batch.buffers().filter(|b| b.len() == 4);
    let values = buffers.ok_or("not four buffers")?.get(2 * number + 1);
    let place = (|| {
        let start = usize::try_from(values.offset()).ok()?;
        let bytes = usize::try_from(values.length()).ok()?;
        let inside = start.checked_add(bytes)? <= body.len();
        let enough = bytes as u64 >= rows.checked_mul(width)?;
        (inside && enough).then_some(body.start + start)
    })();
    place.ok_or_else(|| format!("the values of column {number} do not fit its buffer"))
}

/// The `place`-th value of `N` bytes from `start` on, if it is inside.
#[inline]
fn read<const N: usize>(bytes: &[u8], start: usize, place: usize) -> Option<[u8; N]> {
    let at = start.checked_add(place.checked_mul(N)?)?;
    bytes.get(at..)?.first_chunk::<N>().copied()
}
