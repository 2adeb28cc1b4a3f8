//! Where a loader takes its weights from: this process, another one, or the log of a run.
//!
//! In: the number of a batch. Out: the mixture that governs it, with its version.
//! Always holds: once a batch was settled, every later answer for it is the same where the source is shared or
//! a log; of live weights in one process the newest ones are taken, and the loader asks once a batch.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;

use crate::live::{LiveWeights, VersionedMixture};
use crate::shared::{SharedWeights, SharedWeightsError};
use crate::weight_log::{Entry, Header, WeightLogError, WeightLogReader};

/// How long a batch waits for the writer of shared weights before its reader hears of it.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why there are no weights for a batch.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightSourceError {
    /// Shared weights cannot be read.
    #[error(transparent)]
    Shared(#[from] SharedWeightsError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] WeightLogError),
    /// The log begins later.
    #[error("weight log {path} has no weights for batch {step}: it begins with batch {first}")]
    BeforeLog {
        /// The log.
        path: PathBuf,
        /// The batch asked for.
        step: u64,
        /// The first batch that the log has weights for.
        first: u64,
    },
    /// The log has no entry at all.
    #[error("weight log {path} is empty")]
    EmptyLog {
        /// The log.
        path: PathBuf,
    },
}

/// A source of weights; clones share it.
#[derive(Clone, Debug)]
pub enum WeightSource {
    /// Published in this process.
    Live(LiveWeights),
    /// Published by one process, settled batch by batch among all.
    Shared(SharedWeights),
    /// A run's log, to draw its batches again without whoever chose the weights.
    Replay(WeightReplay),
}

impl WeightSource {
    /// The mixture that governs batch `step`, from now on for good.
    ///
    /// # Errors
    /// If the source cannot be read, or has no weights for the batch yet
    /// ([`SharedWeightsError::Horizon`]) or at all.
    pub fn settle(&self, step: u64) -> Result<Arc<VersionedMixture>, WeightSourceError> {
        match self {
            Self::Live(live) => Ok(live.read()),
            Self::Shared(shared) => Ok(shared.settle(step, PATIENCE)?),
            Self::Replay(replay) => replay.at(step),
        }
    }

    /// The mixture that would govern batch `step` as things stand; settles nothing.
    ///
    /// # Errors
    /// If the source cannot be read or has none.
    pub fn look(&self, step: u64) -> Result<Arc<VersionedMixture>, WeightSourceError> {
        match self {
            Self::Live(live) => Ok(live.read()),
            Self::Shared(shared) => Ok(shared.look(step)?),
            Self::Replay(replay) => replay.at(step),
        }
    }
}

impl From<LiveWeights> for WeightSource {
    fn from(live: LiveWeights) -> Self {
        Self::Live(live)
    }
}

impl From<SharedWeights> for WeightSource {
    fn from(shared: SharedWeights) -> Self {
        Self::Shared(shared)
    }
}

impl From<WeightReplay> for WeightSource {
    fn from(replay: WeightReplay) -> Self {
        Self::Replay(replay)
    }
}

/// A weight log read batch by batch. Holds two of its entries at a time; its last one stays in force, but where a line
/// cut short follows it: batches behind it are then refused.
#[derive(Clone, Debug)]
pub struct WeightReplay {
    path: PathBuf,
    header: Header,
    place: Arc<Mutex<Place>>,
}

#[derive(Debug)]
struct Place {
    reader: WeightLogReader,
    now: (u64, Arc<VersionedMixture>),
    next: Option<Entry>,
}

impl WeightReplay {
    /// Opens the log of a run with this header: domains, index and seed.
    ///
    /// # Errors
    /// If it cannot be read, is damaged or empty, or is of another run.
    pub fn open(path: &Path, header: &Header) -> Result<Self, WeightSourceError> {
        Ok(Self {
            path: path.to_owned(),
            header: header.clone(),
            place: Arc::new(Mutex::new(Place::first(path, header)?)),
        })
    }

    /// The mixture that governed batch `step`.
    fn at(&self, step: u64) -> Result<Arc<VersionedMixture>, WeightSourceError> {
        // A poisoned lock: the place is whole, as it is replaced in one go.
        let mut place = self.place.lock().unwrap_or_else(|e| e.into_inner());
        if step < place.now.0 {
            *place = Place::first(&self.path, &self.header)?;
            if step < place.now.0 {
                return Err(WeightSourceError::BeforeLog {
                    path: self.path.clone(),
                    step,
                    first: place.now.0,
                });
            }
        }
        while let Some(entry) = place.next.take_if(|next| next.step <= step) {
            place.next = place.reader.next_entry()?;
            place.now = (entry.step, Arc::new(entry.weights));
        }
        if place.next.is_none() {
            place.reader.expect_known(step)?;
        }
        Ok(Arc::clone(&place.now.1))
    }
}

impl Place {
    fn first(path: &Path, header: &Header) -> Result<Self, WeightSourceError> {
        let mut reader = WeightLogReader::open(path)?;
        reader.expect(header)?;
        let Some(entry) = reader.next_entry()? else {
            return Err(WeightSourceError::EmptyLog {
                path: path.to_owned(),
            });
        };
        Ok(Self {
            now: (entry.step, Arc::new(entry.weights)),
            next: reader.next_entry()?,
            reader,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainSet;
    use crate::mixture::Mixture;
    use crate::weight_log::WeightLogWriter;

    #[test]
    fn a_log_gives_each_batch_its_weights_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.jsonl");
        let domains = DomainSet::new(["a", "b"]).unwrap();
        let header = Header::new(domains.clone(), "f00d".into(), 7);
        let mut log = WeightLogWriter::create(&path, &header).unwrap();
        log.sync().unwrap();
        let error = WeightReplay::open(&path, &header).unwrap_err();
        assert!(error.to_string().contains("is empty"), "{error}");
        for (step, version) in [(2, 1), (3, 4), (9, 5)] {
            let mixture = Mixture::new(vec![0.25, 0.75], &domains).unwrap();
            log.record(step, &VersionedMixture { version, mixture })
                .unwrap();
        }
        log.sync().unwrap();
        let source = WeightSource::from(WeightReplay::open(&path, &header).unwrap());
        for (step, version) in [(2, 1), (8, 4), (3, 4), (2, 1), (1000, 5), (9, 5), (4, 4)] {
            assert_eq!(source.settle(step).unwrap().version, version, "{step}");
            assert_eq!(source.look(step).unwrap().version, version);
        }
        let error = source.settle(1).unwrap_err().to_string();
        assert!(error.contains("begins with batch 2"), "{error}");
        // A last line cut short may have said anything of the batches behind it.
        let mut torn = std::fs::read(&path).unwrap();
        torn.extend(b"{\"step\":12,");
        std::fs::write(&path, torn).unwrap();
        let source = WeightSource::from(WeightReplay::open(&path, &header).unwrap());
        for (step, version) in [(2, 1), (8, 4), (9, 5)] {
            assert_eq!(source.settle(step).unwrap().version, version, "{step}");
        }
        let error = source.settle(10).unwrap_err().to_string();
        assert!(error.contains("line 5: cut short"), "{error}");
        assert!(error.contains("after batch 9 "), "{error}");
        assert_eq!(source.settle(3).unwrap().version, 4);
        let other = Header::new(domains, "f00d".into(), 8);
        let error = WeightReplay::open(&path, &other).unwrap_err().to_string();
        assert!(error.contains("another seed"), "{error}");
    }
}
