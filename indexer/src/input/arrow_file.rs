//! Rows of an Arrow IPC file or stream (`.arrow`, `.feather`), in slices of its batches.
//!
//! In: a file from anyone and the fields' paths. Out: [`RowBlock`]s with the text and, where wanted, the domain of each row. Always holds: no
//! length in the file is believed before it was held against the file's size. Memory: one batch, as its writer made it, and the
//! dictionaries. The file format is read as the stream that it holds, see [`super::arrow_messages`]; a decoder that panics is the caller's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::RecordBatch;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_schema::{DataType, Schema};

use super::arrow_messages::{Messages, broken};
use super::lines::BLOCK_BYTES;
use super::rows::{RowBlock, RowSource};
use crate::record::{Fault, FieldPath};

/// Most rows of a block.
const MOST_ROWS: usize = 256;

/// An open file.
pub(super) struct ArrowFile {
    messages: Messages,
    decoder: FileDecoder,
    text: Vec<String>,
    domain: Option<Vec<String>>,
    /// What is left of the present batch.
    batch: Option<RecordBatch>,
    next_row: u64,
    /// Rows before this one are passed over.
    first_row: u64,
}

impl ArrowFile {
    /// Opens a file at a row. `domain` may be missing where it is not `needed`.
    pub fn open(
        path: &Path,
        text: &FieldPath,
        domain: Option<(&FieldPath, bool)>,
        first_row: u64,
        count: &Arc<AtomicU64>,
    ) -> Result<Self, Fault> {
        let mut messages = Messages::open(path, count)?;
        let first = messages
            .next_message(|_| true)?
            .ok_or_else(|| broken("it holds nothing"))?;
        let message = first.head()?;
        let schema = message
            .header_as_schema()
            .ok_or_else(|| broken("it does not begin with a schema"))?;
        let (schema, version) = (try_fb_to_schema(schema).map_err(broken)?, message.version());
        let text_path = find(&schema, text)?.ok_or_else(|| missing(&schema, text))?;
        let domain_path = match domain {
            None => None,
            Some((field, needed)) => match find(&schema, field)? {
                None if needed => return Err(missing(&schema, field)),
                found => found,
            },
        };
        let mut wanted: Vec<usize> = [Some(&text_path), domain_path.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|path| schema.index_of(&path[0]).ok())
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Self {
            messages,
            decoder: FileDecoder::new(Arc::new(schema), version).with_projection(wanted),
            text: text_path,
            domain: domain_path,
            batch: None,
            next_row: 0,
            first_row,
        })
    }

    /// The next batch with rows at or behind the first one wanted.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Fault> {
        loop {
            let behind = self.first_row.saturating_sub(self.next_row);
            let message = self
                .messages
                .next_message(|rows| rows.is_none_or(|rows| rows > behind))?;
            let Some(message) = message else {
                return Ok(None);
            };
            if let (Some(rows), true) = (message.rows, message.body_left_out) {
                self.next_row += rows;
                continue;
            }
            let (block, bytes) = (&message.block, &message.bytes);
            if message.is_dictionary {
                self.decoder.read_dictionary(block, bytes).map_err(broken)?;
                continue;
            }
            let batch = self.decoder.read_record_batch(block, bytes);
            let batch = batch
                .map_err(broken)?
                .ok_or_else(|| broken("a message is of no kind"))?;
            // Below the number of the batch's rows, which are in memory.
            let behind = behind.min(batch.num_rows() as u64) as usize;
            self.next_row += behind as u64;
            if behind < batch.num_rows() {
                return Ok(Some(batch.slice(behind, batch.num_rows() - behind)));
            }
        }
    }

    fn block(&mut self) -> Result<Option<RowBlock>, Fault> {
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => match self.next_batch()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let domain = self.domain.as_deref();
        let mut rows = MOST_ROWS.min(batch.num_rows());
        loop {
            let slice = batch.slice(0, rows);
            let block = RowBlock::new(&slice, self.next_row, &self.text, domain)?;
            if block.weight() > 2 * BLOCK_BYTES && rows > 1 {
                rows = (rows * BLOCK_BYTES / block.weight()).clamp(1, rows / 2);
                continue;
            }
            if rows < batch.num_rows() {
                self.batch = Some(batch.slice(rows, batch.num_rows() - rows));
            }
            self.next_row += rows as u64;
            return Ok(Some(block));
        }
    }
}

impl RowSource for ArrowFile {
    fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    fn next_row(&self) -> u64 {
        self.next_row.max(self.first_row)
    }

    fn next_block(&mut self) -> Result<Option<RowBlock>, Fault> {
        self.block()
    }
}

/// The column of a field: its dotted path, or a flat column whose own name has the dots.
fn find(schema: &Schema, field: &FieldPath) -> Result<Option<Vec<String>>, Fault> {
    let flat = vec![field.to_string()];
    for path in [field.parts(), &flat] {
        let Some((first, rest)) = path.split_first() else {
            continue;
        };
        if schema.fields().iter().filter(|f| f.name() == first).count() > 1 {
            return Err(Fault::FieldTwice {
                field: field.to_string(),
            });
        }
        let mut found = schema.field_with_name(first).ok();
        for name in rest {
            found = found.and_then(|f| match f.data_type() {
                DataType::Struct(fields) => fields.find(name).map(|(_, field)| field.as_ref()),
                _ => None,
            });
        }
        let Some(found) = found else { continue };
        let kind = match found.data_type() {
            DataType::Dictionary(_, values) => values,
            kind => kind,
        };
        if !super::rows::is_string(kind) {
            return Err(Fault::FieldType {
                field: field.to_string(),
                got: "a column of another type",
            });
        }
        return Ok(Some(path.to_vec()));
    }
    Ok(None)
}

fn missing(schema: &Schema, field: &FieldPath) -> Fault {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    Fault::Table {
        why: format!("no column {field}; the columns are {}", names.join(", ")),
    }
}
