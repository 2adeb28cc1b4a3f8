//! Batches, one a step, under the weights in force.
//!
//! In: an index, live weights and a configuration. Out: this rank's rows of each global batch.
//! Always holds: a batch is drawn from the weights in force when it is asked for and from nothing
//! read before; a failed batch leaves the loader where it was. Each rank draws the whole global batch
//! (B numbers) and reads its own rows only.

use std::sync::Arc;

use hds::index::Split;
use hds::{DomainId, LiveWeights, Mixture, MixtureError, VersionedMixture};

use crate::batch::{Batch, SampleId};
use crate::config::LoaderConfig;
use crate::domain_end::DomainEnds;
use crate::draw::Drawer;
use crate::error::LoaderError;
use crate::index::Index;
use crate::order::WindowOrder;
use crate::read_ahead::ReadAhead;
use crate::row_reader::read_rows;
use crate::state::LoaderState;
use crate::tokens::Tokens;

/// Reads the training split of an index, batch after batch.
#[derive(Debug)]
pub struct Loader {
    index: Index,
    weights: LiveWeights,
    config: LoaderConfig,
    drawer: Drawer,
    ends: DomainEnds,
    read_ahead: Option<ReadAhead>,
    order: WindowOrder,
    step: u64,
    /// Samples taken of each domain, length K.
    samples: Vec<u64>,
    /// Version of the weights last found good.
    checked_version: Option<u64>,
    /// Domain of each slot of the batch being made, length B.
    slots: Vec<DomainId>,
}

impl Loader {
    /// Starts at batch 0.
    ///
    /// # Errors
    /// If the configuration makes no sense, or the weights in force do not fit the index.
    pub fn new(
        index: Index,
        weights: LiveWeights,
        config: LoaderConfig,
    ) -> Result<Self, LoaderError> {
        let samples = vec![0; index.domains().len()];
        Self::build(index, weights, config, 0, samples)
    }

    /// Goes on after the batch that `state` was taken after, on this rank of any world size.
    ///
    /// The weights in force are the caller's to restore ([`LoaderState::weights_in_force`]); those
    /// given here govern the next batch.
    ///
    /// # Errors
    /// As [`Self::new`]; or if the state is of another index, seed, sequence length or order.
    pub fn resume(
        index: Index,
        weights: LiveWeights,
        config: LoaderConfig,
        state: &LoaderState,
    ) -> Result<Self, LoaderError> {
        state.check(&index, &config)?;
        Self::build(index, weights, config, state.step, state.samples.clone())
    }

    fn build(
        index: Index,
        weights: LiveWeights,
        config: LoaderConfig,
        step: u64,
        samples: Vec<u64>,
    ) -> Result<Self, LoaderError> {
        config.check()?;
        let windows: Vec<u64> = index
            .domains()
            .ids()
            .map(|id| {
                index
                    .split(id, Split::Train)
                    .windows(config.sequence_length)
            })
            .collect();
        let ends = DomainEnds::new(&config, &windows);
        let order = WindowOrder::new(config.seed, config.order, windows);
        let mut loader = Self {
            drawer: Drawer::new(&config),
            ends,
            read_ahead: ReadAhead::start(&index, &config, &order),
            order,
            slots: vec![DomainId(0); config.batch_size],
            index,
            weights,
            config,
            step,
            samples,
            checked_version: None,
        };
        let now = loader.weights.read();
        loader.check_weights(&now)?;
        if let Some(ahead) = &loader.read_ahead {
            ahead.report(loader.step, &loader.samples, &now);
        }
        Ok(loader)
    }

    /// The next batch, drawn from the weights in force now.
    ///
    /// # Errors
    /// If the weights do not fit the index, or the index is damaged. The loader then stands where it
    /// stood, and the same batch can be asked for again.
    pub fn next_batch(&mut self) -> Result<Batch, LoaderError> {
        let mut batch = Batch {
            step: self.step,
            weights: self.weights.read(),
            sequence_length: self.config.sequence_length,
            slots: 0..0,
            domains: Vec::new(),
            global_samples: Vec::new(),
            tokens: Tokens::new(self.index.manifest().token_type),
            mtld: Vec::new(),
            samples: Vec::new(),
            spans: Vec::new(),
            span_ends: Vec::new(),
            ended: Vec::new(),
        };
        self.next_batch_into(&mut batch)?;
        Ok(batch)
    }

    /// As [`Self::next_batch`], into the memory of a batch no longer needed.
    ///
    /// # Errors
    /// As [`Self::next_batch`]; the content of `batch` is then unspecified.
    pub fn next_batch_into(&mut self, batch: &mut Batch) -> Result<(), LoaderError> {
        let weights = self.weights.read();
        self.check_weights(&weights)?;
        let domains = self.index.domains();
        let remaining = self
            .ends
            .remaining(&weights.mixture, &self.samples, domains)?;
        let mixture = remaining.as_ref().unwrap_or(&weights.mixture);
        self.drawer.draw(mixture, self.step, &mut self.slots)?;
        self.ends
            .settle(mixture, &self.samples, domains, self.step, &mut self.slots)?;
        batch.step = self.step;
        batch.weights = weights;
        batch.sequence_length = self.config.sequence_length;
        batch.slots = self.config.slots();
        self.number_samples(batch);
        read_rows(&self.index, &mut self.order, batch)?;
        // Everything is read: from here on nothing can fail.
        for (total, new) in self.samples.iter_mut().zip(&batch.global_samples) {
            *total += new;
        }
        batch.ended = self.ends.ended_domains(&self.samples);
        self.step += 1;
        if let Some(ahead) = &self.read_ahead {
            ahead.report(self.step, &self.samples, &batch.weights);
        }
        Ok(())
    }

    /// Where the loader stands, with the weights in force now.
    pub fn state(&self) -> LoaderState {
        let samples = self.samples.clone();
        LoaderState::new(
            &self.index,
            &self.config,
            self.step,
            samples,
            &self.weights.read(),
        )
    }

    /// Number of the next batch.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Samples taken of each domain so far, length K.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// How often each domain's training windows were gone through, in part of an epoch, length K; 0
    /// for a domain without windows.
    pub fn epochs(&self) -> Vec<f64> {
        let ids = self.index.domains().ids();
        ids.zip(&self.samples)
            .map(|(id, &samples)| samples as f64 / self.order.windows(id).max(1) as f64)
            .collect()
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The configuration.
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }

    /// Numbers the samples of the whole batch in slot order; fills `global_samples`, and `domains` and
    /// `samples` (but for their place) of this rank's rows.
    fn number_samples(&self, batch: &mut Batch) {
        batch.samples.clear();
        batch.domains.clear();
        batch.global_samples.clear();
        batch.global_samples.resize(self.samples.len(), 0);
        for (slot, &domain) in self.slots.iter().enumerate() {
            let taken = &mut batch.global_samples[domain.index()];
            let count = self.samples[domain.index()] + *taken;
            *taken += 1;
            if batch.slots.contains(&slot) {
                batch.domains.push(domain);
                batch.samples.push(SampleId {
                    domain,
                    epoch: 0,
                    window: 0,
                    count,
                });
            }
        }
    }

    /// Checks weights of a version not seen before: K of them, and a window where there is weight.
    fn check_weights(&mut self, now: &Arc<VersionedMixture>) -> Result<(), LoaderError> {
        if self.checked_version == Some(now.version) {
            return Ok(());
        }
        let weights = now.mixture.weights();
        let domains = self.index.domains();
        if weights.len() != domains.len() {
            return Err(LoaderError::Weights {
                source: MixtureError::Length {
                    got: weights.len(),
                    want: domains.len(),
                },
            });
        }
        for (id, &weight) in domains.ids().zip(weights) {
            if weight > 0.0 && self.order.windows(id) == 0 {
                return Err(no_window(&self.index, &self.config, id, &now.mixture));
            }
        }
        self.checked_version = Some(now.version);
        Ok(())
    }
}

#[cold]
fn no_window(
    index: &Index,
    config: &LoaderConfig,
    domain: DomainId,
    mixture: &Mixture,
) -> LoaderError {
    LoaderError::NoWindow {
        domain: index.domains().name(domain).to_owned(),
        weight: mixture.weight(domain),
        tokens: index.split(domain, Split::Train).tokens(),
        sequence_length: config.sequence_length,
    }
}
