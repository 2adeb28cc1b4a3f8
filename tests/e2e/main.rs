//! End-to-end tests: one binary, over the real `hds-index` and `hds-train`.

// A helper of a test may unwrap as a test may; the lint knows only the test functions themselves.
#![allow(clippy::unwrap_used)]

mod compare;
mod distributed;
mod errors;
mod evaluation;
mod going_on;
mod help;
mod index;
mod loader;
mod peers;
mod plan;
mod precision;
mod training;
