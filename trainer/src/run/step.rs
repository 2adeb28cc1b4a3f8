//! One optimizer step on one global batch: forward, backward, clip, update; and what it showed.
//!
//! In: a batch, the model and its optimizer. Out: the model changed, and a [`StepOutcome`] of plain
//! numbers. Always holds: a step whose loss or gradient is not finite changes nothing; per-sequence
//! losses are means over the sequence's L tokens, and the batch loss is their mean, so that gradient
//! accumulation gives the same gradient as one pass.

use std::time::{Duration, Instant};

use hds_loader::Batch;
use tch::{Device, Kind, Tensor};

use super::error::RunError;
use crate::gradients::{DomainGradients, WeightNorms};
use crate::model::{Model, Taps};
use crate::optimizer::{AdamW, Parameter, clip_gradient_norm};
use crate::signals::{Gram, StepSignals};

/// What is needed of the run besides the model.
pub struct StepSettings {
    /// Sequences per pass.
    pub micro_batch_size: usize,
    /// Greatest global gradient norm.
    pub gradient_clip: f64,
    /// Learning rate of this step.
    pub learning_rate: f64,
}

/// The layers whose weights and gradients the scheduler sees.
pub struct Watch {
    /// Their blocks.
    pub blocks: Vec<usize>,
    /// Norms of their weights.
    pub norms: WeightNorms,
    /// Their per-domain gradients, where the policy uses rewards.
    pub gradients: Option<DomainGradients>,
}

/// What a step showed.
pub struct StepOutcome {
    /// Mean loss of the batch, nats per token.
    pub loss: f64,
    /// Mean loss of each sequence; length B.
    pub sequence_losses: Vec<f64>,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Whether the update was left out.
    pub skipped: bool,
    /// Inner products of the domains' gradients, where asked for and finite.
    pub gram: Option<Gram>,
    /// ‖ω‖₂ of each watched matrix before the update.
    pub weight_norms: Vec<f64>,
    /// ‖Δω‖₂ of each watched matrix by the update before.
    pub weight_change_norms: Vec<f64>,
    /// Time the signals took.
    pub signals_time: Duration,
}

impl StepOutcome {
    /// What it showed of each of `domains` domains, in a run of `total_steps`.
    pub fn signals(&self, batch: &Batch, domains: usize, total_steps: u64) -> StepSignals {
        let mut sums = vec![(0.0, 0.0, 0u64); domains];
        for (row, domain) in batch.domains.iter().enumerate() {
            let sum = &mut sums[domain.index()];
            sum.0 += self.sequence_losses[row];
            sum.1 += f64::from(batch.mtld[row]);
            sum.2 += 1;
        }
        let mean = |value: f64, n: u64| (n > 0 && value.is_finite()).then(|| value / n as f64);
        StepSignals {
            step: batch.step,
            total_steps,
            sequence_length: batch.sequence_length as u64,
            samples: sums.iter().map(|s| s.2).collect(),
            losses: sums.iter().map(|s| mean(s.0, s.2)).collect(),
            mtld: sums.iter().map(|s| mean(s.1, s.2)).collect(),
            gram: self.gram.clone(),
            weight_norms: self.weight_norms.clone(),
            weight_change_norms: self.weight_change_norms.clone(),
        }
    }
}

/// Runs one step.
///
/// # Errors
/// If the tensor library fails, or a token's id is not in the model's vocabulary.
pub fn run_step(
    model: &Model,
    parameters: &[Parameter],
    optimizer: &mut AdamW,
    batch: &Batch,
    watch: &mut Watch,
    settings: &StepSettings,
) -> Result<StepOutcome, RunError> {
    let length = batch.sequence_length;
    let rows = batch.domains.len();
    let passes = rows / settings.micro_batch_size;
    let mut losses_b = Vec::with_capacity(passes);
    let mut signals_time = Duration::ZERO;
    let mut host = vec![0i64; settings.micro_batch_size * (length + 1)];
    optimizer.zero_gradients();
    for pass in 0..passes {
        let range = pass * settings.micro_batch_size..(pass + 1) * settings.micro_batch_size;
        batch.copy_tokens_i64(range.clone(), &mut host);
        let (inputs_bl, targets_bl) = model.batch(&host, settings.micro_batch_size)?;
        let mut taps = watch
            .gradients
            .is_some()
            .then(|| Taps::new(watch.blocks.clone()));
        let scale = 1.0 / rows as f64;
        let nll_b = model.accumulate_gradients(&inputs_bl, &targets_bl, scale, taps.as_mut());
        if let (Some(gradients), Some(taps)) = (&mut watch.gradients, &mut taps) {
            let start = Instant::now();
            gradients.accumulate(taps, &batch.domains[range], scale)?;
            signals_time += start.elapsed();
        }
        losses_b.push(nll_b.to_device(Device::Cpu).to_kind(Kind::Double));
    }
    let losses: Vec<f64> = Vec::try_from(Tensor::cat(&losses_b, 0))?;
    let loss = losses.iter().sum::<f64>() / rows as f64;
    let gradient_norm = clip_gradient_norm(parameters, settings.gradient_clip);
    let skipped = !(loss.is_finite() && gradient_norm.is_finite());
    let start = Instant::now();
    let weight_norms = watch.norms.norms();
    let weight_change_norms = watch.norms.changes().to_vec();
    watch.norms.before_update();
    signals_time += start.elapsed();
    if !skipped {
        optimizer.step(settings.learning_rate);
    }
    let start = Instant::now();
    watch.norms.after_update();
    let gram = watch.gradients.as_mut().map(DomainGradients::finish);
    let gram = gram.filter(|g| g.products.iter().all(|p| p.is_finite()));
    signals_time += start.elapsed();
    Ok(StepOutcome {
        loss,
        sequence_losses: losses,
        gradient_norm,
        skipped,
        gram,
        weight_norms,
        weight_change_norms,
        signals_time,
    })
}
