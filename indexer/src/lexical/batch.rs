//! Word keys on their way from the search to the table.

use super::{
    class::lower_of,
    key::{WordKey, fold, is_ascii},
};

/// Places for keys; a power of two, so that a place is found without a check.
const PLACES: usize = 256;

/// Keys not handed over yet, and scratch memory to make them.
#[derive(Debug)]
pub(super) struct Batch {
    keys: [WordKey; PLACES],
    count: usize,
    folded: Vec<u8>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            keys: [WordKey::NONE; PLACES],
            count: 0,
            folded: Vec::new(),
        }
    }
}

impl Batch {
    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// The keys in order.
    pub(super) fn keys(&self) -> &[WordKey] {
        &self.keys[..self.count]
    }

    /// Whether the words of another block might not find a place.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.count >= PLACES - 64
    }

    /// Adds a key; there is a place for it.
    #[inline(always)]
    pub(super) fn push(&mut self, key: WordKey) {
        debug_assert!(self.count < PLACES);
        self.keys[self.count % PLACES] = key;
        self.count += 1;
    }

    /// Adds the ASCII word from `start` to `end`.
    #[inline(always)]
    pub(super) fn push_ascii(&mut self, bytes: &[u8], start: usize, end: usize) {
        let key = match bytes[start..].first_chunk::<16>() {
            Some(bytes) if end - start <= 16 => WordKey::of_short_ascii(bytes, end - start),
            _ => WordKey::of_ascii(&bytes[start..end]),
        };
        self.push(key);
    }

    /// Adds the word of characters of simple classes from `start` to `end`, without the `_` at its ends, if anything is left.
    #[inline(always)]
    pub(super) fn push_mixed(&mut self, text: &str, start: usize, end: usize) {
        let bytes = text.as_bytes();
        match bytes[start..].first_chunk::<16>() {
            Some(chunk)
                if end - start <= 16
                    && bytes[start] != b'_'
                    && bytes[end - 1] != b'_'
                    && is_ascii(chunk, end - start) =>
            {
                self.push(WordKey::of_short_ascii(chunk, end - start));
            }
            _ => self.push_simple(&text[start..end]),
        }
    }

    /// Adds a word of characters of simple classes, without the `_` at its ends, if anything is left.
    pub(super) fn push_simple(&mut self, word: &str) {
        let word = word.trim_matches('_');
        if word.is_empty() {
            return;
        }
        let key = if word.is_ascii() {
            WordKey::of_ascii(word.as_bytes())
        } else {
            self.folded.clear();
            for character in word.chars() {
                if character.is_ascii() {
                    self.folded.push(fold(character as u8));
                } else {
                    let lower = lower_of(character);
                    self.folded
                        .extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            WordKey::of_folded(&self.folded)
        };
        self.push(key);
    }
}
