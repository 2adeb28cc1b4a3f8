//! MTLD, the measure of textual lexical diversity, over a sequence of words.
//!
//! In: a document's words as ids, hashes or anything else that can be hashed. Out: one `f64`, the mean of a
//! forward and a backward reading: about the number of words that keep their type-token ratio above 0.72.
//! The value is 0 for no words and lies in (0, n] for n words. Knows nothing of text: [`super::words`] cuts it.
//!
//! # Source
//! McCarthy and Jarvis, "MTLD, vocd-D, and HD-D", Behavior Research Methods 42 (2010), in the variant of the
//! Python package `lexicalrichness` 0.5: a factor closes where the type-token ratio is at most 0.72, however short it is;
//! left-over words count (1 − ratio) / (1 − 0.72) of a factor; no factor at all gives n.

use std::{collections::HashSet, hash::Hash};

/// The type-token ratio at which a factor closes, as the fraction 18/25.
///
/// Both parts are exact, so `types / words <= 0.72` is decided in integers. It is the same decision that the
/// `f64` division makes: 18/25 rounds to the literal 0.72, and any other ratio of counts under 2^45 is further from it
/// than half a unit in the last place.
const THRESHOLD: (i64, i64) = (18, 25);
const THRESHOLD_F64: f64 = 0.72;

/// One reading direction: the open factor and the count of closed ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// 18 · words − 25 · types of the open factor; it closes where this is not negative.
    slack: i64,
    /// Words of the open factor.
    words: i64,
    closed: u64,
}

impl Reading {
    /// Reads one word; `first` is 1 where the open factor has not seen it before, else 0. Gives 1 where the factor closes, so that
    /// the caller forgets the words seen, else 0.
    ///
    /// Without branches: no one can foretell whether a word is new.
    #[inline(always)]
    pub(super) fn read(&mut self, first: u32) -> u32 {
        self.slack += THRESHOLD.0 - THRESHOLD.1 * i64::from(first);
        // All ones while the factor stays open, else zero.
        let open = self.slack >> 63;
        self.slack &= open;
        self.words = (self.words + 1) & open;
        self.closed += (open + 1) as u64;
        (open + 1) as u32
    }

    /// Words per factor after all `words` have been read.
    fn words_per_factor(&self, words: u64) -> f64 {
        let mut factors = self.closed as f64;
        if self.words > 0 {
            let types = (THRESHOLD.0 * self.words - self.slack) / THRESHOLD.1;
            let ratio = types as f64 / self.words as f64;
            factors += (1.0 - ratio) / (1.0 - THRESHOLD_F64);
        }
        if factors == 0.0 {
            factors = 1.0;
        }
        words as f64 / factors
    }
}

/// The mean of both directions; 0 for a text without words.
pub(super) fn mean_of_readings(forward: &Reading, backward: &Reading, words: u64) -> f64 {
    if words == 0 {
        return 0.0;
    }
    (forward.words_per_factor(words) + backward.words_per_factor(words)) / 2.0
}

/// MTLD of any sequence of tokens that can be compared: the plain form that the faster ones are tested against.
///
/// # Source
/// As the module: `lexicalrichness`, `LexicalRichness.mtld(threshold=0.72)`; 0 for an empty sequence is our choice
/// (the package divides by zero).
///
/// ```
/// use hds_indexer::lexical::mtld_of_tokens;
/// assert_eq!(mtld_of_tokens(&["the", "cat"]), 2.0); // all different: n
/// assert_eq!(mtld_of_tokens::<&str>(&[]), 0.0);
/// ```
pub fn mtld_of_tokens<T: Hash + Eq>(tokens: &[T]) -> f64 {
    fn read_all<'a, T: Hash + Eq + 'a>(tokens: impl Iterator<Item = &'a T>) -> Reading {
        let mut reading = Reading::default();
        let mut seen = HashSet::new();
        for token in tokens {
            if reading.read(u32::from(seen.insert(token))) == 1 {
                seen.clear();
            }
        }
        reading
    }
    mean_of_readings(
        &read_all(tokens.iter()),
        &read_all(tokens.iter().rev()),
        tokens.len() as u64,
    )
}

/// MTLD of a sequence of token ids, such as a tokenizer gives.
pub fn mtld_of_ids(ids: &[u32]) -> f64 {
    mtld_of_tokens(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition as the package writes it, with the division it makes.
    fn literal(tokens: &[u32]) -> f64 {
        let one_way = |tokens: Vec<u32>| {
            let (mut seen, mut words, mut factors, mut ratio) = (HashSet::new(), 0u64, 0.0, 0.0);
            for token in &tokens {
                words += 1;
                seen.insert(*token);
                ratio = seen.len() as f64 / words as f64;
                if ratio <= 0.72 {
                    words = 0;
                    seen.clear();
                    factors += 1.0;
                }
            }
            if words > 0 {
                factors += (1.0 - ratio) / (1.0 - 0.72);
            }
            tokens.len() as f64 / if factors == 0.0 { 1.0 } else { factors }
        };
        (one_way(tokens.to_vec()) + one_way(tokens.iter().rev().copied().collect())) / 2.0
    }

    #[test]
    fn a_ratio_of_exactly_18_25_closes_the_factor() {
        // 25 words of 18 types, the repeats last: one factor forward.
        let tokens: Vec<u32> = (0..18).chain(0..7).collect();
        let mut reading = Reading::default();
        let mut seen = HashSet::new();
        let closes: Vec<bool> = tokens
            .iter()
            .map(|t| reading.read(u32::from(seen.insert(t))) == 1)
            .collect();
        assert_eq!(closes.iter().position(|c| *c), Some(24));
    }

    #[test]
    fn integer_threshold_decides_as_the_division_does() {
        for words in 1..3000u64 {
            for types in (words * 18 / 25).saturating_sub(1)..=(words * 18 / 25 + 1) {
                let in_integers = 25 * types <= 18 * words;
                assert_eq!(
                    types as f64 / words as f64 <= 0.72,
                    in_integers,
                    "{types}/{words}"
                );
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn equals_the_definition_bit_for_bit(tokens in proptest::collection::vec(0u32..40, 1..400)) {
            proptest::prop_assert_eq!(mtld_of_ids(&tokens), literal(&tokens));
        }
    }
}
