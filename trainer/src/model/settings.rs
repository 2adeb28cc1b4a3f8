//! The model section of a run's configuration: a preset, and what differs from it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Initialization, ModelConfig, ModelError, preset, read_config};

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
    /// Folder of a Hugging Face model to start from: its shape and weights in place of the preset's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_from: Option<PathBuf>,
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
            start_from: None,
        }
    }
}

impl ModelSettings {
    /// The model for a tokenizer of `vocabulary` ids and sequences of `length` tokens.
    ///
    /// # Errors
    /// An unknown preset, a field out of range, or a model too small for the tokenizer or the length.
    /// With `start_from`, what its `config.json` is refused for.
    pub fn resolve(&self, vocabulary: u64, length: u64) -> Result<ModelConfig, ModelError> {
        let vocabulary = i64::try_from(vocabulary).unwrap_or(i64::MAX);
        let config = match &self.start_from {
            Some(folder) => {
                if let Some(field) = self.shape_key() {
                    return Err(ModelError::Field {
                        field: "start_from",
                        got: format!("given together with model.{field}"),
                        want: "alone: the shape is that of its config.json".to_owned(),
                    });
                }
                read_config(folder)?
            }
            None => self.shape(vocabulary)?,
        };
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

    /// A key that replaces a part of the preset's shape, if one is given.
    fn shape_key(&self) -> Option<&'static str> {
        [
            ("vocab_size", self.vocab_size.is_some()),
            ("hidden_size", self.hidden_size.is_some()),
            ("num_hidden_layers", self.num_hidden_layers.is_some()),
            ("num_attention_heads", self.num_attention_heads.is_some()),
            ("intermediate_size", self.intermediate_size.is_some()),
            (
                "max_position_embeddings",
                self.max_position_embeddings.is_some(),
            ),
            ("rotary_pct", self.rotary_pct.is_some()),
            (
                "use_parallel_residual",
                self.use_parallel_residual.is_some(),
            ),
            ("initialization", self.initialization.is_some()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }

    fn shape(&self, vocabulary: i64) -> Result<ModelConfig, ModelError> {
        let base = preset(&self.preset)?;
        let mut config = base.config;
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
    fn a_model_to_start_from_gives_its_shape_alone() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"model_type": "gpt_neox", "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 100, "max_position_embeddings": 64}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let mut settings = ModelSettings {
            start_from: Some(folder.path().to_owned()),
            ..ModelSettings::default()
        };
        let config = settings.resolve(257, 64).unwrap();
        assert_eq!((config.vocab_size, config.intermediate_size), (300, 100));
        let error = |s: &ModelSettings, v, l| s.resolve(v, l).unwrap_err().to_string();
        assert!(error(&settings, 301, 64).contains("vocab_size"));
        assert!(error(&settings, 257, 65).contains("max_position_embeddings"));
        settings.hidden_size = Some(64);
        assert!(error(&settings, 257, 64).contains("model.hidden_size"));
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
