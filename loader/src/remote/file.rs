//! A file of a remote index.
//!
//! In: ranges of its bytes. Out: the bytes, copied from their pieces. Always holds: the same bytes as from the file
//! itself, or an error.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use hds::index::IndexError;

use super::Remote;
use super::ahead::Ahead;
use super::digest;
use super::engine::Engine;
use super::file_state::{FileFacts, FileState};

/// How often a piece is got again that was damaged in the cache after it had been checked.
const DAMAGED_PIECES: u32 = 2;

/// A file of a remote index, as the loader reads it.
pub(crate) struct RemoteFile {
    remote: Arc<Remote>,
    facts: Arc<FileFacts>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

impl RemoteFile {
    pub(super) fn new(remote: Arc<Remote>, facts: FileFacts) -> Self {
        Self {
            remote,
            facts: Arc::new(facts),
        }
    }

    /// Fills `out` with the bytes from `from` on, which lie inside the file; waits for the server where it must.
    ///
    /// # Errors
    /// If they cannot be had, or are not what the manifest says.
    pub(crate) fn read(&self, from: u64, out: &mut [u8]) -> Result<(), IndexError> {
        let engine = self.remote.engine()?;
        let state = engine.state(&self.facts);
        if engine.wants_whole(&state) {
            self.ask_whole(engine, &state);
            engine.make_whole(&state)?;
        }
        let piece = engine.piece_bytes();
        let (mut at, mut rest) = (from, out);
        while !rest.is_empty() {
            let (number, inside) = (at / piece, at % piece);
            let count = rest.len().min((piece - inside) as usize);
            let (head, tail) = rest.split_at_mut(count);
            read_piece(engine, &state, number, inside, head)?;
            at += count as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Asks for bytes that are read in a while; does not wait. Errors are left to the later read.
    pub(crate) fn will_need(&self, range: Range<u64>) {
        let Ok(engine) = self.remote.engine() else {
            return;
        };
        let state = engine.state(&self.facts);
        if engine.wants_whole(&state) {
            self.ask_whole(engine, &state);
        }
        let piece = engine.piece_bytes();
        let end = range.end.min(self.facts.entry.bytes);
        if range.start < end {
            for number in range.start / piece..=(end - 1) / piece {
                Ahead::ask(engine, &state, number);
            }
        }
    }

    /// Asks for all pieces whose checksums are unknown.
    fn ask_whole(&self, engine: &Arc<Engine>, state: &Arc<FileState>) {
        for number in 0..digest::pieces(self.facts.entry.bytes, engine.piece_bytes()) {
            if !state.knows(number) && !Ahead::ask(engine, state, number) {
                return;
            }
        }
    }
}

fn read_piece(
    engine: &Engine,
    state: &Arc<FileState>,
    number: u64,
    inside: u64,
    out: &mut [u8],
) -> Result<(), IndexError> {
    let mut tries = 0;
    loop {
        let found = engine.get(state, number)?;
        match found.read_at(inside, out) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && tries < DAMAGED_PIECES => {
                // Somebody has cut the file short.
                engine.drop_damaged(state, number);
                tries += 1;
            }
            Err(e) => return Err(engine.unreadable(state, number, e)),
        }
    }
}
