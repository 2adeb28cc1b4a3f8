//! The samples that were taken before each of the last batches.
//!
//! In: counts, as batches are read here or arrive from workers. Out: counts before a batch, for the state a
//! trainer saves: it may have read ahead of the batch it stands at. Memory is O(K).

use std::collections::BTreeMap;

/// Batches that are remembered.
const REMEMBERED: usize = 4096;

/// Counts by batch number.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: BTreeMap<u64, Vec<u64>>,
}

impl History {
    /// Starts with one place.
    pub(crate) fn at(step: u64, samples: Vec<u64>) -> Self {
        Self {
            before: BTreeMap::from([(step, samples)]),
        }
    }

    /// Notes the counts before batch `step`.
    pub(crate) fn note(&mut self, step: u64, samples: Vec<u64>) {
        self.before.insert(step, samples);
        if self.before.len() > REMEMBERED {
            self.before.pop_first();
        }
    }

    /// The counts before batch `step`.
    pub(crate) fn before(&self, step: u64) -> Option<&Vec<u64>> {
        self.before.get(&step)
    }

    /// The batches that are remembered, first and last.
    pub(crate) fn range(&self) -> (u64, u64) {
        let first = self.before.first_key_value().map_or(0, |(step, _)| *step);
        let last = self.before.last_key_value().map_or(0, |(step, _)| *step);
        (first, last)
    }

    /// The last batch after `step` up to which there is no gap.
    pub(crate) fn unbroken(&self, step: u64) -> u64 {
        let after = self.before.range(step..).map(|(step, _)| *step);
        let whole = (step..).zip(after).take_while(|(want, got)| want == got);
        whole.last().map_or(step, |(step, _)| step)
    }
}
