//! What a run will take, from its configuration alone: parameters, memory, operations, time, disk.
//!
//! In: a [`RunConfig`], the number of GPUs, a rate. Out: [`Plan`], as numbers, a table or JSON. Always holds: nothing is
//! trained, allocated or written; parameter counts and checkpoint tensors are exact, all else is an estimate whose formula
//! stands where it is computed; what had to be assumed is listed. Leaves measuring to a run.
//!
//! Legend: P parameters, H hidden size, F feed-forward size, V vocabulary, A heads, K domains, B sequences a step,
//! L tokens a sequence, N tokens of one pass.

mod available;
mod compute;
mod disk;
mod memory;
mod table;

use hds::index::{IndexError, Split};
use serde::Serialize;
use thiserror::Error;

pub use available::{MemoryError, check_memory};
pub use compute::{Compute, Rate, Time};
pub use disk::Disk;
pub use memory::Memory;

use crate::gradients::GradientError;
use crate::model::{ModelConfig, ModelError, ParameterParts};
use crate::run::{BaseWeights, NamedWeights, Precision, RunConfig};
use crate::scheduler;

/// Domains of The Pile, taken where nothing says how many there are.
const PILE_DOMAINS: usize = 22;

/// Ids of Pythia's tokenizer, taken where nothing says how many there are.
const PYTHIA_VOCABULARY: u64 = 50_277;

/// What to plan for, beside the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// GPUs (processes) that share the batch and, by ZeRO-1, the optimizer's states; at least 1.
    pub gpus: u64,
    /// Numbers of the forward and backward pass.
    pub precision: Precision,
    /// K, where there is no index to read it from.
    pub domains: Option<usize>,
    /// Ids of the tokenizer, where there is no index to read them from.
    pub vocabulary: Option<u64>,
    /// How fast it goes, if that is known.
    pub rate: Option<Rate>,
}

/// Why nothing can be planned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The index that the configuration names is damaged.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The configuration describes no model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The watched layers do not exist.
    #[error(transparent)]
    Layers(#[from] GradientError),
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
}

/// Text that is trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tokens {
    /// L.
    pub sequence_length: u64,
    /// B.
    pub batch_size: u64,
    /// Sequences of one pass on one GPU.
    pub micro_batch_size: u64,
    /// Passes of each GPU a step, rounded up.
    pub passes_per_step: u64,
    /// B · L.
    pub per_step: u64,
    /// T.
    pub steps: u64,
    /// T · B · L.
    pub total: u64,
    /// Training tokens of the index, where there is one.
    pub in_index: Option<u64>,
    /// `total` / `in_index`: how often the index is read on average.
    pub epochs: Option<f64>,
}

/// The model and the agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Models {
    /// Name of the model's preset.
    pub preset: String,
    /// Its shape.
    pub shape: ModelConfig,
    /// Its parameters by part.
    pub parameters: ParameterParts,
    /// Name of the policy.
    pub policy: scheduler::PolicyName,
    /// Parameters of the policy's networks.
    pub agent_parameters: u64,
    /// K.
    pub domains: usize,
    /// Watched layers.
    pub watched_layers: usize,
}

/// What a run will take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What had to be assumed, in sentences.
    pub assumptions: Vec<String>,
    /// Model and agent.
    pub models: Models,
    /// Text.
    pub tokens: Tokens,
    /// Memory of a GPU.
    pub memory: Memory,
    /// Floating-point operations.
    pub compute: Compute,
    /// Time, where a rate is given.
    pub time: Option<Time>,
    /// Files.
    pub disk: Disk,
}

/// What the index says, or what is assumed for it.
struct Corpus {
    domains: usize,
    vocabulary: u64,
    tokens: Option<u64>,
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// A model that cannot be, a damaged index, or an option out of range.
    pub fn new(config: &RunConfig, options: &PlanOptions) -> Result<Self, PlanError> {
        if options.gpus == 0 {
            return Err(PlanError::Option {
                option: "gpus",
                got: "0".to_owned(),
                want: "1 or more".to_owned(),
            });
        }
        if let Some(rate) = &options.rate {
            rate.validate()?;
        }
        let mut assumptions = Vec::new();
        let corpus = corpus(config, options, &mut assumptions)?;
        let length = config.data.sequence_length as u64;
        let shape = config.model.resolve(corpus.vocabulary, length)?;
        let blocks = config
            .signals
            .layers
            .resolve(shape.num_hidden_layers as usize)?;
        let agent = scheduler::size(
            &config.scheduler,
            corpus.domains,
            blocks.len(),
            shape.parameter_count(),
        );
        let tokens = tokens(config, options, &corpus, &mut assumptions);
        let parts = Parts {
            config,
            shape: &shape,
            agent: &agent,
            domains: corpus.domains as u64,
            watched_layers: blocks.len() as u64,
            gpus: options.gpus,
            precision: options.precision,
        };
        let compute = Compute::new(&parts, &tokens);
        Ok(Self {
            memory: Memory::new(&parts),
            time: options
                .rate
                .as_ref()
                .map(|rate| Time::new(rate, &compute, &tokens, options.gpus)),
            compute,
            disk: Disk::new(&parts, &tokens),
            models: Models {
                preset: config.model.preset.clone(),
                parameters: shape.parameter_parts(),
                policy: config.scheduler.policy,
                agent_parameters: agent.parameters(),
                domains: corpus.domains,
                watched_layers: blocks.len(),
                shape,
            },
            tokens,
            assumptions,
        })
    }

    /// The plan as tables for a terminal.
    pub fn table(&self) -> String {
        table::render(self)
    }
}

/// What the parts of a plan are computed from.
struct Parts<'a> {
    config: &'a RunConfig,
    shape: &'a ModelConfig,
    agent: &'a scheduler::PolicySize,
    domains: u64,
    watched_layers: u64,
    gpus: u64,
    precision: Precision,
}

impl Parts<'_> {
    /// Whether per-domain gradients are taken.
    fn takes_gradients(&self) -> bool {
        self.config.scheduler.policy.wants_rewards()
    }
}

fn corpus(
    config: &RunConfig,
    options: &PlanOptions,
    assumptions: &mut Vec<String>,
) -> Result<Corpus, PlanError> {
    let folder = &config.data.index;
    if let Some(manifest) = config.data.manifest_of(folder)? {
        return Ok(Corpus {
            domains: manifest.domains.len(),
            vocabulary: u64::from(manifest.tokenizer.vocabulary),
            tokens: Some(
                manifest
                    .domains
                    .iter()
                    .map(|domain| domain.split(Split::Train).tokens)
                    .sum(),
            ),
        });
    }
    let domains = options.domains.unwrap_or_else(|| {
        let (domains, why) = match &config.data.base_weights {
            BaseWeights::Table(table) => (table.len(), "as data.base_weights names"),
            BaseWeights::Named(NamedWeights::Pile) => (PILE_DOMAINS, "The Pile's"),
            BaseWeights::Named(_) => (PILE_DOMAINS, "The Pile's; --domains gives another number"),
        };
        assumptions.push(format!(
            "no index in {}: {domains} domains, {why}",
            folder.display()
        ));
        domains
    });
    let vocabulary = options.vocabulary.unwrap_or_else(|| {
        assumptions.push(format!(
            "no index in {}: {PYTHIA_VOCABULARY} ids, Pythia's tokenizer; --vocabulary gives another number",
            folder.display()
        ));
        PYTHIA_VOCABULARY
    });
    if domains == 0 {
        return Err(PlanError::Option {
            option: "domains",
            got: "0".to_owned(),
            want: "1 or more".to_owned(),
        });
    }
    Ok(Corpus {
        domains,
        vocabulary,
        tokens: None,
    })
}

fn tokens(
    config: &RunConfig,
    options: &PlanOptions,
    corpus: &Corpus,
    assumptions: &mut Vec<String>,
) -> Tokens {
    let (length, batch) = (
        config.data.sequence_length as u64,
        config.data.batch_size as u64,
    );
    let micro = config.micro_batch_size() as u64;
    let each = batch.div_ceil(options.gpus);
    if !batch.is_multiple_of(options.gpus) || !each.is_multiple_of(micro.min(each)) {
        assumptions.push(format!(
            "{batch} sequences do not divide into {} GPUs × passes of {micro}: some passes are counted that are not full",
            options.gpus
        ));
    }
    let per_step = batch.saturating_mul(length);
    let total = per_step.saturating_mul(config.run.steps);
    Tokens {
        sequence_length: length,
        batch_size: batch,
        micro_batch_size: micro.min(each),
        passes_per_step: each.div_ceil(micro.min(each).max(1)),
        per_step,
        steps: config.run.steps,
        total,
        in_index: corpus.tokens,
        epochs: corpus
            .tokens
            .filter(|&tokens| tokens > 0)
            .map(|tokens| total as f64 / tokens as f64),
    }
}

#[cfg(test)]
mod tests;
