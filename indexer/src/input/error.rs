//! Where in the input something is wrong.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::record::Fault;

/// A place inside a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The source as a whole.
    Whole,
    /// A line, counted from 1, and a byte, counted from 0, of the decompressed text.
    Line {
        /// The line.
        line: u64,
        /// The byte.
        byte: u64,
    },
    /// A row of a table, from 0.
    Row(u64),
    /// A document of a Megatron dataset, from 0.
    Document(u64),
    /// A byte of a text file, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the whole"),
            Self::Line { line, byte } => write!(f, "line {line}, byte {byte}"),
            Self::Row(row) => write!(f, "row {row}"),
            Self::Document(document) => write!(f, "document {document}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// A fault with its place.
#[derive(Debug, Error)]
#[error("{}: {fault}", self.location())]
pub struct InputError {
    /// The file.
    pub path: PathBuf,
    /// Where in the file.
    pub place: Place,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

impl InputError {
    /// The file and the place, as messages show them.
    pub fn location(&self) -> String {
        let file = if self.path == Path::new("-") {
            "standard input".to_owned()
        } else {
            self.path.display().to_string()
        };
        match self.place {
            Place::Whole => file,
            place => format!("{file}, {place}"),
        }
    }
}
