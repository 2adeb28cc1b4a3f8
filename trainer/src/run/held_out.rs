//! The held-out sequences of a run, the same ones at every evaluation.
//!
//! In: the index and the configuration. Out: the loss of each domain on its held-out split. Always
//! holds: the choice of sequences depends on the index alone, so that runs can be compared.

use hds_loader::{EvaluationSequences, Index, LoaderError, Split};

use super::config::RunConfig;
use super::data_section::Attention;
use super::error::RunError;
use crate::distributed::Group;
use crate::evaluation::{HeldOutLoss, Window, evaluate};
use crate::model::Model;

/// Held-out sequences of every domain.
pub struct HeldOut {
    domains: Vec<EvaluationSequences>,
    sequence_length: usize,
    batch_size: usize,
    attention: Attention,
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
            sequence_length: length,
            batch_size: config.evaluation_batch_size(),
            attention: config.data.attention,
        })
    }

    /// Mean loss of each domain; every rank takes its share of the batches, and has the same outcome.
    ///
    /// # Errors
    /// If a sequence cannot be read, the model cannot take it, or a rank is lost.
    pub fn evaluate(&self, model: &Model, group: &Group) -> Result<HeldOutLoss, RunError> {
        let all = self.domains.iter().enumerate().flat_map(|(domain, found)| {
            let places = 0..found.len();
            places.map(move |place| (domain, place))
        });
        // Whole batches, the same ones for any number of ranks.
        let mine = all
            .enumerate()
            .filter(|(number, _)| number / self.batch_size.max(1) % group.world() == group.rank())
            .map(|(_, (domain, place))| {
                let mut tokens = vec![0; self.sequence_length + 1];
                self.domains[domain].read(place, &mut tokens)?;
                let mut documents = None;
                if self.attention == Attention::Document {
                    let mut numbers = vec![0; self.sequence_length];
                    self.domains[domain].documents(place, &mut numbers)?;
                    documents = Some(numbers);
                }
                // Domains are at most 4096.
                let id = hds::DomainId(domain as u16);
                Ok(Window {
                    domain: id,
                    tokens,
                    documents,
                })
            });
        let mut held_out = evaluate(model, mine, self.domains.len(), self.batch_size)?;
        if !group.is_alone() {
            share(&mut held_out, group)?;
        }
        Ok(held_out)
    }

    /// Appends `count` of a domain's held-out sequences to `tokens`, L + 1 ids each: those of step `step`, where every step
    /// takes the next ones and begins anew after the last. Gives how many they are, fewer where the domain has fewer.
    ///
    /// # Errors
    /// If a sequence cannot be read.
    pub fn read(
        &self,
        domain: hds::DomainId,
        step: u64,
        count: usize,
        tokens: &mut Vec<i64>,
    ) -> Result<usize, RunError> {
        let sequences = &self.domains[domain.index()];
        let count = count.min(sequences.len());
        for number in 0..count {
            let place = (step as usize)
                .wrapping_mul(count)
                .wrapping_add(number)
                .checked_rem(sequences.len())
                .unwrap_or(0);
            let start = tokens.len();
            tokens.resize(start + self.sequence_length + 1, 0);
            sequences.read(place, &mut tokens[start..])?;
        }
        Ok(count)
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

/// Joins the means of all ranks.
fn share(held_out: &mut HeldOutLoss, group: &Group) -> Result<(), RunError> {
    let counts = held_out.tokens.iter().map(|&tokens| tokens as f64);
    let sums = held_out.losses.iter().zip(counts.clone());
    let sums = sums.map(|(loss, tokens)| loss.map_or(0.0, |loss| loss * tokens));
    let mut numbers: Vec<f64> = sums.chain(counts).collect();
    group.sum_numbers(&mut numbers)?;
    let (sums, counts) = numbers.split_at(held_out.losses.len());
    let means = sums.iter().zip(counts);
    held_out.losses = means
        .map(|(sum, &tokens)| (tokens > 0.0).then(|| sum / tokens))
        .collect();
    held_out.tokens = counts.iter().map(|&tokens| tokens as u64).collect();
    Ok(())
}
