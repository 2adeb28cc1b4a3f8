//! Held-out loss and perplexity per domain.
//!
//! In: a model, and windows of tokens with their domains, in any order. Out: the mean loss of each
//! domain, and perplexities over all. Always holds: the same windows in the same order give the same
//! numbers on one device and thread count; memory is one batch. Leaves to others: which windows
//! (`hds_loader::EvaluationSequences`).
//!
//! Legend: K domains, L tokens predicted a window.

use hds::DomainId;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};
use thiserror::Error;

use crate::model::{Masks, Model, ModelError};

/// Token ids of one window, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its domain.
    pub domain: DomainId,
    /// L + 1 token ids: all but the first are predicted.
    pub tokens: Vec<i64>,
    /// Numbers of the documents that the first L are in, where attention stays within documents; in all windows or none.
    pub documents: Option<Vec<i64>>,
}

/// An evaluation that cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvaluationError<E: std::error::Error + 'static> {
    /// The source of windows failed.
    #[error("cannot read held-out text: {0}")]
    Windows(#[source] E),
    /// Tokens that the model cannot take.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A domain beyond K.
    #[error("held-out window of domain {got}, there are {domains} domains")]
    Domain {
        /// The domain.
        got: usize,
        /// K.
        domains: usize,
    },
}

/// Loss per domain on held-out text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutLoss {
    /// Mean nats per token; length K, `None` for a domain without held-out text.
    pub losses: Vec<Option<f64>>,
    /// Tokens predicted; length K.
    pub tokens: Vec<u64>,
}

impl HeldOutLoss {
    /// e^loss of each domain; length K.
    pub fn perplexities(&self) -> Vec<Option<f64>> {
        self.losses.iter().map(|l| l.map(f64::exp)).collect()
    }

    /// Exponential of the plain mean of the domains' losses: every domain counts the same.
    /// `None` without any.
    ///
    /// # Source
    /// The figure that the HDS paper reports (its section on evaluation).
    pub fn macro_perplexity(&self) -> Option<f64> {
        self.weighted_perplexity(&vec![1.0; self.losses.len()])
    }

    /// Exponential of the mean of the domains' losses under weights ≥ 0 (length K), such as the base
    /// weights or a target; over the domains that have held-out text. `None` if those have no weight.
    pub fn weighted_perplexity(&self, weights: &[f64]) -> Option<f64> {
        let (mut sum, mut total) = (0.0, 0.0);
        for (loss, weight) in self.losses.iter().zip(weights) {
            if let Some(loss) = loss {
                sum += weight * loss;
                total += weight;
            }
        }
        (total > 0.0).then(|| (sum / total).exp())
    }
}

/// Evaluates a model on windows, `batch_sequences` at a time (windows of another length begin a new
/// batch).
///
/// # Errors
/// A window that cannot be read, of an unknown domain, or with tokens that the model does not have.
pub fn evaluate<E: std::error::Error>(
    model: &Model,
    windows: impl IntoIterator<Item = Result<Window, E>>,
    domains: usize,
    batch_sequences: usize,
) -> Result<HeldOutLoss, EvaluationError<E>> {
    let mut totals = Totals {
        losses: vec![0.0; domains],
        tokens: vec![0; domains],
    };
    let mut batch: Vec<Window> = Vec::new();
    for window in windows {
        let window = window.map_err(EvaluationError::Windows)?;
        if window.domain.index() >= domains {
            return Err(EvaluationError::Domain {
                got: window.domain.index(),
                domains,
            });
        }
        let other = |first: &Window| first.tokens.len() != window.tokens.len();
        if batch.len() >= batch_sequences.max(1) || batch.first().is_some_and(other) {
            totals.add(model, &batch)?;
            batch.clear();
        }
        batch.push(window);
    }
    totals.add(model, &batch)?;
    let losses = totals
        .losses
        .iter()
        .zip(&totals.tokens)
        .map(|(loss, &tokens)| (tokens > 0).then(|| loss / tokens as f64))
        .collect();
    Ok(HeldOutLoss {
        losses,
        tokens: totals.tokens,
    })
}

/// Sums over all windows so far; length K.
struct Totals {
    losses: Vec<f64>,
    tokens: Vec<u64>,
}

impl Totals {
    fn add(&mut self, model: &Model, batch: &[Window]) -> Result<(), ModelError> {
        if batch.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = batch.iter().flat_map(|w| &w.tokens).copied().collect();
        let (tokens_bl, targets_bl) = model.batch(&ids, batch.len())?;
        let documents = batch.iter().filter_map(|w| w.documents.as_ref());
        let documents: Vec<i64> = documents.flatten().copied().collect();
        let masks = Masks {
            documents_bl: (!documents.is_empty())
                .then(|| model.on_device(&documents, batch.len() as i64)),
            counted_bl: None,
        };
        let losses_b: Tensor = model
            .evaluate_losses_masked(&tokens_bl, &targets_bl, &masks)
            .to_kind(Kind::Double);
        let mut losses = vec![0.0; batch.len()];
        losses_b.copy_data(&mut losses, batch.len());
        for (window, loss) in batch.iter().zip(losses) {
            let predicted = window.tokens.len() as u64 - 1;
            self.losses[window.domain.index()] += loss * predicted as f64;
            self.tokens[window.domain.index()] += predicted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tch::Device;

    use super::*;
    use crate::model::{ModelSettings, sequence_losses};

    fn model() -> Model {
        let settings = ModelSettings {
            hidden_size: Some(32),
            num_hidden_layers: Some(1),
            num_attention_heads: Some(2),
            ..ModelSettings::default()
        };
        let config = settings.resolve(100, 16).unwrap();
        Model::new(&config, Device::Cpu, Kind::Float, 1).unwrap()
    }

    fn window(domain: u16, length: i64) -> Result<Window, Infallible> {
        let tokens = (0..length).map(|i| (i * 37 + i64::from(domain)) % 100);
        Ok(Window {
            domain: DomainId(domain),
            tokens: tokens.collect(),
            documents: None,
        })
    }

    #[test]
    fn losses_are_means_over_tokens_whatever_the_batches() {
        let model = model();
        let windows = || [window(0, 17), window(2, 17), window(0, 9), window(2, 17)];
        let loss = |w: &Window| {
            let (tokens, targets) = model.batch(&w.tokens, 1).unwrap();
            let logits = tch::no_grad(|| model.forward(&tokens, None));
            sequence_losses(&logits, &targets).double_value(&[0])
        };
        let all: Vec<Window> = windows().into_iter().map(|w| w.unwrap()).collect();
        let want = (loss(&all[0]) * 16.0 + loss(&all[2]) * 8.0) / 24.0;
        for batch in [1, 2, 8] {
            let got = evaluate(&model, windows(), 3, batch).unwrap();
            assert_eq!(got.tokens, [24, 0, 32]);
            assert_eq!(got.losses[1], None);
            assert!((got.losses[0].unwrap() - want).abs() < 1e-6);
            assert!((got.losses[2].unwrap() - loss(&all[1])).abs() < 1e-6);
        }
    }

    #[test]
    fn perplexities_follow_their_definitions() {
        let held_out = HeldOutLoss {
            losses: vec![Some(1.0), None, Some(3.0)],
            tokens: vec![10, 0, 1000],
        };
        let close = |got: Option<f64>, want: f64| assert!((got.unwrap() - want).abs() < 1e-12);
        close(held_out.macro_perplexity(), 2f64.exp());
        close(
            held_out.weighted_perplexity(&[0.3, 0.6, 0.1]),
            (0.6f64 / 0.4).exp(),
        );
        assert_eq!(held_out.weighted_perplexity(&[0.0, 1.0, 0.0]), None);
        assert_eq!(held_out.perplexities()[1], None);
    }

    #[test]
    fn tokens_and_domains_beyond_the_model_are_refused() {
        let model = model();
        let mut bad = window(0, 5).unwrap();
        bad.tokens[3] = 128;
        let text = |w| {
            evaluate(&model, [Ok::<_, Infallible>(w)], 3, 1)
                .unwrap_err()
                .to_string()
        };
        assert!(text(bad).contains("128"));
        assert!(text(window(3, 5).unwrap()).contains("domain 3"));
        assert!(text(window(0, 5000).unwrap()).contains("positions"));
    }
}
