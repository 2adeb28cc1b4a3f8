//! The held-out sequences of a run, the same ones at every evaluation.
//!
//! In: the index and the configuration. Out: the loss of each domain on its held-out split. Always
//! holds: the choice of sequences depends on the index alone, so that runs can be compared.

use hds_loader::{EvaluationSequences, Index, LoaderError, Split};

use super::config::RunConfig;
use super::error::RunError;
use crate::evaluation::{HeldOutLoss, Window, evaluate};
use crate::model::Model;

/// Held-out sequences of every domain.
pub struct HeldOut {
    domains: Vec<EvaluationSequences>,
    batch_size: usize,
}

impl HeldOut {
    /// At most `evaluation.sequences_per_domain` sequences of each domain.
    ///
    /// # Errors
    /// If the sequence length does not fit.
    pub fn new(index: &Index, config: &RunConfig) -> Result<Self, RunError> {
        let length = config.data.sequence_length;
        let most = usize::try_from(config.evaluation.sequences_per_domain).unwrap_or(usize::MAX);
        let domains = index
            .domains()
            .ids()
            .map(|id| EvaluationSequences::new(index, id, Split::Valid, length, most))
            .collect::<Result<_, LoaderError>>()?;
        Ok(Self {
            domains,
            batch_size: config.evaluation_batch_size(),
        })
    }

    /// Mean loss of each domain.
    ///
    /// # Errors
    /// If a sequence cannot be read or the model cannot take it.
    pub fn evaluate(&self, model: &Model) -> Result<HeldOutLoss, RunError> {
        let windows = self
            .domains
            .iter()
            .enumerate()
            .flat_map(|(domain, sequences)| {
                // Domains are at most 4096.
                let domain = hds::DomainId(domain as u16);
                sequences.clone().map(move |sequence| {
                    sequence.map(|s| Window {
                        domain,
                        tokens: s.tokens,
                    })
                })
            });
        Ok(evaluate(
            model,
            windows,
            self.domains.len(),
            self.batch_size,
        )?)
    }

    /// Domains without a held-out sequence.
    pub fn empty(&self) -> Vec<hds::DomainId> {
        (0u16..)
            .zip(&self.domains)
            .filter(|(_, sequences)| sequences.is_empty())
            .map(|(id, _)| hds::DomainId(id))
            .collect()
    }
}
