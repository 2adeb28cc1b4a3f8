//! Columns of the document tables.
//!
//! Two tables with one row per document, in input order: a small one the loader maps without parsing
//! (Arrow IPC file, uncompressed, record batches of [`BATCH_ROWS`] rows so that row r is in batch
//! r / [`BATCH_ROWS`]), and the whole one for people and query engines (Parquet).

use arrow_schema::{DataType, Field, Schema};

/// Rows of every record batch of the run-time table but a shard's last.
pub const BATCH_ROWS: usize = 1 << 16;

/// Columns of `*.documents.arrow`: `token_offset` u64 (first token of the document in its split's
/// token stream, not in the shard) and `mtld` f32. No nulls.
pub fn runtime_schema() -> Schema {
    Schema::new(vec![
        Field::new("token_offset", DataType::UInt64, false),
        Field::new("mtld", DataType::Float32, false),
    ])
}

/// Columns of `*.documents.parquet`. No nulls.
///
/// | column | type | meaning |
/// |---|---|---|
/// | `document` | u64 | number in its split, from 0 |
/// | `token_offset` | u64 | first token in the split's token stream |
/// | `tokens` | u64 | tokens with the end-of-document id |
/// | `bytes` | u64 | bytes of the text, UTF-8 |
/// | `words` | u64 | words as counted for MTLD |
/// | `mtld` | f64 | lexical diversity, 0 for a document without words |
/// | `source` | u32 | index into the manifest's `sources` |
/// | `position` | u64 | line, row or file number in the source, from 0 |
/// | `content_hash` | 16 bytes | first half of the text's BLAKE3 |
pub fn table_schema() -> Schema {
    let column = |name, data_type| Field::new(name, data_type, false);
    Schema::new(vec![
        column("document", DataType::UInt64),
        column("token_offset", DataType::UInt64),
        column("tokens", DataType::UInt64),
        column("bytes", DataType::UInt64),
        column("words", DataType::UInt64),
        column("mtld", DataType::Float64),
        column("source", DataType::UInt32),
        column("position", DataType::UInt64),
        column("content_hash", DataType::FixedSizeBinary(16)),
    ])
}
