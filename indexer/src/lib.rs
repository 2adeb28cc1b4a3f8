//! Turns a corpus into an index.
//!
//! [`input`] reads files into blocks of records, [`record`] finds text and domain in one, [`tokenize`] and [`lexical`] turn text into
//! ids and numbers, [`build`] joins them over threads and writes the index that [`hds::index`] describes. [`inspect`], [`sample`] and
//! [`stats`] show one, [`verify`] checks one, [`export`] gives it to other programs; [`train_tokenizer`] makes the tokenizer for one.

pub mod build;
pub mod export;
mod guard;
pub mod input;
pub mod inspect;
pub mod lexical;
pub mod record;
pub mod sample;
mod selection;
pub mod stats;
pub mod tokenize;
pub mod train_tokenizer;
pub mod verify;
