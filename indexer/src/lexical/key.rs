//! A word's identity in 64 bits.
//!
//! In: a word's bytes. Out: a [`WordKey`] that two words share where their lower-case forms are equal. It is a hash, so different
//! words may share one too, with a chance of 2^-64 for a given pair: in a document of n different words n² / 2^65, which is
//! 3 in 10^10 for the 100,000 of a document of some megabytes, and about 10^-6 for all 210 million documents of The Pile
//! together. A shared key would change a late digit of one document's MTLD, the same way in every build.

/// The identity of a lower-cased word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WordKey(u64);

/// Set in every ASCII letter of lower case, and in every other ASCII byte of a word but `_`, which it makes 0x7f. So
/// setting it everywhere lower-cases an ASCII word and keeps different ones apart.
const LOWER: u8 = 0x20;
/// Odd constants without structure: the fraction bits of the square roots of 2 and 3.
const FACTORS: (u64, u64) = (0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b);

/// The bytes of a chunk that belong to a word of this many.
const MASKS: [u128; 17] = {
    let mut masks = [0; 17];
    let mut length = 1;
    while length <= 16 {
        masks[length] = u128::MAX >> (128 - 8 * length);
        length += 1;
    }
    masks
};

impl WordKey {
    /// No word's key.
    pub(super) const NONE: Self = Self(0);

    /// The key of any word.
    pub(super) fn of(word: &str) -> Self {
        let mut folded = word.to_lowercase().into_bytes();
        for byte in &mut folded {
            *byte = fold(*byte);
        }
        Self::of_folded(&folded)
    }

    /// The key of a word of lower case whose bytes have been through [`fold`].
    pub(super) fn of_folded(word: &[u8]) -> Self {
        Self::of_chunks(word.chunks(16).map(padded))
    }

    /// The key of an ASCII word of any length.
    pub(super) fn of_ascii(word: &[u8]) -> Self {
        let lower = u128::from_le_bytes([LOWER; 16]);
        Self::of_chunks(
            word.chunks(16)
                .map(|chunk| (padded(chunk) | lower) & MASKS[chunk.len()]),
        )
    }

    /// The key of a word of one character that is not ASCII and has no case.
    #[inline(always)]
    pub(super) fn of_character(character: char) -> Self {
        let mut bytes = [0; 4];
        character.encode_utf8(&mut bytes);
        Self::of_chunk(u128::from(u32::from_le_bytes(bytes)))
    }

    /// The key of an ASCII word of 1 to 16 bytes at the start of `bytes`, without a branch on its length.
    #[inline(always)]
    pub(super) fn of_short_ascii(bytes: &[u8; 16], length: usize) -> Self {
        let lower = u128::from_le_bytes(*bytes) | u128::from_le_bytes([LOWER; 16]);
        Self::of_chunk(lower & MASKS[length])
    }

    fn of_chunks(mut chunks: impl Iterator<Item = u128>) -> Self {
        let first = chunks.next().unwrap_or(0);
        chunks.fold(Self::of_chunk(first), |key, chunk| key.then(chunk))
    }

    #[inline(always)]
    fn of_chunk(chunk: u128) -> Self {
        Self(mix(chunk as u64, (chunk >> 64) as u64))
    }

    /// The key of the word that goes on with another chunk.
    fn then(self, chunk: u128) -> Self {
        Self(mix(
            chunk as u64 ^ self.0.rotate_left(29),
            (chunk >> 64) as u64 ^ self.0,
        ))
    }

    /// Zero for the same key, else not.
    #[inline(always)]
    pub(super) fn difference(self, other: Self) -> u32 {
        let bits = self.0 ^ other.0;
        (bits | bits >> 32) as u32
    }

    /// A slot of a table of `1 << bits` for this key.
    #[inline(always)]
    pub(super) fn slot(self, bits: u32) -> usize {
        (self.0 >> (64 - bits)) as usize
    }
}

/// What a byte of a lower-case word is in a key: ASCII letters of any case become the same.
#[inline(always)]
pub(super) fn fold(byte: u8) -> u8 {
    if byte < 0x80 { byte | LOWER } else { byte }
}

/// Whether the first `length` bytes, at most 16, are ASCII.
#[inline(always)]
pub(super) fn is_ascii(bytes: &[u8; 16], length: usize) -> bool {
    u128::from_le_bytes(*bytes) & MASKS[length] & u128::from_le_bytes([0x80; 16]) == 0
}

/// At most 16 bytes with zeros behind them; no word holds a zero byte.
fn padded(chunk: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..chunk.len()].copy_from_slice(chunk);
    u128::from_le_bytes(bytes)
}

/// Both halves of a product of 128 bits, folded.
#[inline(always)]
fn mix(low: u64, high: u64) -> u64 {
    let product = u128::from(low ^ FACTORS.0) * u128::from(high ^ FACTORS.1);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn all_ways_to_a_key_agree() {
        let letters = b"The_Quick_Brown'3.14_FOX_jumps_over";
        for length in 1..=letters.len() {
            let word = &letters[..length];
            let text = std::str::from_utf8(word).unwrap();
            assert_eq!(WordKey::of_ascii(word), WordKey::of(text));
            if length <= 16 {
                let mut padded = *b"#x#x#x#x#x#x#x#x";
                padded[..length].copy_from_slice(word);
                assert_eq!(WordKey::of_short_ascii(&padded, length), WordKey::of(text));
            }
        }
        assert_eq!(WordKey::of_character('字'), WordKey::of("字"));
    }

    #[test]
    fn case_is_folded_and_nothing_else() {
        assert_eq!(WordKey::of("ΟΔΟΣ"), WordKey::of("οδος"));
        assert_eq!(WordKey::of("\u{212a}elvin"), WordKey::of("kelvin"));
        assert_eq!(
            WordKey::of("INTERNATIONALISATION_2"),
            WordKey::of("internationalisation_2")
        );
        assert_ne!(WordKey::of("straße"), WordKey::of("STRASSE"));
        assert_ne!(WordKey::of("a_b"), WordKey::of("a\u{7f}b x"));
    }

    #[test]
    fn similar_words_have_different_keys() {
        let mut keys = HashMap::new();
        for prefix in [
            "",
            "a",
            "identifier_",
            "a_rather_long_identifier_of_the_kind_that_ends_in_",
        ] {
            for number in 0..200_000 {
                let word = format!("{prefix}{number}");
                assert_eq!(keys.insert(WordKey::of(&word).0, word), None);
            }
        }
    }
}
