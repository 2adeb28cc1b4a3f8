//! The index on disk, format version 1: what `hds-index` writes and every reader relies on.
//!
//! ```text
//! INDEX/
//!   manifest.json                                  counts, checksums, tokenizer, sources, options
//!   manifest.blake3                                the manifest's own checksum, for `hds-index verify` and `b3sum --check`
//!   domains/<domain>/<split>/00000.tokens          little-endian u16 or u32, no header
//!   domains/<domain>/<split>/00000.documents.arrow columns needed at run time, uncompressed IPC file
//!   domains/<domain>/<split>/00000.documents.parquet the whole document table
//! ```
//!
//! Always holds: a split's token stream is its shards' tokens one after another, documents in input
//! order, each closed by the end-of-document id and never cut by a shard; all numbers of tokens,
//! documents and bytes are 64-bit. Leaves writing to the indexer and mapping to the loader.

mod address;
mod checksum;
mod documents;
mod error;
mod layout;
mod manifest;

pub use address::remote_url;
pub use checksum::{Checksum, ChecksumReader, ChecksumWriter, checksum_file};
pub use documents::{BATCH_ROWS, runtime_schema, table_schema};
pub use error::IndexError;
pub use layout::{MANIFEST_FILE, MANIFEST_SUM_FILE, PART_FILE, Split, domain_folder, shard_stem};
pub use manifest::{
    DomainEntry, FORMAT_NAME, FORMAT_VERSION, FileEntry, Manifest, MtldSummary, ShardEntry,
    Skipped, SourceEntry, SplitEntry, TokenType, TokenizerEntry,
};
