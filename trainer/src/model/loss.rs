//! Losses per sequence, and their gradients without ever holding all logits.
//!
//! The logits of a batch are its largest tensor by far (B·L·V). Here they exist for a chunk of
//! tokens at a time: product, log-softmax, loss, gradient of the logits, and the two products back
//! into the hidden states and the output embedding, before the next chunk begins.

use tch::{Device, Kind, Reduction, Tensor, no_grad};

use super::masks::{Masks, Share, mean_losses};
use super::{Model, Taps};
#[cfg(fused)]
use crate::fused;

/// Bytes of logits held at once: on a CPU about what stays in the caches; on a GPU enough to keep
/// it busy.
pub fn logits_chunk_bytes(on_cpu: bool) -> u64 {
    if on_cpu { 16 << 20 } else { 512 << 20 }
}

/// Mean loss in nats per token of each sequence, `[B]` in f32 (f64 for f64 logits), from logits
/// [B, L, V] and the ids [B, L] that should have been predicted. Differentiable.
pub fn sequence_losses(logits_blv: &Tensor, targets_bl: &Tensor) -> Tensor {
    token_losses(logits_blv, targets_bl).mean_dim([1i64].as_slice(), false, None::<Kind>)
}

/// Loss in nats of each token, [B, L].
pub(crate) fn token_losses(logits_blv: &Tensor, targets_bl: &Tensor) -> Tensor {
    let size = logits_blv.size();
    let kind = match logits_blv.kind() {
        Kind::Double => Kind::Double,
        _ => Kind::Float,
    };
    let logits_nv = logits_blv.reshape([-1, size[2]]).to_kind(kind);
    logits_nv
        .cross_entropy_loss(
            &targets_bl.reshape([-1]),
            None::<Tensor>,
            Reduction::None,
            -100,
            0.0,
        )
        .view([size[0], size[1]])
}

impl Model {
    /// Adds the gradients of `scale` · Σ_b loss_b to the parameters' gradients, where loss_b is the
    /// mean loss in nats per token of sequence b, and returns the losses `[B]`, still on the device.
    /// For the gradient of a global batch's mean, `scale` is 1 / (sequences of the global batch).
    ///
    /// `tokens_bl` and `targets_bl` are i64 [B, L]. The taps' records are ready afterwards; their δ
    /// carries `scale`.
    ///
    /// # Panics
    /// As [`Model::forward`].
    pub fn accumulate_gradients(
        &self,
        tokens_bl: &Tensor,
        targets_bl: &Tensor,
        scale: f64,
        taps: Option<&mut Taps>,
    ) -> Tensor {
        self.accumulate_gradients_masked(tokens_bl, targets_bl, &Masks::default(), scale, taps)
    }

    /// As [`Model::accumulate_gradients`], with attention and losses restricted by `masks`.
    ///
    /// # Panics
    /// As [`Model::forward`], or if a mask is not [B, L].
    pub fn accumulate_gradients_masked(
        &self,
        tokens_bl: &Tensor,
        targets_bl: &Tensor,
        masks: &Masks,
        scale: f64,
        mut taps: Option<&mut Taps>,
    ) -> Tensor {
        let documents_bl = masks.documents_bl.as_ref();
        let counted_bl = masks.counted_bl.as_ref();
        let mut kept = None;
        let hidden_nh = if self.recompute {
            let (hidden_nh, inputs) = self.forward_keeping_inputs(tokens_bl, documents_bl);
            kept = Some(inputs);
            hidden_nh
        } else {
            self.hidden_states(tokens_bl, documents_bl, taps.as_deref_mut(), |_| ())
        };
        let share = Share::new(counted_bl, scale, tokens_bl.size()[1], self.wide());
        let mut embed_gradient_vh = self.embed_out_vh.grad();
        let first = !embed_gradient_vh.defined();
        if first {
            embed_gradient_vh = self.embed_out_vh.detach().zeros_like();
        }
        let (losses_n, hidden_gradient_nh) = no_grad(|| {
            self.head_gradients(
                &hidden_nh.detach(),
                &targets_bl.reshape([-1]),
                &share,
                &mut embed_gradient_vh,
            )
        });
        if first {
            first_gradient(&self.embed_out_vh, &embed_gradient_vh);
        }
        match kept {
            None => bridge(&hidden_nh, &hidden_gradient_nh).backward(),
            Some(inputs) => self.backward_recomputing(
                tokens_bl,
                documents_bl,
                &inputs,
                hidden_gradient_nh,
                taps,
            ),
        }
        mean_losses(&losses_n, targets_bl, counted_bl)
    }

    /// Kind that losses and the output embedding's gradient are computed in.
    fn wide(&self) -> Kind {
        match self.kind {
            Kind::Double => Kind::Double,
            _ => Kind::Float,
        }
    }

    /// Mean loss in nats per token of each sequence, `[B]`, without gradients and without holding all
    /// logits.
    ///
    /// # Panics
    /// As [`Model::forward`].
    pub fn evaluate_losses(&self, tokens_bl: &Tensor, targets_bl: &Tensor) -> Tensor {
        self.evaluate_losses_masked(tokens_bl, targets_bl, &Masks::default())
    }

    /// As [`Model::evaluate_losses`], with attention and losses restricted by `masks`.
    ///
    /// # Panics
    /// As [`Model::forward`], or if a mask is not [B, L].
    pub fn evaluate_losses_masked(
        &self,
        tokens_bl: &Tensor,
        targets_bl: &Tensor,
        masks: &Masks,
    ) -> Tensor {
        no_grad(|| {
            let documents_bl = masks.documents_bl.as_ref();
            let hidden_nh = self.hidden_states(tokens_bl, documents_bl, None, |_| ());
            let targets_n = targets_bl.reshape([-1]);
            let weight_vh = self.compute(&self.embed_out_vh);
            let losses: Vec<Tensor> = self
                .chunks(hidden_nh.size()[0])
                .map(|(start, rows)| {
                    let logits_cv = hidden_nh
                        .narrow(0, start, rows)
                        .linear(&weight_vh, None::<&Tensor>);
                    let logits_1cv = logits_cv.unsqueeze(0);
                    token_losses(&logits_1cv, &targets_n.narrow(0, start, rows).unsqueeze(0))
                        .squeeze_dim(0)
                })
                .collect();
            mean_losses(
                &Tensor::cat(&losses, 0),
                targets_bl,
                masks.counted_bl.as_ref(),
            )
        })
    }

    /// Start and length of each chunk of `rows` tokens.
    fn chunks(&self, rows: i64) -> impl Iterator<Item = (i64, i64)> + use<> {
        let row_bytes = 4 * self.config.vocab_size;
        let chunk = (logits_chunk_bytes(self.device == Device::Cpu) as i64 / row_bytes)
            .clamp(1, rows.max(1));
        (0..rows)
            .step_by(chunk as usize)
            .map(move |start| (start, chunk.min(rows - start)))
    }

    /// Token losses [N] and the gradient [N, H] with respect to the hidden states of the sum of their
    /// shares; adds the output embedding's gradient to `embed_gradient_vh`.
    fn head_gradients(
        &self,
        hidden_nh: &Tensor,
        targets_n: &Tensor,
        share: &Share,
        embed_gradient_vh: &mut Tensor,
    ) -> (Tensor, Tensor) {
        let weight_vh = self.compute(&self.embed_out_vh);
        let weight_hv = weight_vh.tr();
        let wide = self.wide();
        #[cfg(fused)]
        let mut buffer = Tensor::empty([0], (wide, self.device));
        let narrow = wide != self.kind;
        let rows = hidden_nh.size()[0];
        let hidden_gradient_nh = hidden_nh.empty_like();
        let losses_n = Tensor::empty([rows], (wide, self.device));
        for (start, size) in self.chunks(rows) {
            let hidden_ch = hidden_nh.narrow(0, start, size);
            #[cfg(fused)]
            if self.plain() {
                if buffer.numel() == 0 {
                    buffer = buffer.new_empty([size, weight_vh.size()[0]], (wide, self.device));
                }
                let logits_cv = buffer.narrow(0, 0, size);
                let _ = hidden_ch.mm_out(&logits_cv, &weight_hv);
                fused::cross_entropy(
                    &logits_cv,
                    &targets_n.narrow(0, start, size),
                    &share.factors(start, size),
                    &losses_n.narrow(0, start, size),
                );
                let _ = logits_cv.mm_out(&hidden_gradient_nh.narrow(0, start, size), &weight_vh);
                let _ = embed_gradient_vh.addmm_(&logits_cv.tr(), &hidden_ch);
                continue;
            }
            let target_c1 = targets_n.narrow(0, start, size).unsqueeze(1);
            let mut logits_cv = hidden_ch.matmul(&weight_hv).log_softmax(-1, wide);
            let picked_c = logits_cv.gather(1, &target_c1, false).squeeze_dim(1);
            let _ = picked_c.neg_out(&losses_n.narrow(0, start, size));
            // d loss / d logits = softmax − one-hot.
            let _ = logits_cv.exp_();
            let minus_one = Tensor::full([size, 1], -1.0, (wide, self.device));
            let _ = logits_cv.scatter_add_(1, &target_c1, &minus_one);
            if narrow {
                // Scaled before it is rounded: in f16 a probability alone may underflow.
                share.scale(&mut logits_cv, start);
                let gradient_cv = logits_cv.to_kind(self.kind);
                let _ = gradient_cv.mm_out(&hidden_gradient_nh.narrow(0, start, size), &weight_vh);
                let update_vh = gradient_cv.tr().mm(&hidden_ch).to_kind(wide);
                let _ = embed_gradient_vh.g_add_(&update_vh);
            } else {
                let mut gradient_ch = hidden_gradient_nh.narrow(0, start, size);
                let _ = logits_cv.mm_out(&gradient_ch, &weight_vh);
                share.scale(&mut gradient_ch, start);
                let mut shared_ch = hidden_ch.copy();
                share.scale(&mut shared_ch, start);
                let _ = embed_gradient_vh.addmm_(&logits_cv.tr(), &shared_ch);
            }
        }
        (losses_n, hidden_gradient_nh)
    }
}

/// Gives a leaf its first gradient; later ones are added to it in place.
fn first_gradient(leaf: &Tensor, gradient: &Tensor) {
    #[cfg(fused)]
    fused::set_gradient(leaf, Some(gradient));
    // Nothing but autograd can do it through tch.
    #[cfg(not(fused))]
    (leaf * gradient).sum(None::<Kind>).backward();
}

/// A number whose gradient with respect to `output` is exactly `gradient`.
pub(super) fn bridge(output: &Tensor, gradient: &Tensor) -> Tensor {
    output.reshape([-1]).dot(&gradient.reshape([-1]))
}
