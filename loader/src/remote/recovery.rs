//! What becomes of a file whose pieces and their checksums contradict each other.
//!
//! In: a file of which a piece is not what was noted of it, or whose checksums do not add up to the manifest's. Out: the
//! file fetched anew and proven; or an error, for good. Always holds: where a byte was handed out
//! in this process that the manifest does not vouch for in the end, that is an error.
//!
//! What is at fault, the cache (a disk, somebody who wrote to it) or the server, shows only by fetching everything again:
//! a cache is mended by that, so that no restart is needed; an object that was changed is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hds::index::IndexError;

use super::digest;
use super::engine::Engine;
use super::file_state::{FileState, Trouble};
use super::in_hand::lock;

/// How often pieces are fetched whose checksums another process removes meanwhile.
const ROUNDS: u32 = 8;

impl Engine {
    /// Fetches all of a file again, and proves it. Not to be called while a piece is being got.
    ///
    /// # Errors
    /// If the server has another file, or is away; or bytes were used that are not the manifest's.
    pub(super) fn recover(&self, state: &Arc<FileState>) -> Result<(), IndexError> {
        let _one_at_a_time = lock(&state.recovering);
        self.check_refused(state)?;
        if !state.values.recheck() {
            self.troubles.damaged(&state.folder);
            state.compare.store(true, Ordering::Release);
            self.cache.forget(&state.folder);
            if self.uses_whole_files() {
                // Nothing was handed out that was not proven then.
                lock(&state.seen).clear();
            }
            self.fetch_all(state)?;
        }
        state.compare.store(false, Ordering::Release);
        self.compare(state)
    }

    /// Whether the pieces that were used before a recovery are the manifest's, once that is known.
    pub(super) fn compare_when_proven(&self, state: &Arc<FileState>) -> Result<(), IndexError> {
        let is_due = state.compare.load(Ordering::Acquire) && state.values.are_proven();
        if is_due && state.compare.swap(false, Ordering::AcqRel) {
            return self.compare(state);
        }
        Ok(())
    }

    fn fetch_all(&self, state: &Arc<FileState>) -> Result<(), IndexError> {
        let count = digest::pieces(state.facts.entry.bytes, self.piece_bytes());
        for _ in 0..ROUNDS {
            let next = AtomicU64::new(0);
            let failed = AtomicBool::new(false);
            let fetch = || -> Result<(), Trouble> {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || failed.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    if state.knows(number) {
                        continue;
                    }
                    // It is taken from the cache or the server, and its checksum noted.
                    self.look_anew(state, number);
                    self.get_once(state, number)
                        .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                }
            };
            let threads = self.connections().min(usize::try_from(count).unwrap_or(1));
            let outcome = std::thread::scope(|scope| {
                // One of them is this thread, so that it works where no more can be had.
                let others: Vec<_> = (1..threads)
                    .filter_map(|_| {
                        let builder = std::thread::Builder::new().name("hds-recover".into());
                        builder.spawn_scoped(scope, fetch).ok()
                    })
                    .collect();
                let mut outcome = fetch();
                for other in others {
                    if let Ok(theirs) = other.join() {
                        outcome = outcome.and(theirs);
                    }
                }
                outcome
            });
            match outcome {
                Ok(()) => {}
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Doubt) => return Err(self.refuse(state)),
            }
            state.values.look_for_proof();
            if state.values.are_proven() {
                return Ok(());
            }
            if (0..count).all(|number| state.knows(number)) {
                return Err(self.refuse(state));
            }
        }
        let reason = "its checksums vanish from the cache while it is read; try again";
        Err(self.address.error(&state.facts.entry.path, reason))
    }

    fn compare(&self, state: &FileState) -> Result<(), IndexError> {
        let used: Vec<_> = {
            let seen = lock(&state.seen);
            seen.iter().map(|(n, seen)| (*n, seen.mark)).collect()
        };
        for (number, mark) in used {
            if state
                .values
                .get(number)
                .is_some_and(|v| !v.starts_with(&mark))
            {
                let reason = format!(
                    "its piece {number} was damaged in the cache when it was used, which shows only now; the cache is mended: start again from the last checkpoint"
                );
                let reason = state.refused.get_or_init(|| reason).clone();
                return Err(self.address.error(&state.facts.entry.path, reason));
            }
        }
        Ok(())
    }
}
