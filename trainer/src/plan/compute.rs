//! Floating-point operations of a run, and its time at a given rate.
//!
//! In: model, agent, tokens, a rate. Out: operations by part; hours. Always holds: a multiplication and an addition count as two
//! operations. Leaves to the reader what share of a machine's peak a run reaches.

use serde::Serialize;

use super::{Parts, PlanError, Tokens};
use crate::gradients::GradientMode;

/// How fast a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Rate {
    /// Training tokens per second of all GPUs together.
    TokensPerSecond {
        /// Tokens per second.
        tokens_per_second: f64,
    },
    /// Peak of one GPU and the share of it that training reaches.
    Peak {
        /// 10¹² operations per second of one GPU, in the numbers of the passes.
        tflops: f64,
        /// Model FLOPs utilisation, in (0, 1].
        mfu: f64,
    },
}

impl Rate {
    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let check = |option, got: f64, fits: bool, want: &str| {
            if fits {
                return Ok(());
            }
            Err(PlanError::Option {
                option,
                got: got.to_string(),
                want: want.to_owned(),
            })
        };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match *self {
            Self::TokensPerSecond { tokens_per_second } => check(
                "tokens-per-second",
                tokens_per_second,
                positive(tokens_per_second),
                "above 0",
            ),
            Self::Peak { tflops, mfu } => {
                check("tflops", tflops, positive(tflops), "above 0")?;
                check("mfu", mfu, mfu > 0.0 && mfu <= 1.0, "above 0 and at most 1")
            }
        }
    }
}

/// Operations of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compute {
    /// Weights that a token is multiplied by, N of 6 N D: all matrices and the output embedding.
    pub multiplied_weights: u64,
    /// Operations to train on one token, forward and backward: 6 N for the weights, 12 · layers · H · L for attention.
    pub per_token: f64,
    /// Of it: attention's products over all L positions; a causal kernel may leave out half of them.
    pub attention_per_token: f64,
    /// 6 N D over all training tokens D.
    pub weights_total: f64,
    /// Attention over all training tokens.
    pub attention_total: f64,
    /// Both: what utilisation (MFU) is measured by.
    pub training_total: f64,
    /// More for activation checkpointing: each block's forward pass once again; not part of MFU.
    pub checkpointing_total: f64,
    /// Per-domain gradients.
    pub signals_total: f64,
    /// The agent's updates and choices.
    pub agent_total: f64,
    /// The agent's share of `training_total`.
    pub agent_share: f64,
    /// Evaluations over the run; the first and the last step have one.
    pub evaluations: u64,
    /// Held-out tokens of one evaluation, at most.
    pub evaluation_tokens: u64,
    /// Forward passes of all evaluations, at most.
    pub evaluation_total: f64,
}

impl Compute {
    /// # Source
    /// 6 N a token: Kaplan et al. 2020, section 2.1; attention: Chowdhery et al., "PaLM", 2022, appendix B.
    pub(super) fn new(parts: &Parts<'_>, tokens: &Tokens) -> Self {
        let shape = parts.shape;
        let multiplied = shape.multiplied_weights();
        let per_token = shape.training_flops_per_token(tokens.sequence_length);
        let weights = 6.0 * multiplied as f64;
        let attention = per_token - weights;
        let total = tokens.total as f64;
        let (hidden, vocabulary) = (shape.hidden_size as u64, shape.vocab_size as u64);
        let blocks = (multiplied - hidden * vocabulary) as f64;
        let agent_total = parts.agent.flops_per_step * tokens.steps as f64;
        let evaluation = &parts.config.evaluation;
        let between = match evaluation.interval_steps {
            0 => 0,
            // The last step's is made once, due or not.
            interval => tokens.steps.saturating_sub(1) / interval,
        };
        let evaluations = 2 + between;
        let evaluation_tokens = parts
            .domains
            .saturating_mul(evaluation.sequences_per_domain)
            .saturating_mul(tokens.sequence_length);
        Self {
            multiplied_weights: multiplied,
            per_token,
            attention_per_token: attention,
            weights_total: weights * total,
            attention_total: attention * total,
            training_total: per_token * total,
            checkpointing_total: (2.0 * blocks + attention / 3.0) * total,
            signals_total: signals_per_token(parts, tokens.sequence_length) * total,
            agent_total,
            agent_share: agent_total / (per_token * total),
            evaluations,
            evaluation_tokens,
            evaluation_total: evaluations as f64 * evaluation_tokens as f64 * per_token / 3.0,
        }
    }
}

/// Operations for the per-domain gradients of one token.
///
/// # Source
/// `gradients/domain.rs`. Sketch of rank r: the layer's input and its output gradient times a projection each, 2 r (F + H), and the
/// product of both, 2 r². Exact: the weight gradient by domain, 2 F H, and products over pairs of tokens of a sequence, 2 L (F + H).
fn signals_per_token(parts: &Parts<'_>, length: u64) -> f64 {
    if !parts.takes_gradients() {
        return 0.0;
    }
    let hidden = parts.shape.hidden_size as f64;
    let wide = parts.shape.intermediate_size as f64;
    let layer = match parts.config.signals.gradients {
        GradientMode::Exact => 2.0 * wide * hidden + 2.0 * length as f64 * (wide + hidden),
        GradientMode::Sketch { rank, .. } => {
            let rank = f64::from(rank);
            2.0 * rank.min(hidden) * hidden
                + 2.0 * rank.min(wide) * wide
                + 2.0 * rank.min(hidden) * rank.min(wide)
        }
    };
    layer * parts.watched_layers as f64
}

/// Time of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// The rate it is computed at.
    pub rate: Rate,
    /// Training tokens per second of all GPUs.
    pub tokens_per_second: f64,
    /// Seconds of a step.
    pub step_seconds: f64,
    /// Seconds of all steps.
    pub training_seconds: f64,
    /// Seconds of all evaluations, at three times the rate of training (no backward pass).
    pub evaluation_seconds: f64,
    /// Both, times the GPUs.
    pub gpu_hours: f64,
}

impl Time {
    pub(super) fn new(rate: &Rate, compute: &Compute, tokens: &Tokens, gpus: u64) -> Self {
        let tokens_per_second = match *rate {
            Rate::TokensPerSecond { tokens_per_second } => tokens_per_second,
            Rate::Peak { tflops, mfu } => tflops * 1e12 * mfu * gpus as f64 / compute.per_token,
        };
        let training_seconds = tokens.total as f64 / tokens_per_second;
        let held_out = compute.evaluations as f64 * compute.evaluation_tokens as f64;
        let evaluation_seconds = held_out / (3.0 * tokens_per_second);
        Self {
            rate: *rate,
            tokens_per_second,
            step_seconds: tokens.per_step as f64 / tokens_per_second,
            training_seconds,
            evaluation_seconds,
            gpu_hours: (training_seconds + evaluation_seconds) * gpus as f64 / 3600.0,
        }
    }
}
