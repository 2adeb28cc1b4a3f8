//! The corpus as a stream of blocks of records.
//!
//! In: paths as a user gives them. Out: [`Plan`], the sources in their order, and [`Reader`], which turns them into
//! [`Block`]s that threads can work on. Always holds: the order of sources and records depends on names alone; everything
//! wrong is located by file and line, row or byte. Knows nothing of tokens; see [`crate::build`].

mod arrow_file;
mod arrow_messages;
mod block;
mod decode;
mod error;
mod format;
mod lines;
mod megatron;
mod megatron_index;
mod named;
mod part;
mod plan;
mod reader;
mod rows;
mod table;
mod text;
mod walk;

pub use block::{Block, Cursor, DomainOfRecords, Payload, TextDocument};
pub use error::{InputError, Place};
pub use format::{Compression, Format, RECORD_FORMATS, TextExtensions, format_of};
pub use lines::{BLOCK_BYTES, LONGEST_LINE, LineBlock};
pub use megatron::{MegatronName, TokenBlock, of_fairseq};
pub use named::{NameError, expand, read_list};
pub use part::{Part, PartError};
pub use plan::{
    DomainFrom, LeftOut, Plan, PlanError, PlanOptions, RecordKind, Source, SourceKind, Split,
};
pub use reader::{Reader, RecordFields};
pub use rows::RowBlock;
pub use walk::walk_files;
