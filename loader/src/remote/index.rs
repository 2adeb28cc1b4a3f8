//! A remote index, opened: its manifest, and what fetches its files in this process.
//!
//! In: a URL and options. Out: the checked manifest, and a [`RemoteFile`] for each file. Always holds: opening asks
//! for the manifest alone; whether an object is as the manifest says shows when it is first read.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use hds::index::{Checksum, FileEntry, IndexError, MANIFEST_FILE, Manifest};

use super::address::Address;
use super::engine::Engine;
use super::file::RemoteFile;
use super::file_state::FileFacts;
use super::store::Store;
use crate::remote_options::{CacheTroubles, RemoteOptions};

/// Bytes that are shown of what is no manifest.
const SHOWN_BYTES: usize = 100;

/// What the files of a remote index share.
pub(crate) struct Remote {
    address: Arc<Address>,
    options: RemoteOptions,
    files: AtomicU32,
    engines: OnceLock<Box<Generation>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.shown().fmt(f)
    }
}

/// Why an answer is no manifest at all: servers and networks have pages for what they do not want to give.
fn no_manifest(text: &[u8]) -> Option<String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = text.trim_ascii_start();
    if text.starts_with(b"{") {
        return None;
    }
    let shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]);
    let shown: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match text.first() {
        Some(b'<') => format!(
            "the server answers with a web page in place of the index's manifest: check the address (there may be no index, and a page that says so), and whether the network wants you to sign in first; the page begins {shown:?}"
        ),
        Some(_) => format!(
            "the server answers with something that is no manifest; check the address; it begins {shown:?}"
        ),
        None => "the manifest is empty; upload the index again".into(),
    })
}

/// The engine of one process, and those of processes forked from it.
struct Generation {
    process: u32,
    engine: Arc<Engine>,
    next: OnceLock<Box<Generation>>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.engine.ahead.close();
        } else {
            // Its threads are another process's: waiting for them would last for ever.
            std::mem::forget(Arc::clone(&self.engine));
        }
    }
}

impl Remote {
    /// Fetches the manifest; also gives its fingerprint.
    ///
    /// # Errors
    /// If the options make no sense, the cache cannot be written to, or there is no good manifest.
    pub(crate) fn open(
        url: &str,
        options: &RemoteOptions,
    ) -> Result<(Arc<Self>, Manifest, Checksum), IndexError> {
        let address = Arc::new(Address::parse(url)?);
        options.check().map_err(|reason| IndexError::Remote {
            url: address.shown().into(),
            reason,
        })?;
        let remote = Arc::new(Self {
            options: options.clone(),
            files: AtomicU32::new(0),
            engines: OnceLock::new(),
            address: Arc::clone(&address),
        });
        // A cache that is of no use is told at once, and by who opens the index.
        remote.engine()?;
        let patience = options.patience.min(RemoteOptions::FIRST_PATIENCE);
        let text = Store::new(Arc::clone(&address), patience)?.manifest()?;
        if let Some(reason) = no_manifest(&text) {
            return Err(address.error(MANIFEST_FILE, reason));
        }
        let manifest = Manifest::parse(&text, Path::new(&address.of(MANIFEST_FILE)))?;
        Ok((remote, manifest, Checksum::of(&text)))
    }

    /// A file of the manifest.
    pub(crate) fn file(self: &Arc<Self>, entry: &FileEntry) -> RemoteFile {
        let facts = FileFacts {
            number: self.files.fetch_add(1, Ordering::Relaxed),
            entry: entry.clone(),
        };
        RemoteFile::new(Arc::clone(self), facts)
    }

    /// The URL of a file of the index, or of the index where none is named.
    pub(crate) fn url(&self, file: Option<&str>) -> String {
        file.map_or_else(|| self.address.shown().into(), |file| self.address.of(file))
    }

    /// How it is read.
    pub(crate) fn options(&self) -> &RemoteOptions {
        &self.options
    }

    /// What the cache went through in this process.
    pub(crate) fn troubles(&self) -> CacheTroubles {
        self.engine()
            .map_or_else(|_| CacheTroubles::default(), |engine| engine.troubles())
    }

    /// What fetches for this process.
    pub(super) fn engine(&self) -> Result<&Arc<Engine>, IndexError> {
        let process = std::process::id();
        let mut place = &self.engines;
        loop {
            match place.get() {
                Some(generation) if generation.process == process => return Ok(&generation.engine),
                Some(generation) => place = &generation.next,
                None => {
                    let engine = Engine::new(Arc::clone(&self.address), &self.options)?;
                    // Where two threads came here at once, the first one's stays.
                    let _ = place.set(Box::new(Generation {
                        process,
                        engine: Arc::new(engine),
                        next: OnceLock::new(),
                    }));
                }
            }
        }
    }
}
