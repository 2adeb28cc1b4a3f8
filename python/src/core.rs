//! An index with a configuration and a source of weights: what a dataset is made of.
//!
//! In: the arguments of `hds.StreamingDataset`, checked again here. Out: streams of batches, states as JSON.
//! Always holds: weights that reach the source can be drawn from; a state that is taken up is of this index,
//! seed and sequence length, or refused with what differs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use hds::weight_log::{Header, WeightLogError, WeightLogReader, WeightLogWriter};
use hds::{
    Mixture, SharedWeights, SharedWeightsWriter, VersionedMixture, WeightReplay, WeightSource,
};
use hds_loader::{DomainEnd, Index, Loader, LoaderConfig, LoaderState, Split, check_weights};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{index_error, loader_error, shared_error, source_error, value_error};
use crate::history::History;
use crate::options::{ArrayOptions, access, named, remote};
use crate::stream::Stream;

/// What `hds.StreamingDataset` is made of; not for use by itself.
#[pyclass(frozen, module = "hds._native")]
pub(crate) struct Core {
    index: Index,
    config: LoaderConfig,
    source: Mutex<Option<Source>>,
    history: Arc<Mutex<History>>,
    /// Where the stream was begun, and version and digest of the weights that governed the batch before.
    begun: Mutex<(u64, (u64, String))>,
    log: Mutex<Option<WeightLogWriter>>,
}

/// Where weights come from, and the writer where it is this process.
struct Source {
    weights: WeightSource,
    writer: Option<SharedWeightsWriter>,
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (
        index, *, sequence_length, batch_size, seed, rank, world_size, draws, minimum_per_domain, order,
        domain_end, cap, packing, padding_token, read_ahead_batches, access_by, cache, cache_limit,
        cache_piece, fetch
    ))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn new(
        py: Python<'_>,
        index: PathBuf,
        sequence_length: usize,
        batch_size: usize,
        seed: u64,
        rank: usize,
        world_size: usize,
        draws: &str,
        minimum_per_domain: usize,
        order: &str,
        domain_end: &str,
        cap: Option<u64>,
        packing: &str,
        padding_token: Option<u32>,
        read_ahead_batches: usize,
        access_by: &str,
        cache: Option<PathBuf>,
        cache_limit: &str,
        cache_piece: &str,
        fetch: &str,
    ) -> PyResult<Self> {
        let config = LoaderConfig {
            sequence_length,
            batch_size,
            seed,
            rank,
            world_size,
            draws: named("draws", draws)?,
            minimum_per_domain,
            order: named("order", order)?,
            domain_end: match cap {
                Some(epochs) => DomainEnd::Cap { epochs },
                None => named("domain_end", domain_end)?,
            },
            packing: named("packing", packing)?,
            padding_token,
            read_ahead_batches,
        };
        config.check().map_err(loader_error)?;
        let access = access(access_by)?;
        let remote = remote(cache, cache_limit, cache_piece, fetch)?;
        let index = py.detach(|| Index::open_from(&index, access, &remote));
        let index = index.map_err(index_error)?;
        index.check(&config).map_err(loader_error)?;
        let samples = vec![0; index.domains().len()];
        Ok(Self {
            index,
            config,
            source: Mutex::new(None),
            history: Arc::new(Mutex::new(History::at(0, samples))),
            begun: Mutex::new((0, (0, String::new()))),
            log: Mutex::new(None),
        })
    }

    /// Publishes weights in a new file at `path`, in force from batch `step` on.
    fn publish_at(
        &self,
        path: PathBuf,
        weights: Vec<f64>,
        version: u64,
        step: u64,
    ) -> PyResult<()> {
        let mixture = self.mixture(weights)?;
        let first = VersionedMixture { version, mixture };
        let domains = self.index.domains();
        let writer = SharedWeightsWriter::create(&path, domains, &first, step);
        let writer = writer.map_err(shared_error)?;
        *self.source() = Some(Source {
            weights: writer.reader().into(),
            writer: Some(writer),
        });
        Ok(())
    }

    /// Reads the weights that another process publishes.
    fn read_from(&self, path: PathBuf) -> PyResult<()> {
        let shared = SharedWeights::open(&path, self.index.domains()).map_err(shared_error)?;
        *self.source() = Some(Source {
            weights: shared.into(),
            writer: None,
        });
        Ok(())
    }

    /// Takes the weights of a run's log.
    fn replay(&self, path: PathBuf) -> PyResult<()> {
        let replay = WeightReplay::open(&path, &self.log_header()).map_err(source_error)?;
        *self.source() = Some(Source {
            weights: replay.into(),
            writer: None,
        });
        Ok(())
    }

    /// Publishes weights; returns their version.
    fn set_weights(&self, weights: Vec<f64>) -> PyResult<u64> {
        let mixture = self.mixture(weights)?;
        let source = self.source();
        let writer = source.as_ref().and_then(|source| source.writer.as_ref());
        let writer = writer.ok_or_else(|| {
            PyRuntimeError::new_err(
                "the weights are not this dataset's to set: it replays a log, reads another process's \
                 file, or is a worker's copy",
            )
        })?;
        writer.publish(&mixture).map_err(shared_error)
    }

    /// Lets batches below `step` be drawn and no others; `None` lets all be drawn.
    #[pyo3(signature = (step))]
    fn set_horizon(&self, step: Option<u64>) {
        if let Some(writer) = self
            .source()
            .as_ref()
            .and_then(|source| source.writer.as_ref())
        {
            writer.set_horizon(step.unwrap_or(u64::MAX));
        }
    }

    /// Ends the streams of workers that wait for the horizon.
    fn stop_readers(&self) {
        if let Some(writer) = self
            .source()
            .as_ref()
            .and_then(|source| source.writer.as_ref())
        {
            writer.stop_readers();
        }
    }

    /// Version and weights that would govern batch `step` as things stand.
    fn weights_at(&self, step: u64) -> PyResult<(u64, Vec<f64>)> {
        let now = self.look(step)?;
        Ok((now.version, now.mixture.weights().to_vec()))
    }

    /// Weights in force where none are given: proportional to each domain's tokens.
    fn natural_weights(&self) -> PyResult<Vec<f64>> {
        let (packing, length) = (self.config.packing, self.config.sequence_length);
        let streams = self.index.domains().ids();
        let streams = streams.map(|id| self.index.split(id, Split::Train));
        let tokens = streams.map(|stream| match stream.samples(packing, length) {
            0 => 0.0,
            _ => stream.tokens() as f64,
        });
        let tokens: Vec<f64> = tokens.collect();
        if tokens.iter().all(|tokens| *tokens == 0.0) {
            return Err(PyValueError::new_err(format!(
                "seq_len: no domain has a sequence of {length} + 1 training tokens; give a smaller one"
            )));
        }
        let mixture = Mixture::normalized(tokens, self.index.domains());
        Ok(mixture.map_err(value_error)?.weights().to_vec())
    }

    /// The state before batch `step`, as JSON.
    fn state(&self, step: u64) -> PyResult<String> {
        let state = self.state_before(step)?;
        serde_json::to_string(&state).map_err(value_error)
    }

    /// Checks a state, and takes up its counts; returns step, version and weights, which are to be drawn from where
    /// `with_weights` says so.
    fn restore(&self, text: &str, with_weights: bool) -> PyResult<(u64, u64, Vec<f64>)> {
        let state: LoaderState = serde_json::from_str(text).map_err(|e| {
            PyValueError::new_err(format!("state: this is no state of a dataset: {e}"))
        })?;
        state
            .check(&self.index, &self.config)
            .map_err(loader_error)?;
        if with_weights {
            self.mixture(state.weights.clone())?;
        }
        *self.history() = History::at(state.step, state.samples);
        *self.begun() = (state.step, (state.last_version, state.last_weights));
        Ok((state.step, state.weights_version, state.weights))
    }

    /// Batches read elsewhere: the counts after batch `step`.
    fn note(&self, step: u64, samples: Vec<u64>) {
        if samples.len() == self.index.domains().len() {
            self.history().note(step + 1, samples);
        }
    }

    /// The batch after the last one that was read or noted without a gap since `step`.
    fn unbroken(&self, step: u64) -> u64 {
        self.history().unbroken(step)
    }

    /// Samples taken of each domain before batch `step`.
    fn samples_before(&self, step: u64) -> PyResult<Vec<u64>> {
        Ok(self.state_before(step)?.samples)
    }

    /// A stream that begins with batch `begin` and gives each `workers`-th one, from number `worker` on.
    #[pyo3(signature = (
        *, begin, end, worker, workers, keys, labels, ignore_index, mask_boundaries, reset_position_ids, packed
    ))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn stream(
        &self,
        py: Python<'_>,
        begin: u64,
        end: Option<u64>,
        worker: u64,
        workers: u64,
        keys: Vec<String>,
        labels: &str,
        ignore_index: i64,
        mask_boundaries: bool,
        reset_position_ids: bool,
        packed: bool,
    ) -> PyResult<Stream> {
        let options = ArrayOptions::new(
            &keys,
            labels,
            ignore_index,
            mask_boundaries,
            reset_position_ids,
        )?;
        let state = self.state_before(begin)?;
        let weights = self.weights()?;
        let shared = match &weights {
            WeightSource::Shared(shared) => Some(shared.clone()),
            _ => None,
        };
        let (index, config) = (self.index.clone(), self.config.clone());
        let loader = py.detach(|| Loader::resume(index, weights, config, &state));
        let loader = loader.map_err(loader_error)?;
        let history = Arc::clone(&self.history);
        let place = crate::stream::Place {
            begin,
            end,
            worker,
            workers: workers.max(1),
        };
        Ok(Stream::new(loader, shared, place, options, packed, history))
    }

    /// Writes the weights of batches to a log, anew from batch 0 on, else going on with one.
    fn log_to(&self, path: PathBuf, step: u64) -> PyResult<()> {
        let header = self.log_header();
        // What an earlier pass over this dataset left open.
        *self.log() = None;
        if step == 0 {
            keep_old_log(&path)?;
        } else if !path.exists() {
            hds::note!(
                "note: there is no weight log {}; the one begun now begins with batch {step} and cannot replay those before",
                path.display()
            );
        }
        let writer = if step == 0 || !path.exists() {
            WeightLogWriter::create(&path, &header).map_err(log_error)?
        } else {
            let (last, digest) = self.weights_before(step)?;
            let writer = WeightLogWriter::resume(&path, &header, step).map_err(log_error)?;
            let digest = Some(&*digest).filter(|digest| !digest.is_empty());
            writer.expect_last(step, last, digest).map_err(log_error)?;
            writer
        };
        *self.log() = Some(writer);
        Ok(())
    }

    /// Notes the weights that governed batch `step`, and hands the log to the system where they are new.
    fn log_batch(&self, step: u64) -> PyResult<()> {
        let now = self.look(step)?;
        if let Some(log) = self.log().as_mut() {
            log.record(step, &now).map_err(log_error)?;
            log.flush().map_err(log_error)?;
        }
        Ok(())
    }

    /// What the cache of a remote index went through in this process.
    #[getter]
    fn cache_troubles(&self) -> HashMap<&'static str, u64> {
        let troubles = self.index.cache_troubles();
        HashMap::from([
            ("damaged", troubles.damaged),
            ("disk_full", troubles.disk_full),
            ("not_kept", troubles.not_kept),
        ])
    }

    /// Number of sequences of the whole batch that are read here.
    #[getter]
    fn rows(&self) -> usize {
        self.config.slots().len()
    }

    /// The names of the domains.
    #[getter]
    fn domains(&self) -> Vec<String> {
        self.index.domains().names().to_vec()
    }

    /// Training tokens of each domain.
    #[getter]
    fn domain_tokens(&self) -> Vec<u64> {
        let ids = self.index.domains().ids();
        ids.map(|id| self.index.split(id, Split::Train).tokens())
            .collect()
    }

    /// Different sequences of each domain: its samples of one epoch.
    #[getter]
    fn domain_samples(&self) -> Vec<u64> {
        let (packing, length) = (self.config.packing, self.config.sequence_length);
        let ids = self.index.domains().ids();
        ids.map(|id| self.index.split(id, Split::Train).samples(packing, length))
            .collect()
    }

    /// The index's fingerprint.
    #[getter]
    fn fingerprint(&self) -> String {
        self.index.fingerprint().to_string()
    }

    /// Ids are below this.
    #[getter]
    fn vocabulary(&self) -> u32 {
        self.index.manifest().tokenizer.vocabulary
    }

    /// The id that ends every document.
    #[getter]
    fn end_of_document(&self) -> u32 {
        self.index.manifest().tokenizer.end_of_document
    }

    /// The folder.
    #[getter]
    fn path(&self) -> &Path {
        self.index.path()
    }
}

impl Core {
    // Poisoned locks: what they guard is replaced or added to in one go, so it is whole.
    fn source(&self) -> MutexGuard<'_, Option<Source>> {
        self.source.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn begun(&self) -> MutexGuard<'_, (u64, (u64, String))> {
        self.begun.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Version and digest of the weights that the batch before `step` was drawn from.
    fn weights_before(&self, step: u64) -> PyResult<(u64, String)> {
        let (begin, last) = self.begun().clone();
        match step.checked_sub(1) {
            Some(before) if before >= begin => {
                let weights = self.look(before)?;
                Ok((weights.version, weights.digest()))
            }
            _ => Ok(last),
        }
    }

    fn log(&self) -> MutexGuard<'_, Option<WeightLogWriter>> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn weights(&self) -> PyResult<WeightSource> {
        let source = self.source();
        let weights = source.as_ref().map(|source| source.weights.clone());
        weights.ok_or_else(|| PyRuntimeError::new_err("the dataset has no weights yet"))
    }

    fn look(&self, step: u64) -> PyResult<Arc<VersionedMixture>> {
        self.weights()?.look(step).map_err(source_error)
    }

    /// A mixture that batches can be drawn from.
    fn mixture(&self, weights: Vec<f64>) -> PyResult<Mixture> {
        let mixture = Mixture::new(weights, self.index.domains()).map_err(value_error)?;
        check_weights(&self.index, &self.config, &mixture).map_err(loader_error)?;
        Ok(mixture)
    }

    fn state_before(&self, step: u64) -> PyResult<LoaderState> {
        let weights = self.look(step)?;
        let history = self.history();
        let samples = history.before(step).cloned().ok_or_else(|| {
            let (first, last) = history.range();
            PyValueError::new_err(format!(
                "no state is kept for batch {step}; the batches seen here are {first} to {last}"
            ))
        })?;
        Ok(LoaderState::new(
            &self.index,
            &self.config,
            step,
            samples,
            &weights,
            self.weights_before(step)?,
        ))
    }

    fn log_header(&self) -> Header {
        self.config.log_header(&self.index)
    }
}

fn log_error(error: WeightLogError) -> PyErr {
    source_error(error.into())
}

/// Moves a log that a run from its beginning would replace out of the way; nothing that is there is lost.
fn keep_old_log(path: &Path) -> PyResult<()> {
    if path.metadata().map_or(0, |m| m.len()) == 0 {
        return Ok(());
    }
    let found = WeightLogReader::open(path).map_err(|e| {
        PyValueError::new_err(format!("weight_log: it is there and no weight log: {e}"))
    })?;
    // Under its new name its writer would go on with it, and this one would begin another under the old.
    found.expect_unused().map_err(log_error)?;
    let numbered = (1u32..).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    for old in numbered {
        if old.symlink_metadata().is_err() {
            hds::note!(
                "note: {} is of an earlier run and now called {}",
                path.display(),
                old.display()
            );
            return Ok(std::fs::rename(path, old)?);
        }
    }
    Ok(())
}
