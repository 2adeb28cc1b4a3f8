//! Where the columns of a document table lie in its Arrow IPC file.
//!
//! In: the file and the number of rows the manifest gives. Out: byte ranges of each record batch, and
//! of the two columns in it.
//! Always holds: the footer and each batch's metadata pass the flatbuffers verifier before they are
//! used, and every range lies inside the file. Values are not looked at ([`crate::document_table`]).
//!
//! # Source
//! Arrow columnar format, "IPC File Format" and "Encapsulated message format". Read here without
//! building arrays, as a file may come from anyone and a row must cost no more than a bounds check.

use std::ops::Range;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Block, Endianness, MetadataVersion, RecordBatch, root_as_footer, root_as_message};
use hds::index::{BATCH_ROWS, IndexError, runtime_schema};

use crate::source_file::SourceFile;

const MAGIC: &[u8; 6] = b"ARROW1";
/// Footer length and magic at the end of the file.
const TRAILER_BYTES: u64 = 4 + MAGIC.len() as u64;
/// Before each message: the continuation marker and the metadata length.
const PREFIX_BYTES: u64 = 8;

/// A record batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchRanges {
    metadata: Range<u64>,
    body: Range<u64>,
}

/// The bytes of each column's values, exactly as many as the rows need.
#[derive(Clone, Debug)]
pub(crate) struct ColumnRanges {
    /// `token_offset`, 8 bytes a row.
    pub(crate) offsets: Range<u64>,
    /// `mtld`, 4 bytes a row.
    pub(crate) mtld: Range<u64>,
}

/// Reads the footer: one range per record batch.
///
/// # Errors
/// If the file is no Arrow IPC file of the format's columns with `rows` rows.
#[cold]
pub(crate) fn read_footer(file: &SourceFile, rows: u64) -> Result<Vec<BatchRanges>, IndexError> {
    let bad = |reason: &str| file.damaged(format!("is no document table: {reason}"));
    let mut scratch = Vec::new();
    let trailer_at = file
        .bytes()
        .checked_sub(TRAILER_BYTES)
        .filter(|&at| at >= MAGIC.len() as u64 + 2)
        .ok_or_else(|| bad("too short for an Arrow IPC file"))?;
    let start = file.range(0..MAGIC.len() as u64, &mut scratch)?;
    let starts_right = start == MAGIC;
    let trailer = file.range(trailer_at..file.bytes(), &mut scratch)?;
    if !starts_right || !trailer.ends_with(MAGIC) {
        return Err(bad("it does not start and end with ARROW1"));
    }
    let footer_at = length_at(trailer, 0)
        .and_then(|length| trailer_at.checked_sub(length))
        .ok_or_else(|| bad("the footer length does not fit the file"))?;
    let footer = file.range(footer_at..trailer_at, &mut scratch)?;
    let footer = root_as_footer(footer).map_err(|e| bad(&format!("footer: {e}")))?;
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
    let wanted = rows.div_ceil(BATCH_ROWS as u64);
    if blocks.len() as u64 != wanted {
        let got = blocks.len();
        return Err(bad(&format!("{got} batches for {wanted} in the manifest")));
    }
    let ranges = |(i, block): (usize, &Block)| {
        batch_ranges(block, footer_at)
            .ok_or_else(|| bad(&format!("batch {i} lies outside the file")))
    };
    blocks.iter().enumerate().map(ranges).collect()
}

/// Reads the metadata of record batch `number`, which holds `rows` rows.
///
/// # Errors
/// If it is no such batch, uncompressed and without nulls.
#[cold]
pub(crate) fn read_batch(
    file: &SourceFile,
    ranges: &BatchRanges,
    number: u64,
    rows: u64,
) -> Result<ColumnRanges, IndexError> {
    let bad = |reason: &str| file.damaged(format!("record batch {number}: {reason}"));
    let mut scratch = Vec::new();
    let metadata = file.range(ranges.metadata.clone(), &mut scratch)?;
    if metadata.first_chunk() != Some(&[0xff; 4]) {
        return Err(bad("no continuation marker"));
    }
    let message = length_at(metadata, 4)
        .and_then(|length| usize::try_from(PREFIX_BYTES + length).ok())
        .and_then(|end| metadata.get(PREFIX_BYTES as usize..end))
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
    Ok(ColumnRanges {
        offsets: column(&batch, &ranges.body, 0, 8, rows).map_err(|r| bad(&r))?,
        mtld: column(&batch, &ranges.body, 1, 4, rows).map_err(|r| bad(&r))?,
    })
}

/// A length that is not negative, stored as i32.
fn length_at(bytes: &[u8], at: usize) -> Option<u64> {
    let length = i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    u64::try_from(length).ok()
}

fn check_version(version: MetadataVersion) -> Result<(), String> {
    if version == MetadataVersion::V5 || version == MetadataVersion::V4 {
        Ok(())
    } else {
        Err(format!("Arrow metadata {version:?}, expected V5"))
    }
}

/// Where a block is, if it lies before `end` and has room for its prefix.
fn batch_ranges(block: &Block, end: u64) -> Option<BatchRanges> {
    let start = u64::try_from(block.offset()).ok()?;
    let metadata_bytes = u64::try_from(block.metaDataLength()).ok()?;
    let body_bytes = u64::try_from(block.bodyLength()).ok()?;
    let body_start = start.checked_add(metadata_bytes)?;
    let body_end = body_start.checked_add(body_bytes)?;
    (metadata_bytes >= PREFIX_BYTES && body_end <= end).then_some(BatchRanges {
        metadata: start..body_start,
        body: body_start..body_end,
    })
}

/// The values of a fixed-width column without nulls: buffer 2c + 1, after its validity.
fn column(
    batch: &RecordBatch<'_>,
    body: &Range<u64>,
    number: usize,
    width: u64,
    rows: u64,
) -> Result<Range<u64>, String> {
    let nodes = batch.nodes().filter(|n| n.len() == 2);
    let node = nodes.ok_or("not two columns")?.get(number);
    if u64::try_from(node.length()) != Ok(rows) || node.null_count() != 0 {
        return Err(format!("column {number} has nulls or another length"));
    }
    let buffers = batch.buffers().filter(|b| b.len() == 4);
    let values = buffers.ok_or("not four buffers")?.get(2 * number + 1);
    let place = (|| {
        let start = body
            .start
            .checked_add(u64::try_from(values.offset()).ok()?)?;
        let end = start.checked_add(u64::try_from(values.length()).ok()?)?;
        let needed_end = start.checked_add(rows.checked_mul(width)?)?;
        (needed_end <= end && end <= body.end).then_some(start..needed_end)
    })();
    place.ok_or_else(|| format!("the values of column {number} do not fit its buffer"))
}
