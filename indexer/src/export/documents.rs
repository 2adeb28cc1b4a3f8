//! The document tables of an index as one Parquet file.
//!
//! In: an index and what is wanted of it. Out: a table with the columns `domain`, `split`, those of the document table ([`table_schema`]), the
//! source by its name instead of its number. Rows are in the order of domains, splits and documents.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use hds::durable;
use hds::index::{IndexError, Manifest, table_schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use super::{ExportError, Selection, must_be_absent};
use crate::guard::guarded_table;
use crate::verify::file::check_file;
use crate::verify::tables::TableBatches;

/// The column that gets names instead of numbers.
const SOURCE: &str = "source";
/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 18;

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentsSummary {
    /// The file.
    pub path: PathBuf,
    /// Its rows.
    pub documents: u64,
}

/// Writes the table.
///
/// # Errors
/// If the index cannot be read, the target exists, or nothing is chosen.
pub fn export_documents(
    index: &Path,
    selection: &Selection,
    target: &Path,
) -> Result<DocumentsSummary, ExportError> {
    let (manifest, _) = Manifest::load(index)?;
    let chosen = selection.of(index, &manifest)?;
    if chosen.is_empty() {
        return Err(ExportError::Nothing { path: index.into() });
    }
    must_be_absent(target)?;
    let schema = Arc::new(schema());
    let mut documents = 0;
    let mut failed: Option<IndexError> = None;
    let written = durable::write_file(target, |file| {
        let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties()))?;
        for split in &chosen {
            for shard in &split.entry.shards {
                let path = index.join(&shard.table_file.path);
                let mut copy = || -> Result<(), CopyError> {
                    check_file(&path, &shard.table_file, |_| ())?;
                    for batch in TableBatches::open(&path, shard.documents, 0)? {
                        let batch = batch?;
                        documents += batch.num_rows() as u64;
                        let named = [split.domain, split.split.name()];
                        writer.write(&named_batch(&batch, named, &manifest, &schema, &path)?)?;
                    }
                    Ok(())
                };
                match guarded_table(&path, &mut copy) {
                    Ok(()) => {}
                    Err(CopyError::Write(error)) => return Err(error),
                    Err(CopyError::Index(error)) => {
                        failed = Some(error);
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
            }
        }
        writer.finish()?;
        Ok(())
    });
    match (written, failed) {
        (_, Some(error)) => Err(error.into()),
        (Err(error), None) => Err(error.into()),
        (Ok(()), None) => Ok(DocumentsSummary {
            path: target.into(),
            documents,
        }),
    }
}

enum CopyError {
    Index(IndexError),
    Write(io::Error),
}

impl From<IndexError> for CopyError {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl From<parquet::errors::ParquetError> for CopyError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Write(error.into())
    }
}

fn schema() -> Schema {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let mut fields = vec![text("domain"), text("split")];
    for field in table_schema().fields() {
        fields.push(match field.name().as_str() {
            SOURCE => text(SOURCE),
            _ => field.as_ref().clone(),
        });
    }
    Schema::new(fields)
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap_or_default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by("hds-index".into())
        .build()
}

fn named_batch(
    batch: &RecordBatch,
    named: [&str; 2],
    manifest: &Manifest,
    schema: &SchemaRef,
    path: &Path,
) -> Result<RecordBatch, IndexError> {
    let content = |reason: String| IndexError::Content {
        path: path.into(),
        reason,
    };
    let same = |text: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
            text,
            batch.num_rows(),
        )))
    };
    let mut columns = vec![same(named[0]), same(named[1])];
    for (field, column) in table_schema().fields().iter().zip(batch.columns()) {
        if field.name() != SOURCE {
            columns.push(column.clone());
            continue;
        }
        let mut names = Vec::with_capacity(batch.num_rows());
        for number in column.as_primitive::<UInt32Type>().values() {
            let source = manifest.sources.get(*number as usize).ok_or_else(|| {
                let known = manifest.sources.len();
                content(format!(
                    "a document is of source {number}, there are {known}"
                ))
            })?;
            names.push(source.name.as_str());
        }
        columns.push(Arc::new(StringArray::from(names)));
    }
    RecordBatch::try_new(schema.clone(), columns).map_err(|e| content(e.to_string()))
}
