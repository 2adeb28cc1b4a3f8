//! The record of a document while the index is being built.
//!
//! In: what a worker found. Out: [`DocumentRecord::BYTES`] little-endian bytes a document, appended to a file beside each token
//! shard, from which the document tables are made at the end. Fixed size, so a file is cut at any document.

/// One document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DocumentRecord {
    /// Tokens with the end-of-document id.
    pub tokens: u64,
    /// Bytes of the text.
    pub bytes: u64,
    /// Words of the text.
    pub words: u64,
    /// Lexical diversity.
    pub mtld: f64,
    /// Line, row or file number in the source.
    pub position: u64,
    /// The source's number.
    pub source: u32,
    /// First half of the text's BLAKE3.
    pub content_hash: [u8; 16],
}

impl DocumentRecord {
    /// Bytes of a record.
    pub const BYTES: usize = 60;

    /// Appends the record.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.tokens.to_le_bytes());
        to.extend_from_slice(&self.bytes.to_le_bytes());
        to.extend_from_slice(&self.words.to_le_bytes());
        to.extend_from_slice(&self.mtld.to_le_bytes());
        to.extend_from_slice(&self.position.to_le_bytes());
        to.extend_from_slice(&self.source.to_le_bytes());
        to.extend_from_slice(&self.content_hash);
    }

    /// Reads a record back.
    pub fn read(from: &[u8; Self::BYTES]) -> Self {
        let mut number = [[0; 8]; 5];
        for (i, number) in number.iter_mut().enumerate() {
            number.copy_from_slice(&from[8 * i..8 * i + 8]);
        }
        let (mut source, mut content_hash) = ([0; 4], [0; 16]);
        source.copy_from_slice(&from[40..44]);
        content_hash.copy_from_slice(&from[44..]);
        Self {
            tokens: u64::from_le_bytes(number[0]),
            bytes: u64::from_le_bytes(number[1]),
            words: u64::from_le_bytes(number[2]),
            mtld: f64::from_le_bytes(number[3]),
            position: u64::from_le_bytes(number[4]),
            source: u32::from_le_bytes(source),
            content_hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let record = DocumentRecord {
            tokens: 1 << 40,
            bytes: 2,
            words: 3,
            mtld: 4.5,
            position: u64::MAX,
            source: 6,
            content_hash: *b"0123456789abcdef",
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        assert_eq!(DocumentRecord::read(&bytes[..].try_into().unwrap()), record);
    }
}
