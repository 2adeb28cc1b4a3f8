//! Clipping by the global norm of all gradients.

use tch::{Kind, Tensor, no_grad};

use super::Parameter;

/// The L2 norm of all gradients taken as one vector; 0 without gradients.
pub fn gradient_norm(parameters: &[Parameter]) -> f64 {
    no_grad(|| {
        let gradients = parameters.iter().map(|parameter| parameter.tensor.grad());
        let defined: Vec<Tensor> = gradients.filter(Tensor::defined).collect();
        norm(&defined)
    })
}

/// The L2 norm of all tensors taken as one vector; 0 without any.
pub fn norm(tensors: &[Tensor]) -> f64 {
    no_grad(|| {
        let norms: Vec<Tensor> = tensors
            .iter()
            .map(|tensor| tensor.norm().to_kind(Kind::Float))
            .collect();
        if norms.is_empty() {
            return 0.0;
        }
        // One transfer from the device for all tensors.
        Tensor::stack(&norms, 0).norm().double_value(&[])
    })
}

/// What gradients of this global norm are multiplied by, so that it is at most `max_norm`; 1 where they are left as they
/// are, among others where the norm is no finite number.
///
/// # Source
/// Pascanu, Mikolov, Bengio 2013, algorithm 1; factor min(1, max_norm / (norm + 10⁻⁶)) as in
/// PyTorch's `clip_grad_norm_`.
pub fn clip_factor(norm: f64, max_norm: f64) -> f64 {
    if norm.is_finite() {
        (max_norm / (norm + 1e-6)).min(1.0)
    } else {
        1.0
    }
}

/// Scales all gradients so that their global norm is at most `max_norm`, and returns the norm they
/// had. Non-finite gradients are left as they are: the returned norm says so.
pub fn clip_gradient_norm(parameters: &[Parameter], max_norm: f64) -> f64 {
    let norm = gradient_norm(parameters);
    let factor = clip_factor(norm, max_norm);
    if factor < 1.0 {
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
