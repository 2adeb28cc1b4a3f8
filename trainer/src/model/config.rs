//! Shape and constants of a model, under the names of Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};

use super::ModelError;

/// How weight matrices start; biases start at 0, layer norms at gain 1. All are normal with mean 0.
///
/// # Source
/// GPT-NeoX's `init_method` and `output_layer_init_method`, as Pythia's training configurations set
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initialization {
    /// σ = √(2 / 5H) for embeddings and matrices that read the residual stream ("small init", Nguyen &
    /// Salazar 2019), σ = 2 / (layers · √H) for those that write to it ("Wang init"). Pythia 14m to 2.8b.
    #[default]
    SmallWang,
    /// σ = 0.02, and 0.02 / √(2 · layers) for matrices that write to the residual stream. GPT-NeoX's
    /// default, which Pythia 6.9b and 12b kept.
    ScaledNormal,
}

/// Everything that decides a model's function but its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Rows of both embeddings, V: the tokenizer's ids and padding.
    pub vocab_size: i64,
    /// Width of the residual stream, H.
    pub hidden_size: i64,
    /// Number of blocks.
    pub num_hidden_layers: i64,
    /// Attention heads, A; must divide H.
    pub num_attention_heads: i64,
    /// Width of the feed-forward layer, F; Pythia has 4 H.
    pub intermediate_size: i64,
    /// Longest sequence in tokens.
    pub max_position_embeddings: i64,
    /// Share of each head's dimensions that is rotated.
    pub rotary_pct: f64,
    /// Base of the rotation's wavelengths.
    pub rotary_emb_base: f64,
    /// Added to the variance in layer norms.
    pub layer_norm_eps: f64,
    /// Whether attention and feed-forward read the same input (Pythia) or one after the other.
    pub use_parallel_residual: bool,
    /// How weights start.
    #[serde(default)]
    pub initialization: Initialization,
}

/// Parameters of a model by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ParameterParts {
    /// The input embedding, V · H.
    pub input_embedding: u64,
    /// The output embedding, V · H.
    pub output_embedding: u64,
    /// Attention's matrices and biases.
    pub attention: u64,
    /// The feed-forward layers' matrices and biases.
    pub feed_forward: u64,
    /// Gains and biases of the layer norms.
    pub norms: u64,
    /// All but the two embeddings.
    pub non_embedding: u64,
    /// All.
    pub total: u64,
}

/// Largest value of a dimension: far above any model, far below overflow of products of three.
const LARGEST: i64 = 1 << 20;

impl ModelConfig {
    /// Dimensions of a head, D.
    pub fn head_size(&self) -> i64 {
        self.hidden_size / self.num_attention_heads
    }

    /// Rotated dimensions of a head, R.
    pub fn rotary_size(&self) -> i64 {
        (self.head_size() as f64 * self.rotary_pct) as i64
    }

    /// Parameters in all.
    pub fn parameter_count(&self) -> u64 {
        self.non_embedding_count() + 2 * (self.vocab_size * self.hidden_size) as u64
    }

    /// Parameters without the two embeddings, the count that Pythia's tables give.
    pub fn non_embedding_count(&self) -> u64 {
        let (hidden, wide) = (self.hidden_size, self.intermediate_size);
        let attention = 4 * hidden * hidden + 4 * hidden;
        let feed_forward = 2 * hidden * wide + wide + hidden;
        let norms = 4 * hidden;
        (self.num_hidden_layers * (attention + feed_forward + norms) + 2 * hidden) as u64
    }

    /// Blocks, width, width inside the feed-forward layers, and vocabulary.
    fn extents(&self) -> [u64; 4] {
        [
            self.num_hidden_layers,
            self.hidden_size,
            self.intermediate_size,
            self.vocab_size,
        ]
        .map(i64::unsigned_abs)
    }

    /// Parameters by part.
    pub fn parameter_parts(&self) -> ParameterParts {
        let [layers, hidden, wide, vocabulary] = self.extents();
        ParameterParts {
            input_embedding: vocabulary * hidden,
            output_embedding: vocabulary * hidden,
            attention: layers * (4 * hidden * hidden + 4 * hidden),
            feed_forward: layers * (2 * hidden * wide + wide + hidden),
            norms: layers * 4 * hidden + 2 * hidden,
            non_embedding: self.non_embedding_count(),
            total: self.parameter_count(),
        }
    }

    /// Weights that every token is multiplied by: the blocks' matrices and the output embedding.
    pub fn multiplied_weights(&self) -> u64 {
        let [layers, hidden, wide, vocabulary] = self.extents();
        layers * (4 * hidden * hidden + 2 * hidden * wide) + vocabulary * hidden
    }

    /// Floating-point operations to train on one token of a sequence of `length`: 6 for each weight
    /// of a matrix product, and the attention products over all `length` positions.
    ///
    /// # Source
    /// Chowdhery et al., "PaLM", 2022, appendix B.
    pub fn training_flops_per_token(&self, length: u64) -> f64 {
        let (hidden, layers) = (self.hidden_size as f64, self.num_hidden_layers as f64);
        6.0 * self.multiplied_weights() as f64 + 12.0 * layers * hidden * length as f64
    }

    /// Checks that the fields describe a model.
    ///
    /// # Errors
    /// The first field out of range.
    pub fn validate(&self) -> Result<(), ModelError> {
        let size = |field, got: i64| {
            if (1..=LARGEST).contains(&got) {
                return Ok(());
            }
            Err(wrong(field, got, format!("between 1 and {LARGEST}")))
        };
        size("vocab_size", self.vocab_size)?;
        size("hidden_size", self.hidden_size)?;
        size("num_hidden_layers", self.num_hidden_layers)?;
        size("num_attention_heads", self.num_attention_heads)?;
        size("intermediate_size", self.intermediate_size)?;
        size("max_position_embeddings", self.max_position_embeddings)?;
        if self.hidden_size % self.num_attention_heads != 0 {
            let want = format!("a divisor of hidden_size = {}", self.hidden_size);
            return Err(wrong("num_attention_heads", self.num_attention_heads, want));
        }
        if !(self.rotary_pct >= 0.0 && self.rotary_pct <= 1.0) {
            return Err(wrong("rotary_pct", self.rotary_pct, "in [0, 1]"));
        }
        if self.rotary_size() % 2 != 0 {
            let want = format!(
                "a share that gives an even number of the head's {} dimensions",
                self.head_size()
            );
            return Err(wrong("rotary_pct", self.rotary_pct, want));
        }
        if !(self.rotary_emb_base > 1.0 && self.rotary_emb_base.is_finite()) {
            return Err(wrong("rotary_emb_base", self.rotary_emb_base, "above 1"));
        }
        if !(self.layer_norm_eps > 0.0 && self.layer_norm_eps < 1.0) {
            return Err(wrong("layer_norm_eps", self.layer_norm_eps, "in (0, 1)"));
        }
        Ok(())
    }
}

fn wrong(field: &'static str, got: impl ToString, want: impl Into<String>) -> ModelError {
    ModelError::Field {
        field,
        got: got.to_string(),
        want: want.into(),
    }
}
