//! Pieces asked for before they are needed, fetched by threads of their own.
//!
//! In: pieces. Out: nothing but pieces in the cache. Always holds: whoever asks does not wait; where more is asked
//! for than is kept in mind, the rest is left to who needs it. The threads begin with the first piece and end with
//! the index.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::engine::Engine;
use super::file_state::FileState;
use super::in_hand::{Key, lock};

/// Most pieces that wait.
const MOST_WAITING: usize = 16_384;

/// Pieces to be fetched.
#[derive(Default)]
pub(super) struct Ahead {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Arc<FileState>, u64)>,
    /// Those of `waiting` that are still wanted.
    wanted: HashSet<Key>,
    started: bool,
    closed: bool,
}

impl Ahead {
    /// Asks for a piece; whether there was room for more.
    pub(super) fn ask(engine: &Arc<Engine>, state: &Arc<FileState>, number: u64) -> bool {
        if engine.is_near(state, number) {
            return true;
        }
        let ahead = &engine.ahead;
        let mut queue = lock(&ahead.queue);
        if queue.waiting.len() >= MOST_WAITING || queue.closed {
            return false;
        }
        if !queue.wanted.insert((state.facts.number, number)) {
            return true;
        }
        queue.waiting.push_back((Arc::clone(state), number));
        let start = !std::mem::replace(&mut queue.started, true);
        drop(queue);
        ahead.changed.notify_one();
        if start {
            for _ in 0..engine.connections() {
                let engine = Arc::clone(engine);
                // Without threads everything is fetched when it is needed.
                let _ = std::thread::Builder::new()
                    .name("hds-fetch".into())
                    .spawn(move || engine.ahead.run(&engine));
            }
        }
        true
    }

    /// Notes that a piece is being fetched by who needs it.
    pub(super) fn forget(&self, key: &Key) {
        lock(&self.queue).wanted.remove(key);
    }

    /// Ends the threads, each after the piece it is at.
    pub(super) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.changed.notify_all();
    }

    fn run(&self, engine: &Engine) {
        while let Some((state, number)) = self.next() {
            engine.get_ahead(&state, number);
        }
    }

    fn next(&self) -> Option<(Arc<FileState>, u64)> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            match queue.waiting.pop_front() {
                Some((state, number)) => {
                    if queue.wanted.remove(&(state.facts.number, number)) {
                        return Some((state, number));
                    }
                }
                None => {
                    queue = self
                        .changed
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
