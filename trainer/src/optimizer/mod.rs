//! AdamW, gradient clipping and learning-rate schedules.
//!
//! In: parameters with gradients, and a learning rate a step. Out: updated parameters, moments that
//! can be saved and restored. Always holds: two optimizers with the same state and gradients take
//! the same step, bit for bit on one device and thread count. Leaves to others: gradients (autograd),
//! what is stored where ([`crate::tensors`] and the checkpoint).

mod adamw;
mod clip;
mod schedule;

pub use adamw::{AdamW, AdamWConfig, IN_SINGLE_PRECISION, OptimizerError, Parameter};
pub use clip::{clip_factor, clip_gradient_norm, gradient_norm, norm};
pub use schedule::{Schedule, ScheduleError};
