//! Sums over the documents of a shard, from which a manifest's counts come.
//!
//! In: document records in their order, then shards in theirs. Out: [`ShardSums`]. Always holds: the same records in the same shards
//! give the same sums to the last bit, whoever adds them, so `hds-index verify` compares them exactly.

use hds::index::MtldSummary;

use super::document::DocumentRecord;

/// Sums over documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardSums {
    pub documents: u64,
    pub tokens: u64,
    pub bytes: u64,
    pub words: u64,
    documents_with_words: u64,
    tokens_with_words: u64,
    mtld: f64,
    mtld_times_tokens: f64,
    mtld_min: f64,
    mtld_max: f64,
}

impl ShardSums {
    /// Adds a document; `None` if a sum passes 64 bits, which no real index does.
    pub fn count(&mut self, record: &DocumentRecord) -> Option<()> {
        let mut single = Self {
            documents: 1,
            tokens: record.tokens,
            bytes: record.bytes,
            words: record.words,
            ..Self::default()
        };
        if record.words > 0 {
            single.documents_with_words = 1;
            single.tokens_with_words = record.tokens;
            single.mtld = record.mtld;
            single.mtld_times_tokens = record.mtld * record.tokens as f64;
            (single.mtld_min, single.mtld_max) = (record.mtld, record.mtld);
        }
        self.add(&single)
    }

    /// Adds the sums of what follows; `None` if one passes 64 bits.
    pub fn add(&mut self, other: &Self) -> Option<()> {
        let (min, max) = match (self.documents_with_words, other.documents_with_words) {
            (_, 0) => (self.mtld_min, self.mtld_max),
            (0, _) => (other.mtld_min, other.mtld_max),
            _ => (
                self.mtld_min.min(other.mtld_min),
                self.mtld_max.max(other.mtld_max),
            ),
        };
        *self = Self {
            documents: self.documents.checked_add(other.documents)?,
            tokens: self.tokens.checked_add(other.tokens)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            words: self.words.checked_add(other.words)?,
            // Not above the two sums before.
            documents_with_words: self.documents_with_words + other.documents_with_words,
            tokens_with_words: self.tokens_with_words + other.tokens_with_words,
            mtld: self.mtld + other.mtld,
            mtld_times_tokens: self.mtld_times_tokens + other.mtld_times_tokens,
            mtld_min: min,
            mtld_max: max,
        };
        Some(())
    }

    /// The summary that the manifest keeps.
    pub fn mtld(&self) -> MtldSummary {
        if self.documents_with_words == 0 {
            return MtldSummary::default();
        }
        MtldSummary {
            documents: self.documents_with_words,
            mean: self.mtld / self.documents_with_words as f64,
            token_weighted_mean: self.mtld_times_tokens / self.tokens_with_words as f64,
            min: self.mtld_min,
            max: self.mtld_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tokens: u64, words: u64, mtld: f64) -> DocumentRecord {
        DocumentRecord {
            tokens,
            bytes: 2 * tokens,
            words,
            mtld,
            position: 0,
            source: 0,
            content_hash: [0; 16],
        }
    }

    #[test]
    fn documents_without_words_do_not_count_for_lexical_diversity() {
        let mut sums = ShardSums::default();
        for r in [record(5, 0, 0.0), record(10, 3, 2.0), record(30, 9, 6.0)] {
            sums.count(&r).unwrap();
        }
        assert_eq!(
            (sums.documents, sums.tokens, sums.bytes, sums.words),
            (3, 45, 90, 12)
        );
        let mtld = sums.mtld();
        assert_eq!(
            (mtld.documents, mtld.mean, mtld.min, mtld.max),
            (2, 4.0, 2.0, 6.0)
        );
        assert_eq!(mtld.token_weighted_mean, 5.0);
        assert_eq!(ShardSums::default().mtld(), MtldSummary::default());
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        let mut sums = ShardSums::default();
        sums.count(&record(u64::MAX / 2, 1, 1.0)).unwrap();
        assert!(sums.count(&record(u64::MAX / 2, 1, 1.0)).is_none());
    }
}
