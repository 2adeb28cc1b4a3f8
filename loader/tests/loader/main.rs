//! Behaviour of the loader over small indexes on disk.

mod builder;
mod documents;
mod hostile;
mod stream;
