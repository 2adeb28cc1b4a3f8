//! Reads and writes checkpoints of Hugging Face's `GPTNeoXForCausalLM`.
//!
//! In: a folder with `config.json` and safetensors, from anyone. Out: a model, or an error that
//! names file and field. Always holds: what is written here is read by `transformers`, and features
//! that this model does not have are refused instead of ignored.

use std::collections::BTreeMap;
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
    /// Other architectures' names of the same, which some converters write.
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    /// Since transformers 5: base and share of the rotation.
    rope_parameters: Option<RopeParameters>,
    rope_scaling: Option<Value>,
    quantization_config: Option<Value>,
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RopeParameters {
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_type: Option<String>,
    /// What the kinds of scaling take.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// The one value that fields give for the same thing; `None` where none is given.
fn agreed(
    path: &Path,
    fields: [(&'static str, Option<f64>); 3],
) -> Result<Option<f64>, ModelError> {
    let mut given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let Some((first, value)) = given.next() else {
        return Ok(None);
    };
    match given.find(|(_, other)| *other != value) {
        None => Ok(Some(value)),
        Some((field, other)) => Err(ModelError::ConfigField {
            path: path.to_owned(),
            field,
            got: other.to_string(),
            want: format!("{value}, as {first} says, or left out"),
        }),
    }
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
            let kind = |name| scaling.get(name).and_then(Value::as_str);
            let default = kind("rope_type").or(kind("type")) == Some("default");
            let alone = scaling.as_object().is_some_and(|all| all.len() == 1);
            want(
                scaling.is_null() || (default && alone),
                "rope_scaling",
                scaling.to_string(),
                "null: a model of scaled positions is another one",
            )?;
        }
        let quantized = self.quantization_config.unwrap_or_default();
        want(
            quantized.is_null(),
            "quantization_config",
            quantized.to_string(),
            "null: take the weights as they were before they were quantized",
        )?;
        let rope = self.rope_parameters.unwrap_or_default();
        let mut others = rope.others;
        let kind = match others.remove("type") {
            Some(Value::String(kind)) => Some(kind),
            Some(other) => Some(other.to_string()),
            None => None,
        };
        let kind = rope.rope_type.or(kind);
        let kind = kind.as_deref().unwrap_or("default");
        want(
            kind == "default",
            "rope_parameters.rope_type",
            format!("{kind:?}"),
            "\"default\"",
        )?;
        others.retain(|_, value| !value.is_null());
        if let Some((name, value)) = others.first_key_value() {
            want(
                false,
                "rope_parameters",
                format!("{{ {name}: {value} }}"),
                "of rope_theta, partial_rotary_factor and rope_type alone",
            )?;
        }
        let share = agreed(
            path,
            [
                (
                    "rope_parameters.partial_rotary_factor",
                    rope.partial_rotary_factor,
                ),
                ("rotary_pct", self.rotary_pct),
                ("partial_rotary_factor", self.partial_rotary_factor),
            ],
        )?;
        let base = agreed(
            path,
            [
                ("rope_parameters.rope_theta", rope.rope_theta),
                ("rotary_emb_base", self.rotary_emb_base),
                ("rope_theta", self.rope_theta),
            ],
        )?;
        Ok(ModelConfig {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            intermediate_size: self.intermediate_size,
            max_position_embeddings: self.max_position_embeddings,
            rotary_pct: share.unwrap_or(0.25),
            rotary_emb_base: base.unwrap_or(10_000.0),
            layer_norm_eps: self.layer_norm_eps,
            use_parallel_residual: self.use_parallel_residual,
            initialization: Initialization::default(),
        })
    }
}

fn number_name(stored: Kind) -> &'static str {
    match stored {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    }
}

/// The `config.json` of a model of this shape.
fn config_file(config: &ModelConfig, stored: Kind, end_of_document: u32) -> Value {
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
        "torch_dtype": number_name(stored),
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
        Self::load_huggingface_while(folder, device, kind, &|| true)
    }

    /// As [`Self::load_huggingface`], for as long as `go_on` says so: it is asked before each tensor.
    ///
    /// # Errors
    /// As [`Self::load_huggingface`], and [`ModelError::Stopped`].
    pub fn load_huggingface_while(
        folder: &Path,
        device: Device,
        kind: Kind,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Self, ModelError> {
        let config = read_config(folder)?;
        let mut shards = Shards::open(folder)?;
        let mut known = std::collections::HashSet::new();
        let model = Self::build(&config, device, kind, |name, shape, _| {
            if !go_on() {
                return Err(ModelError::Stopped);
            }
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

    /// Moves weights beyond the range of `stored` to its ends; gives how many.
    pub fn clamp_to(&mut self, stored: Kind) -> u64 {
        let most = match stored {
            Kind::Half => 65_504.0,
            // The largest whose rounding to 8 bits is finite.
            Kind::BFloat16 => 3.389_531_389_251_535_5e38,
            _ => return 0,
        };
        tch::no_grad(|| {
            let beyond = |tensor: &mut Tensor| {
                let mut flat = tensor.detach();
                let count = flat.abs().gt(most).sum(Kind::Int64).int64_value(&[]);
                if count > 0 {
                    let _ = flat.clamp_(-most, most);
                }
                count.unsigned_abs()
            };
            let named = self.named.iter_mut();
            named.map(|(_, tensor)| beyond(tensor)).sum()
        })
    }

    /// As [`Model::save_huggingface`], with weights stored as `stored` and the tokenizer's id that closes a document.
    ///
    /// # Errors
    /// A file operation that fails, or a weight that those numbers do not hold.
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
        // Whoever loads the folder would refuse it, or not even notice.
        for (name, tensor) in &named {
            let infinite = tensor.isfinite().logical_not().sum(Kind::Int64);
            let count = infinite.int64_value(&[]);
            if count > 0 {
                return Err(ModelError::Overflow {
                    name: name.clone(),
                    count,
                    stored: number_name(stored),
                });
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
