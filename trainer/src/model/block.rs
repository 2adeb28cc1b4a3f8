//! One Transformer block: attention and feed-forward, in parallel or one after the other.
//!
//! The stream stays two-dimensional, [N, H], so that products with a bias are single calls and the
//! residual additions can be made in place on their results.

use tch::{Kind, Tensor};

use super::rotary::Rotary;
use super::{ModelConfig, ModelError, Role, Taps};

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

    pub(super) fn forward(&self, x_nh: &Tensor, kind: Kind) -> Tensor {
        x_nh.layer_norm(
            self.gain_h.size(),
            Some(in_kind(&self.gain_h, kind)),
            Some(in_kind(&self.bias_h, kind)),
            self.epsilon,
            true,
        )
    }
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
        let mut attended_nh = self.attend(&self.input_norm.forward(x_nh, pass.kind), pass);
        // The results of the products are saved by no backward formula, so adding in place is exact.
        let _ = attended_nh.g_add_(x_nh);
        let source_nh = if self.parallel { x_nh } else { &attended_nh };
        let mut out_nh = self.feed_forward(
            &self.post_attention_norm.forward(source_nh, pass.kind),
            pass,
            index,
            taps,
        );
        let _ = out_nh.g_add_(&attended_nh);
        out_nh
    }

    fn attend(&self, x_nh: &Tensor, pass: &Pass) -> Tensor {
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
        let out_nh = out_bald.transpose(1, 2).reshape([-1, hidden]);
        self.dense.forward(&out_nh, pass.kind)
    }

    fn feed_forward(
        &self,
        x_nh: &Tensor,
        pass: &Pass,
        index: usize,
        taps: Option<&mut Taps>,
    ) -> Tensor {
        let active_nf = self.up.forward(x_nh, pass.kind).gelu("none");
        let out_nh = self.down.forward(&active_nf, pass.kind);
        match taps {
            Some(taps) => taps.record(index, &active_nf, out_nh),
            None => out_nh,
        }
    }
}
