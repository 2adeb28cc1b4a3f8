//! The agent's networks: a Transformer encoder over domains as tokens, fused with the features of the
//! whole run, then a 4-layer MLP per domain.
//!
//! In: features per domain [B, K, F] and of the run [B, G]. Out: O numbers per domain of each of E
//! networks side by side, [E, B, K, O]; the twin critics are one [`Network`] with E = 2, which halves
//! the number of operations, and that is most of what a small agent costs.
//! Always holds: the same seed and index give the same initial weights on every machine.
//!
//! Legend: E members, B batch, K domains, F features of a domain, G features of the run, W width,
//! H hidden width, N = B·K.
//!
//! # Source
//! Paper, agent network: projection to width 256, 8 encoder blocks (feed-forward 512, 8 heads), fused
//! with the global features, 4-layer MLP. Our choices where it is silent: pre-norm blocks (trainable
//! without warm-up), norms without gain and bias (the linear layer after each absorbs them), a learnt
//! embedding per domain (the encoder alone cannot tell domains apart), the MLP applied to each
//! domain's token beside the projected global features, hidden width 5/2 W (which gives the paper's
//! 26.5 M for five networks), no dropout (a run must be repeatable).

use tch::{Device, Kind, Tensor};

use super::super::parameters::{Linear, Maker, Parameters, normalize};

/// Sizes of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NetworkShape {
    /// E.
    pub members: usize,
    /// K.
    pub domains: usize,
    /// F.
    pub features: usize,
    /// G.
    pub globals: usize,
    /// O.
    pub outputs: usize,
    /// W, a multiple of `heads`.
    pub width: usize,
    /// Encoder blocks.
    pub blocks: usize,
    /// Attention heads.
    pub heads: usize,
    /// H.
    pub hidden: usize,
}

impl NetworkShape {
    fn feed_forward(&self) -> usize {
        2 * self.width
    }

    /// Number of parameters of one member.
    pub(super) fn parameters_each(&self) -> u64 {
        let (w, h, ff) = (self.width, self.hidden, self.feed_forward());
        let linear = |from: usize, to: usize| from * to + to;
        let block = linear(w, 3 * w) + linear(w, w) + linear(w, ff) + linear(ff, w);
        let total = linear(self.features, w)
            + self.domains * w
            + linear(self.globals, w)
            + self.blocks * block
            + linear(2 * w, h)
            + 2 * linear(h, h)
            + linear(h, self.outputs);
        total as u64
    }

    /// Floating-point operations of one member's forward pass over one state: two for each weight of a product and each
    /// pair of domains in attention.
    pub(super) fn forward_flops(&self) -> f64 {
        let [k, f, g, o, w, h, ff] = [
            self.domains,
            self.features,
            self.globals,
            self.outputs,
            self.width,
            self.hidden,
            self.feed_forward(),
        ]
        .map(|size| size as f64);
        let block = k * (4.0 * w * w + 2.0 * w * ff) + 2.0 * k * k * w;
        let head = k * (w * h + 2.0 * h * h + h * o) + w * h;
        2.0 * (k * f * w + g * w + self.blocks as f64 * block + head)
    }
}

struct Block {
    query_key_value: Linear,
    attention_out: Linear,
    feed_forward_in: Linear,
    feed_forward_out: Linear,
}

impl Block {
    /// [E, N, W] → [E, N, W].
    fn forward(&self, x_enw: &Tensor, domains: i64, heads: i64) -> Tensor {
        let (e, n, w) = x_enw.size3().unwrap_or_default();
        let (rows, each) = (e * n / domains, w / heads);
        let qkv = self
            .query_key_value
            .forward(&normalize(x_enw))
            .view([rows, domains, 3, heads, each])
            .permute([2, 0, 3, 1, 4]);
        let mixed_enw = Tensor::scaled_dot_product_attention(
            &qkv.select(0, 0),
            &qkv.select(0, 1),
            &qkv.select(0, 2),
            None::<&Tensor>,
            0.0,
            false,
            None,
            false,
        )
        .transpose(1, 2)
        .reshape([e, n, w]);
        let x_enw = x_enw + self.attention_out.forward(&mixed_enw);
        let inner = self.feed_forward_in.forward(&normalize(&x_enw)).relu_();
        x_enw + self.feed_forward_out.forward(&inner)
    }
}

/// E networks of one shape with their parameters.
pub(super) struct Network {
    shape: NetworkShape,
    tokens: Linear,
    /// [E, 1, K, W].
    domain_embedding: Tensor,
    globals: Linear,
    blocks: Vec<Block>,
    /// First layer of the MLP on the token; its part on the global features has the bias.
    head_tokens: Tensor,
    head_globals: Linear,
    head: [Linear; 3],
    pub(super) parameters: Parameters,
}

impl Network {
    /// Networks with random weights drawn from (seed, `index`). The last layer starts near 0, so that
    /// the first actions and values owe nothing to chance.
    pub(super) fn new(
        shape: NetworkShape,
        seed: u64,
        index: u64,
        device: Device,
        kind: Kind,
    ) -> Self {
        let mut make = Maker::new(shape.members, seed, index, device, kind);
        let (w, ff, hidden) = (shape.width, shape.feed_forward(), shape.hidden);
        let tokens = make.linear("tokens", shape.features, w, 1.0);
        let domain_embedding = make.normal("domain_embedding", &[1, shape.domains, w], 0.5);
        let globals = make.linear("globals", shape.globals, w, 1.0);
        let blocks = (0..shape.blocks)
            .map(|i| Block {
                query_key_value: make.linear(&format!("blocks.{i}.query_key_value"), w, 3 * w, 1.0),
                attention_out: make.linear(&format!("blocks.{i}.attention_out"), w, w, 1.0),
                feed_forward_in: make.linear(&format!("blocks.{i}.feed_forward_in"), w, ff, 1.0),
                feed_forward_out: make.linear(&format!("blocks.{i}.feed_forward_out"), ff, w, 1.0),
            })
            .collect();
        let head_tokens = make.matrix("head.0.tokens.weight".into(), w, hidden, 2 * w, 1.0);
        let head_globals = make.linear("head.0.globals", w, hidden, 0.5f64.sqrt());
        let head = [
            make.linear("head.1", hidden, hidden, 1.0),
            make.linear("head.2", hidden, hidden, 1.0),
            make.linear("head.3", hidden, shape.outputs, 0.01),
        ];
        Self {
            shape,
            tokens,
            domain_embedding,
            globals,
            blocks,
            head_tokens,
            head_globals,
            head,
            parameters: make.finish(),
        }
    }

    /// Features of domains [B, K, F] and of the run [B, G] → [E, B, K, O].
    pub(super) fn forward(&self, features_bkf: &Tensor, globals_bg: &Tensor) -> Tensor {
        let (b, k, f) = features_bkf.size3().unwrap_or_default();
        let (e, w) = (self.shape.members as i64, self.shape.width as i64);
        let features_enf = features_bkf
            .reshape([1, b * k, f])
            .expand([e, -1, -1], false);
        let mut x_enw = self
            .tokens
            .forward(&features_enf)
            .view([e, b, k, w])
            .g_add(&self.domain_embedding)
            .view([e, b * k, w]);
        for block in &self.blocks {
            x_enw = block.forward(&x_enw, k, self.shape.heads as i64);
        }
        let globals_ebw = self
            .globals
            .forward(&globals_bg.unsqueeze(0).expand([e, -1, -1], false));
        let globals_eb1h = self.head_globals.forward(&globals_ebw).unsqueeze(2);
        let hidden = globals_eb1h.size().last().copied().unwrap_or(1);
        let mut x_enh = normalize(&x_enw)
            .bmm(&self.head_tokens)
            .view([e, b, k, hidden])
            .g_add(&globals_eb1h)
            .relu_()
            .view([e, b * k, hidden]);
        for layer in &self.head[..2] {
            x_enh = layer.forward(&x_enh).relu_();
        }
        self.head[2]
            .forward(&x_enh)
            .view([e, b, k, self.shape.outputs as i64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::no_grad;

    fn shape() -> NetworkShape {
        NetworkShape {
            members: 2,
            domains: 3,
            features: 4,
            globals: 5,
            outputs: 2,
            width: 8,
            blocks: 2,
            heads: 2,
            hidden: 12,
        }
    }

    fn inputs(kind: Kind) -> (Tensor, Tensor) {
        let wave = |n: i64| (Tensor::arange(n, (Kind::Double, Device::Cpu)) * 0.7).sin();
        let features = wave(2 * 3 * 4).view([2, 3, 4]).to_kind(kind);
        (features, wave(2 * 5).view([2, 5]).to_kind(kind))
    }

    #[test]
    fn parameters_are_as_many_as_the_shape_says() {
        let network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Float);
        let count: usize = network
            .parameters
            .leaves()
            .iter()
            .map(|leaf| leaf.numel())
            .sum();
        assert_eq!(count as u64, 2 * shape().parameters_each());
        let flat: usize = network
            .parameters
            .optimized()
            .iter()
            .map(|p| p.tensor.numel())
            .sum();
        assert_eq!(flat, count);
    }

    #[test]
    fn a_change_of_the_flat_tensor_is_a_change_of_the_network() {
        let network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Float);
        let (features, globals) = inputs(Kind::Float);
        assert_eq!(network.forward(&features, &globals).size(), [2, 2, 3, 2]);
        no_grad(|| {
            for parameter in network.parameters.optimized() {
                let _ = parameter.tensor.detach().zero_();
            }
        });
        assert_eq!(
            network
                .forward(&features, &globals)
                .abs()
                .max()
                .double_value(&[]),
            0.0
        );
    }

    #[test]
    fn seed_and_index_decide_the_weights() {
        let first = |seed, index| {
            let network = Network::new(shape(), seed, index, Device::Cpu, Kind::Float);
            network.parameters.named()[0].1.double_value(&[0, 0, 0])
        };
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(1, 0), first(1, 1));
    }

    #[test]
    fn gradients_match_finite_differences() {
        let mut network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Double);
        let (features, globals) = inputs(Kind::Double);
        let loss = |network: &Network| {
            let out = network.forward(&features, &globals);
            (&out * &out + out.sin()).sum(Kind::Double)
        };
        let gradients = Tensor::run_backward(
            &[loss(&network)],
            &network.parameters.leaves(),
            false,
            false,
        );
        assert!(network.parameters.set_gradients(&gradients));
        for parameter in network.parameters.optimized() {
            let flat = parameter.tensor.detach();
            for i in (0..flat.numel() as i64).step_by(37) {
                let step = 1e-6;
                let mut entry = flat.get(i);
                let _ = entry.g_add_scalar_(step);
                let above = loss(&network).double_value(&[]);
                let _ = entry.g_add_scalar_(-2.0 * step);
                let below = loss(&network).double_value(&[]);
                let _ = entry.g_add_scalar_(step);
                let want = (above - below) / (2.0 * step);
                let got = parameter.tensor.grad().double_value(&[i]);
                assert!(
                    (got - want).abs() < 1e-5 * want.abs().max(1e-2),
                    "{i}: {got} {want}"
                );
            }
        }
    }

    #[test]
    fn gradients_that_are_not_finite_are_refused() {
        let mut network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Float);
        let mut gradients: Vec<Tensor> = network
            .parameters
            .leaves()
            .into_iter()
            .map(Tensor::ones_like)
            .collect();
        assert!(network.parameters.set_gradients(&gradients));
        let _ = gradients[3].fill_(f64::NAN);
        assert!(!network.parameters.set_gradients(&gradients));
        let kept = network.parameters.optimized()[0].tensor.grad();
        assert_eq!(kept.min().double_value(&[]), 1.0);
    }

    #[test]
    fn averaging_moves_by_its_rate() {
        let mut target = Network::new(shape(), 1, 0, Device::Cpu, Kind::Double);
        let source = Network::new(shape(), 1, 1, Device::Cpu, Kind::Double);
        let at = |n: &Network| n.parameters.named()[0].1.double_value(&[1, 1, 1]);
        let (before, goal) = (at(&target), at(&source));
        target.parameters.approach(&source.parameters, 0.25);
        assert!((at(&target) - (0.75 * before + 0.25 * goal)).abs() < 1e-12);
    }

    #[test]
    fn members_are_networks_of_their_own() {
        // A change of the first member's weights leaves the second member's output alone.
        let network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Double);
        let (features, globals) = inputs(Kind::Double);
        let before = network.forward(&features, &globals);
        assert!(
            (before.get(0) - before.get(1))
                .abs()
                .max()
                .double_value(&[])
                > 0.0
        );
        no_grad(|| {
            for leaf in network.parameters.leaves() {
                let _ = leaf.get(0).fill_(0.5);
            }
        });
        let after = network.forward(&features, &globals);
        assert_eq!(
            (after.get(1) - before.get(1)).abs().max().double_value(&[]),
            0.0
        );
        assert!((after.get(0) - before.get(0)).abs().max().double_value(&[]) > 0.0);
    }

    #[test]
    fn domains_attend_to_each_other_and_batches_do_not() {
        let network = Network::new(shape(), 1, 0, Device::Cpu, Kind::Double);
        let (features, globals) = inputs(Kind::Double);
        let before = network.forward(&features, &globals);
        let _ = features.get(0).get(0).fill_(2.0);
        let moved = (network.forward(&features, &globals) - before).abs();
        assert!(moved.select(1, 0).select(1, 2).max().double_value(&[]) > 0.0);
        assert_eq!(moved.select(1, 1).max().double_value(&[]), 0.0);
    }
}
