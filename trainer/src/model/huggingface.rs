//! Reads and writes checkpoints of Hugging Face's `GPTNeoXForCausalLM`.
//!
//! In: a folder with `config.json` and safetensors, from anyone. Out: a model, or an error that
//! names file and field. Always holds: what is written here is read by `transformers`, and features
//! that this model does not have are refused instead of ignored.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::shards::{self, Shards};
use super::{Initialization, Model, ModelConfig, ModelError};
use hds::durable;

/// Size of a shard, Hugging Face's default.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Largest config.json that is read.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Buffers that old checkpoints store beside the parameters; all are recomputed.
const BUFFERS: [&str; 3] = [
    ".attention.bias",
    ".attention.masked_bias",
    ".attention.rotary_emb.inv_freq",
];

/// The fields of `config.json` that decide the function; others are ignored.
#[derive(Debug, Deserialize)]
struct ConfigFile {
    model_type: String,
    vocab_size: i64,
    hidden_size: i64,
    num_hidden_layers: i64,
    num_attention_heads: i64,
    intermediate_size: i64,
    #[serde(default = "default_positions")]
    max_position_embeddings: i64,
    rotary_pct: Option<f64>,
    rotary_emb_base: Option<f64>,
    /// Since transformers 5: base and share of the rotation.
    rope_parameters: Option<RopeParameters>,
    rope_scaling: Option<Value>,
    #[serde(default = "default_epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "yes")]
    use_parallel_residual: bool,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default = "yes")]
    attention_bias: bool,
}

#[derive(Debug, Deserialize)]
struct RopeParameters {
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_type: Option<String>,
}

// Defaults of transformers' `GPTNeoXConfig`.
fn default_positions() -> i64 {
    2048
}
fn default_epsilon() -> f64 {
    1e-5
}
fn default_activation() -> String {
    "gelu".to_owned()
}
fn yes() -> bool {
    true
}

impl ConfigFile {
    fn into_config(self, path: &Path) -> Result<ModelConfig, ModelError> {
        let want = |fits: bool, field, got: String, want: &str| {
            if fits {
                return Ok(());
            }
            Err(ModelError::ConfigField {
                path: path.to_owned(),
                field,
                got,
                want: want.to_owned(),
            })
        };
        want(
            self.model_type == "gpt_neox",
            "model_type",
            format!("{:?}", self.model_type),
            "\"gpt_neox\"",
        )?;
        want(
            self.hidden_act == "gelu",
            "hidden_act",
            format!("{:?}", self.hidden_act),
            "\"gelu\"",
        )?;
        want(
            !self.tie_word_embeddings,
            "tie_word_embeddings",
            "true".to_owned(),
            "false",
        )?;
        want(
            self.attention_bias,
            "attention_bias",
            "false".to_owned(),
            "true",
        )?;
        if let Some(scaling) = &self.rope_scaling {
            let plain = scaling.is_null()
                || scaling.get("rope_type").and_then(Value::as_str) == Some("default");
            want(plain, "rope_scaling", scaling.to_string(), "null")?;
        }
        let rope = self.rope_parameters.unwrap_or(RopeParameters {
            rope_theta: None,
            partial_rotary_factor: None,
            rope_type: None,
        });
        let kind = rope.rope_type.as_deref().unwrap_or("default");
        want(
            kind == "default",
            "rope_parameters.rope_type",
            format!("{kind:?}"),
            "\"default\"",
        )?;
        Ok(ModelConfig {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            intermediate_size: self.intermediate_size,
            max_position_embeddings: self.max_position_embeddings,
            rotary_pct: rope
                .partial_rotary_factor
                .or(self.rotary_pct)
                .unwrap_or(0.25),
            rotary_emb_base: rope.rope_theta.or(self.rotary_emb_base).unwrap_or(10_000.0),
            layer_norm_eps: self.layer_norm_eps,
            use_parallel_residual: self.use_parallel_residual,
            initialization: Initialization::default(),
        })
    }
}

/// The `config.json` of a model of this shape.
fn config_file(config: &ModelConfig, stored: Kind, end_of_document: u32) -> Value {
    let numbers = match stored {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    };
    json!({
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rotary_pct": config.rotary_pct,
        "rotary_emb_base": config.rotary_emb_base,
        "layer_norm_eps": config.layer_norm_eps,
        "use_parallel_residual": config.use_parallel_residual,
        "hidden_act": "gelu",
        "attention_bias": true,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "tie_word_embeddings": false,
        "bos_token_id": end_of_document,
        "eos_token_id": end_of_document,
        "torch_dtype": numbers,
    })
}

/// Reads the shape of the model in a folder.
///
/// # Errors
/// A missing or damaged `config.json`, or one that describes another architecture.
pub fn read_config(folder: &Path) -> Result<ModelConfig, ModelError> {
    let path = folder.join("config.json");
    let bytes = shards::read_bounded(&path, MAX_CONFIG_BYTES)?;
    let file: ConfigFile = serde_json::from_slice(&bytes).map_err(|source| ModelError::Json {
        path: path.clone(),
        source,
    })?;
    let config = file.into_config(&path)?;
    config.validate().map_err(|error| match error {
        ModelError::Field { field, got, want } => ModelError::ConfigField {
            path,
            field,
            got,
            want,
        },
        other => other,
    })?;
    Ok(config)
}

impl Model {
    /// Reads a checkpoint of `GPTNeoXForCausalLM`: `config.json` with `model.safetensors`, or with
    /// shards and their index. Half-precision weights are widened.
    ///
    /// # Errors
    /// A file that is missing, damaged or of another architecture; a tensor that is missing,
    /// unknown or of another shape than `config.json` gives.
    pub fn load_huggingface(folder: &Path, device: Device, kind: Kind) -> Result<Self, ModelError> {
        let config = read_config(folder)?;
        let mut shards = Shards::open(folder)?;
        let mut known = std::collections::HashSet::new();
        let model = Self::build(&config, device, kind, |name, shape, _| {
            known.insert(name.to_owned());
            shards.tensor(name, shape)
        })?;
        let mut unknown: Vec<(&str, &Path)> = shards
            .names()
            .filter(|(name, _)| {
                !known.contains(*name) && !BUFFERS.iter().any(|end| name.ends_with(end))
            })
            .collect();
        unknown.sort();
        if let Some(&(name, path)) = unknown.first() {
            return Err(ModelError::Unknown {
                path: path.to_owned(),
                name: name.to_owned(),
            });
        }
        Ok(model)
    }

    /// Writes `config.json` and the weights to a folder that exists, so that
    /// `GPTNeoXForCausalLM.from_pretrained` reads them. Files of those names are replaced.
    ///
    /// # Errors
    /// A file operation that fails.
    pub fn save_huggingface(&self, folder: &Path) -> Result<(), ModelError> {
        self.save_sharded(folder, SHARD_BYTES)
    }

    pub(crate) fn save_sharded(&self, folder: &Path, shard_bytes: u64) -> Result<(), ModelError> {
        self.save_as(folder, shard_bytes, Kind::Float, 0)
    }

    /// As [`Model::save_huggingface`], with weights stored as `stored` and the tokenizer's id that closes a document.
    ///
    /// # Errors
    /// A file operation that fails.
    pub fn export_huggingface(
        &self,
        folder: &Path,
        stored: Kind,
        end_of_document: u32,
    ) -> Result<(), ModelError> {
        self.save_as(folder, SHARD_BYTES, stored, end_of_document)
    }

    fn save_as(
        &self,
        folder: &Path,
        shard_bytes: u64,
        stored: Kind,
        end_of_document: u32,
    ) -> Result<(), ModelError> {
        let mut named = self.weights();
        if stored != Kind::Float {
            for (_, tensor) in &mut named {
                *tensor = tensor.to_kind(stored);
            }
        }
        shards::write(folder, &named, shard_bytes)?;
        let config = config_file(&self.config, stored, end_of_document);
        durable::write_json(&folder.join("config.json"), &config)?;
        Ok(())
    }

    /// Copies weights into the parameters, by name; all and no other must be given.
    ///
    /// # Errors
    /// A parameter that is missing, unknown or of another shape; nothing is changed then. `source`
    /// is the path that errors name.
    pub fn load_weights(
        &mut self,
        weights: &std::collections::HashMap<String, Tensor>,
        source: &Path,
    ) -> Result<(), ModelError> {
        for (name, tensor) in &self.named {
            let Some(given) = weights.get(name) else {
                return Err(ModelError::Missing {
                    path: source.to_owned(),
                    name: name.clone(),
                });
            };
            if given.size() != tensor.size() {
                return Err(ModelError::Shape {
                    path: source.to_owned(),
                    name: name.clone(),
                    got: given.size(),
                    want: tensor.size(),
                });
            }
        }
        let extra = weights
            .keys()
            .filter(|name| !self.named.iter().any(|(own, _)| own == *name))
            .min();
        if let Some(name) = extra {
            return Err(ModelError::Unknown {
                path: source.to_owned(),
                name: name.clone(),
            });
        }
        tch::no_grad(|| {
            for (name, tensor) in &mut self.named {
                if let Some(given) = weights.get(name) {
                    tensor.copy_(given);
                }
            }
        });
        Ok(())
    }

    /// All parameters by name, sharing storage with the model: what [`Model::load_weights`] takes.
    pub fn weights(&self) -> Vec<(String, Tensor)> {
        self.named
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.detach()))
            .collect()
    }
}
