//! Writes the two document tables of a shard.
//!
//! In: the shard's document records. Out: the run-time table (Arrow IPC) and the whole one (Parquet), durable, with sizes and
//! checksums, and the shard's sums. The same records always give the same bytes. Memory: one batch and one row group.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, Float32Array, Float64Array, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow_ipc::writer::FileWriter;
use hds::durable::FileError;
use hds::index::{BATCH_ROWS, Checksum, ChecksumWriter, runtime_schema, table_schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::document::DocumentRecord;
use super::error::BuildError;
use super::sums::ShardSums;

/// What was written.
pub(super) struct Tables {
    pub sums: ShardSums,
    pub runtime: (u64, Checksum),
    pub table: (u64, Checksum),
}

type Output = ChecksumWriter<BufWriter<File>>;

/// Writes both tables.
///
/// # Errors
/// If a file cannot be read, written or synced.
pub(super) fn write_tables(
    records: impl Iterator<Item = Result<DocumentRecord, BuildError>>,
    first_token: u64,
    first_document: u64,
    runtime_path: &Path,
    table_path: &Path,
) -> Result<Tables, BuildError> {
    let runtime_failed = |e: arrow_schema::ArrowError| table_error(runtime_path, &e);
    let table_failed = |e: parquet::errors::ParquetError| table_error(table_path, &e);
    let table_schema = Arc::new(table_schema());
    let runtime_schema = Arc::new(runtime_schema());
    let mut runtime =
        FileWriter::try_new(create(runtime_path)?, &runtime_schema).map_err(runtime_failed)?;
    let mut table = ArrowWriter::try_new(
        create(table_path)?,
        table_schema.clone(),
        Some(table_properties()),
    )
    .map_err(table_failed)?;

    let mut sums = ShardSums::default();
    let mut batch = Batch::default();
    let mut records = records.peekable();
    while records.peek().is_some() {
        batch.clear();
        for record in records.by_ref().take(BATCH_ROWS) {
            let record = record?;
            batch.push(
                &record,
                first_document + sums.documents,
                first_token + sums.tokens,
            );
            sums.count(&record)
                .ok_or_else(|| table_error(table_path, &"a sum overflows 64 bits"))?;
        }
        let columns = batch.columns(table_path)?;
        let small = vec![columns[1].clone(), batch.mtld_f32()];
        let small = RecordBatch::try_new(runtime_schema.clone(), small).map_err(runtime_failed)?;
        runtime.write(&small).map_err(runtime_failed)?;
        let whole = RecordBatch::try_new(table_schema.clone(), columns).map_err(runtime_failed)?;
        table.write(&whole).map_err(table_failed)?;
    }
    let runtime = close(runtime.into_inner().map_err(runtime_failed)?, runtime_path)?;
    let table = close(table.into_inner().map_err(table_failed)?, table_path)?;
    Ok(Tables {
        sums,
        runtime,
        table,
    })
}

/// Columns of [`table_schema`] being filled.
#[derive(Default)]
struct Batch {
    numbers: [Vec<u64>; 6],
    mtld: Vec<f64>,
    source: Vec<u32>,
    content_hash: Vec<u8>,
}

impl Batch {
    fn clear(&mut self) {
        self.numbers.iter_mut().for_each(Vec::clear);
        self.mtld.clear();
        self.source.clear();
        self.content_hash.clear();
    }

    fn push(&mut self, record: &DocumentRecord, document: u64, token_offset: u64) {
        let row = [
            document,
            token_offset,
            record.tokens,
            record.bytes,
            record.words,
            record.position,
        ];
        for (column, value) in self.numbers.iter_mut().zip(row) {
            column.push(value);
        }
        self.mtld.push(record.mtld);
        self.source.push(record.source);
        self.content_hash.extend_from_slice(&record.content_hash);
    }

    fn columns(&self, path: &Path) -> Result<Vec<ArrayRef>, BuildError> {
        let number = |i: usize| Arc::new(UInt64Array::from(self.numbers[i].clone())) as ArrayRef;
        let hashes = FixedSizeBinaryArray::try_new(16, self.content_hash.clone().into(), None)
            .map_err(|e| table_error(path, &e))?;
        Ok(vec![
            number(0),
            number(1),
            number(2),
            number(3),
            number(4),
            Arc::new(Float64Array::from(self.mtld.clone())),
            Arc::new(UInt32Array::from(self.source.clone())),
            number(5),
            Arc::new(hashes),
        ])
    }

    fn mtld_f32(&self) -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(
            self.mtld.iter().map(|m| *m as f32),
        ))
    }
}

fn table_properties() -> WriterProperties {
    let hash = ColumnPath::from("content_hash");
    let level = ZstdLevel::try_new(3).unwrap_or_default();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(4 * BATCH_ROWS))
        // Hashes neither repeat nor compress, and their least and greatest say nothing.
        .set_column_dictionary_enabled(hash.clone(), false)
        .set_column_compression(hash.clone(), Compression::UNCOMPRESSED)
        .set_column_statistics_enabled(hash, EnabledStatistics::None)
        .set_created_by("hds-index".into())
        .build()
}

fn create(path: &Path) -> Result<Output, FileError> {
    let file = File::create(path).map_err(|e| FileError::new("create", path, e))?;
    Ok(ChecksumWriter::new(BufWriter::with_capacity(1 << 18, file)))
}

fn close(output: Output, path: &Path) -> Result<(u64, Checksum), FileError> {
    let (buffer, bytes, checksum) = output.finish();
    let failed = |e| FileError::new("write", path, e);
    let file = buffer.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok((bytes, checksum))
}

fn table_error(path: &Path, error: &dyn std::fmt::Display) -> BuildError {
    BuildError::Table {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
