//! Files of an index, opened on first use: mapped, read range by range, or fetched from a server
//! ([`crate::remote`]). The only module with `unsafe`.
//!
//! In: a path, the size the manifest gives, and how to get at it. Out: ranges of the file's bytes, of a
//! map without a copy. Always holds: no byte is handed out before the file was seen to have exactly
//! that size. A file that the system will not map is read instead, and where too many are kept open
//! it is opened for each read, so that neither limit ends a run. Leaves the meaning of the bytes to
//! others.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hds::durable::open_regular;
use hds::index::IndexError;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};

/// Bytes the processor fetches together, on the systems there are.
pub(crate) const CACHE_LINE_BYTES: usize = 64;
/// Most files that are kept open for reading; systems commonly allow a process 1,024 in all.
const MOST_KEPT_OPEN: usize = 256;
/// Of the files that the system allows this process, one in so many at most.
const SHARE_KEPT_OPEN: usize = 4;
static KEPT_OPEN: AtomicUsize = AtomicUsize::new(0);

/// How the files of an index are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Mapped into memory: fastest, and the memory is the system's to reuse. A published index is never
    /// written to; where somebody shortens a mapped file all the same, reading ahead mostly sees it
    /// in time for an error, but the system may end the process (SIGBUS).
    #[default]
    Map,
    /// Read range by range: for file systems where maps are slow or missing, and for files that may
    /// change under the reader, which is then an error.
    Read,
}

/// A file that is opened when its bytes are first asked for.
#[derive(Debug)]
pub(crate) struct SourceFile {
    path: PathBuf,
    bytes: u64,
    access: Access,
    opened: OnceLock<Opened>,
    /// Whether the file was seen with another size since it was mapped.
    changed: AtomicBool,
}

#[derive(Debug)]
enum Opened {
    Map(Mmap),
    File(KeptFile),
    /// Opened anew for each read.
    Path,
    /// Behind a URL.
    #[cfg(feature = "remote")]
    Remote(crate::remote::RemoteFile),
}

/// A file that counts among those kept open.
#[derive(Debug)]
struct KeptFile(File);

impl Drop for KeptFile {
    fn drop(&mut self) {
        KEPT_OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SourceFile {
    /// Checks that the file is there and has `bytes` bytes; opens nothing yet.
    ///
    /// # Errors
    /// If it is missing, no regular file, or of another size.
    pub(crate) fn new(path: PathBuf, bytes: u64, access: Access) -> Result<Self, IndexError> {
        let metadata = path
            .metadata()
            .map_err(|source| io_error("open", &path, source))?;
        check(&path, &metadata, bytes)?;
        Ok(Self {
            path,
            bytes,
            access,
            opened: OnceLock::new(),
            changed: AtomicBool::new(false),
        })
    }

    /// A file of a remote index; `url` is for messages. Asks the server for nothing yet.
    #[cfg(feature = "remote")]
    pub(crate) fn remote(url: PathBuf, bytes: u64, file: crate::remote::RemoteFile) -> Self {
        Self {
            path: url,
            bytes,
            access: Access::Read,
            opened: Opened::Remote(file).into(),
            changed: AtomicBool::new(false),
        }
    }

    /// Whether reading it may wait for a server.
    pub(crate) fn is_remote(&self) -> bool {
        #[cfg(feature = "remote")]
        if let Some(Opened::Remote(_)) = self.opened.get() {
            return true;
        }
        false
    }

    /// Size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An error that names this file.
    #[cold]
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> IndexError {
        IndexError::Content {
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    /// The whole content where it is mapped, else `None`.
    ///
    /// # Errors
    /// If the file cannot be opened, or has changed its size since [`Self::new`].
    #[inline]
    pub(crate) fn mapped(&self) -> Result<Option<&[u8]>, IndexError> {
        match self.opened()? {
            Opened::Map(map) => Ok(Some(map)),
            _ => Ok(None),
        }
    }

    /// A range of the content: of the map, or read into `scratch`.
    ///
    /// # Errors
    /// If the range leaves the file, or the file cannot be read or has been cut short.
    #[inline]
    pub(crate) fn range<'a>(
        &'a self,
        range: Range<u64>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        let place = usize::try_from(range.start).ok();
        let place = place.zip(usize::try_from(range.end).ok());
        let place = place.filter(|&(start, end)| start <= end && range.end <= self.bytes);
        let Some((start, end)) = place else {
            let (range, bytes) = (&range, self.bytes);
            return Err(self.damaged(format!("bytes {range:?} were asked for of {bytes}")));
        };
        let file = match self.opened()? {
            // The map has exactly `bytes` bytes.
            Opened::Map(map) => return Ok(&map[start..end]),
            Opened::File(file) => Some(&file.0),
            Opened::Path => None,
            #[cfg(feature = "remote")]
            Opened::Remote(file) => {
                scratch.clear();
                scratch.resize(end - start, 0);
                file.read(range.start, scratch)?;
                return Ok(scratch);
            }
        };
        scratch.clear();
        scratch.resize(end - start, 0);
        match file {
            Some(file) => read_at(file, scratch, range.start),
            None => open_regular(&self.path).and_then(|f| read_at(&f, scratch, range.start)),
        }
        .map_err(|e| self.read_error(e))?;
        Ok(scratch)
    }

    /// Asks the system for bytes that are read in a while, without waiting for them where that is
    /// possible. Errors are left to the later read.
    pub(crate) fn will_need(&self, range: Range<u64>) {
        #[cfg(feature = "remote")]
        if let Some(Opened::Remote(file)) = self.opened.get() {
            return file.will_need(range);
        }
        let (start, length) = (range.start as usize, (range.end - range.start) as usize);
        if self.look_again().is_err() {
            return;
        }
        #[cfg(unix)]
        if let Ok(Opened::Map(map)) = self.opened()
            && range.start <= range.end
            && range.end <= self.bytes
        {
            let _ = map.advise_range(memmap2::Advice::WillNeed, start, length);
            return;
        }
        let _ = (start, length);
        let _ = self.range(range, &mut Vec::new()).map(std::hint::black_box);
    }

    /// Looks whether the file still has its size. If not, every later use of it is an error: a byte of
    /// a map behind the end of its file is not there, and reading it would end the process.
    ///
    /// # Errors
    /// If it is gone or has another size.
    pub(crate) fn look_again(&self) -> Result<(), IndexError> {
        if self.is_remote() {
            // Each answer of the server is held against the manifest.
            return Ok(());
        }
        let metadata = self.path.metadata();
        let outcome = metadata
            .map_err(|e| io_error("read the size of", &self.path, e))
            .and_then(|metadata| check(&self.path, &metadata, self.bytes));
        // A file that is only unreachable may come back, and its map is good still.
        if matches!(outcome, Err(IndexError::Size { .. })) {
            self.changed.store(true, Ordering::Relaxed);
        }
        outcome
    }

    #[inline]
    fn opened(&self) -> Result<&Opened, IndexError> {
        if self.changed.load(Ordering::Relaxed) {
            return Err(self.size_error());
        }
        match self.opened.get() {
            Some(opened) => Ok(opened),
            None => self.open(),
        }
    }

    #[cold]
    fn open(&self) -> Result<&Opened, IndexError> {
        let file = open_regular(&self.path).map_err(|e| io_error("open", &self.path, e))?;
        let metadata = file
            .metadata()
            .map_err(|e| io_error("read the size of", &self.path, e))?;
        check(&self.path, &metadata, self.bytes)?;
        let map = match self.access {
            // An error here is a limit on maps or a file system without them: read instead.
            Access::Map => map_read_only(&file).ok(),
            Access::Read => None,
        };
        let opened = match map.filter(|map| map.len() as u64 == self.bytes) {
            Some(map) => Opened::Map(map),
            None if KEPT_OPEN.fetch_add(1, Ordering::Relaxed) < most_kept_open() => {
                Opened::File(KeptFile(file))
            }
            None => {
                KEPT_OPEN.fetch_sub(1, Ordering::Relaxed);
                Opened::Path
            }
        };
        // Where two threads came here at once, the first one's stays and the other is dropped.
        Ok(self.opened.get_or_init(|| opened))
    }

    #[cold]
    fn read_error(&self, error: std::io::Error) -> IndexError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return self.size_error();
        }
        io_error("read", &self.path, error)
    }

    #[cold]
    fn size_error(&self) -> IndexError {
        let got = self.path.metadata().map_or(0, |m| m.len());
        if got == self.bytes {
            return IndexError::Content {
                path: self.path.clone(),
                reason: "had another size while it was open; open the index again".into(),
            };
        }
        IndexError::Size {
            path: self.path.clone(),
            want: self.bytes,
            got,
        }
    }
}

fn check(path: &Path, metadata: &std::fs::Metadata, bytes: u64) -> Result<(), IndexError> {
    if !metadata.is_file() {
        return Err(IndexError::Content {
            path: path.to_owned(),
            reason: "is no regular file".into(),
        });
    }
    if metadata.len() != bytes {
        return Err(IndexError::Size {
            path: path.to_owned(),
            want: bytes,
            got: metadata.len(),
        });
    }
    Ok(())
}

#[cfg(unix)]
pub(crate) fn read_at(file: &File, out: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(not(unix))]
pub(crate) fn read_at(file: &File, out: &mut [u8], at: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    // A handle of its own: threads must not move each other's position.
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(out)
}

#[cfg(all(unix, feature = "remote"))]
pub(crate) fn write_at(file: &File, content: &[u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, content, at)
}

#[cfg(all(not(unix), feature = "remote"))]
pub(crate) fn write_at(file: &File, content: &[u8], at: u64) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(content)
}

#[allow(unsafe_code)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the contract of `Mmap::map` is that nobody changes or shortens the file while it is
    // mapped. The index format promises it: files are written beside their target, renamed when
    // whole, and nothing published is ever written in place. The map is private and read-only, and
    // no reference into it outlives the `SourceFile` that owns it.
    unsafe { Mmap::map(file) }
}

/// Asks the processor to fetch the cache lines of bytes that are read soon.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    bytes.chunks(CACHE_LINE_BYTES).for_each(prefetch_line);
}

/// A hint without effect on what any code computes; nothing where the processor has no such hint.
///
/// In: bytes of which the first one's cache line is meant.
#[allow(unsafe_code)]
#[inline(always)]
pub(crate) fn prefetch_line(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing into the program and never faults, whatever the
        // address; this one is inside a live slice. SSE is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> IndexError {
    IndexError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Most files to keep open, as far as the system's limit for this process lets.
fn most_kept_open() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| most_of_limit(limit_of_open_files()))
}

fn most_of_limit(limit: Option<u64>) -> usize {
    // Beyond usize, it is no limit.
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(MOST_KEPT_OPEN, |limit| {
        MOST_KEPT_OPEN.min(limit / SHARE_KEPT_OPEN)
    })
}

#[cfg(target_os = "linux")]
fn limit_of_open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(target_os = "linux"))]
fn limit_of_open_files() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8], access: Access) -> (tempfile::TempDir, SourceFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, content).unwrap();
        let file = SourceFile::new(path, content.len() as u64, access).unwrap();
        (folder, file)
    }

    #[test]
    fn ranges_are_the_same_mapped_and_read_and_never_leave_the_file() {
        let content: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        for access in [Access::Map, Access::Read] {
            let (_folder, file) = file(&content, access);
            assert_eq!(file.mapped().unwrap().is_some(), access == Access::Map);
            let mut scratch = vec![1; 3];
            for (start, end) in [(0, 0), (0, 9000), (4095, 4097), (8999, 9000), (9000, 9000)] {
                let got = file.range(start..end, &mut scratch).unwrap();
                assert_eq!(got, &content[start as usize..end as usize]);
                prefetch(got);
                file.will_need(start..end);
            }
            #[allow(clippy::reversed_empty_ranges)]
            for range in [0..9001, 9001..9001, 5..4, u64::MAX - 1..u64::MAX] {
                assert!(file.range(range, &mut scratch).is_err());
            }
        }
    }

    #[test]
    fn a_mapped_file_seen_cut_short_is_an_error_from_then_on() {
        let (folder, file) = file(&[7; 9000], Access::Map);
        assert_eq!(file.range(8000..9000, &mut vec![]).unwrap(), [7; 1000]);
        file.look_again().unwrap();
        let path = folder.path().join("x");
        let writer = File::options().write(true).open(path).unwrap();
        writer.set_len(10).unwrap();
        file.will_need(0..10);
        let error = file.range(8000..9000, &mut vec![]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("holds 10 bytes, the manifest says 9000")
        );
        // Put back in place it is told as what it was.
        writer.set_len(9000).unwrap();
        let error = file.range(0..10, &mut vec![]).unwrap_err();
        assert!(
            error.to_string().contains("open the index again"),
            "{error}"
        );
    }

    #[test]
    fn beyond_the_files_kept_open_each_read_opens_its_own() {
        // More files than are kept; other tests may have some of them, which makes no difference.
        let files: Vec<_> = (0..MOST_KEPT_OPEN + 20)
            .map(|i| file(&[i as u8; 5], Access::Read))
            .collect();
        let mut opened_each_time = 0;
        for (i, (_, file)) in files.iter().enumerate() {
            for _ in 0..2 {
                let mut scratch = vec![];
                assert_eq!(file.range(1..4, &mut scratch).unwrap(), [i as u8; 3]);
            }
            opened_each_time += usize::from(matches!(file.opened.get(), Some(Opened::Path)));
        }
        assert!(opened_each_time >= 20, "{opened_each_time}");
        for (limit, most) in [
            (Some(64), 16),
            (Some(256), 64),
            (Some(1 << 20), 256),
            (None, 256),
        ] {
            assert_eq!(most_of_limit(limit), most);
        }
        drop(files);
        let (_folder, again) = file(&[1], Access::Read);
        again.range(0..1, &mut vec![]).unwrap();
        assert!(matches!(again.opened.get(), Some(Opened::File(_))));
    }
}
