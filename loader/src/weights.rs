//! Whether weights can be drawn from: before they are published, and when a batch first meets them.
//!
//! In: an index, a configuration, a mixture. Out: nothing, or which domain does not fit.
//! Always holds: weights that pass can be drawn from, until a domain ends where it may not restart.

use hds::index::Split;
use hds::{Mixture, MixtureError};

use crate::config::LoaderConfig;
use crate::error::LoaderError;
use crate::index::Index;

/// Checks weights before they are published: one a domain, a sequence where there is weight, and room in
/// the batch for the least number of each.
///
/// A loader checks each version itself; but a batch that weights were settled for in other processes
/// cannot be had with other ones, so whoever publishes to them looks first.
///
/// # Errors
/// What does not fit; the domain by name.
pub fn check_weights(
    index: &Index,
    config: &LoaderConfig,
    mixture: &Mixture,
) -> Result<(), LoaderError> {
    let weights = mixture.weights();
    let domains = index.domains();
    if weights.len() != domains.len() {
        return Err(LoaderError::Weights {
            source: MixtureError::Length {
                got: weights.len(),
                want: domains.len(),
            },
        });
    }
    let mut with_weight = 0usize;
    for (id, &weight) in domains.ids().zip(weights) {
        if weight > 0.0 {
            with_weight += 1;
            let stream = index.split(id, Split::Train);
            if stream.samples(config.packing, config.sequence_length) == 0 {
                return Err(LoaderError::NoWindow {
                    domain: domains.name(id).to_owned(),
                    weight,
                    tokens: stream.tokens(),
                    sequence_length: config.sequence_length,
                });
            }
        }
    }
    check_minimum(config.minimum_per_domain, with_weight, config.batch_size).map(|_| ())
}

/// The slots that the least number of each domain takes.
///
/// # Errors
/// If they are more than there are.
pub(crate) fn check_minimum(
    minimum: usize,
    domains: usize,
    batch_size: usize,
) -> Result<usize, LoaderError> {
    let want = domains.saturating_mul(minimum);
    if want > batch_size {
        return Err(LoaderError::Minimum {
            minimum,
            domains,
            want,
            batch_size,
        });
    }
    Ok(want)
}
