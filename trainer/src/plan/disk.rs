//! Files of a run.
//!
//! In: model, agent, steps. Out: bytes. Always holds: a checkpoint's tensors are counted from their shapes (headers and small
//! JSON files, a few hundred KB at most, are left out); logs are an estimate by the number of domains.

use serde::Serialize;

use super::{Parts, Tokens};

/// Characters of a number with 17 digits and a comma, as the metrics log writes it.
const NUMBER: u64 = 20;

/// Vectors over the domains in a step's record: weights, samples, losses, MTLD.
const VECTORS: u64 = 4;

/// More vectors where rewards are logged: alignment twice, diversity, total.
const REWARD_VECTORS: u64 = 4;

/// Bytes of a step's record beside them.
const REST: u64 = 900;

/// Bytes of a scalar in a TensorBoard file: name, value, frames.
const SCALAR: u64 = 35;

/// Bytes of each part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disk {
    /// The model in a checkpoint, 4 P.
    pub checkpoint_model: u64,
    /// AdamW's moments in a checkpoint, 8 P.
    pub checkpoint_optimizer: u64,
    /// The agent and its replay in a checkpoint, when that is full.
    pub checkpoint_agent: u64,
    /// One checkpoint.
    pub checkpoint: u64,
    /// Checkpoints that stay.
    pub kept: u64,
    /// Checkpoints written over the run.
    pub written: u64,
    /// Metrics, weight log and TensorBoard events at the end.
    pub logs: u64,
    /// The most there is at any time: one checkpoint more than is kept, while a new one is written.
    pub most: u64,
}

impl Disk {
    pub(super) fn new(parts: &Parts<'_>, tokens: &Tokens) -> Self {
        let config = parts.config;
        let parameters = parts.shape.parameter_count();
        let agent = parts.agent;
        let capacity = match config.scheduler.policy {
            crate::scheduler::PolicyName::Hds => config.scheduler.hds.replay_capacity,
            _ => config.scheduler.ac_odm.replay_capacity,
        };
        let rows = capacity.min(tokens.steps).max(1);
        let replay = (agent.replay_bytes as f64 * rows as f64 / capacity.max(1) as f64) as u64;
        let checkpoint_agent = 12 * agent.trained + 4 * agent.targets + replay;
        let checkpoint = 12 * parameters + checkpoint_agent;
        let kept = config.checkpoint.keep.max(1) as u64;
        // One more is written at the end.
        let written = match config.checkpoint.interval_steps {
            0 => 1,
            interval => tokens.steps.saturating_sub(1) / interval + 1,
        };
        let kept = kept.min(written);
        let vectors = if parts.takes_gradients() {
            VECTORS + REWARD_VECTORS
        } else {
            VECTORS
        };
        let line = NUMBER * parts.domains * vectors + REST;
        let weights = NUMBER * parts.domains + 60;
        let events = SCALAR * (2 * parts.domains + 20);
        let logs = tokens.steps * (line + weights + events);
        Self {
            checkpoint_model: 4 * parameters,
            checkpoint_optimizer: 8 * parameters,
            checkpoint_agent,
            checkpoint,
            kept,
            written,
            logs,
            most: checkpoint * (kept + u64::from(written > kept)) + logs,
        }
    }
}
