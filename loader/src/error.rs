//! What can go wrong between an index and a batch.

use hds::index::IndexError;
use hds::{MixtureError, WeightSourceError};
use thiserror::Error;

/// Why there is no loader or no batch.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A value of the configuration makes no sense.
    #[error("loader configuration, {field}: {reason}")]
    Config {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The weights are not of this index's domains.
    #[error("weights for the loader: {source}")]
    Weights {
        /// What is wrong.
        source: MixtureError,
    },
    /// There are no weights for the batch.
    #[error(transparent)]
    WeightSource(#[from] WeightSourceError),
    /// A domain is to be sampled but has not one window.
    #[error(
        "domain {domain:?} has weight {weight} but its {tokens} training tokens make no window of \
         {sequence_length} + 1; give it weight 0, shorten the sequences, or build the index without it"
    )]
    NoWindow {
        /// Name of the domain.
        domain: String,
        /// Its weight.
        weight: f64,
        /// Tokens of its training split.
        tokens: u64,
        /// Sequence length L.
        sequence_length: usize,
    },
    /// More domains must be in a batch than it has sequences.
    #[error(
        "minimum_per_domain {minimum} for {domains} domains with weight needs a batch of {want} \
         sequences; batch_size is {batch_size}"
    )]
    Minimum {
        /// Least number of sequences per domain.
        minimum: usize,
        /// Domains with weight above 0.
        domains: usize,
        /// Sequences needed.
        want: usize,
        /// Sequences there are.
        batch_size: usize,
    },
    /// A domain's windows have all been used, and the configuration says to stop.
    #[error(
        "batch {step} needs more of domain {domain:?} than its {windows} windows; publish weights \
         without it, or set domain_end to restart or a cap"
    )]
    DomainEnded {
        /// Name of the domain.
        domain: String,
        /// Its windows, each of them used.
        windows: u64,
        /// Number of the batch.
        step: u64,
    },
    /// Every domain with weight has been used as often as it may.
    #[error("all domains with weight were gone through {epochs} epochs, the cap of domain_end")]
    AllEnded {
        /// The cap.
        epochs: u64,
    },
    /// A range is not inside a token stream.
    #[error("tokens {from}..{from}+{count} were asked for of {what}, which has {tokens}")]
    Range {
        /// Which stream.
        what: String,
        /// First token asked for.
        from: u64,
        /// Number of tokens asked for.
        count: u64,
        /// Tokens of the stream.
        tokens: u64,
    },
    /// Ids were to be put into a type that cannot hold them.
    #[error("{what} has ids up to {largest}, which do not fit 16 bits; read them as u32 or i64")]
    Narrow {
        /// Which stream.
        what: String,
        /// Largest id of the vocabulary.
        largest: u32,
    },
    /// The system gives no memory for a batch.
    #[error(
        "no memory for a batch: {bytes} more bytes were not to be had; make batch_size or sequence_length smaller"
    )]
    Memory {
        /// What was asked for.
        bytes: usize,
    },
    /// A saved state is of another run.
    #[error("the loader state is of another {what}: it has {got}, this loader has {want}")]
    State {
        /// What differs.
        what: &'static str,
        /// What the state says.
        got: String,
        /// What this loader has.
        want: String,
    },
    /// A saved state contradicts itself.
    #[error("loader state, {field}: {reason}")]
    BadState {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Makes room for `count` values in all: sizes are the user's, and may be more than there is memory for.
///
/// # Errors
/// [`LoaderError::Memory`].
pub(crate) fn make_room<T>(values: &mut Vec<T>, count: usize) -> Result<(), LoaderError> {
    let more = count.saturating_sub(values.len());
    let room = values.try_reserve_exact(more);
    room.map_err(|_| no_memory::<T>(more))
}

/// Makes room for one more value, and where it has to, for as many again as there are.
///
/// # Errors
/// [`LoaderError::Memory`].
#[inline]
pub(crate) fn make_room_for_one<T>(values: &mut Vec<T>) -> Result<(), LoaderError> {
    let room = values.try_reserve(1);
    room.map_err(|_| no_memory::<T>(values.len().max(1)))
}

#[cold]
fn no_memory<T>(count: usize) -> LoaderError {
    LoaderError::Memory {
        bytes: count.saturating_mul(size_of::<T>()),
    }
}
