//! Clipping by the global norm of all gradients.

use tch::{Kind, Tensor, no_grad};

use super::Parameter;

/// The L2 norm of all gradients taken as one vector; 0 without gradients.
pub fn gradient_norm(parameters: &[Parameter]) -> f64 {
    no_grad(|| {
        let norms: Vec<Tensor> = parameters
            .iter()
            .map(|parameter| parameter.tensor.grad())
            .filter(Tensor::defined)
            .map(|gradient| gradient.norm().to_kind(Kind::Float))
            .collect();
        if norms.is_empty() {
            return 0.0;
        }
        // One transfer from the device for all parameters.
        Tensor::stack(&norms, 0).norm().double_value(&[])
    })
}

/// Scales all gradients so that their global norm is at most `max_norm`, and returns the norm they
/// had. Non-finite gradients are left as they are: the returned norm says so.
///
/// # Source
/// Pascanu, Mikolov, Bengio 2013, algorithm 1; factor min(1, max_norm / (norm + 10⁻⁶)) as in
/// PyTorch's `clip_grad_norm_`.
pub fn clip_gradient_norm(parameters: &[Parameter], max_norm: f64) -> f64 {
    let norm = gradient_norm(parameters);
    let factor = max_norm / (norm + 1e-6);
    if norm.is_finite() && factor < 1.0 {
        no_grad(|| {
            for parameter in parameters {
                let mut gradient = parameter.tensor.grad();
                if gradient.defined() {
                    let _ = gradient.multiply_scalar_(factor);
                }
            }
        });
    }
    norm
}
