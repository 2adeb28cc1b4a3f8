//! Live weights across processes: a memory-mapped file with one writer and many readers.
//!
//! In: mixtures, published by the writer. Out: for every batch the mixture that governs it, the same for
//! every process that asks.
//! Always holds:
//! - A reader sees a whole mixture, never parts of two; versions grow by one.
//! - **The first process that asks for batch t settles it.** Weights published later govern later
//!   batches, whoever reads them. So ranks and workers that run at different speeds still draw one and
//!   the same stream.
//! - Batches at or beyond the writer's horizon ([`SharedWeightsWriter::set_horizon`]) wait until it moves:
//!   how a training loop keeps its workers from running ahead of weights not yet published.
//! - Readers take no lock. A killed process leaves nothing that blocks the next: the file is an ordinary
//!   one, and a writer that died is replaced by making the file anew.
//!
//! - Damage to the file is an error: slots carry a sum of what is in them, a file that was cut short is noticed before it is read (short
//!   of a race that only the system could close), and a reader tells where another writer has made the file anew.
//!
//! The file: sixteen words of header, then a ring of [`SLOTS`] slots (number, first batch, version, sum, K weights).
//! The word `GATE` is `2 · frontier + writing`: batches below the frontier are settled. A reader settles
//! batch t by moving the frontier to t + 1; the writer holds it still by the low bit for the time of one
//! copy. An entry whose first batch is below the frontier never changes; the newest one, as long as no batch
//! was settled with it, is overwritten in place, so that any number of publications between two batches
//! takes one slot. Readers may fall [`SLOTS`] such entries behind; then they get an error.
//!
//! ```
//! use std::time::Duration;
//! use hds::{DomainSet, Mixture, SharedWeights, SharedWeightsWriter, VersionedMixture};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("weights");
//! let domains = DomainSet::new(["code", "law"])?;
//! let first = VersionedMixture { version: 1, mixture: Mixture::uniform(&domains) };
//! let writer = SharedWeightsWriter::create(&path, &domains, &first, 0)?;
//!
//! // In any process:
//! let reader = SharedWeights::open(&path, &domains)?;
//! assert_eq!(reader.settle(0, Duration::ZERO)?.version, 1);
//!
//! // Batch 0 is settled; this governs batch 1 and later ones.
//! writer.publish(&Mixture::new(vec![0.9, 0.1], &domains)?)?;
//! assert_eq!(reader.settle(1, Duration::ZERO)?.mixture.weights(), [0.9, 0.1]);
//! assert_eq!(reader.settle(0, Duration::ZERO)?.version, 1);
//! # Ok(()) }
//! ```

mod error;
mod words;
mod writer;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use error::SharedWeightsError;
use words::Words;
pub use writer::SharedWeightsWriter;

use crate::domain::DomainSet;
use crate::live::VersionedMixture;
use crate::mixture::Mixture;

/// Entries that are kept: how many settled changes of weights a reader may be behind.
pub const SLOTS: u64 = 4096;

/// "HDSLIVE2".
const MAGIC: u64 = u64::from_le_bytes(*b"HDSLIVE2");
// Words of the header.
const FORMAT: usize = 0;
const DOMAINS: usize = 1;
const DIGEST: usize = 2;
const SLOT_COUNT: usize = 3;
const PROCESS: usize = 4;
const GATE: usize = 5;
const COUNT: usize = 6;
const HORIZON: usize = 7;
const STOPS: usize = 8;
const HEADER: usize = 16;
// Words of a slot.
const NUMBER: usize = 0;
const STEP: usize = 1;
const VERSION: usize = 2;
const SUM: usize = 3;
const WEIGHTS: usize = 4;
/// In place of a slot's number while it is written.
const BEING_WRITTEN: u64 = u64::MAX;
/// How long a reader waits for a copy of K numbers to end before it asks whether the writer lives.
const COPY_PATIENCE: Duration = Duration::from_millis(200);
/// How long before it takes the file for damaged: no writer copies K numbers for so long.
const LONGEST_COPY: Duration = Duration::from_secs(5);
/// Batches are below this in every run; what says otherwise is damaged.
const BEYOND_ANY_RUN: u64 = 1 << 60;
/// Longest sleep between two looks at the horizon.
const LONGEST_NAP: Duration = Duration::from_micros(250);

/// The shared words and what they mean; also the writer's.
#[derive(Debug)]
struct Board {
    path: PathBuf,
    domains: DomainSet,
    words: Words,
}

/// A reader's handle; clones share it, and any process may open its own.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    board: Arc<Board>,
    /// What was read last: most batches are governed by the same weights as the one before.
    last: Arc<Mutex<Option<Arc<VersionedMixture>>>>,
}

impl SharedWeights {
    /// Opens the file that a writer keeps for these domains.
    ///
    /// # Errors
    /// If it is not there, not such a file, or of other domains.
    pub fn open(path: &Path, domains: &DomainSet) -> Result<Self, SharedWeightsError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| SharedWeightsError::io("open", path, e))?;
        Ok(Self::of(Board::open(path, domains, file)?))
    }

    fn of(board: Board) -> Self {
        Self {
            board: Arc::new(board),
            last: Arc::new(Mutex::new(None)),
        }
    }

    /// The mixture that governs batch `step`, settling it if nobody has before.
    ///
    /// Waits up to `patience` while the batch is at or beyond the horizon.
    ///
    /// # Errors
    /// [`SharedWeightsError::Horizon`] if it still is then: ask again. Else if the writer died while
    /// others wait for it, another writer made the file anew, the reader is too far behind, or the file is damaged.
    pub fn settle(
        &self,
        step: u64,
        patience: Duration,
    ) -> Result<Arc<VersionedMixture>, SharedWeightsError> {
        self.board.words.check(&self.board.path)?;
        self.board.wait_for_horizon(step, patience)?;
        self.board.move_frontier(step)?;
        self.look(step)
    }

    /// The mixture that governs batch `step` as things stand, without settling it.
    ///
    /// # Errors
    /// If the reader is too far behind, or the file is damaged.
    pub fn look(&self, step: u64) -> Result<Arc<VersionedMixture>, SharedWeightsError> {
        self.board.words.check_length(&self.board.path)?;
        // A poisoned lock still holds a whole Arc.
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        let found = self.board.entry_of(step, last.as_ref())?;
        *last = Some(Arc::clone(&found));
        Ok(found)
    }

    /// How often the writer has told readers to stop waiting ([`SharedWeightsWriter::stop_readers`]).
    pub fn stops(&self) -> u64 {
        match self.board.words.is_whole() {
            true => self.board.words.at(STOPS).load(Acquire),
            false => 0,
        }
    }

    /// Batches below this are settled.
    pub fn frontier(&self) -> u64 {
        match self.board.words.is_whole() {
            true => self.board.words.at(GATE).load(Acquire) >> 1,
            false => 0,
        }
    }

    /// The domains that weights are for.
    pub fn domains(&self) -> &DomainSet {
        &self.board.domains
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.board.path
    }
}

impl Board {
    fn words_of(domains: &DomainSet, slots: u64) -> u64 {
        HEADER as u64 + slots * (WEIGHTS + domains.len()) as u64
    }

    fn open(path: &Path, domains: &DomainSet, file: File) -> Result<Self, SharedWeightsError> {
        let bad = |reason: String| SharedWeightsError::Format {
            path: path.to_owned(),
            reason,
        };
        let metadata = file.metadata();
        let metadata = metadata.map_err(|e| SharedWeightsError::io("read the size of", path, e))?;
        if metadata.len() < (HEADER * size_of::<u64>()) as u64 {
            return Err(bad(format!(
                "has {} bytes, less than a header",
                metadata.len()
            )));
        }
        let words = Words::map(file).map_err(|e| SharedWeightsError::io("map", path, e))?;
        if words.at(FORMAT).load(Acquire) != MAGIC {
            return Err(bad("does not begin with HDSLIVE2".into()));
        }
        let count = words.at(DOMAINS).load(Relaxed);
        if count != domains.len() as u64 {
            return Err(bad(format!(
                "is for {count} domains, not {}",
                domains.len()
            )));
        }
        if words.at(DIGEST).load(Relaxed) != digest(domains) {
            return Err(bad("is for domains of other names".into()));
        }
        let slots = words.at(SLOT_COUNT).load(Relaxed);
        if slots != SLOTS || words.len() as u64 != Self::words_of(domains, SLOTS) {
            return Err(bad(format!("has {} words and {slots} slots", words.len())));
        }
        Ok(Self {
            path: path.to_owned(),
            domains: domains.clone(),
            words,
        })
    }

    /// First word of the slot of an entry.
    fn slot(&self, number: u64) -> usize {
        // Below SLOTS, so the cast is exact; the length was checked when the file was opened.
        HEADER + (number % SLOTS) as usize * (WEIGHTS + self.domains.len())
    }

    fn wait_for_horizon(&self, step: u64, patience: Duration) -> Result<(), SharedWeightsError> {
        let horizon = self.words.at(HORIZON);
        if step < horizon.load(Acquire) {
            return Ok(());
        }
        let start = Instant::now();
        let mut nap = Duration::from_micros(5);
        while step >= horizon.load(Acquire) {
            if start.elapsed() >= patience {
                self.check_writer()?;
                return Err(SharedWeightsError::Horizon {
                    step,
                    horizon: horizon.load(Acquire),
                });
            }
            std::thread::sleep(nap);
            self.words.check(&self.path)?;
            nap = (nap * 2).min(LONGEST_NAP);
        }
        Ok(())
    }

    /// Settles all batches up to `step`.
    fn move_frontier(&self, step: u64) -> Result<(), SharedWeightsError> {
        let gate = self.words.at(GATE);
        let mut seen = gate.load(Acquire);
        let mut start = None;
        if seen >> 1 > BEYOND_ANY_RUN {
            return Err(self.damaged("its frontier is beyond any run"));
        }
        while seen >> 1 <= step {
            if seen & 1 == 1 {
                self.copy_turn(&mut start)?;
                seen = gate.load(Acquire);
                continue;
            }
            // Acquire on success too: a publication since `seen` may have left the same value behind.
            match gate.compare_exchange_weak(seen, (step + 1) << 1, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
        Ok(())
    }

    /// The newest entry whose first batch is not after `step`.
    fn entry_of(
        &self,
        step: u64,
        last: Option<&Arc<VersionedMixture>>,
    ) -> Result<Arc<VersionedMixture>, SharedWeightsError> {
        let count = self.words.at(COUNT);
        let mut start = None;
        'again: loop {
            let end = count.load(Acquire);
            if end == 0 {
                return Err(self.damaged("it has no entry"));
            }
            let oldest = end.saturating_sub(SLOTS);
            for number in (oldest..end).rev() {
                let slot = self.slot(number);
                if self.words.at(slot + NUMBER).load(Acquire) != number {
                    // Being overwritten: the newest one by a publication, an old one by a newer entry.
                    self.copy_turn(&mut start)?;
                    continue 'again;
                }
                let begin = self.words.at(slot + STEP).load(Relaxed);
                if begin > step {
                    continue;
                }
                let version = self.words.at(slot + VERSION).load(Relaxed);
                let sum = self.words.at(slot + SUM).load(Relaxed);
                let known = last.filter(|last| last.version == version);
                let weights: Vec<f64> = match known {
                    Some(_) => Vec::new(),
                    None => (0..self.domains.len())
                        .map(|i| self.words.at(slot + WEIGHTS + i).load(Relaxed))
                        .map(f64::from_bits)
                        .collect(),
                };
                fence(Acquire);
                if self.words.at(slot + NUMBER).load(Relaxed) != number {
                    self.copy_turn(&mut start)?;
                    continue 'again;
                }
                if let Some(known) = known {
                    return Ok(Arc::clone(known));
                }
                if sum != sum_of(begin, version, &weights) {
                    return Err(self.damaged(&format!("the sum of entry {number} does not fit it")));
                }
                let mixture = Mixture::new(weights, &self.domains).map_err(|source| {
                    SharedWeightsError::Weights {
                        path: self.path.clone(),
                        version,
                        source,
                    }
                })?;
                return Ok(Arc::new(VersionedMixture { version, mixture }));
            }
            if count.load(Acquire) == end {
                let path = self.path.clone();
                return Err(if end > SLOTS {
                    SharedWeightsError::Behind { path, step }
                } else {
                    let first = self.words.at(self.slot(0) + STEP).load(Relaxed);
                    SharedWeightsError::Before { path, step, first }
                });
            }
        }
    }

    /// Lets the writer finish a copy, as long as it lives.
    fn copy_turn(&self, start: &mut Option<Instant>) -> Result<(), SharedWeightsError> {
        let since = *start.get_or_insert_with(Instant::now);
        if since.elapsed() > LONGEST_COPY {
            return Err(self.damaged("an entry has been half written for seconds"));
        }
        if since.elapsed() > COPY_PATIENCE {
            self.check_writer()?;
            self.words.check(&self.path)?;
        }
        std::hint::spin_loop();
        std::thread::yield_now();
        Ok(())
    }

    #[cold]
    fn damaged(&self, what: &str) -> SharedWeightsError {
        SharedWeightsError::Format {
            path: self.path.clone(),
            reason: format!("is damaged: {what}"),
        }
    }

    /// Looks whether the writing process lives, where the system has a way to tell.
    fn check_writer(&self) -> Result<(), SharedWeightsError> {
        let process = self.words.at(PROCESS).load(Relaxed);
        if has_ended(process) {
            return Err(SharedWeightsError::WriterGone {
                path: self.path.clone(),
                process,
            });
        }
        Ok(())
    }
}

/// Whether a process has ended, as far as the system tells. One that nobody has asked for its exit status yet is still listed.
fn has_ended(process: u64) -> bool {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return false;
    }
    // "pid (name) state …", where the name may hold anything.
    match std::fs::read_to_string(processes.join(format!("{process}/stat"))) {
        Ok(stat) => {
            let state = stat.rsplit(')').next().map(str::trim_start);
            state.is_some_and(|rest| rest.starts_with(['Z', 'X']))
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Of what is in a slot, to tell damage.
fn sum_of(step: u64, version: u64, weights: &[f64]) -> u64 {
    let words = weights.iter().map(|weight| weight.to_bits());
    // FNV-1a over words, with a turn so that high bits count too.
    [step, version]
        .into_iter()
        .chain(words)
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
            (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
        })
}

/// Tells sets of domains apart, order included.
fn digest(domains: &DomainSet) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for name in domains.names() {
        // Names have no control characters, so the separator is unambiguous.
        hasher.update(name.as_bytes()).update(b"\n");
    }
    let bytes = *hasher.finalize().as_bytes();
    let first = bytes.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests;
