//! Rotary position embeddings on a part of each head.
//!
//! # Source
//! Su et al., "RoFormer", 2021, section 3.2.2, in GPT-NeoX's layout: of the R rotated dimensions,
//! dimension i and i + R/2 form a pair, turned by position · base^(−2i/R).

use tch::{Device, Kind, Tensor};

use super::ModelConfig;

/// Cosines and sines for every position, [L_max, 1, 1, R/2].
#[derive(Debug)]
pub(super) struct Rotary {
    half: i64,
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    pub(super) fn new(config: &ModelConfig, device: Device, kind: Kind) -> Self {
        let size = config.rotary_size();
        let half = size / 2;
        let positions = config.max_position_embeddings;
        // The angles are computed in f32 on the CPU, as the reference implementation does, whatever
        // device they are for: the last bits of large angles are part of the published models.
        let table = if kind == Kind::Double {
            Kind::Double
        } else {
            Kind::Float
        };
        let options = (table, Device::Cpu);
        let exponents = Tensor::arange(half, options) * 2.0 / (size.max(1) as f64);
        let frequencies = Tensor::full([half], config.rotary_emb_base, options)
            .pow(&exponents)
            .reciprocal();
        let angles = Tensor::arange(positions, options).outer(&frequencies);
        let shape = [positions, 1, 1, half];
        let place = |t: Tensor| t.to_kind(kind).to_device(device).view(shape);
        Self {
            half,
            cos: place(angles.cos()),
            sin: place(angles.sin()),
        }
    }

    /// Cosines and sines [L, R/2] of positions 0..L.
    #[cfg(fused)]
    pub(super) fn tables(&self, length: i64) -> (Tensor, Tensor) {
        let table = |t: &Tensor| t.narrow(0, 0, length).view([length, self.half]);
        (table(&self.cos), table(&self.sin))
    }

    /// Rotates queries and keys [B, L, A, 2, D] at positions 0..L.
    pub(super) fn apply(&self, qk_bla2d: &Tensor) -> Tensor {
        if self.half == 0 {
            return qk_bla2d.shallow_clone();
        }
        let size = qk_bla2d.size();
        let (length, head) = (size[1], size[4]);
        let cos = self.cos.narrow(0, 0, length);
        let sin = self.sin.narrow(0, 0, length);
        let parts = qk_bla2d.split_with_sizes([self.half, self.half, head - 2 * self.half], -1);
        let [first, second, rest] = &parts[..] else {
            unreachable!("three sizes give three parts");
        };
        let turned_first = first * &cos - second * &sin;
        let turned_second = second * &cos + first * &sin;
        Tensor::cat(&[&turned_first, &turned_second, rest], -1)
    }
}
