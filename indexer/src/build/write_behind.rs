//! Has files written to disk while the build goes on, so that making them durable at the end finds little left to do.
//!
//! In: paths of files that grew. Out: nothing, or the first failure of the disk, which must reach whoever makes the file durable
//! later: the system tells it only once. Always holds: a hint that finds the thread busy is dropped, never waited for. Memory: a
//! few paths.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hds::durable::FileError;

/// Bytes of a file that may wait for the disk before it is asked to write them.
pub(super) const BYTES_BEFORE_WRITING: usize = 2 << 20;
/// Files that wait for their turn.
const WAITING: usize = 256;

/// The thread that waits for the disk.
pub(super) struct WriteBehind {
    queue: Option<SyncSender<PathBuf>>,
    failure: Arc<Mutex<Option<FileError>>>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBehind {
    /// Starts the thread; where the system gives none, files are written when they are made durable.
    pub fn start() -> Self {
        let (queue, paths) = sync_channel(WAITING);
        let failure = Arc::new(Mutex::new(None));
        let noted = failure.clone();
        let thread = std::thread::Builder::new()
            .name("write-behind".into())
            .spawn(move || write(&paths, &noted))
            .ok();
        Self {
            queue: thread.is_some().then_some(queue),
            failure,
            thread,
        }
    }

    /// Asks for a file to be written to disk soon.
    pub fn hint(&self, path: PathBuf) {
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(path);
        }
    }

    /// Waits for what was asked for.
    ///
    /// # Errors
    /// The first failure since the last call.
    pub fn settle(&mut self) -> Result<(), FileError> {
        self.end();
        let failure = self.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner).take();
        *self = Self::start();
        failure.map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(paths: &Receiver<PathBuf>, failure: &Mutex<Option<FileError>>) {
    for path in paths {
        match File::open(&path).and_then(|file| file.sync_data()) {
            Ok(()) => {}
            // Removed meanwhile, as after a failure elsewhere.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(FileError::new("sync", &path, e));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_a_missing_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut behind = WriteBehind::start();
        behind.hint(folder.path().join("absent"));
        behind.settle().unwrap();
        // A name through a file that is no folder cannot be opened.
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        behind.hint(file.join("below"));
        let error = behind.settle().unwrap_err().to_string();
        assert!(error.contains("below"), "{error}");
        behind.hint(file);
        behind.settle().unwrap();
    }
}
