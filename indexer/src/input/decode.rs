//! Opens a record file as a stream of plain bytes.
//!
//! In: a path and how it is packed. Out: the unpacked bytes, of all frames or members one after another. Bytes read
//! from disk are counted for the progress display. A stream that ends inside a frame is an error, never a short read.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::format::Compression;
use crate::record::Fault;

/// Bytes taken from the disk at once.
const READ_BYTES: usize = 1 << 18;

/// A stream that can go to another thread.
pub type Bytes = Box<dyn Read + Send>;

/// Counts what is read through it.
#[derive(Debug)]
pub struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Counted<R> {
    /// Adds to `count` from now on.
    pub fn new(inner: R, count: Arc<AtomicU64>) -> Self {
        Self { inner, count }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Opens a file.
///
/// # Errors
/// If the system refuses.
pub fn open(path: &Path, compression: Compression, count: &Arc<AtomicU64>) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Box::new(io::empty()));
    }
    unpack_by_head(Counted::new(file, count.clone()), compression)
}

/// Unpacks a stream whose first bytes tell how it is packed, whatever its name says: no text begins like these. What begins neither like
/// an archive nor like text is left to the decoder that the name calls for, which says what is wrong with it.
fn unpack_by_head(mut raw: impl Read + Send + 'static, by_name: Compression) -> io::Result<Bytes> {
    let mut head = Vec::new();
    raw.by_ref().take(4).read_to_end(&mut head)?;
    let compression = match head[..] {
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // JSON, perhaps behind a byte order mark.
        [b'{' | b' ' | b'\t' | b'\r' | b'\n', ..] | [0xef, 0xbb, 0xbf, ..] => Compression::None,
        _ => by_name,
    };
    unpack(io::Cursor::new(head).chain(raw), compression)
}

/// Unpacks a stream.
///
/// # Errors
/// If a decoder cannot be set up.
pub fn unpack(raw: impl Read + Send + 'static, compression: Compression) -> io::Result<Bytes> {
    let mut raw = BufReader::with_capacity(READ_BYTES, raw);
    Ok(match compression {
        Compression::None => Box::new(raw),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
        Compression::Zstd => {
            use std::io::BufRead;
            raw.fill_buf()?;
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
            // Frames made with `zstd --long=31`; the default refuses windows above 128 MiB.
            decoder.window_log_max(31)?;
            Box::new(decoder)
        }
    })
}

/// Unpacks the standard input, whose first bytes tell how it is packed.
///
/// # Errors
/// If it cannot be read.
pub fn standard_input(count: &Arc<AtomicU64>) -> io::Result<Bytes> {
    unpack_by_head(Counted::new(io::stdin(), count.clone()), Compression::None)
}

/// Tells a refusal of the system from a damaged archive.
pub fn fault_of(error: &io::Error) -> Fault {
    let why = error.to_string();
    if error.raw_os_error().is_some() {
        Fault::Read { why }
    } else if why.contains("Dictionary mismatch") {
        // In the words of libzstd, as below also of flate2.
        Fault::ArchiveDictionary
    } else if why.contains("checksum") {
        Fault::ArchiveChecksum { why }
    } else {
        Fault::Archive { why }
    }
}
