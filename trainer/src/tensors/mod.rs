//! Files of named tensors in the safetensors format.
//!
//! In: named tensors of any device; or a file from anyone. Out: a file that is whole or absent,
//! with the same bytes for the same tensors; or tensors. Always holds: no length, offset or shape
//! of a file is used before it is checked, and nothing is allocated that the file does not hold.
//! Leaves to others: which names and shapes a model or optimizer expects.
//!
//! # Source
//! Format: the safetensors README, section "Format": u64 little-endian header length, JSON header,
//! data without gaps.

mod read;
mod write;

use std::ops::Range;
use std::path::PathBuf;

use hds::durable::FileError;
use safetensors::Dtype;
use tch::{Kind, TchError};
use thiserror::Error;

pub use read::{TensorFile, read};
pub use write::{Planned, order, write, write_planned};

/// The longest header that is read, as in the reference implementation.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// A tensor file that could not be written or must not be trusted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TensorFileError {
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file ends before its header does, or the header is too long.
    #[error(
        "{path}: header length is {got} bytes, a file of this length has between 2 and {limit}; the file is damaged or is not safetensors"
    )]
    HeaderLength {
        /// The file.
        path: PathBuf,
        /// Length it gives.
        got: u64,
        /// Longest possible.
        limit: u64,
    },
    /// A header that is not the JSON it must be.
    #[error("{path}: header is not valid: {source}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// Offsets that leave gaps, overlap or run backwards.
    #[error("{path}: tensor `{name}`: data_offsets {got:?}, must start at {want}")]
    Offsets {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its offsets.
        got: (usize, usize),
        /// Where it must start.
        want: usize,
    },
    /// A shape that does not give the number of bytes.
    #[error("{path}: tensor `{name}`: shape {shape:?} of {dtype} does not make {bytes} bytes")]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its element type.
        dtype: Dtype,
        /// Bytes between its offsets.
        bytes: usize,
    },
    /// Data shorter or longer than the header says.
    #[error("{path}: data is {got} bytes, header says {want}; the file is cut off or damaged")]
    DataLength {
        /// The file.
        path: PathBuf,
        /// Bytes after the header.
        got: u64,
        /// Bytes by the header.
        want: u64,
    },
    /// An element type that tensors here cannot have.
    #[error("{path}: tensor `{name}`: element type {dtype} is not supported")]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its element type.
        dtype: String,
    },
    /// A truth value other than 0 or 1.
    #[error("{path}: tensor `{name}`: a BOOL is neither 0 nor 1")]
    Bool {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor that is asked for and not there.
    #[error("{path}: no tensor `{name}`")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// Elements that a tensor does not have.
    #[error("{path}: tensor `{name}`: elements {got:?} of {all}")]
    Elements {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What was asked for.
        got: Range<usize>,
        /// How many it has.
        all: usize,
    },
    /// Two tensors of one name, or the reserved name.
    #[error("{path}: cannot write two tensors named `{name}`, or one named `__metadata__`")]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// libtorch refused.
    #[error("{path}: tensor `{name}`: {source}")]
    Torch {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What it said.
        source: TchError,
    },
}

fn kind_of(dtype: Dtype) -> Option<Kind> {
    Some(match dtype {
        Dtype::BOOL => Kind::Bool,
        Dtype::U8 => Kind::Uint8,
        Dtype::I8 => Kind::Int8,
        Dtype::I16 => Kind::Int16,
        Dtype::I32 => Kind::Int,
        Dtype::I64 => Kind::Int64,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F32 => Kind::Float,
        Dtype::F64 => Kind::Double,
        _ => return None,
    })
}

fn dtype_of(kind: Kind) -> Option<Dtype> {
    Some(match kind {
        Kind::Bool => Dtype::BOOL,
        Kind::Uint8 => Dtype::U8,
        Kind::Int8 => Dtype::I8,
        Kind::Int16 => Dtype::I16,
        Kind::Int => Dtype::I32,
        Kind::Int64 => Dtype::I64,
        Kind::Half => Dtype::F16,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Float => Dtype::F32,
        Kind::Double => Dtype::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
