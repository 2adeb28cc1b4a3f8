//! What the actor-critic policies keep from step to step beside networks and replay.
//!
//! In: observations, what a step's learning showed, weights that an actor chose. Out: states, transitions for the replay,
//! weights. Always holds: a transition with a number that is not finite is left out, weights that are not finite are
//! replaced by the last good ones; both are counted. Leaves networks and learning to the policies.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::prior::Prior;
use super::replay::{Replay, RowLayout, Transition};
use super::state::{DOMAIN_FEATURES, State, StateEncoder};
use crate::signals::Observation;

/// The saved state; `U` is what the last update showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    bound(deserialize = "U: Default + Deserialize<'de>")
)]
pub(super) struct Progress<U> {
    encoder: StateEncoder,
    /// What the last step showed.
    state: Option<State>,
    /// Updates tried; the position of their random numbers.
    pub updates: u64,
    /// Updates not applied because a number was not finite.
    pub skipped_updates: u64,
    /// Transitions left out because a number was not finite.
    pub rejected_transitions: u64,
    /// Decisions taken from `last_good` because the network's output was not finite.
    pub fallbacks: u64,
    last_good: Vec<f64>,
    /// Of the updates after the last step that learnt.
    #[serde(default)]
    pub last_update: U,
    /// What a policy is relative to, where it is relative to anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<Prior>,
}

/// What the updates of a step showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepReport<U> {
    /// Updates tried.
    pub updates: u64,
    /// Those not applied because a number was not finite.
    pub skipped: u64,
    /// The last one's numbers.
    pub last: U,
}

impl<U: Default> Progress<U> {
    pub(super) fn new(base_weights: &[f64]) -> Self {
        Self {
            encoder: StateEncoder::new(base_weights.len()),
            state: None,
            updates: 0,
            skipped_updates: 0,
            rejected_transitions: 0,
            fallbacks: 0,
            last_good: base_weights.to_vec(),
            last_update: U::default(),
            prior: None,
        }
    }

    /// The same, with what the policy is relative to.
    pub(super) fn relative_to(mut self, prior: Option<Prior>) -> Self {
        self.prior = prior;
        self
    }

    /// Takes down what a step's learning showed.
    pub(super) fn add(&mut self, step: StepReport<U>) {
        self.updates += step.updates;
        self.skipped_updates += step.skipped;
        if step.updates > 0 {
            self.last_update = step.last;
        }
    }

    /// The state after a step; the transition to it, worth `rewards` (length K), enters the replay.
    pub(super) fn observe(
        &mut self,
        observation: &Observation,
        rewards: &[f64],
        progress_scale: f64,
        replay: &mut Replay,
    ) -> State {
        let signals = &observation.signals;
        let state = self.encoder.encode(signals, progress_scale);
        if let Some(before) = &self.state {
            let transition = Transition {
                state: before,
                action: &observation.weights,
                rewards,
                next: &state,
            };
            let mut losses = signals.losses.iter().flatten();
            if losses.any(|loss| !loss.is_finite()) || !replay.push(&transition) {
                self.rejected_transitions += 1;
            }
        }
        self.state = Some(state.clone());
        state
    }

    /// The weights that an actor chose, or the last good ones where those are not K finite numbers.
    pub(super) fn or_last_good(&mut self, chosen: Vec<f64>) -> Vec<f64> {
        if chosen.len() == self.last_good.len() && chosen.iter().all(|w| w.is_finite()) {
            self.last_good.clone_from(&chosen);
            return chosen;
        }
        self.fallbacks += 1;
        self.last_good.clone()
    }

    /// Checks that a state read from `folder` is of K domains and so many watched layers.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn check(
        &self,
        folder: &Path,
        domains: usize,
        layers: usize,
    ) -> Result<(), PolicyError> {
        let layout = RowLayout::of(domains, layers);
        let fits = |state: &State| {
            state.domains.len() == domains * DOMAIN_FEATURES
                && state.globals.len() == layout.globals
        };
        if self.encoder.domains() == domains
            && self.last_good.len() == domains
            && self.state.as_ref().is_none_or(fits)
            && self.prior.as_ref().is_none_or(|p| p.domains() == domains)
        {
            return Ok(());
        }
        Err(PolicyError::State {
            path: folder.join("policy.json"),
            field: "number of domains or layers".into(),
            got: self.encoder.domains().to_string(),
            want: format!("{domains} domains, {layers} layers"),
        })
    }
}

/// The weights that logits stand for.
pub(super) fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = logits.iter().map(|z| (z - most).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|e| e / sum).collect()
}
