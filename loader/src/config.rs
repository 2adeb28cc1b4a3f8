//! What a loader is told once.
//!
//! Always holds for a configuration that passes [`LoaderConfig::check`]: every size is at least 1 and
//! small enough that no product of them overflows.

use std::collections::BTreeMap;
use std::ops::Range;

use hds::weight_log::Header;
use serde::{Deserialize, Serialize};

use crate::error::LoaderError;
use crate::index::Index;

/// How the domains of a batch's slots are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Draws {
    /// Each slot by itself: domain i with probability a_i.
    ///
    /// # Source
    /// The paper, section 1 of the method: "domain i with probability a_i".
    #[default]
    Independent,
    /// Together: every domain gets ⌊B·a_i⌋ or ⌈B·a_i⌉ slots, B·a_i on average.
    ///
    /// # Source
    /// Systematic sampling (Madow, 1949); our choice, for less noise in the counts of a batch.
    Stratified,
}

/// How the windows of a domain are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Every window once an epoch, another order each epoch.
    #[default]
    Permutation,
    /// Every window drawn independently and uniformly: the paper's UNIFORM(D_i) taken literally.
    Independent,
}

/// What a sequence is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// A window of L + 1 tokens of the domain's stream, across documents; no token is lost or padded.
    #[default]
    Windows,
    /// The first L + 1 tokens of one document, padded where it is shorter. A domain's samples are then its
    /// documents; what a document has beyond L + 1 tokens is not used.
    Documents,
}

/// What happens when all windows of a domain have been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainEnd {
    /// It begins again, in another order.
    #[default]
    Restart,
    /// The batch that would begin it again is an error; what to do is the caller's to say.
    Stop,
    /// It begins again until it was gone through `epochs` times; from then on it is not drawn, and its
    /// weight goes to the others in proportion. Batches say which domains have ended.
    Cap {
        /// Most epochs of every domain, at least 1.
        epochs: u64,
    },
}

/// Most batches to read ahead; what is read and then dropped for want of memory helps nobody.
const MOST_READ_AHEAD: usize = 1024;

/// Sizes, seed and place of a loader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderConfig {
    /// Tokens a sequence trains on, L; each is read with one token more.
    pub sequence_length: usize,
    /// Sequences of the global batch, B.
    pub batch_size: usize,
    /// Seed of draws and order.
    pub seed: u64,
    /// Which part of each batch is read here, from 0.
    pub rank: usize,
    /// Number of parts; the first ones have one sequence more where B does not divide evenly.
    pub world_size: usize,
    /// How domains are drawn.
    pub draws: Draws,
    /// Least number of sequences in every batch for each domain with weight above 0.
    ///
    /// The slots left are drawn by the weights. 0 is the paper's; the authors' code has one
    /// micro-batch (section 1 of the method).
    pub minimum_per_domain: usize,
    /// How windows are ordered.
    pub order: Order,
    /// What happens when a domain's windows have been used.
    pub domain_end: DomainEnd,
    /// What a sequence is.
    #[serde(default)]
    pub packing: Packing,
    /// The id that fills sequences up where `packing` is [`Packing::Documents`]; the index's
    /// end-of-document id where none is given. Nothing is told from it: spans and loss mask go by place.
    #[serde(default)]
    pub padding_token: Option<u32>,
    /// How many batches ahead the system is asked for their windows, on a thread of its own; 0 is
    /// off. Changes nothing but waiting for disks.
    pub read_ahead_batches: usize,
}

impl Default for LoaderConfig {
    /// The paper's L = 1024 and B = 1152 (section 5 of the method), seed 0, one rank.
    fn default() -> Self {
        Self::new(1024, 1152, 0)
    }
}

impl LoaderConfig {
    /// One rank that reads whole batches of `batch_size` sequences, with everything else as the paper
    /// has it.
    pub fn new(sequence_length: usize, batch_size: usize, seed: u64) -> Self {
        Self {
            sequence_length,
            batch_size,
            seed,
            rank: 0,
            world_size: 1,
            draws: Draws::Independent,
            minimum_per_domain: 0,
            order: Order::Permutation,
            domain_end: DomainEnd::Restart,
            packing: Packing::Windows,
            padding_token: None,
            read_ahead_batches: 2,
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first one out of its range, by name.
    pub fn check(&self) -> Result<(), LoaderError> {
        let fail = |field, reason| Err(LoaderError::Config { field, reason });
        let sizes = [
            ("sequence_length", self.sequence_length),
            ("batch_size", self.batch_size),
            ("world_size", self.world_size),
        ];
        for (field, value) in sizes {
            if value == 0 {
                return fail(field, "is 0, must be at least 1".into());
            }
        }
        let tokens = self
            .sequence_length
            .checked_add(1)
            .and_then(|length| length.checked_mul(self.batch_size));
        if tokens.is_none_or(|t| t > i32::MAX as usize) {
            let reason = format!(
                "{} sequences of {} + 1 tokens are more than 2^31 in one batch",
                self.batch_size, self.sequence_length
            );
            // Whichever would be too large by itself.
            let alone = self.sequence_length >= i32::MAX as usize;
            let field = if alone {
                "sequence_length"
            } else {
                "batch_size"
            };
            return fail(field, reason);
        }
        if self.world_size > self.batch_size {
            let reason = format!(
                "{} ranks for a batch of {} sequences; each needs one at least",
                self.world_size, self.batch_size
            );
            return fail("world_size", reason);
        }
        if self.rank >= self.world_size {
            let reason = format!(
                "is {}, must be below world_size {}",
                self.rank, self.world_size
            );
            return fail("rank", reason);
        }
        if self.minimum_per_domain > self.batch_size {
            let reason = format!(
                "is {}, more than batch_size {}",
                self.minimum_per_domain, self.batch_size
            );
            return fail("minimum_per_domain", reason);
        }
        if self.read_ahead_batches > MOST_READ_AHEAD {
            let reason = format!("is {}, at most {MOST_READ_AHEAD}", self.read_ahead_batches);
            return fail("read_ahead_batches", reason);
        }
        if self.domain_end == (DomainEnd::Cap { epochs: 0 }) {
            return fail(
                "domain_end",
                "a cap of 0 epochs leaves nothing to draw".into(),
            );
        }
        Ok(())
    }

    /// The header of a weight log of batches that are drawn so from this index: with the log's weights and a loader for which it is the
    /// same the same batches come again, on any number of ranks.
    pub fn log_header(&self, index: &Index) -> Header {
        let domain_end = match self.domain_end {
            DomainEnd::Restart => "restart".into(),
            DomainEnd::Stop => "stop".into(),
            DomainEnd::Cap { epochs } => format!("cap of {epochs} epochs"),
        };
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let fingerprint = index.fingerprint().to_string();
        let mut header = Header::new(index.domains().clone(), fingerprint, self.seed);
        header.stream = BTreeMap::from([
            ("batch size".into(), self.batch_size.to_string()),
            ("domain end".into(), domain_end),
            ("draws".into(), word(&self.draws)),
            (
                "least sequences of a domain".into(),
                self.minimum_per_domain.to_string(),
            ),
            ("order of windows".into(), word(&self.order)),
            ("packing".into(), word(&self.packing)),
            ("sequence length".into(), self.sequence_length.to_string()),
        ]);
        header
    }

    /// The slots of the global batch that this rank reads: contiguous, and all ranks' together 0..B.
    pub fn slots(&self) -> Range<usize> {
        let (each, more) = (
            self.batch_size / self.world_size,
            self.batch_size % self.world_size,
        );
        let start = self.rank * each + self.rank.min(more);
        start..start + each + usize::from(self.rank < more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_batch_without_gap_or_overlap() {
        for (batch, world) in [(8, 1), (8, 2), (8, 3), (7, 4), (5, 5)] {
            let mut next = 0;
            for rank in 0..world {
                let config = LoaderConfig {
                    rank,
                    world_size: world,
                    ..LoaderConfig::new(4, batch, 0)
                };
                config.check().unwrap();
                let slots = config.slots();
                assert_eq!(slots.start, next);
                assert!((batch / world..=batch.div_ceil(world)).contains(&slots.len()));
                next = slots.end;
            }
            assert_eq!(next, batch);
        }
    }

    #[test]
    fn each_bad_value_is_named() {
        type Edit = fn(&mut LoaderConfig);
        let cases: [(Edit, &str); 10] = [
            (|c| c.sequence_length = 0, "sequence_length"),
            (|c| c.batch_size = 0, "batch_size"),
            (|c| c.world_size = 0, "world_size"),
            (|c| c.rank = 1, "rank"),
            (|c| c.world_size = 9, "world_size"),
            (|c| c.sequence_length = usize::MAX, "sequence_length"),
            (|c| c.batch_size = usize::MAX, "batch_size"),
            (|c| c.minimum_per_domain = 9, "minimum_per_domain"),
            (|c| c.read_ahead_batches = 1025, "read_ahead_batches"),
            (
                |c| c.domain_end = DomainEnd::Cap { epochs: 0 },
                "domain_end",
            ),
        ];
        for (edit, field) in cases {
            let mut config = LoaderConfig::new(4, 8, 0);
            edit(&mut config);
            let text = config.check().unwrap_err().to_string();
            assert!(text.contains(&format!(", {field}: ")), "{text}");
        }
    }
}
