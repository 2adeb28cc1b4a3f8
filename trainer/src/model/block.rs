//! One Transformer block: attention and feed-forward, in parallel or one after the other.
//!
//! The stream stays two-dimensional, [N, H], so that products with a bias are single calls and the
//! residual additions can be made in place on their results.

use tch::{Kind, Tensor};

use super::rotary::Rotary;
use super::{ModelConfig, ModelError, Role, Taps};
#[cfg(fused)]
use crate::fused;

/// Makes or loads one parameter: name, shape, role.
pub(super) trait MakeParameter:
    FnMut(String, &[i64], Role) -> Result<Tensor, ModelError>
{
}
impl<F: FnMut(String, &[i64], Role) -> Result<Tensor, ModelError>> MakeParameter for F {}

/// What a block must know of the batch it runs on.
pub(super) struct Pass<'a> {
    pub(super) batch: i64,
    pub(super) length: i64,
    pub(super) kind: Kind,
    pub(super) rotary: &'a Rotary,
    /// [B, 1, L, L]; `None` for plain causal attention.
    pub(super) mask: Option<&'a Tensor>,
    /// Whether everything is f32 on the CPU.
    pub(super) plain: bool,
}

/// A parameter in the kind of the arithmetic; gradients return in the parameter's own kind.
pub(super) fn in_kind(parameter: &Tensor, kind: Kind) -> Tensor {
    if parameter.kind() == kind {
        parameter.shallow_clone()
    } else {
        parameter.to_kind(kind)
    }
}

#[derive(Debug)]
pub(super) struct Norm {
    gain_h: Tensor,
    bias_h: Tensor,
    epsilon: f64,
}

impl Norm {
    pub(super) fn build(
        config: &ModelConfig,
        name: &str,
        make: &mut impl MakeParameter,
    ) -> Result<Self, ModelError> {
        let shape = [config.hidden_size];
        Ok(Self {
            gain_h: make(format!("{name}.weight"), &shape, Role::Gain)?,
            bias_h: make(format!("{name}.bias"), &shape, Role::Bias)?,
            epsilon: config.layer_norm_eps,
        })
    }

    /// `plain` as in [`Pass`].
    pub(super) fn forward(&self, x_nh: &Tensor, kind: Kind, plain: bool) -> Tensor {
        #[cfg(fused)]
        if plain && fused::takes(self.gain_h.size()[0]) {
            return fused::norm(x_nh, (&self.gain_h, &self.bias_h), self.epsilon);
        }
        let _ = plain;
        x_nh.layer_norm(
            self.gain_h.size(),
            Some(in_kind(&self.gain_h, kind)),
            Some(in_kind(&self.bias_h, kind)),
            self.epsilon,
            true,
        )
    }
}

/// Both norms of the same rows.
fn two_norms(first: &Norm, second: &Norm, x_nh: &Tensor, pass: &Pass) -> (Tensor, Tensor) {
    #[cfg(fused)]
    if pass.plain && fused::takes(first.gain_h.size()[0]) {
        return fused::two_norms(
            x_nh,
            (&first.gain_h, &first.bias_h),
            (&second.gain_h, &second.bias_h),
            first.epsilon,
        );
    }
    (
        first.forward(x_nh, pass.kind, pass.plain),
        second.forward(x_nh, pass.kind, pass.plain),
    )
}

#[derive(Debug)]
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// A layer from `inputs` to `outputs` dimensions; the weight is [outputs, inputs].
    fn build(
        name: &str,
        outputs: i64,
        inputs: i64,
        role: Role,
        make: &mut impl MakeParameter,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            weight: make(format!("{name}.weight"), &[outputs, inputs], role)?,
            bias: make(format!("{name}.bias"), &[outputs], Role::Bias)?,
        })
    }

    fn forward(&self, x: &Tensor, kind: Kind) -> Tensor {
        x.linear(
            &in_kind(&self.weight, kind),
            Some(in_kind(&self.bias, kind)),
        )
    }

    /// `base` plus the product, without the bias.
    fn add_to(&self, base: &Tensor, x: &Tensor, kind: Kind) -> Tensor {
        base.addmm(x, &in_kind(&self.weight, kind).tr())
    }

    /// Without the bias, in the weight's own kind.
    #[cfg(fused)]
    fn product(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, None::<&Tensor>)
    }
}

/// Parameters of a block.
#[derive(Debug)]
pub(super) struct Block {
    input_norm: Norm,
    post_attention_norm: Norm,
    query_key_value: Linear,
    dense: Linear,
    up: Linear,
    down: Linear,
    heads: i64,
    parallel: bool,
}

impl Block {
    pub(super) fn build(
        config: &ModelConfig,
        index: i64,
        make: &mut impl MakeParameter,
    ) -> Result<Self, ModelError> {
        let name = format!("gpt_neox.layers.{index}");
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let linear = Linear::build;
        Ok(Self {
            input_norm: Norm::build(config, &format!("{name}.input_layernorm"), make)?,
            post_attention_norm: Norm::build(
                config,
                &format!("{name}.post_attention_layernorm"),
                make,
            )?,
            query_key_value: linear(
                &format!("{name}.attention.query_key_value"),
                3 * hidden,
                hidden,
                Role::Input,
                make,
            )?,
            dense: linear(
                &format!("{name}.attention.dense"),
                hidden,
                hidden,
                Role::Output,
                make,
            )?,
            up: linear(
                &format!("{name}.mlp.dense_h_to_4h"),
                wide,
                hidden,
                Role::Input,
                make,
            )?,
            down: linear(
                &format!("{name}.mlp.dense_4h_to_h"),
                hidden,
                wide,
                Role::Output,
                make,
            )?,
            heads: config.num_attention_heads,
            parallel: config.use_parallel_residual,
        })
    }

    /// The weight [H, F] of the feed-forward layer's output projection.
    pub(super) fn output_projection(&self) -> &Tensor {
        &self.down.weight
    }

    /// Maps the stream [N, H] to the next.
    pub(super) fn forward(
        &self,
        x_nh: &Tensor,
        pass: &Pass,
        index: usize,
        taps: Option<&mut Taps>,
    ) -> Tensor {
        let kind = pass.kind;
        let (norm, next_norm) = (&self.input_norm, &self.post_attention_norm);
        let (dense_bias_h, down_bias_h) = (
            in_kind(&self.dense.bias, kind),
            in_kind(&self.down.bias, kind),
        );
        // Products are added to the stream by the call that makes them. The sums are saved by no backward formula, so
        // that biases can be added to them in place.
        let (attended_nh, active_nf, bias_h) = if self.parallel {
            let (x_attention_nh, x_feed_nh) = two_norms(norm, next_norm, x_nh, pass);
            let heads_nh = self.attend(&x_attention_nh, pass);
            let attended_nh = self.dense.add_to(x_nh, &heads_nh, kind);
            let active_nf = self.activate(&x_feed_nh, pass);
            (attended_nh, active_nf, dense_bias_h + down_bias_h)
        } else {
            let heads_nh = self.attend(&norm.forward(x_nh, kind, pass.plain), pass);
            let mut attended_nh = self.dense.add_to(x_nh, &heads_nh, kind);
            let _ = attended_nh.g_add_(&dense_bias_h);
            let x_feed_nh = next_norm.forward(&attended_nh, kind, pass.plain);
            let active_nf = self.activate(&x_feed_nh, pass);
            (attended_nh, active_nf, down_bias_h)
        };
        let mut out_nh = self.down.add_to(&attended_nh, &active_nf, kind);
        let _ = out_nh.g_add_(&bias_h);
        match taps {
            Some(taps) => taps.record(index, &active_nf, out_nh),
            None => out_nh,
        }
    }

    /// What the heads find [N, H], before their output projection.
    fn attend(&self, x_nh: &Tensor, pass: &Pass) -> Tensor {
        #[cfg(fused)]
        if pass.plain && pass.mask.is_none() && fused::takes(self.head_size()) {
            let (cosines, sines) = pass.rotary.tables(pass.length);
            return fused::attention(
                &self.query_key_value.product(x_nh),
                &self.query_key_value.bias,
                &cosines,
                &sines,
                self.heads,
            );
        }
        let qkv = self.query_key_value.forward(x_nh, pass.kind);
        let hidden = x_nh.size()[1];
        // Each head's query, key and value lie side by side.
        let qkv_bla3d = qkv.view([pass.batch, pass.length, self.heads, 3, hidden / self.heads]);
        let parts = qkv_bla3d.split_with_sizes([2, 1], 3);
        let qk_bla2d = pass.rotary.apply(&parts[0]);
        let qk = qk_bla2d.unbind(3);
        let [query, key, value] =
            [&qk[0], &qk[1], &parts[1].squeeze_dim(3)].map(|t_blad| t_blad.transpose(1, 2));
        let out_bald = Tensor::scaled_dot_product_attention(
            &query,
            &key,
            &value,
            pass.mask,
            0.0,
            pass.mask.is_none(),
            None,
            false,
        );
        out_bald.transpose(1, 2).reshape([-1, hidden])
    }

    /// The feed-forward layer's hidden units [N, F].
    fn activate(&self, x_nh: &Tensor, pass: &Pass) -> Tensor {
        #[cfg(fused)]
        if pass.plain && fused::takes(self.up.bias.size()[0]) {
            return fused::gelu(&self.up.product(x_nh), &self.up.bias);
        }
        self.up.forward(x_nh, pass.kind).gelu("none")
    }

    /// Dimensions of a head.
    #[cfg(fused)]
    fn head_size(&self) -> i64 {
        self.dense.bias.size()[0] / self.heads
    }
}
