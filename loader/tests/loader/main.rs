//! Behaviour of the loader over small indexes on disk.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod builder;
mod documents;
mod hostile;
mod padding;
mod saved;
mod scale;
mod stream;
mod workers;
