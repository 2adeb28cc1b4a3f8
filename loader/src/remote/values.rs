//! The checksums of a file's pieces, kept in the cache until they can be held against the manifest.
//!
//! In: the value of each piece as it is fetched, by whichever process. Out: whether they are those of the file that
//! the manifest names. Always holds: what is called proven adds up to the manifest's checksum, seen in this
//! process. Before that, a piece that comes with another value than the first time is an error.
//!
//! `values` has 32 bytes for each piece, zero where none is known; once proven it is named `proven`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hds::index::{Checksum, IndexError};

use super::cache;
use super::digest::{self, Value};
use crate::source_file::{read_at, write_at};

const UNKNOWN: Value = [0; 32];
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
    pub(super) fn new(folder: PathBuf, checksum: Checksum, bytes: u64, piece: u64) -> Self {
        let values = Self {
            folder,
            checksum,
            bytes,
            piece,
            proven: AtomicBool::new(false),
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
        let was_proven = self.are_proven();
        let name = if was_proven { "proven" } else { "values" };
        let file = match File::open(self.folder.join(name)) {
            Ok(file) => file,
            Err(_) if was_proven => {
                // Removed under us, with the whole cache: what is not there proves nothing.
                self.proven.store(false, Ordering::Release);
                return None;
            }
            Err(_) => {
                // Another process may have proven them.
                self.look_for_proof();
                return self.are_proven().then(|| self.get(number))?;
            }
        };
        let mut value = UNKNOWN;
        read_at(&file, &mut value, number.checked_mul(32)?).ok()?;
        (value != UNKNOWN).then_some(value)
    }

    /// Takes the value of a piece that was fetched or found.
    ///
    /// # Errors
    /// If the cache cannot be written to.
    pub(super) fn learn(&self, number: u64, value: &Value) -> Result<Verdict, IndexError> {
        if let Some(known) = self.get(number) {
            let verdict = if known == *value {
                Verdict::Good
            } else {
                Verdict::Wrong
            };
            return Ok(verdict);
        }
        let path = self.folder.join("values");
        let file = self
            .open(&path)
            .map_err(|e| cache::error("open", &path, e))?;
        write_at(&file, value, number * 32).map_err(|e| cache::error("write", &path, e))?;
        let Some(all) = self.read_all(&file) else {
            return Ok(Verdict::Good);
        };
        if !self.prove(&all) {
            // Another process may have been writing one of them just now.
            std::thread::sleep(WRITING);
            if !self.read_all(&file).is_some_and(|all| self.prove(&all)) {
                return Ok(Verdict::Wrong);
            }
        }
        match fs::rename(&path, self.folder.join("proven")) {
            // Another process was as far.
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(cache::error("rename", &path, e));
            }
            _ => {}
        }
        self.proven.store(true, Ordering::Release);
        Ok(Verdict::Good)
    }

    /// Takes over what another process, or an earlier one, has proven.
    pub(super) fn look_for_proof(&self) {
        let path = self.folder.join("proven");
        let Ok(file) = File::open(&path) else {
            return;
        };
        let all = self.read_all(&file).unwrap_or_default();
        if self.prove(&all) {
            self.proven.store(true, Ordering::Release);
        } else {
            let _ = fs::remove_file(&path);
        }
    }

    /// Whether values are the manifest's.
    fn prove(&self, all: &[Value]) -> bool {
        digest::root(all, self.piece, self.bytes) == Some(self.checksum)
    }

    fn count(&self) -> u64 {
        digest::pieces(self.bytes, self.piece)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).or_else(|e| {
            if e.kind() != ErrorKind::NotFound {
                return Err(e);
            }
            fs::create_dir_all(&self.folder)?;
            options.open(path)
        })?;
        if file.metadata()?.len() != self.count() * 32 {
            file.set_len(self.count() * 32)?;
        }
        Ok(file)
    }

    /// All values, or `None` if one is unknown or the file is not as long as they are.
    fn read_all(&self, file: &File) -> Option<Vec<Value>> {
        let bytes = self.count().checked_mul(32)?;
        if file.metadata().ok()?.len() != bytes {
            return None;
        }
        let mut content = vec![0; usize::try_from(bytes).ok()?];
        read_at(file, &mut content, 0).ok()?;
        let values = content.as_chunks::<32>().0.to_vec();
        values
            .iter()
            .all(|value| *value != UNKNOWN)
            .then_some(values)
    }
}
