//! One optimizer step on one global batch: forward, backward, clip, update; and what it showed.
//!
//! In: a batch, the model and its optimizer. Out: the model changed, and a [`StepOutcome`] of plain
//! numbers. Always holds: a step whose loss or gradient is not finite changes nothing; per-sequence
//! losses are means over the sequence's L tokens, and the batch loss is their mean, so that gradient
//! accumulation gives the same gradient as one pass. Each rank of a group reads its own rows of the batch; the outcome
//! is the whole batch's, the same on all ranks but for `gram`, which is rank 0's.

use std::ops::Range;
use std::time::{Duration, Instant};

use hds_loader::Batch;
use tch::{Device, Kind, Tensor, no_grad};

use super::data_section::{Attention, CountedLosses};
use super::error::RunError;
use super::interrupt::Interrupt;
use super::target::TargetRows;
use crate::distributed::{Group, Shares};
use crate::gradients::{DomainGradients, WeightNorms};
use crate::model::{Masks, Model, Taps};
use crate::optimizer::{AdamW, Parameter, clip_factor, gradient_norm, norm};
use crate::signals::{Gram, StepSignals};

/// What is needed of the run besides the model.
pub struct StepSettings {
    /// Sequences per pass.
    pub micro_batch_size: usize,
    /// Greatest global gradient norm.
    pub gradient_clip: f64,
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Factor of the loss in the passes, a power of two; gradients are divided by it before anything looks at them.
    pub loss_scale: f64,
    /// How far tokens see back.
    pub attention: Attention,
    /// Which losses count.
    pub loss: CountedLosses,
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
    /// The sequences of the whole batch; length B.
    pub sequences: Sequences,
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

/// What is known of each sequence of a batch; vectors of length B.
pub struct Sequences {
    /// Mean loss, nats per token.
    pub losses: Vec<f64>,
    /// Domain.
    pub domains: Vec<usize>,
    /// MTLD.
    pub mtld: Vec<f64>,
}

impl Sequences {
    /// The whole batch's, from this rank's rows and those of the others.
    ///
    /// # Errors
    /// If a rank is lost.
    fn gather(batch: &Batch, losses: &[f64], group: &Group) -> Result<Self, RunError> {
        let all = batch.global_samples.iter().sum::<u64>() as usize;
        // Whatever is not of this rank is 0, so that a sum puts all in their places, bit for bit.
        let mut numbers = vec![0.0; 3 * all];
        for (row, slot) in batch.slots.clone().enumerate() {
            numbers[slot] = losses[row];
            numbers[all + slot] = batch.domains[row].index() as f64;
            numbers[2 * all + slot] = f64::from(batch.mtld[row]);
        }
        group.sum_numbers(&mut numbers)?;
        let mtld = numbers.split_off(2 * all);
        let domains = numbers.split_off(all);
        Ok(Self {
            losses: numbers,
            domains: domains.into_iter().map(|domain| domain as usize).collect(),
            mtld,
        })
    }
}

impl StepOutcome {
    /// What it showed of each of `domains` domains, in a run of `total_steps`.
    pub fn signals(&self, batch: &Batch, domains: usize, total_steps: u64) -> StepSignals {
        let mut sums = vec![(0.0, 0.0, 0u64); domains];
        for (row, &domain) in self.sequences.domains.iter().enumerate() {
            let sum = &mut sums[domain];
            sum.0 += self.sequences.losses[row];
            sum.1 += self.sequences.mtld[row];
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

/// What a step changes.
pub struct Learner<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its parameters.
    pub parameters: &'a [Parameter],
    /// Their optimizer, with this rank's share of the states.
    pub optimizer: &'a mut AdamW,
    /// Who owns which part of them.
    pub shares: &'a mut Shares,
}

/// Runs one step; every rank of the group calls it. `None`, with nothing changed but gradients and signals of a step that was not
/// made, where a process on its own is asked to end between two passes. Of `target`, held-out sequences of domains that no batch can show, only
/// the gradients of the watched layers are taken.
///
/// # Errors
/// If the tensor library fails, a token's id is not in the model's vocabulary, or a rank is lost.
pub fn run_step(
    learner: &mut Learner<'_>,
    batch: &Batch,
    target: Option<&TargetRows>,
    watch: &mut Watch,
    settings: &StepSettings,
    group: &Group,
    interrupt: &Interrupt,
) -> Result<Option<StepOutcome>, RunError> {
    let length = batch.sequence_length;
    let rows = batch.rows();
    let all = batch.global_samples.iter().sum::<u64>();
    let mut losses_b = Vec::new();
    let mut signals_time = Duration::ZERO;
    let mut host = vec![0i64; settings.micro_batch_size * (length + 1)];
    if let Some(rows) = target {
        let start = Instant::now();
        measure_target(learner.model, rows, watch, settings, length)?;
        signals_time += start.elapsed();
    }
    // Every rank has a sequence, and so will have gradients.
    learner.optimizer.forget_gradients();
    for first in (0..rows).step_by(settings.micro_batch_size) {
        // Ranks make different numbers of passes, and must all take part in what follows them.
        if group.is_alone() && interrupt.is_asked() {
            return Ok(None);
        }
        // Where the ranks do not share the batch evenly, a rank's last pass is smaller.
        let range = first..(first + settings.micro_batch_size).min(rows);
        let host = &mut host[..range.len() * (length + 1)];
        batch.copy_tokens_i64(range.clone(), host);
        let (inputs_bl, targets_bl) = learner.model.batch(host, range.len())?;
        let mut taps = watch
            .gradients
            .is_some()
            .then(|| Taps::new(watch.blocks.clone()));
        let scale = settings.loss_scale / all as f64;
        let model = learner.model;
        let masks = masks(model, batch, range.clone(), settings);
        let nll_b = model.accumulate_gradients_masked(
            &inputs_bl,
            &targets_bl,
            &masks,
            scale,
            taps.as_mut(),
        );
        if let (Some(gradients), Some(taps)) = (&mut watch.gradients, &mut taps) {
            let start = Instant::now();
            gradients.accumulate(taps, &batch.domains[range], scale)?;
            signals_time += start.elapsed();
        }
        // Stays on its device: nothing waits for a GPU between the passes.
        losses_b.push(nll_b);
    }
    let own_b = Tensor::cat(&losses_b, 0).to_device(Device::Cpu);
    let own: Vec<f64> = Vec::try_from(own_b.to_kind(Kind::Double))?;
    unscale(learner.parameters, settings.loss_scale);
    let sequences = Sequences::gather(batch, &own, group)?;
    let loss = sequences.losses.iter().sum::<f64>() / all as f64;
    let gradient_norm = reduce(learner, group)?;
    // Both numbers are the same on all ranks, and so is what comes of them.
    let skipped = !(loss.is_finite() && gradient_norm.is_finite());
    let start = Instant::now();
    let weight_norms = watch.norms.norms();
    let weight_change_norms = watch.norms.changes().to_vec();
    watch.norms.before_update();
    signals_time += start.elapsed();
    if !skipped {
        let factor = clip_factor(gradient_norm, settings.gradient_clip);
        learner
            .optimizer
            .step_scaled(settings.learning_rate, factor);
        if !group.is_alone() {
            learner.shares.gather_weights(learner.parameters, group)?;
        }
    }
    let start = Instant::now();
    watch.norms.after_update();
    let gram = domain_products(watch, group)?;
    signals_time += start.elapsed();
    Ok(Some(StepOutcome {
        loss,
        sequences,
        gradient_norm,
        skipped,
        gram,
        weight_norms,
        weight_change_norms,
        signals_time,
    }))
}

/// What restricts attention and losses of some rows, on the model's device.
fn masks(model: &Model, batch: &Batch, rows: Range<usize>, settings: &StepSettings) -> Masks {
    let length = batch.sequence_length;
    let count = rows.len() as i64;
    let documents = (settings.attention == Attention::Document).then(|| {
        let mut numbers = vec![0i64; rows.len() * length];
        for (row, numbers) in rows.clone().zip(numbers.chunks_mut(length)) {
            for (number, span) in (0..).zip(batch.spans(row)) {
                let end = ((span.start + span.length) as usize).min(length);
                if let Some(inputs) = numbers.get_mut(span.start as usize..end) {
                    inputs.fill(number);
                }
            }
        }
        model.on_device(&numbers, count)
    });
    let counted = (settings.loss == CountedLosses::WithinDocuments).then(|| {
        let mut counted = vec![true; rows.len() * length];
        batch.loss_mask(rows.clone(), &mut counted);
        model.on_device(&counted, count)
    });
    Masks {
        documents_bl: documents,
        counted_bl: counted,
    }
}

/// Divides all gradients by the factor of the loss.
fn unscale(parameters: &[Parameter], factor: f64) {
    if factor == 1.0 {
        return;
    }
    no_grad(|| {
        for parameter in parameters {
            let mut gradient = parameter.tensor.grad();
            if gradient.defined() {
                let _ = gradient.multiply_scalar_(1.0 / factor);
            }
        }
    });
}

/// Adds the gradients of held-out sequences to the watched ones. What it adds to the model's own must be forgotten before
/// they are used.
fn measure_target(
    model: &Model,
    rows: &TargetRows,
    watch: &mut Watch,
    settings: &StepSettings,
    length: usize,
) -> Result<(), RunError> {
    let Some(gradients) = &mut watch.gradients else {
        return Ok(());
    };
    let passes = rows.domains.chunks(settings.micro_batch_size);
    let tokens = rows.tokens.chunks(settings.micro_batch_size * (length + 1));
    let scale = settings.loss_scale / rows.domains.len() as f64;
    for (domains, tokens) in passes.zip(tokens) {
        let (inputs_bl, targets_bl) = model.batch(tokens, domains.len())?;
        let mut taps = Taps::new(watch.blocks.clone());
        let _ = model.accumulate_gradients(&inputs_bl, &targets_bl, scale, Some(&mut taps));
        gradients.accumulate(&mut taps, domains, scale)?;
    }
    Ok(())
}

/// Sums the gradients over all ranks; gives the norm that they have then.
fn reduce(learner: &mut Learner<'_>, group: &Group) -> Result<f64, RunError> {
    if group.is_alone() {
        return Ok(gradient_norm(learner.parameters));
    }
    learner.shares.reduce_gradients(learner.parameters, group)?;
    let own = learner.shares.own_gradients(learner.parameters);
    let mut square = [norm(&own).powi(2)];
    group.sum_numbers(&mut square)?;
    Ok(square[0].sqrt())
}

/// The products of the domains' gradients over all ranks, on rank 0, where asked for and finite.
fn domain_products(watch: &mut Watch, group: &Group) -> Result<Option<Gram>, RunError> {
    let Some(gradients) = &mut watch.gradients else {
        return Ok(None);
    };
    if !group.is_alone() {
        gradients.reduce(|sums| group.sum(sums))?;
    }
    if !group.leads() {
        gradients.reset();
        return Ok(None);
    }
    let gram = gradients.finish();
    Ok(Some(gram).filter(|g| g.products.iter().all(|p| p.is_finite())))
}
