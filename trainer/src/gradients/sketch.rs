//! Random projections that keep inner products in expectation.

use hds::random::{Purpose, RandomStream};
use tch::{Device, Kind, Tensor};

/// Fixed matrices Q_H [H, q] and Q_F [F, p] of one layer. A gradient G [H, F] = δᵀ x is sketched as
/// Q_Hᵀ G Q_F = (δ Q_H)ᵀ (x Q_F), without ever forming G.
///
/// Each has orthonormal columns, uniformly distributed, times √(H/q) or √(F/p), so E[Q Qᵀ] is the
/// identity; as both are independent, E⟨Q_Hᵀ G Q_F, Q_Hᵀ G' Q_F⟩ = ⟨G, G'⟩. With a rank as large
/// as the dimension Q is orthogonal and the inner product exact.
///
/// # Source
/// Two-sided random projection of a linear layer's gradient: design of this project; the isometry in
/// expectation is that of Johnson & Lindenstrauss, 1984. Orthonormal instead of independent columns
/// (our choice): the variance is smaller, and vanishes at full rank.
#[derive(Debug)]
pub struct Projection {
    output_hq: Tensor,
    input_fp: Tensor,
}

impl Projection {
    /// The projection of a block's layer: a pure function of seed, block, sizes and rank. A rank
    /// larger than a dimension is cut down to it.
    pub fn new(seed: u64, block: usize, hidden: i64, wide: i64, rank: i64, device: Device) -> Self {
        let side = |side: u64, size: i64| {
            orthonormal(seed, 2 * block as u64 + side, size, rank.clamp(1, size)).to_device(device)
        };
        Self {
            output_hq: side(0, hidden),
            input_fp: side(1, wide),
        }
    }

    /// Numbers of a sketch, q · p.
    pub fn len(&self) -> i64 {
        self.output_hq.size()[1] * self.input_fp.size()[1]
    }

    /// Never: a rank is at least 1.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Sketches [B, q·p] in f32 of the gradient of each sequence, from x [B, L, F] and δ [B, L, H].
    pub fn sketch(&self, input_blf: &Tensor, gradient_blh: &Tensor) -> Tensor {
        let project = |t: &Tensor, matrix: &Tensor| {
            t.matmul(&matrix.to_kind(t.kind())).to_kind(match t.kind() {
                Kind::Double => Kind::Double,
                _ => Kind::Float,
            })
        };
        let input_blp = project(input_blf, &self.input_fp);
        let gradient_blq = project(gradient_blh, &self.output_hq);
        gradient_blq
            .transpose(1, 2)
            .bmm(&input_blp)
            .flatten(1, 2)
            .to_kind(Kind::Float)
    }
}

/// [size, rank] with orthonormal columns times √(size / rank), in f32 on the CPU.
fn orthonormal(seed: u64, major: u64, size: i64, rank: i64) -> Tensor {
    let mut sequence = RandomStream::new(seed, Purpose::Sketch).sequence(major);
    let values: Vec<f64> = (0..size * rank).map(|_| sequence.next_normal()).collect();
    let gaussian = Tensor::from_slice(&values).view([size, rank]);
    let (columns, triangle) = Tensor::linalg_qr(&gaussian, "reduced");
    // With the signs of the triangle's diagonal the columns are uniformly distributed (Mezzadri,
    // "How to generate random matrices from the classical compact groups", 2007).
    let signs = triangle.diagonal(0, 0, 1).sign();
    ((columns * signs) * (size as f64 / rank as f64).sqrt()).to_kind(Kind::Float)
}
