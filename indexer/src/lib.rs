//! Turns a corpus into an index.

pub mod lexical;
pub mod tokenize;
