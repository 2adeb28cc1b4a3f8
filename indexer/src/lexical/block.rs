//! What the bytes of a block of text are to a word boundary, as bit masks.
//!
//! In: 64 bytes. Out: one bit a byte, the first in the lowest. Branch-free, in vector instructions where the machine has them.

use wide::u8x16;

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// Bit masks of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Masks {
    /// ASCII letters, digits and `_`.
    pub(super) word: u64,
    /// `_`, which is no part of a word at its ends.
    pub(super) underscore: u64,
    /// `'` and `.`, which join between some of those.
    pub(super) joiner: u64,
    /// Bytes of characters that are not ASCII.
    pub(super) not_ascii: u64,
}

/// The masks of a block.
#[inline(always)]
pub(super) fn masks_of(block: &[u8; BLOCK]) -> Masks {
    let mut masks = Masks::default();
    for (at, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
        let bytes = u8x16::new(*bytes);
        let within = |bytes: u8x16, most: u8| bytes.simd_eq(bytes.min(u8x16::splat(most)));
        let letter = within((bytes | u8x16::splat(0x20)) - u8x16::splat(b'a'), 25);
        let digit = within(bytes - u8x16::splat(b'0'), 9);
        let underscore = bytes.simd_eq(u8x16::splat(b'_'));
        let word = letter | digit | underscore;
        let joiner = bytes.simd_eq(u8x16::splat(b'\'')) | bytes.simd_eq(u8x16::splat(b'.'));
        masks.word |= u64::from(word.to_bitmask()) << (16 * at);
        masks.underscore |= u64::from(underscore.to_bitmask()) << (16 * at);
        masks.joiner |= u64::from(joiner.to_bitmask()) << (16 * at);
        masks.not_ascii |= u64::from(bytes.to_bitmask()) << (16 * at);
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_word_byte(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || byte == b'_'
    }

    #[test]
    fn every_byte_has_its_bits_at_every_place() {
        for shift in 0..BLOCK {
            for start in (0..=255u8).step_by(BLOCK) {
                let block: [u8; BLOCK] =
                    std::array::from_fn(|at| start + ((at + shift) % BLOCK) as u8);
                let masks = masks_of(&block);
                for (at, &byte) in block.iter().enumerate() {
                    assert_eq!(masks.word >> at & 1 == 1, is_word_byte(byte), "{byte}");
                    assert_eq!(
                        masks.joiner >> at & 1 == 1,
                        matches!(byte, b'\'' | b'.'),
                        "{byte}"
                    );
                    assert_eq!(masks.not_ascii >> at & 1 == 1, !byte.is_ascii(), "{byte}");
                }
            }
        }
    }
}
