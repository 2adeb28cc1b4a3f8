//! Which tokens of a sequence see each other, and which of its losses count.
//!
//! In: the document of each input, and whether each target counts. Out: the mask that attention takes, and the part
//! of the loss that each token has. Always holds: without masks nothing is computed and results are those of plain
//! causal sequences, bit for bit. Leaves to others where documents begin ([`hds_loader::Batch`]).

#[cfg(fused)]
use tch::Device;
use tch::{Kind, Tensor};

/// What restricts a pass; without any, each token sees all before it in its sequence and every loss counts.
#[derive(Debug, Default)]
pub struct Masks {
    /// Number of each input token's document, i64 [B, L] on the model's device: attention stays among equal numbers.
    pub documents_bl: Option<Tensor>,
    /// Whether each target counts, bool [B, L] on the model's device. A sequence's loss is the mean over those that do,
    /// 0 where none does.
    pub counted_bl: Option<Tensor>,
}

/// Which pairs may attend, bool [B, 1, L, L]: same document, and not later. B·L² bytes.
pub(super) fn attention_mask(documents_bl: &Tensor) -> Tensor {
    let same_bll = documents_bl
        .unsqueeze(2)
        .eq_tensor(&documents_bl.unsqueeze(1));
    same_bll.tril(0).unsqueeze(1)
}

/// The factor of each token's loss in the sum over all sequences of `scale` times their means.
pub(super) enum Share {
    /// The same for all.
    Even(f64),
    /// One a token, [N, 1].
    Each(Tensor),
}

impl Share {
    pub(super) fn new(counted_bl: Option<&Tensor>, scale: f64, length: i64, kind: Kind) -> Self {
        match counted_bl {
            None => Self::Even(scale / length as f64),
            Some(counted_bl) => Self::Each(
                part_of_mean(counted_bl, kind)
                    .multiply_scalar(scale)
                    .view([-1, 1]),
            ),
        }
    }

    /// The factors of the rows `start..start + rows`, f32 [rows] on the CPU.
    #[cfg(fused)]
    pub(super) fn factors(&self, start: i64, rows: i64) -> Tensor {
        match self {
            Self::Even(factor) => Tensor::full([rows], *factor, (Kind::Float, Device::Cpu)),
            Self::Each(factors_n1) => factors_n1.narrow(0, start, rows).view([rows]),
        }
    }

    /// Multiplies the rows `start..start + rows` of a chunk [rows, …] by their factors, in place.
    pub(super) fn scale(&self, chunk: &mut Tensor, start: i64) {
        let _ = match self {
            Self::Even(factor) => chunk.multiply_scalar_(*factor),
            Self::Each(factors_n1) => {
                chunk.multiply_(&factors_n1.narrow(0, start, chunk.size()[0]))
            }
        };
    }
}

/// What each token has of its sequence's mean, [B, L]: 1 / (targets that count), or 0.
fn part_of_mean(counted_bl: &Tensor, kind: Kind) -> Tensor {
    let counted_bl = counted_bl.to_kind(kind);
    let counts_b1 = counted_bl.sum_dim_intlist([1i64].as_slice(), true, None::<Kind>);
    counted_bl / counts_b1.clamp_min(1.0)
}

/// Mean loss of each sequence, [B], over the targets that count; from the tokens' [N].
pub(super) fn mean_losses(
    losses_n: &Tensor,
    targets_bl: &Tensor,
    counted_bl: Option<&Tensor>,
) -> Tensor {
    let losses_bl = losses_n.view(targets_bl.size().as_slice());
    match counted_bl {
        None => losses_bl.mean_dim([1i64].as_slice(), false, None::<Kind>),
        Some(counted_bl) => {
            let parts_bl = part_of_mean(counted_bl, losses_bl.kind()) * losses_bl;
            parts_bl.sum_dim_intlist([1i64].as_slice(), false, None::<Kind>)
        }
    }
}
