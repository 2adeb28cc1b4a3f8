//! The numbers a run computes with, and the scale of its loss where they have few exponents.
//!
//! In: `run.precision`, and after each step whether its gradients were finite. Out: the kind of the arithmetic, and the
//! factor of the next step's loss. Always holds: weights, gradients and optimizer states are f32 in every precision;
//! the factor is a power of two, so that multiplying and dividing by it loses nothing.

use serde::{Deserialize, Serialize};
use tch::Kind;

/// Numbers of the forward and backward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    Fp32,
    /// 16 bits with the exponents of 32: what GPUs since Ampere train in.
    Bf16,
    /// 16 bits with five of them exponents; the loss is scaled so that gradients do not vanish.
    Fp16,
}

impl Precision {
    /// The tensor library's name.
    pub fn kind(self) -> Kind {
        match self {
            Self::Fp32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::Fp16 => Kind::Half,
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }
}

/// The factor of the loss.
///
/// # Source
/// Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2; numbers of PyTorch's `GradScaler`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    factor: f64,
    finite_steps: u64,
}

const START: f64 = 65_536.0;
/// Finite steps after which the factor is doubled.
const GROWTH_STEPS: u64 = 2_000;
/// Beyond it a finite f32 loss would no longer be one.
const MOST: f64 = (1u64 << 40) as f64;

impl LossScale {
    /// For a run's precision; `None` where none is needed.
    pub fn of(precision: Precision) -> Option<Self> {
        (precision == Precision::Fp16).then_some(Self {
            factor: START,
            finite_steps: 0,
        })
    }

    /// The factor of this step's loss, ≥ 1.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Takes note of a step. Whether what was not finite is put down to the factor, which is now smaller: such a step is
    /// no sign of a broken run.
    pub fn after(&mut self, finite: bool) -> bool {
        if finite {
            self.finite_steps += 1;
            if self.finite_steps >= GROWTH_STEPS {
                self.factor = (2.0 * self.factor).min(MOST);
                self.finite_steps = 0;
            }
            return false;
        }
        self.finite_steps = 0;
        let scaled = self.factor > 1.0;
        self.factor = (self.factor / 2.0).max(1.0);
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_falls_until_gradients_are_finite_and_grows_slowly() {
        assert_eq!(LossScale::of(Precision::Bf16), None);
        let mut scale = LossScale::of(Precision::Fp16).unwrap();
        for halvings in 1..=16 {
            assert!(scale.after(false), "{halvings}");
            assert_eq!(scale.factor(), START / f64::powi(2.0, halvings));
        }
        assert_eq!(scale.factor(), 1.0);
        assert!(!scale.after(false), "nothing left to put it down to");
        assert_eq!(scale.factor(), 1.0);
        for _ in 1..GROWTH_STEPS {
            assert!(!scale.after(true));
        }
        assert_eq!(scale.factor(), 1.0);
        scale.after(true);
        assert_eq!(scale.factor(), 2.0);
    }
}
