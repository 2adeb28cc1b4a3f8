//! The bundled trainer: Pythia models, the per-domain signals of a step, the rewards made of them,
//! and the policies that turn both into the next step's domain weights.
//!
//! `model`, `reward` and `scheduler` do not import one another: [`signals`] carries plain numbers
//! between them, and [`run`] joins all.

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod agent;
pub mod compare;
mod cuda;
pub mod distributed;
pub mod evaluation;
#[cfg(any(c10d, fused))]
mod foreign;
#[cfg(fused)]
mod fused;
pub mod gradients;
pub mod memory;
pub mod mmlu;
pub mod model;
pub mod optimizer;
pub mod plan;
pub mod preset;
pub mod report;
pub mod reward;
pub mod run;
pub mod scheduler;
pub mod signals;
pub mod tensors;
pub mod tokenizer;
