//! Token ids in the type the index stores them in, and the copy from bytes on disk.
//!
//! In: little-endian bytes. Out: ids, each seen to be below the vocabulary.

use hds::index::TokenType;
use multiversion::multiversion;

use crate::error::{LoaderError, make_room};

/// Owned token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Two bytes a token.
    U16(Vec<u16>),
    /// Four bytes a token.
    U32(Vec<u32>),
}

/// A place to put token ids.
#[derive(Debug)]
pub enum TokensMut<'a> {
    /// Two bytes a token.
    U16(&'a mut [u16]),
    /// Four bytes a token.
    U32(&'a mut [u32]),
    /// Eight bytes a token, whatever the index stores: what tensor libraries take.
    I64(&'a mut [i64]),
}

impl Tokens {
    /// No tokens, of the given type.
    pub fn new(token_type: TokenType) -> Self {
        match token_type {
            TokenType::U16 => Self::U16(Vec::new()),
            TokenType::U32 => Self::U32(Vec::new()),
        }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::U16(tokens) => tokens.len(),
            Self::U32(tokens) => tokens.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id at a place, or `None` beyond the end.
    pub fn get(&self, place: usize) -> Option<u32> {
        match self {
            Self::U16(tokens) => tokens.get(place).map(|&t| u32::from(t)),
            Self::U32(tokens) => tokens.get(place).copied(),
        }
    }

    /// Makes room for `count` tokens; what is in them before they are written is unspecified.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn resize(
        &mut self,
        token_type: TokenType,
        count: usize,
    ) -> Result<(), LoaderError> {
        let other = Self::new(token_type);
        if std::mem::discriminant(self) != std::mem::discriminant(&other) {
            *self = other;
        }
        match self {
            Self::U16(tokens) => {
                make_room(tokens, count)?;
                tokens.resize(count, 0);
            }
            Self::U32(tokens) => {
                make_room(tokens, count)?;
                tokens.resize(count, 0);
            }
        }
        Ok(())
    }

    /// The tokens `range`, to be written.
    pub(crate) fn part_mut(&mut self, range: std::ops::Range<usize>) -> TokensMut<'_> {
        match self {
            Self::U16(tokens) => TokensMut::U16(&mut tokens[range]),
            Self::U32(tokens) => TokensMut::U32(&mut tokens[range]),
        }
    }
}

impl TokensMut<'_> {
    /// Number of tokens to be written.
    pub fn len(&self) -> usize {
        match self {
            Self::U16(out) => out.len(),
            Self::U32(out) => out.len(),
            Self::I64(out) => out.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` tokens and the rest.
    pub(crate) fn split_at(self, count: usize) -> (Self, Self) {
        match self {
            Self::U16(out) => {
                let (head, tail) = out.split_at_mut(count);
                (Self::U16(head), TokensMut::U16(tail))
            }
            Self::U32(out) => {
                let (head, tail) = out.split_at_mut(count);
                (Self::U32(head), TokensMut::U32(tail))
            }
            Self::I64(out) => {
                let (head, tail) = out.split_at_mut(count);
                (Self::I64(head), TokensMut::I64(tail))
            }
        }
    }

    /// Puts one id everywhere; it fits the type.
    pub(crate) fn fill_with(self, id: u32) {
        match self {
            Self::U16(out) => out.fill(u16::try_from(id).unwrap_or(0)),
            Self::U32(out) => out.fill(id),
            Self::I64(out) => out.fill(i64::from(id)),
        }
    }

    /// Copies stored ids and returns the largest; `bytes` holds exactly as many ids as fit.
    ///
    /// The largest is found in the same pass over the data, so that a damaged id costs no second one.
    /// Ids above `u16::MAX` become 0 in a `U16` target; the caller refuses such a target beforehand.
    pub(crate) fn fill(&mut self, bytes: &[u8], token_type: TokenType) -> u32 {
        fill(self, bytes, token_type)
    }
}

/// [`TokensMut::fill`], compiled for the processor's widest vectors too: half of a batch's time where the memory is warm.
#[multiversion(targets("x86_64+avx2"))]
fn fill(out: &mut TokensMut<'_>, bytes: &[u8], token_type: TokenType) -> u32 {
    match token_type {
        TokenType::U16 => {
            let ids = bytes.as_chunks::<2>().0;
            let ids = ids.iter().map(|b| u16::from_le_bytes(*b));
            match out {
                TokensMut::U16(out) => u32::from(copy(out, ids, |id| id)),
                TokensMut::U32(out) => u32::from(copy(out, ids, u32::from)),
                TokensMut::I64(out) => u32::from(copy(out, ids, i64::from)),
            }
        }
        TokenType::U32 => {
            let ids = bytes.as_chunks::<4>().0;
            let ids = ids.iter().map(|b| u32::from_le_bytes(*b));
            match out {
                TokensMut::U16(out) => copy(out, ids, |id| u16::try_from(id).unwrap_or(0)),
                TokensMut::U32(out) => copy(out, ids, |id| id),
                TokensMut::I64(out) => copy(out, ids, i64::from),
            }
        }
    }
}

#[inline(always)] // into each of the versions
fn copy<S: Ord + Copy + Default, T>(
    out: &mut [T],
    ids: impl Iterator<Item = S>,
    convert: impl Fn(S) -> T,
) -> S {
    let mut largest = S::default();
    for (place, id) in out.iter_mut().zip(ids) {
        largest = largest.max(id);
        *place = convert(id);
    }
    largest
}

/// Copies ids to what tensor libraries take.
///
/// # Panics
/// If `out` is not as long as `tokens[range]`.
pub(crate) fn widen(tokens: &Tokens, range: std::ops::Range<usize>, out: &mut [i64]) {
    assert_eq!(out.len(), range.len(), "the target of a copy of tokens");
    widen_all(tokens, range, out);
}

#[multiversion(targets("x86_64+avx2"))]
fn widen_all(tokens: &Tokens, range: std::ops::Range<usize>, out: &mut [i64]) {
    match tokens {
        Tokens::U16(ids) => {
            for (place, &id) in out.iter_mut().zip(&ids[range]) {
                *place = i64::from(id);
            }
        }
        Tokens::U32(ids) => {
            for (place, &id) in out.iter_mut().zip(&ids[range]) {
                *place = i64::from(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_copied_little_endian_into_any_type() {
        let bytes = [1, 0, 0xff, 0xff, 2, 1];
        let mut small = [0u16; 3];
        assert_eq!(
            TokensMut::U16(&mut small).fill(&bytes, TokenType::U16),
            65_535
        );
        assert_eq!(small, [1, 65_535, 258]);
        let mut wide = [0i64; 3];
        TokensMut::I64(&mut wide).fill(&bytes, TokenType::U16);
        assert_eq!(wide, [1, 65_535, 258]);
        let mut middle = [0u32; 1];
        let largest = TokensMut::U32(&mut middle).fill(&[0, 0, 1, 0], TokenType::U32);
        assert_eq!((largest, middle), (65_536, [65_536]));
    }
}
