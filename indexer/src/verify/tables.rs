//! The rows of both document tables, read batch by batch.
//!
//! In: a file that may hold anything. Out: rows, or an error that names the file. Checks columns, types, nulls and the number of
//! rows; leaves the values to [`super::shard`].

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use arrow_schema::{ArrowError, Schema};
use hds::durable::open_regular;
use hds::index::{BATCH_ROWS, IndexError, runtime_schema, table_schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::file::io_error;
use crate::build::DocumentRecord;

/// Rows of a batch of the whole table held at once.
const TABLE_ROWS: usize = 8192;

fn content(path: &Path, reason: impl ToString) -> IndexError {
    IndexError::Content {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// Checks that columns have the names, types and order of a schema and hold no nulls.
fn check_columns(path: &Path, batch: &RecordBatch, want: &Schema) -> Result<(), IndexError> {
    let got = batch.schema();
    let same = got.fields().len() == want.fields().len()
        && got
            .fields()
            .iter()
            .zip(want.fields())
            .all(|(g, w)| g.name() == w.name() && g.data_type() == w.data_type());
    if !same {
        let shown: Vec<String> = got
            .fields()
            .iter()
            .map(|f| format!("{} {}", f.name(), f.data_type()))
            .collect();
        return Err(content(
            path,
            format!("has the columns {}", shown.join(", ")),
        ));
    }
    if batch.columns().iter().any(|c| c.null_count() > 0) {
        return Err(content(path, "has nulls"));
    }
    Ok(())
}

/// `(token_offset, mtld)` of the run-time table.
pub(crate) struct RuntimeRows {
    path: PathBuf,
    batches: FileReader<BufReader<File>>,
    schema: Schema,
    batch: Option<RecordBatch>,
    row: usize,
    left: u64,
}

impl RuntimeRows {
    /// Opens a table of so many rows.
    pub fn open(path: &Path, rows: u64) -> Result<Self, IndexError> {
        let file = open_regular(path).map_err(|e| io_error("open", path, e))?;
        let batches = FileReader::try_new(BufReader::new(file), None)
            .map_err(|e: ArrowError| content(path, e))?;
        let batch_rows = BATCH_ROWS as u64;
        if batches.num_batches() as u64 != rows.div_ceil(batch_rows) {
            let reason = format!("has {} batches for {rows} rows", batches.num_batches());
            return Err(content(path, reason));
        }
        Ok(Self {
            path: path.into(),
            batches,
            schema: runtime_schema(),
            batch: None,
            row: 0,
            left: rows,
        })
    }

    fn next_batch(&mut self) -> Result<(), IndexError> {
        let batch = match self.batches.next() {
            None => {
                return Err(content(
                    &self.path,
                    format!("ends {} rows early", self.left),
                ));
            }
            Some(batch) => batch.map_err(|e| content(&self.path, e))?,
        };
        check_columns(&self.path, &batch, &self.schema)?;
        let want = self.left.min(BATCH_ROWS as u64);
        if batch.num_rows() as u64 != want {
            let reason = format!("has a batch of {} rows instead of {want}", batch.num_rows());
            return Err(content(&self.path, reason));
        }
        (self.batch, self.row) = (Some(batch), 0);
        Ok(())
    }
}

impl Iterator for RuntimeRows {
    type Item = Result<(u64, f32), IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        if self.batch.as_ref().is_none_or(|b| self.row == b.num_rows())
            && let Err(error) = self.next_batch()
        {
            self.left = 0;
            return Some(Err(error));
        }
        let batch = self.batch.as_ref()?;
        let offset = batch.column(0).as_primitive::<UInt64Type>().value(self.row);
        let mtld = batch
            .column(1)
            .as_primitive::<Float32Type>()
            .value(self.row);
        self.row += 1;
        self.left -= 1;
        Some(Ok((offset, mtld)))
    }
}

/// A row of the whole table.
pub(crate) struct Row {
    pub document: u64,
    pub token_offset: u64,
    pub record: DocumentRecord,
}

/// The batches of the whole table; columns and types are those of the format, without nulls.
pub(crate) struct TableBatches {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    schema: Schema,
}

/// The rows of the whole table.
pub(crate) struct TableRows {
    batches: TableBatches,
    batch: Option<RecordBatch>,
    row: usize,
}

impl TableBatches {
    /// Opens a table of so many rows, at one of them.
    pub fn open(path: &Path, rows: u64, first_row: u64) -> Result<Self, IndexError> {
        let file = open_regular(path).map_err(|e| io_error("open", path, e))?;
        // The types noted by the writer are kept: a hash has 16 bytes.
        let options = ArrowReaderOptions::new();
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .map_err(|e| content(path, e))?;
        let got = builder.metadata().file_metadata().num_rows();
        if u64::try_from(got) != Ok(rows) {
            return Err(content(path, format!("has {got} rows instead of {rows}")));
        }
        let batches = builder
            .with_batch_size(TABLE_ROWS)
            .with_offset(usize::try_from(first_row).unwrap_or(usize::MAX))
            .build()
            .map_err(|e| content(path, e))?;
        Ok(Self {
            path: path.into(),
            batches,
            schema: table_schema(),
        })
    }
}

impl Iterator for TableBatches {
    type Item = Result<RecordBatch, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.batches.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(content(&self.path, error))),
        };
        Some(check_columns(&self.path, &batch, &self.schema).map(|()| batch))
    }
}

impl TableRows {
    /// Opens a table of so many rows.
    pub fn open(path: &Path, rows: u64) -> Result<Self, IndexError> {
        Self::open_at(path, rows, 0)
    }

    /// Opens a table of so many rows, at one of them.
    pub fn open_at(path: &Path, rows: u64, first_row: u64) -> Result<Self, IndexError> {
        Ok(Self {
            batches: TableBatches::open(path, rows, first_row)?,
            batch: None,
            row: 0,
        })
    }
}

impl Iterator for TableRows {
    type Item = Result<Row, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.batch.as_ref().is_none_or(|b| self.row == b.num_rows()) {
            match self.batches.next()? {
                Ok(batch) => (self.batch, self.row) = (Some(batch), 0),
                Err(error) => return Some(Err(error)),
            }
        }
        let (batch, row) = (self.batch.as_ref()?, self.row);
        self.row += 1;
        let number = |column: usize| batch.column(column).as_primitive::<UInt64Type>().value(row);
        let mut content_hash = [0; 16];
        let hash = batch.column(8).as_fixed_size_binary().value(row);
        content_hash.copy_from_slice(hash.get(..16)?);
        Some(Ok(Row {
            document: number(0),
            token_offset: number(1),
            record: DocumentRecord {
                tokens: number(2),
                bytes: number(3),
                words: number(4),
                mtld: batch.column(5).as_primitive::<Float64Type>().value(row),
                source: batch.column(6).as_primitive::<UInt32Type>().value(row),
                position: number(7),
                content_hash,
            },
        }))
    }
}
