//! Batches, one a step, under the weights in force.
//!
//! In: an index, live weights and a configuration. Out: this rank's rows of each global batch.
//! Always holds: a batch is drawn from the weights in force when it is asked for and from nothing
//! read before; a failed batch leaves the loader where it was. Each rank draws the whole global batch
//! (B numbers) and reads its own rows only.

use std::sync::Arc;

use hds::index::Split;
use hds::{DomainId, VersionedMixture, WeightSource};

use crate::batch::{Batch, SampleId};
use crate::config::LoaderConfig;
use crate::domain_end::DomainEnds;
use crate::draw::Drawer;
use crate::error::{LoaderError, make_room};
use crate::index::Index;
use crate::order::WindowOrder;
use crate::read_ahead::ReadAhead;
use crate::row_reader::read_rows;
use crate::state::LoaderState;
use crate::tokens::Tokens;
use crate::weights::check_weights;

/// Reads the training split of an index, batch after batch.
#[derive(Debug)]
pub struct Loader {
    index: Index,
    weights: WeightSource,
    config: LoaderConfig,
    drawer: Drawer,
    ends: DomainEnds,
    read_ahead: Option<ReadAhead>,
    order: WindowOrder,
    step: u64,
    /// Samples taken of each domain, length K.
    samples: Vec<u64>,
    /// Version and digest of the weights that the last batch was drawn from, 0 and empty before the first.
    last: (u64, String),
    /// The weights last found good.
    checked: Arc<VersionedMixture>,
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
        weights: impl Into<WeightSource>,
        config: LoaderConfig,
    ) -> Result<Self, LoaderError> {
        let samples = vec![0; index.domains().len()];
        Self::build(index, weights.into(), config, 0, samples)
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
        weights: impl Into<WeightSource>,
        config: LoaderConfig,
        state: &LoaderState,
    ) -> Result<Self, LoaderError> {
        state.check(&index, &config)?;
        let samples = state.samples.clone();
        let mut loader = Self::build(index, weights.into(), config, state.step, samples)?;
        loader.last = (state.last_version, state.last_weights.clone());
        Ok(loader)
    }

    fn build(
        index: Index,
        weights: WeightSource,
        config: LoaderConfig,
        step: u64,
        samples: Vec<u64>,
    ) -> Result<Self, LoaderError> {
        index.check(&config)?;
        let windows: Vec<u64> = index
            .domains()
            .ids()
            .map(|id| {
                index
                    .split(id, Split::Train)
                    .samples(config.packing, config.sequence_length)
            })
            .collect();
        let ends = DomainEnds::new(&config, &windows);
        let order = WindowOrder::new(config.seed, config.order, windows);
        let now = weights.look(step)?;
        let mut slots = Vec::new();
        make_room(&mut slots, config.batch_size)?;
        slots.resize(config.batch_size, DomainId(0));
        let loader = Self {
            drawer: Drawer::new(&config),
            ends,
            read_ahead: ReadAhead::start(&index, &config, &order),
            order,
            slots,
            index,
            weights,
            config,
            step,
            samples,
            last: (0, String::new()),
            checked: Arc::clone(&now),
        };
        check_weights(&loader.index, &loader.config, &now.mixture)?;
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
            weights: Arc::clone(&self.checked),
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
        let weights = self.draw()?;
        batch.step = self.step;
        batch.weights = weights;
        batch.sequence_length = self.config.sequence_length;
        batch.slots = self.config.slots();
        self.number_samples(batch)?;
        read_rows(&self.index, &self.config, &mut self.order, batch)?;
        // Everything is read: from here on nothing can fail.
        for (total, new) in self.samples.iter_mut().zip(&batch.global_samples) {
            *total += new;
        }
        batch.ended = self.ends.ended_domains(&self.samples);
        self.step += 1;
        self.note_last(&Arc::clone(&batch.weights));
        if let Some(ahead) = &self.read_ahead {
            ahead.report(self.step, &self.samples, &batch.weights);
        }
        Ok(())
    }

    /// Passes over the next batch: draws it, so that all after it come out the same, and reads nothing.
    ///
    /// What a worker process does with the batches of the other workers.
    ///
    /// # Errors
    /// If the weights do not fit the index; the loader then stands where it stood.
    pub fn skip_batch(&mut self) -> Result<(), LoaderError> {
        let weights = self.draw()?;
        self.note_last(&weights);
        for slot in &self.slots {
            self.samples[slot.index()] += 1;
        }
        self.step += 1;
        Ok(())
    }

    /// Draws the slots of the next batch, from the weights that govern it, which are returned.
    fn draw(&mut self) -> Result<Arc<VersionedMixture>, LoaderError> {
        let weights = self.weights.settle(self.step)?;
        if weights.version != self.checked.version {
            check_weights(&self.index, &self.config, &weights.mixture)?;
            self.checked = Arc::clone(&weights);
        }
        let domains = self.index.domains();
        let remaining = self
            .ends
            .remaining(&weights.mixture, &self.samples, domains)?;
        let mixture = remaining.as_ref().unwrap_or(&weights.mixture);
        self.drawer.draw(mixture, self.step, &mut self.slots)?;
        self.ends
            .settle(mixture, &self.samples, domains, self.step, &mut self.slots)?;
        Ok(weights)
    }

    /// Where the loader stands, with the weights in force now.
    pub fn state(&self) -> LoaderState {
        let samples = self.samples.clone();
        // A source that cannot be read is an error of the next batch; until then the last weights stand.
        let weights = self.weights.look(self.step);
        let weights = weights.unwrap_or_else(|_| Arc::clone(&self.checked));
        LoaderState::new(
            &self.index,
            &self.config,
            self.step,
            samples,
            &weights,
            self.last.clone(),
        )
    }

    fn note_last(&mut self, weights: &VersionedMixture) {
        if self.last.0 != weights.version {
            self.last = (weights.version, weights.digest());
        }
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
    fn number_samples(&self, batch: &mut Batch) -> Result<(), LoaderError> {
        batch.samples.clear();
        batch.domains.clear();
        make_room(&mut batch.samples, batch.slots.len())?;
        make_room(&mut batch.domains, batch.slots.len())?;
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
        Ok(())
    }
}
