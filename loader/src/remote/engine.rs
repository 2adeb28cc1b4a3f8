//! Gets pieces: from those open, from the cache, from the server. One for each process.
//!
//! In: a file and the number of a piece. Out: the piece, open for reading and checked. Always holds: a piece is
//! fetched once at a time, by one process; one from the cache was seen whole, with its checksum, in this process
//! before a byte of it is used; whatever is not as it should be is fetched again or is an error. Everything waits
//! on the caller's thread, but for what is asked for ahead ([`super::ahead`]).

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hds::index::IndexError;

use super::address::Address;
use super::ahead::Ahead;
use super::cache::{self, Cache, Claim};
use super::digest;
use super::file_state::{FileFacts, FileState, Trouble};
use super::in_hand::{Flights, OpenPieces, lock};
use super::piece::{self, Piece};
use super::store::Store;
use super::troubles::Troubles;
use super::values::Verdict;
use crate::remote_options::{CacheTroubles, Fetch, RemoteOptions};

/// Seconds after which the use of a piece is noted again.
const TOUCH_SECONDS: u32 = 5;
/// How often a piece is asked for that does not have its checksum.
const WRONG_PIECES: u32 = 2;
/// How often room is looked for before a piece is kept in memory alone.
const ROOM_LOOKS: u32 = 3;
/// How often a piece is tried for that a full disk, or who removes the cache, stands against.
const CACHE_TRIES: u32 = 8;
/// How often a file is fetched again for one of its pieces, where the cache is damaged again and again.
const MOST_RECOVERIES: u32 = 3;
/// Pause between looks for room.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Fetches for one process.
pub(super) struct Engine {
    pub(super) address: Arc<Address>,
    store: Store,
    pub(super) cache: Cache,
    pub(super) troubles: Arc<Troubles>,
    options: RemoteOptions,
    start: Instant,
    files: Mutex<HashMap<u32, Arc<FileState>>>,
    open: OpenPieces,
    flights: Flights,
    pub(super) ahead: Ahead,
}

impl Engine {
    pub(super) fn new(address: Arc<Address>, options: &RemoteOptions) -> Result<Self, IndexError> {
        let folder = options
            .cache_folder()
            .map_err(|reason| IndexError::Remote {
                url: address.shown().into(),
                reason,
            })?;
        let cache = Cache::open(folder, options)?;
        Ok(Self {
            troubles: Arc::new(Troubles::new(cache.folder().to_owned())),
            cache,
            store: Store::new(Arc::clone(&address), options.patience)?,
            address,
            options: options.clone(),
            start: Instant::now(),
            files: Mutex::default(),
            open: OpenPieces::default(),
            flights: Flights::default(),
            ahead: Ahead::default(),
        })
    }

    /// Size of all pieces of a file but its last.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.options.piece.0
    }

    /// Threads for what is asked for ahead.
    pub(super) fn connections(&self) -> usize {
        self.options.connections
    }

    /// What the cache went through so far.
    pub(super) fn troubles(&self) -> CacheTroubles {
        self.troubles.so_far()
    }

    /// Whether a file is used only once it is known whole.
    pub(super) fn wants_whole(&self, state: &FileState) -> bool {
        self.uses_whole_files() && !state.values.are_proven()
    }

    /// Whether files are used only once they are known whole.
    pub(super) fn uses_whole_files(&self) -> bool {
        self.options.fetch == Fetch::Files
    }

    /// What this process knows of a file.
    pub(super) fn state(&self, facts: &Arc<FileFacts>) -> Arc<FileState> {
        let mut files = lock(&self.files);
        let state = files.entry(facts.number).or_insert_with(|| {
            let (entry, origin) = (&facts.entry, self.address.origin());
            let piece = self.piece_bytes();
            let folder = self.cache.folder_of(&entry.blake3, piece, origin);
            let troubles = Arc::clone(&self.troubles);
            Arc::new(FileState::new(Arc::clone(facts), folder, piece, troubles))
        });
        Arc::clone(state)
    }

    /// Sees that all pieces of a file were fetched and are the manifest's, where that is asked for.
    pub(super) fn make_whole(&self, state: &Arc<FileState>) -> Result<(), IndexError> {
        let count = digest::pieces(state.facts.entry.bytes, self.piece_bytes());
        // Values may be removed under us, with the whole cache; once is enough to go on from.
        for _ in 0..2 {
            if !self.wants_whole(state) {
                return Ok(());
            }
            for number in 0..count {
                if !state.knows(number) {
                    // Where its checksum has vanished, the piece is to be read for it again.
                    self.look_anew(state, number);
                    self.get(state, number)?;
                }
            }
            state.values.look_for_proof();
        }
        if self.wants_whole(state) {
            if (0..count).all(|number| state.knows(number)) {
                return self.recover(state);
            }
            // Who refuses it meanwhile says so before the values go.
            self.check_refused(state)?;
            self.cache.forget(&state.folder);
            let reason = "its checksums change or vanish in the cache while it is read; try again";
            return Err(self.address.error(&state.facts.entry.path, reason));
        }
        Ok(())
    }

    /// A piece, from wherever it is nearest.
    pub(super) fn get(
        &self,
        state: &Arc<FileState>,
        number: u64,
    ) -> Result<Arc<Piece>, IndexError> {
        let mut recoveries = 0;
        loop {
            match self.get_once(state, number) {
                Ok(piece) => {
                    self.compare_when_proven(state)?;
                    return Ok(piece);
                }
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Doubt) if recoveries == MOST_RECOVERIES => {
                    return Err(self.refuse(state));
                }
                Err(Trouble::Doubt) => {
                    recoveries += 1;
                    self.recover(state)?;
                }
            }
        }
    }

    /// As [`Self::get`], but a contradiction is left to the caller.
    pub(super) fn get_once(
        &self,
        state: &Arc<FileState>,
        number: u64,
    ) -> Result<Arc<Piece>, Trouble> {
        let key = (state.facts.number, number);
        loop {
            self.check_refused(state)?;
            if let Some(piece) = self.opened(state, number) {
                return Ok(piece);
            }
            self.ahead.forget(&key);
            match self.flights.take_off(key) {
                Ok(landing) => {
                    let piece = Arc::new(self.open_or_fetch(state, number)?);
                    self.open.keep(key, &piece);
                    drop(landing);
                    return Ok(piece);
                }
                // If it fails for the other one, the next turn is this one's to try.
                Err(flight) if flight.wait() => {}
                Err(_) => {
                    let file = &state.facts.entry.path;
                    return Err(self
                        .address
                        .error(file, "waiting for it was given up")
                        .into());
                }
            }
        }
    }

    /// Gets a piece that is needed later, unless somebody is at it; errors are left to who needs it.
    pub(super) fn get_ahead(&self, state: &Arc<FileState>, number: u64) {
        let key = (state.facts.number, number);
        if state.refused.get().is_some() || self.open.contains(&key) {
            return;
        }
        if let Ok(_landing) = self.flights.take_off(key)
            && let Ok(piece @ Piece::File(_)) = self.open_or_fetch(state, number)
        {
            self.open.keep(key, &Arc::new(piece));
        }
    }

    /// Whether a piece need not be asked for ahead.
    pub(super) fn is_near(&self, state: &FileState, number: u64) -> bool {
        if self.open.contains(&(state.facts.number, number)) {
            return true;
        }
        let seen = lock(&state.seen).get(&number).copied();
        // One just used is hardly removed by now; who needs it sees.
        seen.filter(|seen| seen.is_whole).is_some_and(|seen| {
            self.now().saturating_sub(seen.last) < TOUCH_SECONDS || state.path(number).exists()
        })
    }

    /// Drops a piece that cannot be read as it should.
    pub(super) fn drop_damaged(&self, state: &FileState, number: u64) {
        let path = state.path(number);
        self.troubles.damaged(&path);
        self.look_anew(state, number);
        let _ = fs::remove_file(path);
    }

    /// Has a piece read, and held against its checksum, when it is next used.
    pub(super) fn look_anew(&self, state: &FileState, number: u64) {
        self.open.remove(&(state.facts.number, number));
        if let Some(seen) = lock(&state.seen).get_mut(&number) {
            seen.is_whole = false;
        }
    }

    /// The error of a piece in the cache that cannot be read.
    pub(super) fn unreadable(
        &self,
        state: &FileState,
        number: u64,
        error: std::io::Error,
    ) -> IndexError {
        cache::error("read", &state.path(number), error)
    }

    fn opened(&self, state: &FileState, number: u64) -> Option<Arc<Piece>> {
        let piece = self.open.get(&(state.facts.number, number))?;
        self.note_use(state, number, &piece);
        Some(piece)
    }

    fn note_use(&self, state: &FileState, number: u64, piece: &Piece) {
        let now = self.now();
        let mut seen = lock(&state.seen);
        if let Some(noted) = seen.get_mut(&number)
            && now.saturating_sub(noted.last) >= TOUCH_SECONDS
        {
            noted.last = now;
            drop(seen);
            piece.touch();
        }
    }

    /// A piece of the cache or else of the server. Where the disk has less room than the limit says, old pieces make
    /// way, or those being written are waited for; where somebody removes the cache meanwhile, it begins anew.
    fn open_or_fetch(&self, state: &FileState, number: u64) -> Result<Piece, Trouble> {
        let mut tries = 0;
        loop {
            let outcome = self.try_open_or_fetch(state, number);
            let Err(Trouble::Error(error)) = &outcome else {
                return outcome;
            };
            tries += 1;
            match error {
                IndexError::Cache { source, .. } if tries <= CACHE_TRIES => match source.kind() {
                    ErrorKind::NotFound => {}
                    kind if is_full(kind) => self.make_way_or_wait()?,
                    _ => return outcome,
                },
                _ => return outcome,
            }
        }
    }

    /// Removes old pieces from a full disk; whether there were any.
    fn make_way(&self) -> Result<bool, IndexError> {
        self.troubles.disk_full();
        // What is open keeps its room though it is removed.
        self.open.clear();
        self.cache.shrink()
    }

    /// Removes old pieces from a full disk, or else waits a moment: pieces that are being written can make way soon.
    fn make_way_or_wait(&self) -> Result<(), IndexError> {
        if !self.make_way()? {
            std::thread::sleep(ROOM_PAUSE);
        }
        Ok(())
    }

    fn try_open_or_fetch(&self, state: &FileState, number: u64) -> Result<Piece, Trouble> {
        let path = state.path(number);
        loop {
            if let Some(piece) = self.open_cached(state, number)? {
                return Ok(piece);
            }
            if let Some(claim) = Claim::take(&path, self.options.patience)? {
                // Another process may have been faster between the look and the claim.
                return match self.open_cached(state, number)? {
                    Some(piece) => Ok(piece),
                    None => self.fetch(state, number, claim),
                };
            }
        }
    }

    /// A piece of the cache, if it is there and whole.
    fn open_cached(&self, state: &FileState, number: u64) -> Result<Option<Piece>, Trouble> {
        let path = state.path(number);
        let file = match cache::open_regular(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cache::error("open", &path, e).into()),
        };
        let bytes = self.bytes_of(state, number);
        let seen = lock(&state.seen).get(&number).copied();
        let is_whole = if seen.is_some_and(|seen| seen.is_whole) {
            file.metadata()
                .is_ok_and(|metadata| metadata.len() == piece::stored_bytes(bytes))
        } else {
            match piece::read(&file, bytes) {
                Ok(Some((value, content))) => {
                    let found = self.value(state, number, &content);
                    found == value && self.learn_cached(state, number, &found)?
                }
                _ => false,
            }
        };
        if !is_whole {
            self.drop_damaged(state, number);
            return Ok(None);
        }
        let piece = Piece::File(file);
        self.note_use(state, number, &piece);
        Ok(Some(piece))
    }

    /// Whether a piece of the cache has the value that is known, which may be learnt from it.
    fn learn_cached(
        &self,
        state: &FileState,
        number: u64,
        value: &digest::Value,
    ) -> Result<bool, Trouble> {
        if state
            .values
            .get(number)
            .is_some_and(|known| known != *value)
        {
            return Ok(false);
        }
        match state.values.learn(number, value)? {
            Verdict::Good => self.see(state, number, value).map(|()| true),
            Verdict::Wrong => Err(Trouble::Doubt),
        }
    }

    fn fetch(&self, state: &FileState, number: u64, claim: Claim) -> Result<Piece, Trouble> {
        let (value, content) = self.fetch_checked(state, number)?;
        self.see(state, number, &value)?;
        if self.keep(&claim, &value, &content)? {
            return Ok(Piece::File(claim.publish(&state.path(number))?));
        }
        self.troubles.not_kept();
        Ok(Piece::Memory(content))
    }

    /// Writes a piece to where it was claimed; whether there was room for it.
    fn keep(
        &self,
        claim: &Claim,
        value: &digest::Value,
        content: &[u8],
    ) -> Result<bool, IndexError> {
        let (file, partial) = claim.file();
        let stored = piece::stored_bytes(content.len() as u64);
        let (mut looks, mut tries) = (0, 0);
        loop {
            if !self.cache.reserve(stored, file, partial)? {
                looks += 1;
                if looks == ROOM_LOOKS {
                    // All room is taken by what is being fetched right now.
                    return Ok(false);
                }
                std::thread::sleep(ROOM_PAUSE);
                continue;
            }
            let Err(e) = piece::write(file, value, content) else {
                return Ok(true);
            };
            let _ = file.set_len(0);
            self.cache.release(stored)?;
            if !is_full(e.kind()) {
                return Err(cache::error("write", partial, e));
            }
            tries += 1;
            if !self.make_way()? || tries == CACHE_TRIES {
                return Ok(false);
            }
        }
    }

    /// Fetches a piece and holds it against what is known of its file.
    fn fetch_checked(
        &self,
        state: &FileState,
        number: u64,
    ) -> Result<(digest::Value, Vec<u8>), Trouble> {
        let entry = &state.facts.entry;
        let start = number * self.piece_bytes();
        let range = start..start + self.bytes_of(state, number);
        for _ in 0..WRONG_PIECES {
            let etag = lock(&state.etag).clone();
            let (content, seen) =
                self.store
                    .range(&entry.path, range.clone(), entry.bytes, etag.as_deref())?;
            if etag.is_none() {
                *lock(&state.etag) = seen;
            }
            let value = self.value(state, number, &content);
            match state.values.learn(number, &value)? {
                Verdict::Good => return Ok((value, content)),
                // It may have been damaged on its way.
                Verdict::Wrong if state.values.recheck() => {}
                Verdict::Wrong => return Err(Trouble::Doubt),
            }
        }
        let reason = format!(
            "bytes {range:?} do not have the manifest's checksum, {WRONG_PIECES} times: the object was changed or damaged; upload the index again"
        );
        Err(self.address.error(&entry.path, reason).into())
    }

    pub(super) fn check_refused(&self, state: &FileState) -> Result<(), IndexError> {
        match state.refused.get() {
            Some(reason) => Err(self.address.error(&state.facts.entry.path, reason.clone())),
            None => Ok(()),
        }
    }

    /// Throws away all that was fetched of a file, as it is not what the manifest says.
    pub(super) fn refuse(&self, state: &FileState) -> IndexError {
        let want = &state.facts.entry.blake3;
        let reason = format!(
            "its pieces do not add up to the manifest's checksum {want}, though all were fetched again: the object was changed or damaged; what was fetched of it was thrown away. Compare it with the index it was uploaded from (`hds-index verify`), then start again"
        );
        let reason = state.refused.get_or_init(|| reason).clone();
        self.cache.forget(&state.folder);
        self.address.error(&state.facts.entry.path, reason)
    }

    /// Seconds since the beginning.
    fn now(&self) -> u32 {
        self.start.elapsed().as_secs() as u32
    }

    fn see(&self, state: &FileState, number: u64, value: &digest::Value) -> Result<(), Trouble> {
        state.see(number, value, self.now())
    }

    fn value(&self, state: &FileState, number: u64, content: &[u8]) -> digest::Value {
        let bytes = state.facts.entry.bytes;
        digest::value(content, number, self.piece_bytes(), bytes)
    }

    /// Bytes of a piece of the file.
    fn bytes_of(&self, state: &FileState, number: u64) -> u64 {
        let start = number.saturating_mul(self.piece_bytes());
        let rest = state.facts.entry.bytes.saturating_sub(start);
        rest.min(self.piece_bytes())
    }
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
