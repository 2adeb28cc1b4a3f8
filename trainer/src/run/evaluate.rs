//! Held-out perplexity of a trained model, domain by domain.
//!
//! In: a trained model, an index, limits. Out: [`Evaluation`]. Always holds: on the run's own index and without limits the numbers
//! are those that the run itself logged at that step, bit for bit on the same machine and threads; whatever does not fit together
//! is an error. Leaves the loss itself to [`crate::evaluation`].

use std::path::{Path, PathBuf};
use std::time::Instant;

use hds::index::{IndexError, Split, TokenizerEntry};
use hds_loader::Index;
use serde::Serialize;
use tch::Device;
use thiserror::Error;

use super::config::{ConfigError, MOST_THREADS, RunConfig};
use super::data_section::{BaseWeights, NamedWeights};
use super::error::RunError;
use super::held_out::HeldOut;
use super::setup;
use super::target::Target;
use super::trained::{Trained, TrainedError};
use crate::distributed::Group;
use crate::model::{Model, ModelError, read_config};

/// What to evaluate on, and how.
#[derive(Clone, Debug, Default)]
pub struct EvaluateOptions {
    /// Step of the run's checkpoint; the newest if not given.
    pub step: Option<u64>,
    /// Another index than the run's.
    pub index: Option<PathBuf>,
    /// Predicted tokens of each domain at most.
    pub tokens: Option<u64>,
    /// L; the run's, or the model's positions.
    pub sequence_length: Option<usize>,
    /// Sequences of a forward pass; the run's, or 8.
    pub batch_size: Option<usize>,
    /// Weights of the mean; the run's, or `natural`.
    pub base_weights: Option<NamedWeights>,
    /// The target; the run's, or uniform.
    pub target: Option<Target>,
    /// `cpu` or `cuda` or `cuda:N`; the run's, or `cpu`.
    pub device: Option<String>,
    /// CPU threads, 0 for all cores; the run's, or all.
    pub threads: Option<u32>,
}

/// Why a model cannot be evaluated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// There is no model.
    #[error(transparent)]
    Trained(#[from] TrainedError),
    /// Its files.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The base weights do not fit the index.
    #[error("{0}; --base-weights natural, uniform or pile takes others")]
    BaseWeights(ConfigError),
    /// The target does not fit the index.
    #[error("{0}; --target uniform, base or '{{ NAME = WEIGHT }}' takes another")]
    Target(ConfigError),
    /// Device, sequences or tensors.
    #[error(transparent)]
    Run(#[from] RunError),
    /// No index is named.
    #[error("{path} is no run, so nothing says which index to read; give one by --index")]
    NoIndex {
        /// The model.
        path: PathBuf,
    },
    /// The model is too small for the index.
    #[error(
        "index {index}: its tokenizer has {vocabulary} ids, the model in {model} only {rows} (vocab_size): they do not belong together"
    )]
    Vocabulary {
        /// The index.
        index: PathBuf,
        /// Its ids.
        vocabulary: u32,
        /// The model.
        model: PathBuf,
        /// Its ids.
        rows: i64,
    },
    /// The index has another tokenizer than the model was trained with.
    #[error(
        "index {index} was built with the tokenizer {got:?} (BLAKE3 {got_fingerprint}), the model was trained with {want:?} ({want_fingerprint}): its ids mean other text"
    )]
    OtherTokenizer {
        /// The index.
        index: PathBuf,
        /// Its tokenizer.
        got: String,
        /// Its fingerprint.
        got_fingerprint: String,
        /// The run's tokenizer.
        want: String,
        /// Its fingerprint.
        want_fingerprint: String,
    },
    /// An option out of range.
    #[error("--{option} is {got}, must be {want}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        want: String,
    },
    /// Nothing is held out.
    #[error(
        "index {index} holds out no sequence of {length} tokens in any domain (hds-index build --valid-fraction)"
    )]
    NothingHeldOut {
        /// The index.
        index: PathBuf,
        /// L.
        length: usize,
    },
}

/// A model that is loaded, and what it was found to be.
pub struct LoadedModel {
    /// Where it is from.
    pub trained: Trained,
    /// The model.
    pub model: Model,
}

impl LoadedModel {
    /// Finds and loads a model; threads and device as the options say.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the device is not there.
    pub fn open(path: &Path, options: &EvaluateOptions) -> Result<Self, EvaluateError> {
        let trained = Trained::find(path, options.step)?;
        let mut section = trained
            .config
            .as_ref()
            .map(|config| config.run.clone())
            .unwrap_or_default();
        if let Some(device) = &options.device {
            section.device.clone_from(device);
        }
        section.threads = options.threads.unwrap_or(section.threads);
        if section.threads > MOST_THREADS {
            return Err(EvaluateError::Option {
                option: "threads",
                got: section.threads.to_string(),
                want: format!("at most {MOST_THREADS}"),
            });
        }
        let device: Device = setup::prepare_device(&section, &Group::alone())?;
        let model = Model::load_huggingface(&trained.model, device, section.precision.kind())?;
        Ok(Self { trained, model })
    }

    /// The index to read: the one given, or the run's.
    ///
    /// # Errors
    /// If neither is there.
    pub fn index_path(&self, options: &EvaluateOptions) -> Result<PathBuf, EvaluateError> {
        match (&options.index, &self.trained.config) {
            (Some(index), _) => Ok(index.clone()),
            (None, Some(config)) => Ok(config.data.index.clone()),
            (None, None) => Err(EvaluateError::NoIndex {
                path: self.trained.model.clone(),
            }),
        }
    }

    /// Checks that an index is of the tokenizer that the model was trained with, as far as that is known: the run's own index
    /// tells it, where it is still there.
    ///
    /// # Errors
    /// If it is another, or has more ids than the model.
    pub fn check_tokenizer(
        &self,
        index: &Path,
        entry: &TokenizerEntry,
    ) -> Result<(), EvaluateError> {
        let rows = self.model.config().vocab_size;
        if i64::from(entry.vocabulary) > rows {
            return Err(EvaluateError::Vocabulary {
                index: index.to_owned(),
                vocabulary: entry.vocabulary,
                model: self.trained.model.clone(),
                rows,
            });
        }
        let Some(config) = &self.trained.config else {
            self.compare_with_own_file(index, entry);
            return Ok(());
        };
        let own = &config.data.index;
        let Some(manifest) = config.data.manifest_of(own)? else {
            hds::note!(
                "note: the run's own index {} is not there; whether {} has its tokenizer is not checked",
                own.display(),
                index.display()
            );
            return Ok(());
        };
        if manifest.tokenizer.fingerprint != entry.fingerprint {
            return Err(EvaluateError::OtherTokenizer {
                index: index.to_owned(),
                got: entry.name.clone(),
                got_fingerprint: entry.fingerprint.clone(),
                want: manifest.tokenizer.name,
                want_fingerprint: manifest.tokenizer.fingerprint,
            });
        }
        Ok(())
    }
}

impl LoadedModel {
    /// Tells where the tokenizer beside a Hugging Face model is another file than the index's: the same tokenizer may be written
    /// in several ways, so it is no error.
    fn compare_with_own_file(&self, index: &Path, entry: &TokenizerEntry) {
        let file = self.trained.model.join("tokenizer.json");
        let same = std::fs::read(&file)
            .ok()
            .map(|bytes| blake3::hash(&bytes).to_hex().to_string() == entry.fingerprint);
        let index = index.display();
        match same {
            Some(true) => {}
            Some(false) => hds::note!(
                "note: {} is another file than the tokenizer of {index}; ids may mean other text",
                file.display()
            ),
            None => hds::note!(
                "note: nothing beside the model tells its tokenizer; that it is that of {index} is taken for granted"
            ),
        }
    }
}

/// A domain's held-out text under a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainEvaluation {
    /// Its name.
    pub name: String,
    /// Sequences read.
    pub sequences: u64,
    /// Tokens predicted.
    pub tokens: u64,
    /// Mean nats per token; `None` where nothing is held out.
    pub loss: Option<f64>,
    /// e^loss.
    pub perplexity: Option<f64>,
    /// Bits per byte of text, by the bytes and tokens of the whole held-out split.
    pub bits_per_byte: Option<f64>,
    /// Its weight in the mean under base weights.
    pub base_weight: f64,
    /// Its weight in the mean under the target.
    pub target_weight: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Folder of the model.
    pub model: PathBuf,
    /// Steps it was trained for, where it is a checkpoint.
    pub step: Option<u64>,
    /// The index.
    pub index: PathBuf,
    /// Its fingerprint.
    pub index_fingerprint: String,
    /// L.
    pub sequence_length: usize,
    /// Every domain, in the index's order.
    pub domains: Vec<DomainEvaluation>,
    /// exp of the mean of the domains' losses.
    pub macro_perplexity: Option<f64>,
    /// exp of their mean under base weights.
    pub base_perplexity: Option<f64>,
    /// exp of their mean under the target.
    pub target_perplexity: Option<f64>,
    /// Whether the target is every domain alike.
    #[serde(skip)]
    pub uniform_target: bool,
    /// Mean of the domains' bits per byte.
    pub macro_bits_per_byte: Option<f64>,
    /// Duration of the evaluation.
    pub seconds: f64,
}

/// Evaluates a model on held-out text.
///
/// # Errors
/// Whatever does not fit together, by its name.
pub fn evaluate_held_out(
    loaded: &LoadedModel,
    options: &EvaluateOptions,
) -> Result<Evaluation, EvaluateError> {
    let start = Instant::now();
    let path = loaded.index_path(options)?;
    let config = configuration(loaded, options, &path)?;
    let data = &config.data;
    let index = Index::open_from(&path, data.access, &data.remote())?;
    loaded.check_tokenizer(&path, &index.manifest().tokenizer)?;
    let base = setup::base_weights(&config, &index).map_err(|error| match error {
        RunError::Config(error) => EvaluateError::BaseWeights(error),
        other => other.into(),
    })?;
    let target = data.target.resolve(index.domains(), &base);
    let target = target.map_err(EvaluateError::Target)?;
    let held_out = HeldOut::new(&index, &config)?;
    let length = config.data.sequence_length;
    if held_out.empty().len() == index.domains().len() {
        return Err(EvaluateError::NothingHeldOut {
            index: path,
            length,
        });
    }
    let losses = held_out.evaluate(&loaded.model, &Group::alone())?;
    let domains: Vec<DomainEvaluation> = index
        .manifest()
        .domains
        .iter()
        .zip(losses.losses.iter().zip(&losses.tokens))
        .zip(base.weights().iter().zip(target.weights()))
        .map(
            |((entry, (&loss, &tokens)), (&base_weight, &target_weight))| {
                let split = entry.split(Split::Valid);
                let tokens_per_byte = split.tokens as f64 / split.bytes as f64;
                DomainEvaluation {
                    name: entry.name.clone(),
                    sequences: tokens / length as u64,
                    tokens,
                    loss,
                    perplexity: loss.map(f64::exp),
                    bits_per_byte: loss
                        .filter(|_| split.bytes > 0)
                        .map(|loss| loss / std::f64::consts::LN_2 * tokens_per_byte),
                    base_weight,
                    target_weight,
                }
            },
        )
        .collect();
    let bits: Vec<f64> = domains.iter().filter_map(|d| d.bits_per_byte).collect();
    Ok(Evaluation {
        model: loaded.trained.model.clone(),
        step: loaded.trained.step,
        index_fingerprint: index.fingerprint().to_string(),
        index: path,
        sequence_length: length,
        macro_perplexity: losses.macro_perplexity(),
        base_perplexity: losses.weighted_perplexity(base.weights()),
        target_perplexity: losses.weighted_perplexity(target.weights()),
        uniform_target: target.is_uniform(),
        macro_bits_per_byte: (!bits.is_empty())
            .then(|| bits.iter().sum::<f64>() / bits.len() as f64),
        domains,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The run's configuration with what the options change; without a run, the model's positions and the limits' defaults.
fn configuration(
    loaded: &LoadedModel,
    options: &EvaluateOptions,
    index: &Path,
) -> Result<RunConfig, EvaluateError> {
    let positions = read_config(&loaded.trained.model)?.max_position_embeddings;
    let mut config = loaded.trained.config.clone().unwrap_or_else(|| {
        let mut config = RunConfig::default();
        config.data.sequence_length = positions as usize;
        config.data.batch_size = config.data.micro_batch_size;
        config
    });
    config.data.index = index.to_owned();
    if let Some(named) = options.base_weights {
        config.data.base_weights = BaseWeights::Named(named);
    }
    if let Some(target) = &options.target {
        config.data.target = target.clone();
    }
    if let Some(length) = options.sequence_length {
        if length == 0 || length as i64 > positions {
            return Err(EvaluateError::Option {
                option: "sequence-length",
                got: length.to_string(),
                want: format!("1 to the model's {positions} positions"),
            });
        }
        config.data.sequence_length = length;
    }
    let batch = config.evaluation_batch_size();
    config.evaluation.batch_size = options.batch_size.unwrap_or(batch).max(1);
    if let Some(tokens) = options.tokens {
        let length = config.data.sequence_length as u64;
        if tokens < length {
            return Err(EvaluateError::Option {
                option: "tokens",
                got: tokens.to_string(),
                want: format!("at least the sequence length {length}"),
            });
        }
        config.evaluation.sequences_per_domain = tokens / length;
    }
    Ok(config)
}

impl Evaluation {
    /// The evaluation as a table for a terminal.
    pub fn table(&self) -> String {
        super::evaluate_table::render(self)
    }
}
