//! Parameters of a policy's networks: made from one random sequence, trained as two flat tensors.
//!
//! In: shapes, in order. Out: leaves that share the storage of two flat tensors, one of the matrices and
//! one of everything else, so that an optimizer step and target averaging are a few operations
//! whatever the depth. Always holds: the same seed and index give the same initial values on every
//! machine; only matrices decay.
//!
//! Legend: E members: networks side by side, of one shape, in one tensor.

use hds::random::{Purpose, RandomSequence, RandomStream};
use tch::{Device, Kind, Tensor, no_grad};

use crate::optimizer::Parameter;

/// y = x W + b for every member: weight [E, in, out], bias [E, 1, out].
pub(super) struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// [E, N, in] → [E, N, out].
    pub(super) fn forward(&self, x: &Tensor) -> Tensor {
        self.bias.baddbmm(x, &self.weight, 1.0, 1.0)
    }
}

/// Layer normalisation over the last dimension, without gain and bias.
pub(super) fn normalize(x: &Tensor) -> Tensor {
    let width = x.size().last().copied().unwrap_or(1);
    x.layer_norm([width], None::<&Tensor>, None::<&Tensor>, 1e-5, false)
}

/// All parameters of a network.
pub(super) struct Parameters {
    /// By name; they share the storage of the flats.
    named: Vec<(String, Tensor)>,
    matrices: Flat,
    others: Flat,
}

impl Parameters {
    /// Every parameter, in a fixed order: what gradients are taken of.
    pub(super) fn leaves(&self) -> Vec<&Tensor> {
        self.named.iter().map(|(_, tensor)| tensor).collect()
    }

    /// Every parameter by name.
    pub(super) fn named(&self) -> &[(String, Tensor)] {
        &self.named
    }

    /// How many numbers they are.
    pub(super) fn count(&self) -> u64 {
        self.named.iter().map(|(_, t)| t.numel() as u64).sum()
    }

    /// The two flat parameters for an optimizer; only matrices decay.
    pub(super) fn optimized(&self) -> Vec<Parameter> {
        [
            ("matrices", &self.matrices, true),
            ("others", &self.others, false),
        ]
        .into_iter()
        .map(|(name, flat, decays)| Parameter {
            name: name.to_owned(),
            tensor: flat.tensor.shallow_clone(),
            decays,
        })
        .collect()
    }

    /// Sets the gradients of the flats from those of the leaves, in the order of [`Self::leaves`].
    /// `false`, and nothing is set, if any is not finite.
    pub(super) fn set_gradients(&mut self, gradients: &[Tensor]) -> bool {
        let [matrices, others] = [&self.matrices, &self.others].map(|flat| {
            let parts: Vec<Tensor> = flat
                .members
                .iter()
                .map(|&i| gradients[i].reshape(-1))
                .collect();
            Tensor::cat(&parts, 0)
        });
        let sum = matrices.sum(Kind::Double) + others.sum(Kind::Double);
        let finite = sum.double_value(&[]).is_finite();
        if finite {
            no_grad(|| {
                self.matrices.tensor.grad().copy_(&matrices);
                self.others.tensor.grad().copy_(&others);
            });
        }
        finite
    }

    /// Moves towards another network of the same shape: θ ← (1 − rate) θ + rate θ'.
    pub(super) fn approach(&mut self, other: &Self, rate: f64) {
        no_grad(|| {
            for (own, theirs) in [
                (&self.matrices, &other.matrices),
                (&self.others, &other.others),
            ] {
                let _ = own.tensor.detach().lerp_(&theirs.tensor.detach(), rate);
            }
        });
    }
}

/// Parameters of one kind end to end, and which of `named` they are.
struct Flat {
    tensor: Tensor,
    members: Vec<usize>,
}

/// Makes parameters one after another from one random sequence.
pub(super) struct Maker {
    members: usize,
    named: Vec<(String, Tensor)>,
    matrices: Vec<usize>,
    noise: RandomSequence,
    device: Device,
    kind: Kind,
}

impl Maker {
    /// A maker for `members` networks whose random values are drawn from (seed, `index`).
    pub(super) fn new(members: usize, seed: u64, index: u64, device: Device, kind: Kind) -> Self {
        Self {
            members,
            named: Vec::new(),
            matrices: Vec::new(),
            noise: RandomStream::new(seed, Purpose::Initialization).sequence(index),
            device,
            kind,
        }
    }

    /// All that was made, moved into flat tensors.
    pub(super) fn finish(self) -> Parameters {
        let mut named = self.named;
        let others = (0..named.len())
            .filter(|i| !self.matrices.contains(i))
            .collect();
        let matrices = Flat::over(&mut named, self.matrices);
        let others = Flat::over(&mut named, others);
        Parameters {
            named,
            matrices,
            others,
        }
    }

    /// A leaf [E, …shape] of normal deviates.
    pub(super) fn normal(&mut self, name: &str, shape: &[usize], deviation: f64) -> Tensor {
        let count = self.members * shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count)
            .map(|_| deviation * self.noise.next_normal())
            .collect();
        self.leaf(name.to_owned(), &values, shape)
    }

    /// A leaf [E, …shape] with these values.
    pub(super) fn leaf(&mut self, name: String, values: &[f64], shape: &[usize]) -> Tensor {
        let shape: Vec<i64> = [self.members]
            .iter()
            .chain(shape)
            .map(|&n| n as i64)
            .collect();
        let leaf = Tensor::from_slice(values)
            .view(shape.as_slice())
            .to_kind(self.kind)
            .to_device(self.device)
            .set_requires_grad(true);
        self.named.push((name, leaf.shallow_clone()));
        leaf
    }

    /// Uniform in ±gain/√`fan_in`; gain 1 is PyTorch's default for a linear layer.
    pub(super) fn matrix(
        &mut self,
        name: String,
        from: usize,
        to: usize,
        fan_in: usize,
        gain: f64,
    ) -> Tensor {
        let bound = gain / (fan_in as f64).sqrt();
        let values: Vec<f64> = (0..self.members * from * to)
            .map(|_| bound * (2.0 * self.noise.next_unit() - 1.0))
            .collect();
        self.matrices.push(self.named.len());
        self.leaf(name, &values, &[from, to])
    }

    /// x W + b.
    pub(super) fn linear(&mut self, name: &str, from: usize, to: usize, gain: f64) -> Linear {
        let zeros = vec![0.0; self.members * to];
        Linear {
            weight: self.matrix(format!("{name}.weight"), from, to, from, gain),
            bias: self.leaf(format!("{name}.bias"), &zeros, &[1, to]),
        }
    }
}

impl Flat {
    /// Moves the chosen parameters into one flat leaf with a gradient of zeros.
    fn over(named: &mut [(String, Tensor)], members: Vec<usize>) -> Self {
        let parts: Vec<Tensor> = members
            .iter()
            .map(|&i| named[i].1.detach().reshape(-1))
            .collect();
        let tensor = Tensor::cat(&parts, 0).set_requires_grad(true);
        (&tensor * 0.0).sum(None::<Kind>).backward();
        let mut start = 0;
        for &i in &members {
            let leaf = &mut named[i].1;
            let length = leaf.numel() as i64;
            let place = tensor.detach().narrow(0, start, length).view_as(leaf);
            leaf.set_data(&place);
            start += length;
        }
        Self { tensor, members }
    }
}
