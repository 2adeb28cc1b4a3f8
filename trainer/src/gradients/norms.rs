//! L2 norms of the selected matrices and of their change in a step.

use tch::{Kind, Tensor, no_grad};
use thiserror::Error;

/// A saved state that does not fit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("weight norms: {got} saved changes for {want} selected layers")]
pub struct NormError {
    /// Changes in the state.
    pub got: usize,
    /// Layers selected.
    pub want: usize,
}

/// Measures ‖ω‖₂ before each update and ‖Δω‖₂ by it.
///
/// Always holds: one copy of the selected matrices at most; the state to save is one number a layer.
#[derive(Debug)]
pub struct WeightNorms {
    weights: Vec<Tensor>,
    before: Vec<Tensor>,
    changes: Vec<f64>,
}

impl WeightNorms {
    /// Watches the given matrices, which share storage with the model's.
    pub fn new(weights: Vec<Tensor>) -> Self {
        Self {
            changes: vec![0.0; weights.len()],
            before: Vec::new(),
            weights,
        }
    }

    /// ‖ω‖₂ of each matrix now.
    pub fn norms(&self) -> Vec<f64> {
        self.weights.iter().map(norm).collect()
    }

    /// ‖Δω‖₂ of each matrix by the last update that was measured; 0 before the first.
    pub fn changes(&self) -> &[f64] {
        &self.changes
    }

    /// To be called just before an update: remembers the matrices.
    pub fn before_update(&mut self) {
        no_grad(|| {
            if self.before.is_empty() {
                self.before = self.weights.iter().map(Tensor::copy).collect();
                return;
            }
            for (before, weight) in self.before.iter_mut().zip(&self.weights) {
                before.copy_(weight);
            }
        });
    }

    /// To be called just after an update, or after one that was skipped: measures the change.
    pub fn after_update(&mut self) {
        no_grad(|| {
            for ((change, before), weight) in self
                .changes
                .iter_mut()
                .zip(&mut self.before)
                .zip(&self.weights)
            {
                let _ = before.g_sub_(weight);
                *change = norm(before);
            }
        });
    }

    /// Continues from the changes that [`WeightNorms::changes`] gave when the state was saved.
    ///
    /// # Errors
    /// Another number of layers.
    pub fn restore(&mut self, changes: &[f64]) -> Result<(), NormError> {
        if changes.len() != self.weights.len() {
            return Err(NormError {
                got: changes.len(),
                want: self.weights.len(),
            });
        }
        self.changes = changes.to_vec();
        Ok(())
    }
}

/// L2 norm, summed in f64: the stability reward takes differences of norms.
fn norm(tensor: &Tensor) -> f64 {
    no_grad(|| {
        tensor
            .norm_scalaropt_dtype(2.0, Kind::Double)
            .double_value(&[])
    })
}
