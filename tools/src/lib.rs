//! Set-up, demo and checks of this workspace; the library behind `cargo xtask`.
//!
//! In: a checkout and whatever the machine has (Rust, a C++ compiler, Python 3). Out: libtorch in
//! `.libtorch/`, a corpus, a demo run, a verdict on the tests. Every command can be repeated cheaply and
//! says how to get what is missing. It knows the other crates by their command lines only.

pub mod check;
pub mod corpus;
pub mod demo;
pub mod process;
pub mod project;
pub mod settings;
pub mod setup;
pub mod tidy;
