//! Batches of a dataset, one after another, as a worker or alone.
//!
//! In: a loader and which of its batches are wanted. Out: each as arrays, with what the whole stream took up
//! to it. Always holds: batches that are not wanted are drawn all the same, so that every worker knows
//! the same counts; Python's lock is free while one is read or waited for.

use std::sync::{Arc, Mutex};

use hds::{SharedWeights, SharedWeightsError, WeightSourceError};
use hds_loader::{Batch, Loader, LoaderError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{Filled, Layout, Pool, fill};
use crate::error::loader_error;
use crate::history::History;
use crate::options::ArrayOptions;

/// Which batches of the global stream a stream gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The first batch of all workers.
    pub(crate) begin: u64,
    /// The batch behind the last of all workers.
    pub(crate) end: Option<u64>,
    pub(crate) worker: u64,
    pub(crate) workers: u64,
}

impl Place {
    fn is_ours(&self, step: u64) -> bool {
        step >= self.begin && (step - self.begin) % self.workers == self.worker
    }

    /// Whether there is a batch of ours at `step` or later.
    fn has_more(&self, step: u64) -> bool {
        let from = step.max(self.begin);
        let turn = (from - self.begin) % self.workers;
        let wait = (self.worker + self.workers - turn) % self.workers;
        self.end.is_none_or(|end| from + wait < end)
    }
}

/// Reads batches; not for use by itself.
#[pyclass(module = "hds._native")]
pub(crate) struct Stream {
    loader: Loader,
    /// The weights that are waited for, and how often waiting had been stopped when this began.
    shared: Option<(SharedWeights, u64)>,
    batch: Option<Batch>,
    /// Whether `batch` was read and is not in Python's arrays yet, for want of memory.
    drawn: bool,
    place: Place,
    options: ArrayOptions,
    packed: bool,
    pool: Pool,
    history: Arc<Mutex<History>>,
}

/// What a batch is besides its arrays.
type Facts = (u64, u64, Vec<u64>, Vec<u16>);

#[pymethods]
impl Stream {
    /// The next batch: arrays, (step, weights version, samples of each domain up to and with it, domains
    /// that ended), and the packed memory with its layout where that was asked for; `None` at the end.
    #[allow(clippy::type_complexity)] // a tuple that Python takes apart
    fn next<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<
        Option<(
            Bound<'py, PyDict>,
            Facts,
            Option<(Bound<'py, PyAny>, Layout)>,
        )>,
    > {
        if !self.drawn && !self.place.has_more(self.loader.step()) {
            return Ok(None);
        }
        let filled = loop {
            match py.detach(|| self.read()) {
                Ok(filled) => break filled,
                // Waits for weights of another process: let Ctrl-C through from time to time.
                Err(LoaderError::WeightSource(WeightSourceError::Shared(
                    SharedWeightsError::Horizon { .. },
                ))) => {
                    py.check_signals()?;
                    let shared = self.shared.as_ref();
                    if shared.is_some_and(|(shared, stops)| shared.stops() != *stops) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(loader_error(error)),
            }
        };
        let facts = self.batch.as_ref().map(|batch| {
            let ended = batch.ended.iter().map(|domain| domain.0).collect();
            let samples = self.loader.samples().to_vec();
            (batch.step, batch.weights.version, samples, ended)
        });
        let (arrays, packed) = filled.into_arrays(py, self.packed)?;
        Ok(facts.map(|facts| (arrays, facts, packed)))
    }

    /// Goes on to the batches from `begin` on, which none before has come close to.
    fn go_on(&mut self, begin: u64, end: Option<u64>) {
        self.place.begin = begin;
        self.place.end = end;
    }

    /// Number of the next batch that is drawn here.
    #[getter]
    fn step(&self) -> u64 {
        self.loader.step()
    }
}

impl Stream {
    pub(crate) fn new(
        loader: Loader,
        shared: Option<SharedWeights>,
        place: Place,
        options: ArrayOptions,
        packed: bool,
        history: Arc<Mutex<History>>,
    ) -> Self {
        Self {
            loader,
            shared: shared.map(|shared| {
                let stops = shared.stops();
                (shared, stops)
            }),
            batch: None,
            drawn: false,
            place,
            options,
            packed,
            pool: Pool::default(),
            history,
        }
    }

    /// Draws up to the next batch of ours, and reads it.
    fn read(&mut self) -> Result<Filled, LoaderError> {
        while !self.drawn && !self.place.is_ours(self.loader.step()) {
            self.loader.skip_batch()?;
        }
        let batch = match &mut self.batch {
            Some(batch) if self.drawn => batch,
            Some(batch) => {
                self.loader.next_batch_into(batch)?;
                batch
            }
            None => self.batch.insert(self.loader.next_batch()?),
        };
        self.drawn = true;
        let filled = fill(batch, &self.options, &self.pool)?;
        self.drawn = false;
        let samples = self.loader.samples().to_vec();
        let mut history = self.history.lock().unwrap_or_else(|e| e.into_inner());
        history.note(self.loader.step(), samples);
        Ok(filled)
    }
}
