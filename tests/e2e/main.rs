//! End-to-end tests: one binary, over the real `hds-index` and `hds-train`.

mod errors;
mod help;
mod index;
mod training;
