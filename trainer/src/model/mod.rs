//! GPT-NeoX (Pythia) language models.
//!
//! In: token ids [B, L]. Out: next-token logits, or per-sequence losses and accumulated gradients.
//! Always holds: parameters are leaves in f32 (f64 where asked for), whatever kind the arithmetic
//! has; names and layout are Hugging Face's `GPTNeoXForCausalLM`. Leaves to others: the optimizer,
//! what a tap's record means ([`crate::gradients`]), and where checkpoints lie.
//!
//! Legend: B batch (sequences), L tokens a sequence, N = B·L, H hidden size, F feed-forward size,
//! A heads, D = H / A, R rotary dimensions, V vocabulary.
//!
//! # Source
//! Black et al., "GPT-NeoX-20B", 2022, section 2; Biderman et al., "Pythia", 2023, section 2 and
//! appendix E.

mod block;
mod config;
mod error;
mod huggingface;
mod init;
mod loss;
mod masks;
mod presets;
mod recompute;
mod rotary;
mod score;
mod settings;
mod shards;
mod taps;

use tch::{Device, Kind, Tensor};

pub use config::{Initialization, ModelConfig, ParameterParts};
pub use error::ModelError;
pub use huggingface::read_config;
pub use loss::{logits_chunk_bytes, sequence_losses};
pub use masks::Masks;
pub use presets::{PRESET_NAMES, Preset, preset};
pub use score::Scored;
pub use settings::ModelSettings;
pub use taps::{Tap, Taps};

use crate::optimizer::Parameter;
use block::{Block, Norm, Pass};
use rotary::Rotary;

/// Which parameters weight decay applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayOn {
    /// Weight matrices and embeddings, not biases and layer norms, as GPT-NeoX does.
    #[default]
    Matrices,
    /// Everything.
    All,
}

/// A GPT-NeoX model and its parameters on one device.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    device: Device,
    kind: Kind,
    embed_in_vh: Tensor,
    blocks: Vec<Block>,
    final_norm: Norm,
    embed_out_vh: Tensor,
    rotary: Rotary,
    recompute: bool,
    named: Vec<(String, Tensor)>,
}

/// What a parameter is for, which decides how it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Embeddings and matrices that read the residual stream.
    Input,
    /// Matrices that write to the residual stream.
    Output,
    /// Starts at 0.
    Bias,
    /// Starts at 1.
    Gain,
}

impl Model {
    /// A freshly initialised model. `kind` is that of the arithmetic: `Float`, `Double`, `BFloat16`
    /// or `Half`. The same configuration and seed give the same weights on any device and with any
    /// number of threads.
    ///
    /// # Errors
    /// A configuration that describes no model.
    pub fn new(
        config: &ModelConfig,
        device: Device,
        kind: Kind,
        seed: u64,
    ) -> Result<Self, ModelError> {
        Self::new_while(config, device, kind, seed, &|| true)
    }

    /// As [`Self::new`], for as long as `go_on` says so: it is asked before each tensor.
    ///
    /// # Errors
    /// As [`Self::new`], and [`ModelError::Stopped`].
    pub fn new_while(
        config: &ModelConfig,
        device: Device,
        kind: Kind,
        seed: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Self, ModelError> {
        config.validate()?;
        Self::build(config, device, kind, |name, shape, role| {
            if !go_on() {
                return Err(ModelError::Stopped);
            }
            Ok(init::initial_values(config, name, shape, role, seed))
        })
    }

    /// Assembles a model from one tensor a parameter; `make` gets name and shape.
    pub(crate) fn build(
        config: &ModelConfig,
        device: Device,
        kind: Kind,
        mut make: impl FnMut(&str, &[i64], Role) -> Result<Tensor, ModelError>,
    ) -> Result<Self, ModelError> {
        let storage = match kind {
            Kind::Double => Kind::Double,
            _ => Kind::Float,
        };
        let mut named = Vec::new();
        let mut parameter = |name: String, shape: &[i64], role: Role| {
            let tensor = make(&name, shape, role)?;
            // The copy makes a leaf of its own storage, contiguous, even where nothing is converted.
            let tensor = tch::no_grad(|| {
                let leaf = Tensor::empty(shape, (storage, device));
                leaf.shallow_clone().copy_(&tensor);
                leaf
            })
            .set_requires_grad(true);
            named.push((name, tensor.shallow_clone()));
            Ok::<Tensor, ModelError>(tensor)
        };
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        let embed_in_vh = parameter(
            "gpt_neox.embed_in.weight".to_owned(),
            &[vocabulary, hidden],
            Role::Input,
        )?;
        let mut blocks = Vec::new();
        for index in 0..config.num_hidden_layers {
            blocks.push(Block::build(config, index, &mut parameter)?);
        }
        let final_norm = Norm::build(config, "gpt_neox.final_layer_norm", &mut parameter)?;
        let embed_out_vh = parameter(
            "embed_out.weight".to_owned(),
            &[vocabulary, hidden],
            Role::Input,
        )?;
        Ok(Self {
            config: config.clone(),
            device,
            kind,
            embed_in_vh,
            blocks,
            final_norm,
            embed_out_vh,
            rotary: Rotary::new(config, device, kind),
            recompute: false,
            named,
        })
    }

    /// Shape and constants of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Whether every weight is a finite number.
    pub fn is_finite(&self) -> bool {
        tch::no_grad(|| {
            // One number a tensor: a sum over it is finite only if all of it is, or it overflows, and then all are looked at.
            self.named.iter().all(|(_, tensor)| {
                let tensor = tensor.detach();
                tensor.sum(Kind::Float).double_value(&[]).is_finite()
                    || tensor.isfinite().all().int64_value(&[]) == 1
            })
        })
    }

    /// Where the parameters are.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Kind of the arithmetic.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether training keeps the inputs of the blocks only and computes what is inside them again in the backward
    /// pass: about a third more arithmetic, and memory for activations of one block in place of all (activation
    /// checkpointing: Chen et al., "Training deep nets with sublinear memory cost", 2016). Gradients are the same.
    pub fn recompute_activations(&mut self, recompute: bool) {
        self.recompute = recompute;
    }

    /// All parameters in a fixed order, sharing storage with the model; decay on matrices only.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.parameters_decaying(DecayOn::Matrices)
    }

    /// All parameters in a fixed order, sharing storage with the model.
    pub fn parameters_decaying(&self, on: DecayOn) -> Vec<Parameter> {
        self.named
            .iter()
            .map(|(name, tensor)| Parameter {
                name: name.clone(),
                tensor: tensor.shallow_clone(),
                decays: on == DecayOn::All || tensor.dim() > 1,
            })
            .collect()
    }

    /// The weight [H, F] of `mlp.dense_4h_to_h` of each given block, sharing storage with the model.
    ///
    /// # Panics
    /// If a block does not exist; [`crate::gradients::LayerChoice::resolve`] checks that.
    pub fn output_projections(&self, blocks: &[usize]) -> Vec<Tensor> {
        blocks
            .iter()
            .map(|&index| self.blocks[index].output_projection().detach())
            .collect()
    }

    /// Inputs and targets, i64 [B, L] each on the model's device, from the ids [B, L + 1] of
    /// `sequences` windows: the targets are the inputs moved by one.
    ///
    /// # Errors
    /// Ids that are no such matrix, an id outside the vocabulary, or more tokens than positions.
    pub fn batch(&self, ids: &[i64], sequences: usize) -> Result<(Tensor, Tensor), ModelError> {
        let width = ids.len() / sequences.max(1);
        if width < 2 || width * sequences != ids.len() {
            return Err(ModelError::Field {
                field: "batch",
                got: format!("{} ids", ids.len()),
                want: format!("{sequences} windows of the same two or more ids"),
            });
        }
        let length = width as i64 - 1;
        if length > self.config.max_position_embeddings {
            return Err(ModelError::Field {
                field: "batch",
                got: format!("sequences of {length} tokens"),
                want: format!(
                    "at most the {} positions",
                    self.config.max_position_embeddings
                ),
            });
        }
        // Checked here, because on a GPU an id out of range ends the process.
        if let Some(id) = ids
            .iter()
            .find(|id| !(0..self.config.vocab_size).contains(*id))
        {
            return Err(ModelError::Field {
                field: "batch",
                got: format!("token id {id}"),
                want: format!("below vocab_size = {}", self.config.vocab_size),
            });
        }
        let ids_bw = self.on_device(ids, sequences as i64);
        // Of windows of two ids a column is a view that only looks flat.
        let part = |first| ids_bw.narrow(1, first, length).contiguous();
        Ok((part(0), part(1)))
    }

    /// Values [rows, …] on the model's device. On a GPU they go there from pinned memory, and nothing waits for them.
    pub(crate) fn on_device<T: tch::kind::Element>(&self, values: &[T], rows: i64) -> Tensor {
        let host = Tensor::from_slice(values).view([rows, -1]);
        match self.device {
            Device::Cuda(_) => {
                let kind = host.kind();
                host.pin_memory(self.device)
                    .to_device_(self.device, kind, true, false)
            }
            device => host.to_device(device),
        }
    }

    /// Logits [B, L, V] of the token after each of `tokens_bl` (i64). Taps, where given, record the
    /// layers that they ask for.
    ///
    /// # Panics
    /// If L exceeds `max_position_embeddings`, or tokens are not [B, L].
    pub fn forward(&self, tokens_bl: &Tensor, taps: Option<&mut Taps>) -> Tensor {
        let hidden_nh = self.hidden_states(tokens_bl, None, taps, |_| ());
        let logits_nv = hidden_nh.linear(&self.compute(&self.embed_out_vh), None::<&Tensor>);
        let size = tokens_bl.size();
        logits_nv.view([size[0], size[1], self.config.vocab_size])
    }

    /// The residual stream [N, H] after the final layer norm; `observe` sees the embeddings and then
    /// the output of each block. `documents_bl` as in [`Masks`].
    pub(crate) fn hidden_states(
        &self,
        tokens_bl: &Tensor,
        documents_bl: Option<&Tensor>,
        mut taps: Option<&mut Taps>,
        mut observe: impl FnMut(&Tensor),
    ) -> Tensor {
        let mask = documents_bl.map(masks::attention_mask);
        let pass = self.pass(tokens_bl, mask.as_ref(), taps.as_deref_mut());
        let mut stream_nh = self.embed(tokens_bl);
        observe(&stream_nh);
        for (index, block) in self.blocks.iter().enumerate() {
            stream_nh = block.forward(&stream_nh, &pass, index, taps.as_deref_mut());
            observe(&stream_nh);
        }
        self.final_norm.forward(&stream_nh, self.kind, self.plain())
    }

    /// What blocks must know of a batch; taps begin anew.
    fn pass<'a>(
        &'a self,
        tokens_bl: &Tensor,
        mask: Option<&'a Tensor>,
        taps: Option<&mut Taps>,
    ) -> Pass<'a> {
        let (batch, length) = match tokens_bl.size()[..] {
            [batch, length] => (batch, length),
            _ => panic!("tokens must be [B, L], are {:?}", tokens_bl.size()),
        };
        assert!(
            length <= self.config.max_position_embeddings,
            "sequence of {length} tokens, the model has {} positions",
            self.config.max_position_embeddings
        );
        if let Some(taps) = taps {
            taps.begin(batch, length);
        }
        Pass {
            batch,
            length,
            kind: self.kind,
            rotary: &self.rotary,
            mask,
            plain: self.plain(),
        }
    }

    /// Whether everything is f32 on the CPU.
    fn plain(&self) -> bool {
        self.kind == Kind::Float && self.device == Device::Cpu
    }

    /// The embeddings [N, H].
    fn embed(&self, tokens_bl: &Tensor) -> Tensor {
        let tokens_n = tokens_bl.reshape([-1]);
        Tensor::embedding(&self.embed_in_vh, &tokens_n, -1, false, false).to_kind(self.kind)
    }

    /// A parameter in the kind of the arithmetic.
    fn compute(&self, parameter: &Tensor) -> Tensor {
        block::in_kind(parameter, self.kind)
    }
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod huggingface_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod training_tests;
#[cfg(test)]
mod transformers_tests;
