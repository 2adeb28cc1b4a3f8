//! Activation checkpointing: blocks run again in the backward pass, from their kept inputs.
//!
//! In: a batch, and the gradient at the final layer norm's output. Out: the parameters' gradients, and the taps' records.
//! Always holds: the same operations on the same values as without it, so that gradients are the same; at any time the
//! activations of one block exist.

use tch::{Tensor, no_grad};

use super::loss::bridge;
use super::{Model, Taps, masks};

impl Model {
    /// The residual stream [N, H] after the final layer norm, and what went into each block and the norm; all without
    /// gradients.
    pub(super) fn forward_keeping_inputs(
        &self,
        tokens_bl: &Tensor,
        documents_bl: Option<&Tensor>,
    ) -> (Tensor, Vec<Tensor>) {
        let mut inputs = Vec::with_capacity(self.blocks.len() + 1);
        let hidden_nh = no_grad(|| {
            self.hidden_states(tokens_bl, documents_bl, None, |stream_nh| {
                inputs.push(stream_nh.shallow_clone());
            })
        });
        (hidden_nh, inputs)
    }

    /// Backward from the gradient of [`Self::forward_keeping_inputs`]' result.
    pub(super) fn backward_recomputing(
        &self,
        tokens_bl: &Tensor,
        documents_bl: Option<&Tensor>,
        inputs: &[Tensor],
        hidden_gradient_nh: Tensor,
        mut taps: Option<&mut Taps>,
    ) {
        let mask = documents_bl.map(masks::attention_mask);
        let pass = self.pass(tokens_bl, mask.as_ref(), taps.as_deref_mut());
        let (blocks, norm) = inputs.split_at(self.blocks.len());
        let mut gradient_nh = hidden_gradient_nh;
        if let Some(input_nh) = norm.first() {
            let norm = |x_nh: &Tensor| self.final_norm.forward(x_nh, self.kind, self.plain());
            gradient_nh = back_through(input_nh, &gradient_nh, norm);
        }
        for (index, (block, input_nh)) in self.blocks.iter().zip(blocks).enumerate().rev() {
            gradient_nh = back_through(input_nh, &gradient_nh, |x_nh| {
                block.forward(x_nh, &pass, index, taps.as_deref_mut())
            });
        }
        bridge(&self.embed(tokens_bl), &gradient_nh).backward();
        if let Some(taps) = taps {
            taps.made_backwards();
        }
    }
}

/// The gradient with respect to `input` of a part whose output has `gradient`; its parameters' are added up.
fn back_through(input: &Tensor, gradient: &Tensor, part: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    let input = input.detach().set_requires_grad(true);
    bridge(&part(&input), gradient).backward();
    input.grad()
}
