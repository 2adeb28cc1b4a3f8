//! What a record of the input is to the index: a text and a domain.
//!
//! In: one line of JSON, one row of a table, or one file, and the names of the fields. Out: the text and the domain,
//! or a [`Fault`] that says what is wrong and at which byte. Reads no files; see [`crate::input`].

mod fault;
mod json;
mod path;

pub use fault::Fault;
pub use json::{Found, JsonFault, read_object};
pub use path::{FieldPath, FieldPathError};
