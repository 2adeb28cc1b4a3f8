//! Memory of one GPU (or of the one process on a CPU), part by part.
//!
//! In: model, agent, numbers, GPUs. Out: bytes. Always holds: the parts are what this trainer's own code keeps at the moment
//! of its greatest use, the end of a forward pass; every one is counted from shapes. Leaves out what is no tensor of ours: the
//! libraries and their workspaces, a CUDA context, what the allocator loses, buffers of collectives.

use serde::Serialize;

use super::Parts;
use crate::gradients::GradientMode;
use crate::model::{ModelConfig, logits_chunk_bytes};
use crate::run::Precision;

/// Bytes of each part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// GPUs that share the optimizer's states.
    pub gpus: u64,
    /// Numbers of the passes.
    pub precision: Precision,
    /// Parameters, 4 P.
    pub weights: u64,
    /// Copies of the weights in the numbers of the passes, while a pass runs; 0 in 32 bits.
    pub weight_copies: u64,
    /// Gradients, 4 P.
    pub gradients: u64,
    /// AdamW's two moments, 8 P / GPUs (ZeRO-1).
    pub optimizer: u64,
    /// What the backward pass needs of the forward pass.
    pub activations: u64,
    /// The same where each block keeps its input only and is computed again.
    pub activations_checkpointed: u64,
    /// Gradients of activations on their way through one block.
    pub backward: u64,
    /// Logits, a chunk at a time, and their gradients.
    pub logits: u64,
    /// Gradient of the input embedding before it is added to the others; after the activations are freed.
    pub embedding_gradient: u64,
    /// Per-domain gradients and what they are taken from.
    pub signals: u64,
    /// The agent's networks, their gradients and optimizer states; on the first GPU.
    pub agent: u64,
    /// The agent's replay, in main memory, when it is full.
    pub replay_in_main_memory: u64,
    /// What stays from step to step.
    pub persistent: u64,
    /// The most at any time.
    pub total: u64,
    /// The most at any time with activation checkpointing.
    pub total_checkpointed: u64,
}

impl Memory {
    pub(super) fn new(parts: &Parts<'_>) -> Self {
        let shape = parts.shape;
        let parameters = shape.parameter_count();
        let embedding = (shape.vocab_size * shape.hidden_size) as u64;
        let number = parts.precision.bytes();
        let narrow = number < 4;
        let micro = parts.config.micro_batch_size() as u64;
        let each = (parts.config.data.batch_size as u64).div_ceil(parts.gpus);
        let tokens = micro.min(each) * parts.config.data.sequence_length as u64;
        let (hidden, wide) = (shape.hidden_size as u64, shape.intermediate_size as u64);
        let layers = shape.num_hidden_layers as u64;

        let fused = cfg!(fused) && is_cpu(parts) && !narrow;

        let block = tokens * block_bytes(shape, number, fused);
        // Token ids, the stream after the last block, the final norm's output, and the gradient of that.
        let ends = tokens * (8 + 3 * hidden * number);
        let chunk = logits_chunk_bytes(is_cpu(parts)).min(4 * tokens * shape.vocab_size as u64);
        let logits = if narrow {
            // Products and gradient in 16 bits around the 32-bit softmax; the embedding's gradient in both.
            2 * chunk + 6 * embedding
        } else if fused {
            // The softmax and the gradient take the logits' place.
            chunk
        } else {
            2 * chunk
        };
        let memory = Self {
            gpus: parts.gpus,
            precision: parts.precision,
            weights: 4 * parameters,
            // The input embedding is looked up, not multiplied.
            weight_copies: if narrow {
                number * (parameters - embedding)
            } else {
                0
            },
            gradients: 4 * parameters,
            optimizer: (8 * parameters).div_ceil(parts.gpus),
            activations: layers * block + ends,
            activations_checkpointed: layers * tokens * hidden * number + block + ends,
            backward: tokens * number * (2 * wide + 3 * hidden),
            logits,
            embedding_gradient: 4 * embedding,
            signals: signals(parts, tokens, number),
            agent: 16 * parts.agent.trained + 4 * parts.agent.targets,
            replay_in_main_memory: parts.agent.replay_bytes,
            persistent: 0,
            total: 0,
            total_checkpointed: 0,
        };
        memory.summed()
    }

    fn summed(mut self) -> Self {
        self.persistent =
            self.weights + self.gradients + self.optimizer + self.agent + self.signals;
        // The logits' buffers are gone before the backward pass through the blocks begins.
        let pass = |activations: u64| {
            let forward = self.weight_copies + activations + self.logits.max(self.backward);
            self.persistent + forward.max(self.embedding_gradient)
        };
        self.total = pass(self.activations);
        self.total_checkpointed = pass(self.activations_checkpointed);
        self
    }
}

fn is_cpu(parts: &Parts<'_>) -> bool {
    parts.config.run.device == "cpu" && parts.gpus == 1
}

/// Bytes that one block keeps of each token for its backward pass.
///
/// # Source
/// The block's own forward pass (`model/block.rs`): its input H, two norms' outputs 2 H, queries, keys and values 3 H, rotated
/// queries and keys 2 H (not where operations are fused, in 32 bits on a CPU), attention's output H, the feed-forward layer before and after its activation 2 F; one H more where the
/// residual is sequential; mean and deviation of two norms (16 bytes), and attention's normaliser a head (4 bytes). Attention
/// itself keeps no L × L matrix.
fn block_bytes(shape: &ModelConfig, number: u64, fused: bool) -> u64 {
    let (hidden, wide) = (shape.hidden_size as u64, shape.intermediate_size as u64);
    let residual = if shape.use_parallel_residual {
        0
    } else {
        hidden
    };
    let rotated = if fused { 0 } else { 2 * hidden };
    number * (7 * hidden + rotated + 2 * wide + residual)
        + 16
        + 4 * shape.num_attention_heads as u64
}

/// Sums of the per-domain gradients over a step, and each watched layer's output gradient of one pass.
fn signals(parts: &Parts<'_>, tokens: u64, number: u64) -> u64 {
    if !parts.takes_gradients() {
        return 0;
    }
    let shape = parts.shape;
    let (hidden, wide) = (shape.hidden_size as u64, shape.intermediate_size as u64);
    let (layers, domains) = (parts.watched_layers, parts.domains);
    let taps = layers * tokens * hidden * number;
    taps + match parts.config.signals.gradients {
        GradientMode::Exact => {
            let length = parts.config.data.sequence_length as u64;
            // The products over pairs of tokens that give each sequence's own norm.
            let squares = 3 * 4 * tokens * length;
            4 * domains * layers * hidden * wide + squares
        }
        GradientMode::Sketch { rank, .. } => {
            let (left, right) = (u64::from(rank).min(hidden), u64::from(rank).min(wide));
            4 * layers * (domains * left * right + left * hidden + right * wide)
        }
    }
}
