//! Held-out sequences of a domain, the same ones every time.
//!
//! In: an index, a domain, a split, L, and the most sequences wanted. Out: windows of L + 1 tokens that
//! overlap in nothing but the one token that is a target before it is an input.
//! Always holds: the choice depends on the index and the numbers given alone, so that every evaluation
//! of every run sees the same text. Memory is O(max).

use hds::DomainId;
use hds::index::Split;
use hds::random::{Purpose, RandomStream};

use crate::config::LoaderConfig;
use crate::error::LoaderError;
use crate::index::Index;
use crate::tokens::TokensMut;

/// Sequences of a remote index that are asked for while one is read.
const AHEAD: usize = 16;

/// The windows to evaluate on, in ascending order; an iterator over their tokens.
#[derive(Clone, Debug)]
pub struct EvaluationSequences {
    index: Index,
    domain: DomainId,
    split: Split,
    sequence_length: usize,
    windows: Windows,
    next: usize,
}

#[derive(Clone, Debug)]
enum Windows {
    All(usize),
    Chosen(Vec<u64>),
}

/// One held-out sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationSequence {
    /// Number of its window in the split; it begins at token `window` · L.
    pub window: u64,
    /// Token ids, length L + 1.
    pub tokens: Vec<i64>,
}

impl EvaluationSequences {
    /// All windows of a split if there are at most `max`, else `max` of them, evenly chosen at random.
    ///
    /// # Errors
    /// If L is 0 or too large, or the domain is not of this index.
    pub fn new(
        index: &Index,
        domain: DomainId,
        split: Split,
        sequence_length: usize,
        max: usize,
    ) -> Result<Self, LoaderError> {
        LoaderConfig::new(sequence_length, 1, 0).check()?;
        if domain.index() >= index.domains().len() {
            return Err(LoaderError::Config {
                field: "domain",
                reason: format!("{domain} of {}", index.domains().len()),
            });
        }
        let count = index.split(domain, split).windows(sequence_length);
        let windows = match usize::try_from(count) {
            Ok(count) if count <= max => Windows::All(count),
            _ => Windows::Chosen(choose(count, max, domain)),
        };
        Ok(Self {
            index: index.clone(),
            domain,
            split,
            sequence_length,
            windows,
            next: 0,
        })
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        match &self.windows {
            Windows::All(count) => *count,
            Windows::Chosen(windows) => windows.len(),
        }
    }

    /// Whether there is none: the split has fewer than L + 1 tokens, or `max` was 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the window that sequence `place` is; `None` beyond the end.
    pub fn window(&self, place: usize) -> Option<u64> {
        match &self.windows {
            Windows::All(count) => (place < *count).then_some(place as u64),
            Windows::Chosen(windows) => windows.get(place).copied(),
        }
    }

    /// Reads sequence `place` into `out` [L + 1].
    ///
    /// # Errors
    /// If there is no such sequence, `out` has another length, or the index is damaged.
    pub fn read(&self, place: usize, out: &mut [i64]) -> Result<(), LoaderError> {
        let window = self.expect(place)?;
        self.check_places(out.len(), self.sequence_length + 1)?;
        let stream = self.index.split(self.domain, self.split);
        let (length, width) = (self.sequence_length as u64, out.len() as u64);
        if self.index.is_remote() {
            // Sequences are read one after another.
            for later in (place..place + AHEAD).filter_map(|place| self.window(place)) {
                if let Ok(range) = stream.range(later * length, width) {
                    range.announce_tokens();
                }
            }
        }
        stream.read(window * length, TokensMut::I64(out))
    }
}

impl EvaluationSequences {
    /// Puts into `out`, L long, which document each of the first L tokens of sequence `place` is in, counted from 0.
    ///
    /// # Errors
    /// If there is no such sequence, `out` has another length, or the index is damaged.
    pub fn documents(&self, place: usize, out: &mut [i64]) -> Result<(), LoaderError> {
        let (window, length) = (self.expect(place)?, self.sequence_length);
        self.check_places(out.len(), length)?;
        let stream = self.index.split(self.domain, self.split);
        let mut spans = Vec::new();
        // LoaderConfig::check keeps L + 1 below 2^31.
        stream.spans(window * length as u64, length as u32, &mut spans)?;
        for (number, span) in (0..).zip(spans) {
            let inputs = span.start as usize..(span.start + span.length) as usize;
            out[inputs].fill(number);
        }
        Ok(())
    }

    fn expect(&self, place: usize) -> Result<u64, LoaderError> {
        self.window(place).ok_or_else(|| LoaderError::Config {
            field: "place",
            reason: format!("sequence {place} of {}", self.len()),
        })
    }

    fn check_places(&self, got: usize, want: usize) -> Result<(), LoaderError> {
        if got == want {
            return Ok(());
        }
        Err(LoaderError::Config {
            field: "out",
            reason: format!("{got} places for {want} tokens"),
        })
    }
}

impl Iterator for EvaluationSequences {
    type Item = Result<EvaluationSequence, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let window = self.window(self.next)?;
        let mut tokens = vec![0; self.sequence_length + 1];
        let outcome = self.read(self.next, &mut tokens);
        self.next += 1;
        Some(outcome.map(|()| EvaluationSequence { window, tokens }))
    }
}

/// `max` different numbers below `count` (which is larger), ascending.
///
/// # Source
/// Floyd's sampling (Bentley, Floyd, "A sample of brilliance", 1987): O(max) memory for any `count`.
fn choose(count: u64, max: usize, domain: DomainId) -> Vec<u64> {
    // No seed of a run: two runs are compared on the same text.
    let mut random = RandomStream::new(0, Purpose::Evaluation).sequence(u64::from(domain.0));
    let mut chosen = std::collections::BTreeSet::new();
    for last in count - max as u64..count {
        let candidate = random.next_below(last + 1);
        if !chosen.insert(candidate) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}
