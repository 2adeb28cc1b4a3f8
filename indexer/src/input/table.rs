//! Rows of a Parquet file, in batches.
//!
//! In: a file and the fields' paths. Out: [`RowBlock`]s with the text and, where wanted, the domain of each row. Only these columns
//! are read, page by page, so row groups may be larger than memory. The text's encoding is checked by who takes it.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type as Physical;
use parquet::file::metadata::ParquetMetaData;

use super::lines::BLOCK_BYTES;
use super::rows::{RowBlock, RowSource};
use crate::record::{Fault, FieldPath};

/// Most rows of a block; fewer where the texts are long.
const MOST_ROWS: usize = 256;

/// An open file.
pub(super) struct Table {
    batches: ParquetRecordBatchReader,
    text: Vec<String>,
    domain: Option<Vec<String>>,
    next_row: u64,
    rows: u64,
    bytes: u64,
    counted: u64,
    count: Arc<AtomicU64>,
}

impl Table {
    /// Opens a file at a row. `domain` may be missing where it is not `needed`.
    pub fn open(
        path: &Path,
        text: &FieldPath,
        domain: Option<(&FieldPath, bool)>,
        first_row: u64,
        count: &Arc<AtomicU64>,
    ) -> Result<Self, Fault> {
        let refused = |e: std::io::Error| Fault::Read { why: e.to_string() };
        let file = File::open(path).map_err(refused)?;
        let bytes = file.metadata().map_err(refused)?.len();
        // The Arrow types that a writer notes beside its columns may be dictionaries or views; the plain ones hold the same.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .map_err(damaged)?;
        let metadata = builder.metadata().clone();
        let text_column = find_column(&metadata, text)?.ok_or_else(|| missing(&metadata, text))?;
        let domain_column = match domain {
            None => None,
            Some((field, needed)) => match find_column(&metadata, field)? {
                None if needed => return Err(missing(&metadata, field)),
                found => found,
            },
        };
        if let (None, Some((field, _))) = (domain_column, domain) {
            note_text_around(&metadata, field, path);
        }
        let leaves = [Some(text_column), domain_column].into_iter().flatten();
        let mask = ProjectionMask::leaves(builder.parquet_schema(), leaves);
        let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
        let batches = builder
            .with_projection(mask)
            .with_batch_size(rows_of_block(&metadata, text_column))
            .with_offset(usize::try_from(first_row).unwrap_or(usize::MAX))
            .build()
            .map_err(damaged)?;
        let path_of = |column: usize| {
            let schema = metadata.file_metadata().schema_descr();
            schema.column(column).path().parts().to_vec()
        };
        Ok(Self {
            batches,
            text: path_of(text_column),
            domain: domain_column.map(path_of),
            next_row: first_row,
            rows,
            bytes,
            counted: 0,
            count: count.clone(),
        })
    }
}

impl RowSource for Table {
    fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    fn next_row(&self) -> u64 {
        self.next_row
    }

    fn next_block(&mut self) -> Result<Option<RowBlock>, Fault> {
        let batch = match self.batches.next() {
            None if self.next_row < self.rows => {
                let why = format!("ends at row {}, {} are announced", self.next_row, self.rows);
                return Err(Fault::Table { why });
            }
            None => return Ok(None),
            Some(Ok(batch)) => batch,
            Some(Err(error)) => return Err(damaged(error)),
        };
        let first_row = self.next_row;
        self.next_row += batch.num_rows() as u64;
        let read = (u128::from(self.bytes) * u128::from(self.next_row)
            / u128::from(self.rows.max(1))) as u64;
        self.count
            .fetch_add(read.saturating_sub(self.counted), Ordering::Relaxed);
        self.counted = read.max(self.counted);
        RowBlock::new(&batch, first_row, &self.text, self.domain.as_deref()).map(Some)
    }
}

fn damaged(error: impl std::fmt::Display) -> Fault {
    let mut why = error.to_string();
    // In the words of the library, which is built without it.
    if why.contains("encrypt") {
        why = format!("encrypted Parquet is not supported, decrypt it first ({why})");
    }
    Fault::Table { why }
}

/// The column of a field: its dotted path, or a flat column whose own name has the dots.
fn find_column(metadata: &ParquetMetaData, field: &FieldPath) -> Result<Option<usize>, Fault> {
    let wanted = field.to_string();
    let schema = metadata.file_metadata().schema_descr();
    let columns = schema.columns();
    if columns
        .iter()
        .filter(|c| c.path().string() == wanted)
        .count()
        > 1
    {
        return Err(Fault::FieldTwice { field: wanted });
    }
    for (i, column) in columns.iter().enumerate() {
        if column.path().string() != wanted {
            continue;
        }
        if column.physical_type() != Physical::BYTE_ARRAY || column.max_rep_level() > 0 {
            return Err(Fault::FieldType {
                field: wanted,
                got: "a column of another type",
            });
        }
        return Ok(Some(i));
    }
    Ok(None)
}

/// Says so, once, where the part of `field` before a dot is a column of text, which may well hold the field as JSON: nobody would
/// otherwise see why the domains are the files' names.
fn note_text_around(metadata: &ParquetMetaData, field: &FieldPath, path: &Path) {
    static SAID: Once = Once::new();
    let wanted = field.to_string();
    let columns = metadata.file_metadata().schema_descr().columns();
    let around = columns
        .iter()
        .map(|c| (c.path().string(), c))
        .find(|(name, column)| {
            column.physical_type() == Physical::BYTE_ARRAY
                && wanted
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
        });
    if let Some((name, _)) = around {
        SAID.call_once(|| {
            hds::note!(
                "note: {}: column {name} is text, so there is no {field} in it; the domain is the file's name (--domain-field names another column)",
                path.display()
            );
        });
    }
}

fn missing(metadata: &ParquetMetaData, field: &FieldPath) -> Fault {
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    Fault::Table {
        why: format!("no column {field}; the columns are {}", names.join(", ")),
    }
}

/// So many rows that their text makes about one block.
fn rows_of_block(metadata: &ParquetMetaData, column: usize) -> usize {
    let mean = metadata
        .row_groups()
        .iter()
        .filter(|g| g.num_rows() > 0)
        .map(|g| g.column(column).uncompressed_size() / g.num_rows())
        .max()
        .unwrap_or(1);
    let mean = usize::try_from(mean).unwrap_or(1).max(1);
    (BLOCK_BYTES / mean).clamp(1, MOST_ROWS)
}
