//! The built-in tokenizer: every byte is an id.
//!
//! In: text. Out: its UTF-8 bytes as ids 0 to 255; 256 closes a document. Any text decodes to itself.

use super::{TokenizeError, Tokenizer};

/// The id that closes a document.
const END_OF_DOCUMENT: u32 = 256;

/// What the fingerprint is taken of; changes where the ids do.
const DEFINITION: &[u8] = b"hds byte tokenizer 1: ids 0 to 255 are bytes, 256 closes a document";

/// Bytes as ids.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError> {
        ids.extend(text.bytes().map(u32::from));
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizeError> {
        let mut bytes = Vec::with_capacity(ids.len());
        for &id in ids {
            match u8::try_from(id) {
                Ok(byte) => bytes.push(byte),
                Err(_) if id == END_OF_DOCUMENT => bytes.extend_from_slice(b"<|endoftext|>"),
                Err(_) => {
                    return Err(TokenizeError::UnknownId {
                        name: self.name().to_owned(),
                        id,
                        vocabulary: self.vocabulary(),
                    });
                }
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn vocabulary(&self) -> u32 {
        END_OF_DOCUMENT + 1
    }

    fn end_of_document(&self) -> u32 {
        END_OF_DOCUMENT
    }

    fn name(&self) -> &str {
        "byte"
    }

    fn fingerprint(&self) -> String {
        blake3::hash(DEFINITION).to_hex().to_string()
    }

    fn engine(&self) -> &'static str {
        "byte"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_ids_and_come_back() {
        let (mut ids, text) = (vec![7], "aé\u{0}<|endoftext|>");
        ByteTokenizer.encode_into(text, &mut ids).unwrap();
        assert_eq!(ids[..4], [7, 97, 0xc3, 0xa9]);
        assert_eq!(ids.len(), 1 + text.len());
        assert_eq!(ByteTokenizer.decode(&ids[1..]).unwrap(), text);
        assert_eq!(
            ByteTokenizer.decode(&[104, 105, 256]).unwrap(),
            "hi<|endoftext|>"
        );
        assert!(matches!(
            ByteTokenizer.decode(&[257]),
            Err(TokenizeError::UnknownId { id: 257, .. })
        ));
    }
}
