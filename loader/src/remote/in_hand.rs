//! Pieces that a process has in hand: those open, and those that one of its threads is getting.
//!
//! In: pieces by file and number. Out: the same, as long as they are among the last used; or who gets one. Always
//! holds: a piece is got by one thread at a time, and whoever waits for it is woken however that ends.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::giving_up;
use super::piece::Piece;

/// Most pieces kept open; one that was removed meanwhile takes room until it is closed.
const MOST_OPEN: usize = 256;

/// File and number of a piece.
pub(super) type Key = (u32, u64);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pieces last used.
#[derive(Default)]
pub(super) struct OpenPieces {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    pieces: HashMap<Key, (Arc<Piece>, u64)>,
    uses: u64,
}

impl OpenPieces {
    /// A piece, if it is open.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Piece>> {
        let mut inner = lock(&self.inner);
        inner.uses += 1;
        let uses = inner.uses;
        let (piece, used) = inner.pieces.get_mut(key)?;
        *used = uses;
        Some(Arc::clone(piece))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        lock(&self.inner).pieces.contains_key(key)
    }

    /// Keeps a piece in place of the one that was not used for longest.
    pub(super) fn keep(&self, key: Key, piece: &Arc<Piece>) {
        let mut inner = lock(&self.inner);
        if inner.pieces.len() >= MOST_OPEN {
            let oldest = inner.pieces.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                inner.pieces.remove(&oldest);
            }
        }
        inner.uses += 1;
        let uses = inner.uses;
        inner.pieces.insert(key, (Arc::clone(piece), uses));
    }

    pub(super) fn remove(&self, key: &Key) {
        lock(&self.inner).pieces.remove(key);
    }

    pub(super) fn clear(&self) {
        lock(&self.inner).pieces.clear();
    }
}

/// The pieces that are being got.
#[derive(Default)]
pub(super) struct Flights {
    inner: Mutex<HashMap<Key, Arc<Flight>>>,
}

/// A piece that somebody is getting.
#[derive(Default)]
pub(super) struct Flight {
    landed: Mutex<bool>,
    changed: Condvar,
}

impl Flight {
    /// Waits for its end, good or bad; `false` if waiting is to be given up before.
    #[must_use]
    pub(super) fn wait(&self) -> bool {
        let mut landed = lock(&self.landed);
        while !*landed {
            let waited = self.changed.wait_timeout(landed, giving_up::LOOK_EVERY);
            let (guard, looked) = waited.unwrap_or_else(PoisonError::into_inner);
            if looked.timed_out() && giving_up::is_asked() {
                return false;
            }
            landed = guard;
        }
        true
    }
}

/// Ends a flight however its owner leaves.
pub(super) struct Landing<'a> {
    flights: &'a Flights,
    key: Key,
    flight: Arc<Flight>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.flights.inner).remove(&self.key);
        *lock(&self.flight.landed) = true;
        self.flight.changed.notify_all();
    }
}

impl Flights {
    /// Makes the caller the one that gets a piece, or gives the flight of who is at it.
    pub(super) fn take_off(&self, key: Key) -> Result<Landing<'_>, Arc<Flight>> {
        let mut flights = lock(&self.inner);
        if let Some(flight) = flights.get(&key) {
            return Err(Arc::clone(flight));
        }
        let flight = Arc::<Flight>::default();
        flights.insert(key, Arc::clone(&flight));
        Ok(Landing {
            flights: self,
            key,
            flight,
        })
    }
}
