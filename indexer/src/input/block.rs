//! What the reader hands to a thread, and the place in the input behind it.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::InputError;
use super::lines::LineBlock;
use super::megatron::TokenBlock;
use super::plan::Split;
use super::rows::RowBlock;

/// A place between two records of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The source in which the next record is.
    pub source: u32,
    /// Lines, rows or files of it that are behind.
    pub record: u64,
}

/// Where the records of a block get their domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainOfRecords {
    /// From their field.
    Field,
    /// All the same.
    Named(Arc<str>),
    /// All the same, as the first record has no field; a later one that has it is a fault.
    Fallback(Arc<str>),
}

/// Records of one source, in order.
#[derive(Debug)]
pub struct Block {
    /// Blocks are numbered from 0 in the order of the input.
    pub sequence: u64,
    /// The source's number.
    pub source: u32,
    /// The source's file, for messages.
    pub path: Arc<PathBuf>,
    /// Where the documents go.
    pub split: Split,
    /// Where the domain comes from.
    pub domain: DomainOfRecords,
    /// The records.
    pub payload: Payload,
    /// The place behind the block.
    pub after: Cursor,
}

/// A text file that was read.
#[derive(Debug)]
pub struct TextDocument {
    /// Its number in the source, from 0.
    pub position: u64,
    /// Its path, for messages.
    pub path: PathBuf,
    /// The path below the source, for the list of what was skipped; empty if it is the source.
    pub relative: String,
    /// Its domain.
    pub domain: Arc<str>,
    /// What it holds, not checked yet.
    pub bytes: Vec<u8>,
}

/// The records of a block.
#[derive(Debug)]
pub enum Payload {
    /// Lines of JSON.
    Lines(LineBlock),
    /// Rows of a table.
    Rows(RowBlock),
    /// Documents that are ids already.
    Tokens(TokenBlock),
    /// Whole files.
    Texts(Vec<TextDocument>),
    /// Something wrong; `relative` as in [`TextDocument`].
    Fault {
        /// What and where.
        error: InputError,
        /// Below a folder of text, which file.
        relative: String,
    },
    /// The source is behind; nothing more of it follows.
    End,
}

impl Payload {
    /// The fault, with its file, and in its place the end of the source.
    pub fn take_fault(&mut self) -> Option<(InputError, String)> {
        match std::mem::replace(self, Self::End) {
            Self::Fault { error, relative } => Some((error, relative)),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Bytes that the block holds in memory, roughly.
    pub fn weight(&self) -> usize {
        match self {
            Self::Lines(block) => block.bytes.capacity(),
            Self::Rows(block) => block.weight(),
            Self::Tokens(tokens) => 4 * tokens.ids.capacity(),
            Self::Texts(texts) => texts.iter().map(|t| t.bytes.capacity()).sum(),
            Self::Fault { .. } | Self::End => 0,
        }
    }
}
