//! BLAKE3 checksums of files, computed while they are written or read.
//!
//! BLAKE3 because it is cryptographic (an index may come from anyone) and, at over 1 GB/s a core, is
//! no cost beside tokenisation.

use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable::open_regular;

/// A BLAKE3 digest, shown as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl From<blake3::Hash> for Checksum {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl TryFrom<String> for Checksum {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        blake3::Hash::from_hex(&text)
            .map(|h| Self(*h.as_bytes()))
            .map_err(|_| format!("{text:?} is no BLAKE3 checksum (64 hexadecimal digits)"))
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

/// Passes bytes on to a writer, and counts and digests them.
#[derive(Debug)]
pub struct ChecksumWriter<W> {
    inner: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> ChecksumWriter<W> {
    /// Starts with an empty digest.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: blake3::Hasher::new(),
            bytes: 0,
        }
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The writer, the bytes and their digest.
    pub fn finish(self) -> (W, u64, Checksum) {
        (
            self.inner,
            self.bytes,
            Checksum(*self.hasher.finalize().as_bytes()),
        )
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(data)?;
        self.hasher.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Digests what is read through it.
#[derive(Debug)]
pub struct ChecksumReader<R> {
    inner: R,
    hasher: blake3::Hasher,
}

impl<R: Read> ChecksumReader<R> {
    /// Starts with an empty digest.
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: blake3::Hasher::new(),
        }
    }

    /// The digest of everything read so far.
    pub fn digest(&self) -> Checksum {
        Checksum(*self.hasher.finalize().as_bytes())
    }

    /// The digest of everything read.
    pub fn finish(self) -> Checksum {
        self.digest()
    }
}

impl<R: Read> Read for ChecksumReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Digests a file in constant memory.
///
/// # Errors
/// If it cannot be read.
pub fn checksum_file(path: &Path) -> io::Result<Checksum> {
    let mut reader = ChecksumReader::new(open_regular(path)?);
    let mut buffer = vec![0; 1 << 18];
    while reader.read(&mut buffer)? > 0 {}
    Ok(reader.finish())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_checksum_survives_text_and_rejects_nonsense() {
        let sum = Checksum::of(b"");
        // The published BLAKE3 digest of the empty input.
        let hex = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(sum.to_string(), hex);
        assert_eq!(Checksum::try_from(hex.to_owned()), Ok(sum));
        assert!(Checksum::try_from("abc".to_owned()).is_err());
    }

    #[test]
    fn writer_reader_and_file_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut writer = ChecksumWriter::new(File::create(&path).unwrap());
        writer.write_all(b"some").unwrap();
        writer.write_all(b" text").unwrap();
        let (_, bytes, sum) = writer.finish();
        assert_eq!((bytes, sum), (9, Checksum::of(b"some text")));
        assert_eq!(checksum_file(&path).unwrap(), sum);
    }
}
