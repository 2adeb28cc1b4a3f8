//! Runs the threads of a build.
//!
//! In: a reader, workers and a collector. Out: everything read, worked on and written, or the first error in input order. Each
//! thread in turn reads the next block, works on it and delivers it, so a build of N threads keeps N cores busy whatever the
//! share of reading is, and no data waits in queues between stages. Always holds: blocks in memory weigh at most
//! [`BLOCKS_PER_THREAD`] blocks a thread plus the largest record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::collector::Collector;
use super::error::BuildError;
use super::work::{WorkOptions, Worker};
use crate::input::{BLOCK_BYTES, Payload, Reader};

/// Blocks being worked on or waiting to be written, for each thread.
const BLOCKS_PER_THREAD: usize = 4;

/// Bounds the bytes of the blocks between reading and writing.
struct Gate {
    weight: Mutex<usize>,
    freed: Condvar,
    limit: usize,
}

impl Gate {
    /// Waits until there is room for another block; `false` if the build ends.
    fn wait(&self, ends: &dyn Fn() -> bool) -> bool {
        let mut weight = lock(&self.weight);
        while *weight >= self.limit {
            if ends() {
                return false;
            }
            // The timeout lets a signal be noticed while all wait.
            let waited = self.freed.wait_timeout(weight, Duration::from_millis(100));
            weight = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !ends()
    }

    fn add(&self, weight: usize) {
        *lock(&self.weight) += weight;
    }

    fn free(&self, weight: usize) {
        *lock(&self.weight) -= weight;
        self.freed.notify_all();
    }
}

/// A lock whose holder panicked is still taken: the panic ends the build anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the other threads to end when its own one panics.
struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs to the end of the input. `true` if `interrupted` ended it before.
///
/// # Errors
/// The first fault in input order, or a file that cannot be written.
pub(super) fn run(
    reader: Reader<'_>,
    options: &WorkOptions<'_>,
    collector: &mut Collector<'_>,
    threads: usize,
    interrupted: &AtomicBool,
) -> Result<bool, BuildError> {
    let gate = Gate {
        weight: Mutex::new(0),
        freed: Condvar::new(),
        limit: threads * BLOCKS_PER_THREAD * BLOCK_BYTES,
    };
    let ended = AtomicBool::new(false);
    let reader = Mutex::new(Some(reader));
    let collector = Mutex::new(collector);
    let failure = Mutex::new(None);
    let ends = || ended.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed);
    let work = || {
        let _guard = EndOnPanic(&ended);
        let mut worker = Worker::new(options);
        let mut done = Payload::End;
        loop {
            let mut block = {
                let mut reader = lock(&reader);
                if let Some(reader) = reader.as_mut() {
                    reader.give_back(std::mem::replace(&mut done, Payload::End));
                }
                if !gate.wait(&ends) {
                    return;
                }
                let Some(block) = reader.as_mut().and_then(Reader::next_block) else {
                    *reader = None;
                    return;
                };
                gate.add(block.payload.weight());
                block
            };
            let product = worker.work(&mut block);
            done = block.payload;
            let mut collector = lock(&collector);
            let delivered = collector.deliver_unless(product, &ended);
            worker.give_back(collector.spare_tokens());
            drop(collector);
            match delivered {
                Ok(freed) => gate.free(freed),
                Err(error) => {
                    ended.store(true, Ordering::Relaxed);
                    lock(&failure).get_or_insert(error);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(interrupted.load(Ordering::Relaxed)),
    }
}

impl Collector<'_> {
    /// Delivers, but nothing after a failure.
    fn deliver_unless(
        &mut self,
        product: super::work::Product,
        ended: &AtomicBool,
    ) -> Result<usize, BuildError> {
        if ended.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let outcome = self.deliver(product);
        if outcome.is_err() {
            // Set under the collector's lock, so no other thread delivers behind the failure.
            ended.store(true, Ordering::Relaxed);
        }
        outcome
    }
}
