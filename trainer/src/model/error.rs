//! What can be wrong with a model's description or its files.

use std::path::PathBuf;

use hds::durable::FileError;
use thiserror::Error;

use crate::tensors::TensorFileError;

/// A configuration or checkpoint that describes no model of this kind.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A field out of range.
    #[error("model {field} is {got}, must be {want}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        want: String,
    },
    /// A preset that does not exist.
    #[error("no model preset {got:?}; the presets are {known}")]
    Preset {
        /// The name asked for.
        got: String,
        /// The names there are.
        known: String,
    },
    /// A `config.json` field of another architecture or feature.
    #[error("{path}: {field} is {got}, must be {want}")]
    ConfigField {
        /// The file.
        path: PathBuf,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        got: String,
        /// What it must be.
        want: String,
    },
    /// A JSON file that cannot be parsed.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A parameter that no file holds.
    #[error("{path}: no tensor `{name}`, which a model of this config.json needs")]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
    /// A parameter of another shape than config.json gives.
    #[error("{path}: tensor `{name}` has shape {got:?}, config.json gives {want:?}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// Its shape in the file.
        got: Vec<i64>,
        /// The shape by config.json.
        want: Vec<i64>,
    },
    /// A parameter whose numbers are integers or truth values.
    #[error("{path}: tensor `{name}` is not of floating point")]
    NotFloating {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
    /// A parameter with a NaN or an infinity.
    #[error("{path}: tensor `{name}` has values that are not finite; no model of it is of use")]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
    /// A parameter with values that the numbers it is to be stored in do not hold.
    #[error(
        "tensor `{name}` has {count} values that are not finite as {stored}; store it in others, or (hds-train export) let --clamp \
         take the nearest that there are"
    )]
    Overflow {
        /// The parameter.
        name: String,
        /// How many.
        count: i64,
        /// Name of the numbers.
        stored: &'static str,
    },
    /// Building was stopped.
    #[error("building the model was stopped")]
    Stopped,
    /// Parameters in Python's own format.
    #[error(
        "{path} is not read: unpacking it can run any program; save the model with save_pretrained(..., safe_serialization=True)"
    )]
    Pickled {
        /// The file.
        path: PathBuf,
    },
    /// A tensor that no parameter asks for.
    #[error("{path}: tensor `{name}` belongs to no parameter of a model of this config.json")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A shard name that is not a plain file name.
    #[error("{path}: weight_map sends `{name}` to {shard:?}, which is not a plain file name")]
    ShardName {
        /// The index file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Where it is said to be.
        shard: String,
    },
    /// A tensor file.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A file operation.
    #[error(transparent)]
    File(#[from] FileError),
}
