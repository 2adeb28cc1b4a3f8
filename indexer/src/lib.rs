//! Turns a corpus into an index.
//!
//! [`input`] reads files into blocks of records, [`record`] finds text and domain in one, [`tokenize`] and [`lexical`] turn text into
//! ids and numbers, [`build`] joins them over threads and writes the index that [`hds::index`] describes. [`inspect`] shows one,
//! [`verify`] checks one.

pub mod build;
pub mod input;
pub mod inspect;
pub mod lexical;
pub mod record;
pub mod tokenize;
pub mod verify;
