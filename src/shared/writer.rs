//! The one writer of a file of shared weights.
//!
//! In: mixtures and how far readers may go. Out: the file. Always holds: one writer a file (the system's
//! file lock, which ends with the process); readers find the file whole or not at all.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use super::{
    BEING_WRITTEN, BEYOND_ANY_RUN, Board, COUNT, DIGEST, DOMAINS, FORMAT, GATE, HORIZON, MAGIC,
    NUMBER, PROCESS, SLOT_COUNT, SLOTS, STEP, STOPS, SUM, SharedWeights, SharedWeightsError,
    VERSION, WEIGHTS, digest, sum_of,
};
use crate::domain::DomainSet;
use crate::live::VersionedMixture;
use crate::mixture::Mixture;

/// Publishes weights to every process that has the file open.
#[derive(Debug)]
pub struct SharedWeightsWriter {
    reader: SharedWeights,
    newest: Mutex<Newest>,
    /// Held locked for as long as this lives.
    _lock: File,
}

/// The newest entry.
#[derive(Debug)]
struct Newest {
    number: u64,
    step: u64,
    version: u64,
}

/// Whether a file may be replaced: it is empty, or of this format.
fn is_ours(mut file: File) -> io::Result<bool> {
    let mut start = [0; 8];
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    Ok(match file.read_exact(&mut start) {
        Ok(()) => u64::from_ne_bytes(start) == MAGIC,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(error) => return Err(error),
    })
}

impl SharedWeightsWriter {
    /// Makes the file, in place of one that no writer has open; `first` governs batches from `step` on.
    ///
    /// All batches may be drawn until [`Self::set_horizon`] says otherwise.
    ///
    /// # Errors
    /// If another writer has the file open, it is there and no such file, it cannot be written, or `first` is not of these domains.
    pub fn create(
        path: &Path,
        domains: &DomainSet,
        first: &VersionedMixture,
        step: u64,
    ) -> Result<Self, SharedWeightsError> {
        let weights = first.mixture.weights();
        // A mixture of another set of domains would not fit the slots.
        Mixture::new(weights.to_vec(), domains).map_err(|source| SharedWeightsError::Weights {
            path: path.to_owned(),
            version: first.version,
            source,
        })?;
        // A link would be replaced, and what it leads to left as it is.
        let resolved = match path.symlink_metadata() {
            Ok(link) if link.is_symlink() => path.canonicalize(),
            _ => Ok(path.to_owned()),
        };
        let path = &*resolved.map_err(|e| SharedWeightsError::io("follow the link", path, e))?;
        if path.metadata().is_ok_and(|old| !old.is_file()) {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(SharedWeightsError::io("create", path, why));
        }
        if let Ok(old) = File::open(path) {
            lock(&old, path)?;
            if !is_ours(old).map_err(|e| SharedWeightsError::io("read", path, e))? {
                let why = io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "it is there and no file of weights",
                );
                return Err(SharedWeightsError::io("replace", path, why));
            }
        }
        // Of this process alone, so that two writers that start at once do not share it.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let fail = |action, error| {
            let _ = fs::remove_file(&partial);
            SharedWeightsError::io(action, path, error)
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&partial).map_err(|e| fail("create", e))?;
        let bytes = Board::words_of(domains, SLOTS) * size_of::<u64>() as u64;
        // Written and not only as long: a disk that is full later would end whoever writes there.
        fill(&file, bytes).map_err(|e| fail("write", e))?;
        lock(&file, path)?;
        // Opened for itself: a copy of the handle would hold the lock for as long as any reader lives.
        let mapped = OpenOptions::new().read(true).write(true).open(&partial);
        let words = mapped.and_then(super::Words::map);
        let words = words.map_err(|e| fail("map", e))?;
        for (place, value) in [
            (DOMAINS, domains.len() as u64),
            (DIGEST, digest(domains)),
            (SLOT_COUNT, SLOTS),
            (PROCESS, u64::from(std::process::id())),
            (GATE, step << 1),
            (COUNT, 0),
            (HORIZON, u64::MAX),
            (FORMAT, MAGIC),
        ] {
            words.at(place).store(value, Release);
        }
        let writer = Self {
            reader: SharedWeights::of(Board {
                path: path.to_owned(),
                domains: domains.clone(),
                words,
            }),
            newest: Mutex::new(Newest {
                number: 0,
                step,
                version: first.version,
            }),
            _lock: file,
        };
        writer.write(0, step, first.version, &first.mixture);
        writer.reader.board.words.at(COUNT).store(1, Release);
        fs::rename(&partial, path).map_err(|e| fail("rename to", e))?;
        Ok(writer)
    }

    /// Puts a mixture in force for every batch that nobody has asked for yet; returns its version.
    ///
    /// O(K); waits for no reader.
    ///
    /// # Errors
    /// If the mixture is not of the file's domains, or the file is damaged.
    pub fn publish(&self, mixture: &Mixture) -> Result<u64, SharedWeightsError> {
        let board = &self.reader.board;
        let (got, want) = (mixture.weights().len(), board.domains.len());
        // A poisoned lock: the words are whole or marked as being written, and are written anew.
        let mut newest = self.newest.lock().unwrap_or_else(|e| e.into_inner());
        if got != want {
            return Err(SharedWeightsError::Weights {
                path: board.path.clone(),
                version: newest.version + 1,
                source: crate::mixture::MixtureError::Length { got, want },
            });
        }
        board.words.check(&board.path)?;
        if board.words.at(GATE).load(Relaxed) >> 1 > BEYOND_ANY_RUN {
            return Err(board.damaged("its frontier is beyond any run"));
        }
        let frontier = self.hold_frontier();
        newest.version += 1;
        if newest.step < frontier {
            newest.number += 1;
            newest.step = frontier;
        }
        self.write(newest.number, newest.step, newest.version, mixture);
        board.words.at(COUNT).store(newest.number + 1, Release);
        board.words.at(GATE).store(frontier << 1, Release);
        Ok(newest.version)
    }

    /// Lets readers draw the batches below `horizon`, and no others; `u64::MAX` lets them draw all.
    pub fn set_horizon(&self, horizon: u64) {
        let words = &self.reader.board.words;
        if words.is_whole() {
            words.at(HORIZON).store(horizon, Release);
        }
    }

    /// Tells readers that wait for the horizon to give up, as nobody wants their batches any more. They see
    /// it by [`SharedWeights::stops`], which grows by one.
    pub fn stop_readers(&self) {
        let words = &self.reader.board.words;
        if words.is_whole() {
            let stops = words.at(STOPS);
            stops.store(stops.load(Relaxed).wrapping_add(1), Release);
        }
    }

    /// Version of the newest weights.
    pub fn version(&self) -> u64 {
        let newest = self.newest.lock().unwrap_or_else(|e| e.into_inner());
        newest.version
    }

    /// A handle to read with in this process.
    pub fn reader(&self) -> SharedWeights {
        self.reader.clone()
    }

    /// Sets the gate's low bit and returns the frontier, which then stays until the bit is cleared.
    fn hold_frontier(&self) -> u64 {
        let gate = self.reader.board.words.at(GATE);
        let mut seen = gate.load(Relaxed);
        loop {
            // Readers only ever move the frontier, and there is one writer: this soon succeeds. A bit that is set already was
            // left by damage to the file, and goes with this publication.
            match gate.compare_exchange_weak(seen, seen | 1, AcqRel, Acquire) {
                Ok(before) => return before >> 1,
                Err(now) => seen = now,
            }
        }
    }

    fn write(&self, number: u64, step: u64, version: u64, mixture: &Mixture) {
        let board = &self.reader.board;
        let slot = board.slot(number);
        board.words.at(slot + NUMBER).store(BEING_WRITTEN, Relaxed);
        // Nobody sees what follows together with the number that was there before.
        fence(Release);
        board.words.at(slot + STEP).store(step, Relaxed);
        board.words.at(slot + VERSION).store(version, Relaxed);
        let sum = sum_of(step, version, mixture.weights());
        board.words.at(slot + SUM).store(sum, Relaxed);
        for (i, weight) in mixture.weights().iter().enumerate() {
            let place = board.words.at(slot + WEIGHTS + i);
            place.store(weight.to_bits(), Relaxed);
        }
        board.words.at(slot + NUMBER).store(number, Release);
    }
}

/// Makes a file of so many zeros that have their place on the disk.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = [0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(zeros.len() as u64);
        file.write_all(&zeros[..part as usize])?;
        left -= part;
    }
    Ok(())
}

fn lock(file: &File, path: &Path) -> Result<(), SharedWeightsError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(SharedWeightsError::Busy {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(SharedWeightsError::io("lock", path, error)),
    }
}
