//! Checksums of the pieces of a file, and of the file from them.
//!
//! In: a piece's place and bytes; or one value for each piece of a file. Out: the piece's value; or the file's
//! BLAKE3. Always holds: values that add up to a file's BLAKE3 are those of its pieces, so that each piece can
//! be held against the manifest by itself once the values of all are known.
//!
//! # Source
//! BLAKE3 is a binary tree over chunks of 1 KiB ("BLAKE3: one function, fast everywhere", section 2.1): an
//! aligned piece of 2^k KiB is a subtree, and its value the subtree's chaining value.

use blake3::Hasher;
use blake3::hazmat::{
    HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use hds::index::Checksum;

/// Checksum of one piece.
pub(super) type Value = [u8; 32];

/// Number of pieces of a file of `bytes` bytes.
pub(super) fn pieces(bytes: u64, piece: u64) -> u64 {
    bytes.div_ceil(piece)
}

/// The value of piece `number` of a file of `bytes` bytes; a file of one piece has its BLAKE3 as value.
pub(super) fn value(content: &[u8], number: u64, piece: u64, bytes: u64) -> Value {
    let mut hasher = Hasher::new();
    if bytes <= piece {
        return *hasher.update(content).finalize().as_bytes();
    }
    hasher.set_input_offset(number * piece);
    hasher.update(content).finalize_non_root()
}

/// The BLAKE3 of a file of `bytes` bytes from the values of its pieces; `None` where they are not as many.
pub(super) fn root(values: &[Value], piece: u64, bytes: u64) -> Option<Checksum> {
    if values.is_empty() || values.len() as u64 != pieces(bytes, piece) {
        return None;
    }
    let hash = match values {
        [one] => blake3::Hash::from(*one),
        _ => {
            let (left, right) = halves(values, piece, bytes);
            merge_subtrees_root(&left, &right, Mode::Hash)
        }
    };
    Some(hash.into())
}

/// The values of the two subtrees under the node over `bytes` bytes, of at least two pieces.
fn halves(values: &[Value], piece: u64, bytes: u64) -> (Value, Value) {
    let left_bytes = left_subtree_len(bytes);
    // A power of two of pieces, as more than one piece has more bytes than one.
    let (left, right) = values.split_at((left_bytes / piece) as usize);
    (
        subtree(left, piece, left_bytes),
        subtree(right, piece, bytes - left_bytes),
    )
}

fn subtree(values: &[Value], piece: u64, bytes: u64) -> Value {
    if let [one] = values {
        return *one;
    }
    let (left, right) = halves(values, piece, bytes);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_pieces_add_up_to_the_checksum_of_the_file() {
        let piece = 4096;
        let content: Vec<u8> = (0..9 * 4096 + 77u32)
            .map(|i| ((i * i) >> 7) as u8)
            .collect();
        for bytes in [
            1, 1024, 4095, 4096, 4097, 8192, 8193, 12_289, 20_480, 36_941,
        ] {
            let content = &content[..bytes];
            let values: Vec<Value> = (0..)
                .zip(content.chunks(piece))
                .map(|(number, chunk)| value(chunk, number, piece as u64, bytes as u64))
                .collect();
            assert_eq!(values.len() as u64, pieces(bytes as u64, piece as u64));
            let sum = root(&values, piece as u64, bytes as u64);
            assert_eq!(sum, Some(Checksum::of(content)), "{bytes}");
            assert_eq!(root(&values[1..], piece as u64, bytes as u64), None);
            let mut wrong = values.clone();
            wrong[values.len() / 2][31] ^= 1;
            assert_ne!(root(&wrong, piece as u64, bytes as u64), sum);
        }
        assert_eq!(root(&[], 4096, 0), None);
    }
}
