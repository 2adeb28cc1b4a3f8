//! The checksums of a file's pieces, kept in the cache until they can be held against the manifest.
//!
//! In: the value of each piece as it is fetched, by whichever process. Out: whether they are those of the file that
//! the manifest names. Always holds: what is called proven adds up to the manifest's checksum, seen in this
//! process. Before that, a piece that comes with another value than the first time is an error.
//!
//! `values` has 32 bytes for each piece, zero where none is known, written in place by all; `proven` is a whole copy
//! of it, once proven.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hds::index::{Checksum, IndexError};

use super::cache;
use super::digest::{self, Value};
use super::in_hand::lock;
use super::troubles::Troubles;
use crate::source_file::{read_at, write_at};

const UNKNOWN: Value = [0; 32];
const VALUE_BYTES: u64 = UNKNOWN.len() as u64;
/// Numbers the files that proofs are first written to.
static PROOFS: AtomicU64 = AtomicU64::new(0);
/// Longer than it takes to write a value.
const WRITING: Duration = Duration::from_millis(20);

/// The values of one file's pieces.
#[derive(Debug)]
pub(super) struct Values {
    folder: PathBuf,
    checksum: Checksum,
    bytes: u64,
    piece: u64,
    proven: AtomicBool,
    learning: Mutex<()>,
    troubles: Arc<Troubles>,
}

/// What a new value says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It fits what is known.
    Good,
    /// The piece had another value before, or all values together are not the manifest's.
    Wrong,
}

impl Values {
    pub(super) fn new(
        folder: PathBuf,
        checksum: Checksum,
        bytes: u64,
        piece: u64,
        troubles: Arc<Troubles>,
    ) -> Self {
        let values = Self {
            folder,
            checksum,
            bytes,
            piece,
            proven: AtomicBool::new(false),
            learning: Mutex::default(),
            troubles,
        };
        values.look_for_proof();
        values
    }

    /// Whether the values of all pieces are known to be the manifest's.
    pub(super) fn are_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// The value that a piece has, if it is known; whether by proof, says [`Self::are_proven`].
    pub(super) fn get(&self, number: u64) -> Option<Value> {
        if self.are_proven() {
            if let Ok(value) = self.read_one("proven", number) {
                return value;
            }
            // Removed or cut short under us: what is not there proves nothing.
            self.proven.store(false, Ordering::Release);
        }
        self.read_one("values", number).unwrap_or_else(|_| {
            // Another process may have proven them.
            self.look_for_proof();
            let proven = self.are_proven().then(|| self.read_one("proven", number));
            proven.and_then(Result::ok).flatten()
        })
    }

    fn read_one(&self, name: &str, number: u64) -> io::Result<Option<Value>> {
        let file = cache::open_regular(&self.folder.join(name))?;
        let mut value = UNKNOWN;
        let at = number.checked_mul(VALUE_BYTES);
        read_at(&file, &mut value, at.ok_or(ErrorKind::InvalidInput)?)?;
        Ok((value != UNKNOWN).then_some(value))
    }

    /// Whether the values are proven still, by what is in the cache now.
    pub(super) fn recheck(&self) -> bool {
        if !self.read_all("proven").is_some_and(|all| self.prove(&all)) {
            self.proven.store(false, Ordering::Release);
            self.look_for_proof();
        }
        self.are_proven()
    }

    /// Takes the value of a piece that was fetched or found.
    ///
    /// # Errors
    /// If the cache cannot be written to.
    pub(super) fn learn(&self, number: u64, value: &Value) -> Result<Verdict, IndexError> {
        let _one_at_a_time = lock(&self.learning);
        match self.get(number) {
            Some(known) if known != *value => return Ok(Verdict::Wrong),
            Some(_) if self.are_proven() => return Ok(Verdict::Good),
            Some(_) => {}
            None => {
                let path = self.folder.join("values");
                let file = self
                    .open(&path)
                    .map_err(|e| cache::error("open", &path, e))?;
                let written = write_at(&file, value, number * VALUE_BYTES);
                written.map_err(|e| cache::error("write", &path, e))?;
            }
        }
        let Some(all) = self.read_all("values") else {
            return Ok(Verdict::Good);
        };
        if self.prove(&all) {
            return self.keep_proof(&all).map(|()| Verdict::Good);
        }
        // Another process may have been writing one of them just now.
        std::thread::sleep(WRITING);
        match self.read_all("values") {
            Some(all) if self.prove(&all) => self.keep_proof(&all).map(|()| Verdict::Good),
            Some(_) => Ok(Verdict::Wrong),
            None => Ok(Verdict::Good),
        }
    }

    /// Takes over what another process, or an earlier one, has found.
    pub(super) fn look_for_proof(&self) {
        let path = self.folder.join("proven");
        if self.read_all("proven").is_some_and(|all| self.prove(&all)) {
            self.proven.store(true, Ordering::Release);
            return;
        }
        if path.is_file() && !self.read_all("proven").is_some_and(|all| self.prove(&all)) {
            // It was whole when it got its name.
            self.troubles.damaged(&path);
            let _ = fs::remove_file(&path);
        }
        if let Some(all) = self.read_all("values").filter(|all| self.prove(all)) {
            // Where it cannot be kept, it is found again.
            let _ = self.keep_proof(&all);
        }
    }

    /// Whether values are the manifest's.
    fn prove(&self, all: &[Value]) -> bool {
        digest::root(all, self.piece, self.bytes) == Some(self.checksum)
    }

    /// Writes what was proven, so that it is there whole or not at all.
    fn keep_proof(&self, all: &[Value]) -> Result<(), IndexError> {
        let number = PROOFS.fetch_add(1, Ordering::Relaxed);
        let name = format!("proven.{}.{number}", std::process::id());
        let path = self.folder.join(name);
        fs::write(&path, all.as_flattened()).map_err(|e| cache::error("write", &path, e))?;
        let proven = self.folder.join("proven");
        fs::rename(&path, &proven).map_err(|e| cache::error("rename to", &proven, e))?;
        self.proven.store(true, Ordering::Release);
        Ok(())
    }

    fn count(&self) -> u64 {
        digest::pieces(self.bytes, self.piece)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        cache::check_regular(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).or_else(|e| {
            if e.kind() != ErrorKind::NotFound {
                return Err(e);
            }
            fs::create_dir_all(&self.folder)?;
            options.open(path)
        })?;
        let (want, got) = (self.count() * VALUE_BYTES, file.metadata()?.len());
        if got != want {
            if got > 0 {
                // Cut short by somebody, perhaps in the middle of a value.
                self.troubles.damaged(path);
                file.set_len(got / VALUE_BYTES * VALUE_BYTES)?;
            }
            file.set_len(want)?;
        }
        Ok(file)
    }

    /// All values, or `None` if one is unknown or the file is not as long as they are.
    fn read_all(&self, name: &str) -> Option<Vec<Value>> {
        let file = cache::open_regular(&self.folder.join(name)).ok()?;
        let bytes = self.count().checked_mul(VALUE_BYTES)?;
        if file.metadata().ok()?.len() != bytes {
            return None;
        }
        let mut values = vec![UNKNOWN; usize::try_from(self.count()).ok()?];
        read_at(&file, values.as_flattened_mut(), 0).ok()?;
        let all_known = values.iter().all(|value| *value != UNKNOWN);
        all_known.then_some(values)
    }
}
