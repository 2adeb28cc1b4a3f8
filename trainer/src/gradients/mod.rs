//! Per-domain gradients of a few weight matrices from mixed batches, in the ordinary backward pass.
//!
//! In: the taps of a micro-batch (input x and output gradient δ of each selected layer) and the domain of
//! each of its sequences. Out: the Gram matrix of the domains' mean gradients, and the selected
//! matrices' norms. Always holds: no backward pass beyond the model's own; a domain absent from a
//! step has zero rows. Leaves to others: which reward comes of it.
//!
//! The selected layers are the feed-forward output projections (`mlp.dense_4h_to_h`, y = x Wᵀ + b) of
//! chosen blocks. The gradient of a sequence is δᵀ x over its tokens; a domain's is the mean of its
//! sequences', ∇_ω L(θ, B_i).
//!
//! Legend: K domains, B sequences, L tokens, H hidden and F feed-forward size, S layers, q and p rank
//! of a sketch on the side of H and F.
//!
//! # Source
//! Selected layers and g_i: the HDS paper (arXiv:2606.24133), section on gradient alignment, and its
//! authors' code. The gradient of a linear layer as a sum of outer products, per example: Goodfellow, "Efficient
//! per-example gradient computations", 2015.

mod domain;
mod layers;
mod norms;
mod sketch;

use thiserror::Error;

pub use domain::{DomainGradients, GradientMode};
pub use layers::{LayerChoice, Region};
pub use norms::{NormError, WeightNorms};
pub use sketch::Projection;

/// Gradients that cannot be attributed.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum GradientError {
    /// A chosen layer does not exist.
    #[error("signals.layers: layer {got} does not exist; the model has blocks 0 to {last}")]
    Layer {
        /// What was chosen.
        got: String,
        /// The last block.
        last: usize,
    },
    /// A layer is chosen more than once.
    #[error("signals.layers: {got} is there twice; leave one")]
    Repeated {
        /// What was chosen.
        got: String,
    },
    /// No layer is chosen.
    #[error("signals.layers: no layer is chosen for gradient alignment; give at least one")]
    NoLayer,
    /// Not one domain a sequence.
    #[error("{got} domains given for {want} sequences")]
    Sequences {
        /// Domains given.
        got: usize,
        /// Sequences of the micro-batch.
        want: i64,
    },
    /// A domain beyond K.
    #[error("domain {got} of {domains} domains")]
    Domain {
        /// The domain.
        got: usize,
        /// K.
        domains: usize,
    },
    /// The taps hold no gradients.
    #[error(
        "block {block} has no output gradient: no backward pass has run since the forward pass"
    )]
    NoBackward {
        /// The block.
        block: usize,
    },
}

#[cfg(test)]
mod agreement_tests;
#[cfg(test)]
mod tests;
