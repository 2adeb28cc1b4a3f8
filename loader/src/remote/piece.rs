//! A piece in the cache: its checksum, then its bytes.
//!
//! In: bytes and their [`Value`]. Out: the same, or the finding that the file is not what was written.
//!
//! ```text
//! bytes 0..8    "hdspiece"
//! bytes 8..40   the value of the piece
//! bytes 40..    its content
//! ```

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};

use super::digest::Value;

const MARK: [u8; 8] = *b"hdspiece";
/// Where the content begins.
const HEAD: u64 = 40;

/// Bytes in the cache of a piece of `content` bytes.
pub(crate) fn stored_bytes(content: u64) -> u64 {
    HEAD + content
}

/// A piece, open for reading.
#[derive(Debug)]
pub(super) enum Piece {
    /// In the cache.
    File(File),
    /// Without room in the cache.
    Memory(Vec<u8>),
}

impl Piece {
    /// Fills `out` with the bytes from `from` on.
    pub(super) fn read_at(&self, from: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => crate::source_file::read_at(file, out, HEAD + from),
            Self::Memory(content) => {
                let rest = usize::try_from(from).ok().and_then(|f| content.get(f..));
                let part = rest.and_then(|rest| rest.get(..out.len()));
                out.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Notes that it was used now, for those who make room.
    pub(super) fn touch(&self) {
        if let Self::File(file) = self {
            let _ = file.set_modified(std::time::SystemTime::now());
        }
    }
}

/// Writes a piece to an empty file.
pub(super) fn write(file: &File, value: &Value, content: &[u8]) -> io::Result<()> {
    let mut file = file;
    file.rewind()?;
    let mut head = [0; HEAD as usize];
    head[..8].copy_from_slice(&MARK);
    head[8..].copy_from_slice(value);
    file.write_all(&head)?;
    file.write_all(content)
}

/// Reads a whole piece of `bytes` bytes with the value it was written with; `None` if it is none.
pub(super) fn read(file: &File, bytes: u64) -> io::Result<Option<(Value, Vec<u8>)>> {
    if file.metadata()?.len() != stored_bytes(bytes) {
        return Ok(None);
    }
    let mut file = file;
    file.rewind()?;
    let mut content = Vec::with_capacity(stored_bytes(bytes) as usize);
    file.take(stored_bytes(bytes)).read_to_end(&mut content)?;
    let body = content.split_off(content.len().min(HEAD as usize));
    let value = content
        .strip_prefix(&MARK)
        .and_then(|value| Value::try_from(value).ok());
    Ok(value
        .filter(|_| body.len() as u64 == bytes)
        .map(|value| (value, body)))
}
