//! Records of selected layers' inputs and output gradients, in the ordinary backward pass.
//!
//! In: indices of blocks. Out, after a backward pass: for each block's `mlp.dense_4h_to_h`, y = x Wᵀ + b,
//! its input x and the gradient δ of the loss with respect to y.
//! Always holds: the result of the forward pass is that without taps, bit for bit; x is not copied
//! (it is the tensor that the layer's own weight gradient needs), and the zero tensor added to y
//! takes no memory (one element, stride 0). Leaves what to do with them to [`crate::gradients`].

use tch::Tensor;

/// One layer's record. N = B·L rows, sequence after sequence.
#[derive(Debug)]
pub struct Tap {
    input_nf: Tensor,
    probe_nh: Tensor,
}

impl Tap {
    /// Input x [N, F] of the layer.
    pub fn input(&self) -> &Tensor {
        &self.input_nf
    }

    /// Gradient δ [N, H] of the loss with respect to the layer's output; `None` before a backward
    /// pass.
    pub fn output_gradient(&self) -> Option<Tensor> {
        let gradient = self.probe_nh.grad();
        gradient.defined().then_some(gradient)
    }
}

/// Which layers to record, and the records of the last forward pass.
#[derive(Debug)]
pub struct Taps {
    blocks: Vec<usize>,
    records: Vec<Tap>,
    batch: i64,
    length: i64,
}

impl Taps {
    /// Taps on the given blocks, which must be in ascending order.
    pub fn new(blocks: Vec<usize>) -> Self {
        Self {
            blocks,
            records: Vec::new(),
            batch: 0,
            length: 0,
        }
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[usize] {
        &self.blocks
    }

    /// One record a block, in order, once a forward pass has run.
    pub fn records(&self) -> &[Tap] {
        &self.records
    }

    /// Sequences B and tokens a sequence L of the last forward pass.
    pub fn batch_shape(&self) -> (i64, i64) {
        (self.batch, self.length)
    }

    /// Forgets the records, and so frees what they hold.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    /// Puts records that were made from the last block to the first in order.
    pub(super) fn made_backwards(&mut self) {
        self.records.reverse();
    }

    pub(super) fn begin(&mut self, batch: i64, length: i64) {
        self.records.clear();
        (self.batch, self.length) = (batch, length);
    }

    /// Passes a layer's output [N, H] on, with a probe added where the block is selected.
    pub(super) fn record(
        &mut self,
        block: usize,
        input_nf: &Tensor,
        mut output_nh: Tensor,
    ) -> Tensor {
        if !self.blocks.contains(&block) {
            return output_nh;
        }
        // A zero with stride 0 everywhere: its gradient is a full tensor, it is not.
        let probe_nh = output_nh
            .new_zeros([1, 1], (output_nh.kind(), output_nh.device()))
            .expand(output_nh.size(), false)
            .detach()
            .set_requires_grad(true);
        let _ = output_nh.g_add_(&probe_nh);
        self.records.push(Tap {
            input_nf: input_nf.detach(),
            probe_nh,
        });
        output_nh
    }
}
