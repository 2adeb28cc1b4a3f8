//! The model section of a run's configuration: a preset, and what differs from it.

use serde::{Deserialize, Serialize};

use super::{Initialization, ModelConfig, ModelError, preset};

/// A preset and fields that replace its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Name of a preset.
    pub preset: String,
    /// Replaces the preset's vocabulary. Without it, `cpu` takes the tokenizer's ids rounded up to a
    /// multiple of 128, and a Pythia keeps its published size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab_size: Option<i64>,
    /// Replaces the preset's width; the feed-forward width follows unless it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_size: Option<i64>,
    /// Replaces the preset's depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_hidden_layers: Option<i64>,
    /// Replaces the preset's heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_attention_heads: Option<i64>,
    /// Replaces the feed-forward width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediate_size: Option<i64>,
    /// Replaces the longest sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_position_embeddings: Option<i64>,
    /// Replaces the rotated share of a head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_pct: Option<f64>,
    /// Replaces the kind of residual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_parallel_residual: Option<bool>,
    /// Replaces how weights start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
}

impl Default for ModelSettings {
    /// The CPU preset: what a first run on any machine can train.
    fn default() -> Self {
        Self {
            preset: "cpu".to_owned(),
            vocab_size: None,
            hidden_size: None,
            num_hidden_layers: None,
            num_attention_heads: None,
            intermediate_size: None,
            max_position_embeddings: None,
            rotary_pct: None,
            use_parallel_residual: None,
            initialization: None,
        }
    }
}

impl ModelSettings {
    /// The model for a tokenizer of `vocabulary` ids and sequences of `length` tokens.
    ///
    /// # Errors
    /// An unknown preset, a field out of range, or a model too small for the tokenizer or the length.
    pub fn resolve(&self, vocabulary: u64, length: u64) -> Result<ModelConfig, ModelError> {
        let base = preset(&self.preset)?;
        let mut config = base.config;
        let vocabulary = i64::try_from(vocabulary).unwrap_or(i64::MAX);
        if base.name == "cpu" {
            config.vocab_size = vocabulary
                .clamp(1, 1 << 30)
                .unsigned_abs()
                .next_multiple_of(128) as i64;
        }
        let replace = |field: &mut i64, value: Option<i64>| {
            if let Some(value) = value {
                *field = value;
            }
        };
        replace(&mut config.vocab_size, self.vocab_size);
        replace(&mut config.hidden_size, self.hidden_size);
        config.intermediate_size = config.hidden_size.saturating_mul(4);
        replace(&mut config.intermediate_size, self.intermediate_size);
        replace(&mut config.num_hidden_layers, self.num_hidden_layers);
        replace(&mut config.num_attention_heads, self.num_attention_heads);
        replace(
            &mut config.max_position_embeddings,
            self.max_position_embeddings,
        );
        config.rotary_pct = self.rotary_pct.unwrap_or(config.rotary_pct);
        if let Some(parallel) = self.use_parallel_residual {
            config.use_parallel_residual = parallel;
        }
        config.initialization = self.initialization.unwrap_or(config.initialization);
        config.validate()?;
        if config.vocab_size < vocabulary {
            return Err(ModelError::Field {
                field: "vocab_size",
                got: config.vocab_size.to_string(),
                want: format!("at least the tokenizer's {vocabulary} ids"),
            });
        }
        if config.max_position_embeddings.unsigned_abs() < length {
            return Err(ModelError::Field {
                field: "max_position_embeddings",
                got: config.max_position_embeddings.to_string(),
                want: format!("at least the sequence length {length}"),
            });
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_preset_takes_the_tokenizers_size_and_pythia_keeps_its_own() {
        let mut settings = ModelSettings::default();
        assert_eq!(settings.resolve(257, 256).unwrap().vocab_size, 384);
        settings.preset = "70m".to_owned();
        assert_eq!(settings.resolve(257, 256).unwrap().vocab_size, 50_304);
        settings.hidden_size = Some(256);
        let config = settings.resolve(257, 256).unwrap();
        assert_eq!((config.hidden_size, config.intermediate_size), (256, 1024));
    }

    #[test]
    fn a_model_too_small_for_its_data_is_refused() {
        let mut settings = ModelSettings {
            preset: "14m".to_owned(),
            ..ModelSettings::default()
        };
        let error = |s: &ModelSettings, v, l| s.resolve(v, l).unwrap_err().to_string();
        assert!(error(&settings, 60_000, 128).contains("vocab_size"));
        assert!(error(&settings, 257, 4096).contains("max_position_embeddings"));
        settings.num_attention_heads = Some(7);
        assert!(error(&settings, 257, 128).contains("divisor of hidden_size = 128"));
    }
}
