//! Sums the gradients of each domain's sequences over the micro-batches of a step.

use hds::DomainId;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use super::{GradientError, Projection};
use crate::model::Taps;
use crate::signals::Gram;

/// How per-domain gradients are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", from = "Given")]
pub enum GradientMode {
    /// Whole: K copies of the selected matrices' gradients, in f32. The reference.
    Exact,
    /// Projected: at most `rank`² numbers a domain and layer, inner products right in expectation.
    Sketch {
        /// Rank of the projections on both sides.
        rank: u32,
        /// Seed of the projections.
        seed: u64,
    },
}

/// The same as it is read: serde refuses no key beside a kind without any, which an empty set of keys does.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Given {
    Exact {},
    Sketch { rank: u32, seed: u64 },
}

impl From<Given> for GradientMode {
    fn from(given: Given) -> Self {
        match given {
            Given::Exact {} => Self::Exact,
            Given::Sketch { rank, seed } => Self::Sketch { rank, seed },
        }
    }
}

impl Default for GradientMode {
    /// A sketch of rank 64: 4,096 numbers a domain and layer (our choice).
    fn default() -> Self {
        Self::Sketch { rank: 64, seed: 0 }
    }
}

/// The per-domain gradient sums of the current step.
#[derive(Debug)]
pub struct DomainGradients {
    domains: usize,
    mode: GradientMode,
    counts: Vec<u64>,
    projections: Vec<Projection>,
    /// Σ ‖g_s‖² over each domain's sequences; length K.
    squares: Vec<f64>,
    /// Sketch: one tensor [K, S·q·p]. Exact: for each layer and domain [H, F], where it occurred.
    sketches: Option<Tensor>,
    whole: Vec<Vec<Option<Tensor>>>,
}

impl DomainGradients {
    /// Empty sums for K domains.
    pub fn new(domains: usize, mode: GradientMode) -> Self {
        Self {
            domains,
            mode,
            counts: vec![0; domains],
            squares: vec![0.0; domains],
            projections: Vec::new(),
            sketches: None,
            whole: Vec::new(),
        }
    }

    /// Adds a micro-batch after its backward pass. `scale` is the one given to
    /// [`crate::model::Model::accumulate_gradients`], which δ carries. Takes the records out of the
    /// taps, and so frees them.
    ///
    /// # Errors
    /// Not one domain a sequence, a domain ≥ K, or taps without gradients; the sums are unchanged.
    pub fn accumulate(
        &mut self,
        taps: &mut Taps,
        domain_of_sequence: &[DomainId],
        scale: f64,
    ) -> Result<(), GradientError> {
        let (batch, length) = taps.batch_shape();
        if domain_of_sequence.len() as i64 != batch {
            return Err(GradientError::Sequences {
                got: domain_of_sequence.len(),
                want: batch,
            });
        }
        if let Some(domain) = domain_of_sequence
            .iter()
            .find(|domain| domain.index() >= self.domains)
        {
            return Err(GradientError::Domain {
                got: domain.index(),
                domains: self.domains,
            });
        }
        let mut layers = Vec::with_capacity(taps.records().len());
        for (tap, &block) in taps.records().iter().zip(taps.blocks()) {
            let Some(gradient_nh) = tap.output_gradient() else {
                return Err(GradientError::NoBackward { block });
            };
            layers.push(Layer {
                block,
                input_blf: tap.input().view([batch, length, -1]),
                gradient_blh: gradient_nh.view([batch, length, -1]),
            });
        }
        let squares = no_grad(|| match self.mode {
            GradientMode::Exact => {
                self.add_whole(&layers, domain_of_sequence, 1.0 / scale);
                whole_squares(&layers)
            }
            GradientMode::Sketch { rank, seed } => {
                self.add_sketches(&layers, domain_of_sequence, 1.0 / scale, rank, seed)
            }
        });
        for (domain, square) in domain_of_sequence.iter().zip(squares) {
            self.counts[domain.index()] += 1;
            self.squares[domain.index()] += square / (scale * scale);
        }
        taps.clear();
        Ok(())
    }

    /// The Gram matrix of the domains' mean gradients; begins the next step with empty sums.
    pub fn finish(&mut self) -> Gram {
        let mut products = match self.mode {
            GradientMode::Exact => self.whole_products(),
            GradientMode::Sketch { .. } => match &self.sketches {
                Some(sums) => {
                    let sums = sums.to_device(Device::Cpu).to_kind(Kind::Double);
                    let flat = sums.matmul(&sums.tr()).contiguous().view(-1);
                    to_vec(&flat, self.domains * self.domains)
                }
                None => vec![0.0; self.domains * self.domains],
            },
        };
        for i in 0..self.domains {
            for j in 0..self.domains {
                let pairs = self.counts[i] as f64 * self.counts[j] as f64;
                let product = &mut products[i * self.domains + j];
                *product = if pairs > 0.0 { *product / pairs } else { 0.0 };
            }
        }
        let sequence_squares = self
            .squares
            .iter()
            .zip(&self.counts)
            .map(|(sum, &count)| sum / count.max(1) as f64)
            .collect();
        self.reset();
        Gram {
            domains: self.domains,
            products,
            sequence_squares,
        }
    }

    /// Adds what other ranks have accumulated in this step, by a function that sums a tensor over all of them. Every
    /// rank calls it, after at least one micro-batch of the same layers.
    ///
    /// # Errors
    /// Those of `sum`; the sums must not be used then.
    pub fn reduce<E>(
        &mut self,
        mut sum: impl FnMut(&mut Tensor) -> Result<(), E>,
    ) -> Result<(), E> {
        let counts = self.counts.iter().map(|&count| count as f64);
        let plain: Vec<f64> = counts.chain(self.squares.iter().copied()).collect();
        let mut plain = Tensor::from_slice(&plain);
        sum(&mut plain)?;
        let plain = to_vec(&plain, 2 * self.domains);
        let (counts, squares) = plain.split_at(self.domains);
        self.counts = counts.iter().map(|&count| count as u64).collect();
        self.squares = squares.to_vec();
        if let Some(sums) = &mut self.sketches {
            sum(sums)?;
        }
        for layer in &mut self.whole {
            let shape = layer
                .iter()
                .flatten()
                .next()
                .map(|t| (t.size(), t.kind(), t.device()));
            let Some((shape, kind, device)) = shape else {
                continue;
            };
            for (own, _) in layer
                .iter_mut()
                .zip(&self.counts)
                .filter(|(_, count)| **count > 0)
            {
                let own = own.get_or_insert_with(|| Tensor::zeros(&shape, (kind, device)));
                sum(own)?;
            }
        }
        Ok(())
    }

    /// Forgets the sums of the current step, as after a step that is skipped.
    pub fn reset(&mut self) {
        self.counts.fill(0);
        self.squares.fill(0.0);
        self.whole.clear();
        if let Some(sums) = &mut self.sketches {
            let _ = sums.zero_();
        }
    }

    fn add_whole(&mut self, layers: &[Layer], domains: &[DomainId], factor: f64) {
        if self.whole.is_empty() {
            let empty = || (0..self.domains).map(|_| None).collect();
            self.whole = layers.iter().map(|_| empty()).collect();
        }
        for (layer, sums) in layers.iter().zip(&mut self.whole) {
            for (domain, sum) in sums.iter_mut().enumerate() {
                let rows: Vec<i64> = (0i64..)
                    .zip(domains)
                    .filter(|(_, d)| d.index() == domain)
                    .map(|(row, _)| row)
                    .collect();
                if rows.is_empty() {
                    continue;
                }
                let rows = Tensor::from_slice(&rows).to_device(layer.input_blf.device());
                let pick = |t: &Tensor| {
                    t.index_select(0, &rows)
                        .flatten(0, 1)
                        .to_kind(match t.kind() {
                            Kind::Double => Kind::Double,
                            _ => Kind::Float,
                        })
                };
                let input_nf = pick(&layer.input_blf);
                let gradient_nh = pick(&layer.gradient_blh) * factor;
                let product_hf = gradient_nh.tr().mm(&input_nf);
                match sum {
                    Some(sum) => {
                        let _ = sum.g_add_(&product_hf);
                    }
                    None => *sum = Some(product_hf),
                }
            }
        }
    }

    /// Adds the sketches; gives ‖δᵀ x‖² of each sequence's.
    fn add_sketches(
        &mut self,
        layers: &[Layer],
        domains: &[DomainId],
        factor: f64,
        rank: u32,
        seed: u64,
    ) -> Vec<f64> {
        let Some(first) = layers.first() else {
            return vec![0.0; domains.len()];
        };
        let device = first.input_blf.device();
        if self.projections.is_empty() {
            self.projections = layers
                .iter()
                .map(|layer| layer.projection(seed, i64::from(rank)))
                .collect();
        }
        let sketches: Vec<Tensor> = layers
            .iter()
            .zip(&self.projections)
            .map(|(layer, projection)| projection.sketch(&layer.input_blf, &layer.gradient_blh))
            .collect();
        let sketches_bs = Tensor::cat(&sketches, 1);
        // Summed by a product instead of a scatter: the same order of additions on every run, on
        // GPUs too.
        let mut member = vec![0f32; self.domains * domains.len()];
        for (row, domain) in domains.iter().enumerate() {
            member[domain.index() * domains.len() + row] = factor as f32;
        }
        let member_kb = Tensor::from_slice(&member)
            .view([self.domains as i64, domains.len() as i64])
            .to_device(device);
        match &mut self.sketches {
            Some(sums) => {
                let _ = sums.addmm_(&member_kb, &sketches_bs);
            }
            None => self.sketches = Some(member_kb.mm(&sketches_bs)),
        }
        let squares_b =
            sketches_bs
                .square()
                .sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        to_vec(&squares_b.to_device(Device::Cpu), domains.len())
    }

    fn whole_products(&self) -> Vec<f64> {
        let mut products = vec![0.0; self.domains * self.domains];
        for layer in &self.whole {
            for (i, first) in layer.iter().enumerate() {
                let Some(first) = first else { continue };
                let first = first.view(-1).to_kind(Kind::Double);
                for (j, second) in layer.iter().enumerate().skip(i) {
                    let Some(second) = second else { continue };
                    let second = second.view(-1).to_kind(Kind::Double);
                    let product = first.dot(&second).double_value(&[]);
                    products[i * self.domains + j] += product;
                    if i != j {
                        products[j * self.domains + i] += product;
                    }
                }
            }
        }
        products
    }
}

/// What a tap recorded of one micro-batch.
struct Layer {
    block: usize,
    input_blf: Tensor,
    gradient_blh: Tensor,
}

impl Layer {
    fn projection(&self, seed: u64, rank: i64) -> Projection {
        let (hidden, wide) = (self.gradient_blh.size()[2], self.input_blf.size()[2]);
        let device = self.input_blf.device();
        Projection::new(seed, self.block, hidden, wide, rank, device)
    }
}

/// ‖δᵀ x‖² of each sequence over all layers, by the tokens' inner products instead of the gradients:
/// Σ_tu ⟨x_t, x_u⟩ ⟨δ_t, δ_u⟩.
fn whole_squares(layers: &[Layer]) -> Vec<f64> {
    let tokens = |t: &Tensor| {
        let t = t.to_kind(match t.kind() {
            Kind::Double => Kind::Double,
            _ => Kind::Float,
        });
        t.bmm(&t.transpose(1, 2))
    };
    let mut squares: Vec<f64> = Vec::new();
    for layer in layers {
        let products_bll = tokens(&layer.input_blf) * tokens(&layer.gradient_blh);
        let squares_b = products_bll.sum_dim_intlist([1i64, 2].as_slice(), false, Kind::Double);
        let layer = to_vec(
            &squares_b.to_device(Device::Cpu),
            squares_b.size()[0] as usize,
        );
        squares.resize(layer.len(), 0.0);
        squares.iter_mut().zip(layer).for_each(|(sum, s)| *sum += s);
    }
    squares
}

fn to_vec(flat: &Tensor, length: usize) -> Vec<f64> {
    let mut values = vec![0.0; length];
    flat.copy_data(&mut values, length);
    values
}
