//! The configuration of a run: one TOML file plus `--set key=value` overrides.
//!
//! In: TOML text and overrides. Out: a checked [`RunConfig`]; every error names the dotted key. The
//! resolved form, defaults filled in, is written into the run folder. The parts that other modules
//! read (model, optimizer, reward, scheduler) are structs of theirs.

use std::fs;
use std::path::{Path, PathBuf};

use hds::MixtureError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::data_section::DataSection;
use super::optimizer_section::OptimizerSection;
use super::overrides;
use super::precision::Precision;
use super::preset_values;
use crate::distributed::DistributedSection;
use crate::gradients::{GradientMode, LayerChoice};
use crate::model::ModelSettings;
use crate::reward::RewardConfig;
use crate::scheduler::SchedulerConfig;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no TOML.
    #[error("configuration {path} is no TOML: {source}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// A key is unknown or has a value of the wrong type.
    #[error("configuration key {key}: {reason}")]
    Key {
        /// Dotted key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// An override is not `key=value`.
    #[error("--set {text:?} is not of the form key=value, for example --set run.steps=500")]
    Override {
        /// What was given.
        text: String,
    },
    /// The base weights do not fit the index.
    #[error("configuration key data.base_weights: {source}")]
    BaseWeights {
        /// What is wrong.
        source: MixtureError,
    },
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Length, seed and machine.
    pub run: RunSection,
    /// What is trained on.
    pub data: DataSection,
    /// The model.
    pub model: ModelSettings,
    /// AdamW, its schedule and clipping.
    pub optimizer: OptimizerSection,
    /// Held-out perplexity.
    pub evaluation: EvaluationSection,
    /// Saving.
    pub checkpoint: CheckpointSection,
    /// Per-domain gradients.
    pub signals: SignalsSection,
    /// The reward's terms.
    pub reward: RewardConfig,
    /// The policy.
    pub scheduler: SchedulerConfig,
    /// How long ranks wait for one another.
    pub distributed: DistributedSection,
}

/// More than any machine has cores; libtorch starts them all at its first product.
pub(super) const MOST_THREADS: u32 = 1024;

/// `[run]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// Optimizer steps, T.
    pub steps: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// `cpu` or `cuda` or `cuda:N`.
    pub device: String,
    /// CPU threads of the tensor library; 0 takes all cores.
    pub threads: u32,
    /// Numbers of the forward and backward passes.
    pub precision: Precision,
    /// Whether activations are computed again in the backward pass rather than kept.
    pub recompute: bool,
    /// Steps in a row whose loss or gradient is not finite before the run gives up.
    pub max_bad_steps: u64,
    /// Whether metrics are written as TensorBoard event files too.
    pub tensorboard: bool,
}

impl Default for RunSection {
    fn default() -> Self {
        // 41,667 steps: the paper's Pythia-1B run (50 B tokens). Ten bad steps in a row: our choice, far
        // more than loss spikes of a healthy run last.
        Self {
            steps: 41_667,
            seed: 1,
            device: "cpu".into(),
            threads: 0,
            precision: Precision::default(),
            recompute: false,
            max_bad_steps: 10,
            tensorboard: true,
        }
    }
}

/// `[evaluation]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationSection {
    /// Steps between two evaluations; 0 evaluates at the start and the end only.
    pub interval_steps: u64,
    /// Held-out sequences per domain at most.
    pub sequences_per_domain: u64,
    /// Sequences per forward pass; 0 takes `data.micro_batch_size`.
    pub batch_size: usize,
}

impl Default for EvaluationSection {
    fn default() -> Self {
        // Paper: every 417 steps, 5,000 samples per domain at most.
        Self {
            interval_steps: 417,
            sequences_per_domain: 5000,
            batch_size: 0,
        }
    }
}

/// `[checkpoint]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Steps between two checkpoints; one is always written at the end and on SIGINT or SIGTERM.
    pub interval_steps: u64,
    /// Newest checkpoints kept; older ones are removed after a newer one is whole.
    pub keep: usize,
    /// Checkpoints whose step is a multiple of this are kept for good, beside the newest; 0 for none.
    pub keep_every: u64,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        // Our choice: about every quarter of an hour at the paper's 2.5 s a step; one to fall back on.
        Self {
            interval_steps: 400,
            keep: 2,
            keep_every: 0,
        }
    }
}

/// `[signals]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignalsSection {
    /// Held-out sequences a step of each domain that `data.target` weighs and that has no training text.
    pub target_sequences: u64,
    /// Blocks whose `mlp.dense_4h_to_h` is watched: `early`, `middle`, `late`, numbers, depths in
    /// [0, 1], or names.
    pub layers: LayerChoice,
    /// How their per-domain gradients are kept: `{ kind = "exact" }` or
    /// `{ kind = "sketch", rank = 64, seed = 0 }`.
    pub gradients: GradientMode,
}

impl Default for SignalsSection {
    fn default() -> Self {
        // Two a step: one would leave its gradient's variance unknown.
        Self {
            target_sequences: 2,
            layers: LayerChoice::default(),
            gradients: GradientMode::default(),
        }
    }
}

impl RunConfig {
    /// Reads a file and applies overrides, each `dotted.key=value` with the value in TOML (a bare word
    /// is a string).
    ///
    /// # Errors
    /// If the file cannot be read or parsed, a key is unknown, or a value is out of range.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path, overrides)
    }

    /// As [`Self::load`], from text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|source| ConfigError::Syntax {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        let file = table.clone();
        for text in overrides {
            overrides::apply(&mut table, text)?;
        }
        overrides::check_presets(&file, &table)?;
        preset_values::fill(&mut table);
        let config: Self =
            serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|e| {
                ConfigError::Key {
                    key: e.path().to_string(),
                    reason: e.inner().message().trim().to_owned(),
                }
            })?;
        config.validate()?;
        Ok(config)
    }

    /// The configuration as TOML with every default filled in.
    ///
    /// # Errors
    /// If a value cannot be written as TOML (a bug of ours).
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|e| ConfigError::Key {
            key: "(all)".into(),
            reason: e.to_string(),
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let fail = |key: &str, reason: String| {
            Err(ConfigError::Key {
                key: key.to_owned(),
                reason,
            })
        };
        if self.data.index.as_os_str().is_empty() {
            let reason = "missing; give the folder of an index, for example --set data.index=index";
            return fail("data.index", reason.into());
        }
        if let Err(reason) = self.data.remote().check() {
            let (key, reason) = reason.split_once(": ").unwrap_or(("cache", &reason));
            return fail(&format!("data.{key}"), reason.to_owned());
        }
        for (key, value) in [
            ("run.steps", self.run.steps),
            ("run.max_bad_steps", self.run.max_bad_steps),
            ("data.sequence_length", self.data.sequence_length as u64),
            ("data.batch_size", self.data.batch_size as u64),
            (
                "evaluation.sequences_per_domain",
                self.evaluation.sequences_per_domain,
            ),
            ("checkpoint.interval_steps", self.checkpoint.interval_steps),
            ("checkpoint.keep", self.checkpoint.keep as u64),
            ("distributed.join_seconds", self.distributed.join_seconds),
            (
                "distributed.operation_seconds",
                self.distributed.operation_seconds,
            ),
        ] {
            if value == 0 {
                return fail(key, "must be at least 1".into());
            }
        }
        if let GradientMode::Sketch { rank: 0, .. } = self.signals.gradients {
            return fail("signals.gradients.rank", "must be at least 1".into());
        }
        if self.run.threads > MOST_THREADS {
            let reason = format!("{}, must be at most {MOST_THREADS}", self.run.threads);
            return fail("run.threads", reason);
        }
        if i64::try_from(self.run.seed).is_err() {
            return fail("run.seed", "must be below 2^63".into());
        }
        if self.micro_batch_size() > self.data.batch_size
            || !self.data.batch_size.is_multiple_of(self.micro_batch_size())
        {
            let reason = format!(
                "{} does not divide data.batch_size = {}",
                self.data.micro_batch_size, self.data.batch_size
            );
            return fail("data.micro_batch_size", reason);
        }
        self.optimizer.validate(self.run.steps)?;
        self.reward.validate().map_err(|e| ConfigError::Key {
            key: "reward".into(),
            reason: e.to_string(),
        })?;
        self.scheduler.validate().map_err(|e| ConfigError::Key {
            key: "scheduler".into(),
            reason: e.to_string(),
        })
    }

    /// Sequences per forward and backward pass.
    pub fn micro_batch_size(&self) -> usize {
        if self.data.micro_batch_size == 0 {
            self.data.batch_size
        } else {
            self.data.micro_batch_size
        }
    }

    /// Sequences per forward pass of an evaluation.
    pub fn evaluation_batch_size(&self) -> usize {
        if self.evaluation.batch_size == 0 {
            self.micro_batch_size()
        } else {
            self.evaluation.batch_size
        }
    }
}

#[cfg(test)]
mod tests {
    use hds::DomainSet;

    use super::super::data_section::{BaseWeights, NamedWeights};
    use super::*;

    fn parse(text: &str, overrides: &[&str]) -> Result<RunConfig, ConfigError> {
        let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
        RunConfig::parse(text, Path::new("x.toml"), &overrides)
    }

    #[test]
    fn overrides_win_and_the_resolved_form_reads_back_equal() {
        let config = parse(
            "[data]\nindex = \"i\"\nbatch_size = 8\nmicro_batch_size = 4",
            &[
                "run.steps=12",
                "data.base_weights=uniform",
                "run.device=cpu",
            ],
        )
        .unwrap();
        assert_eq!(config.run.steps, 12);
        assert_eq!(
            config.data.base_weights,
            BaseWeights::Named(NamedWeights::Uniform)
        );
        let again = parse(&config.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(config, again);
    }

    #[test]
    fn errors_name_the_dotted_key() {
        for (text, overrides, expected) in [
            ("", &[][..], "data.index"),
            ("[data]\nindex=\"i\"\nbatch=3", &[], "data"),
            ("[data]\nindex=\"i\"", &["run.steps=abc"], "run.steps"),
            ("[data]\nindex=\"i\"", &["run.steps=0"], "run.steps"),
            ("[data]\nindex=\"i\"", &["run.steps"], "key=value"),
            (
                "[data]\nindex=\"i\"",
                &["data.micro_batch_size=7"],
                "data.micro_batch_size",
            ),
            ("[data]\nindex=\"i\"", &["data.index.x=7"], "data.index.x"),
            ("[data\n", &[], "no TOML"),
        ] {
            let error = parse(text, overrides).unwrap_err().to_string();
            assert!(error.contains(expected), "expected {expected} in: {error}");
        }
    }

    #[test]
    fn base_weights_follow_their_rule() {
        let domains = DomainSet::new(["a", "b"]).unwrap();
        let named = |n| BaseWeights::Named(n).resolve(&domains, &[30, 10]);
        assert_eq!(
            named(NamedWeights::Natural).unwrap().weights(),
            [0.75, 0.25]
        );
        assert_eq!(named(NamedWeights::Uniform).unwrap().weights(), [0.5, 0.5]);
        assert!(
            named(NamedWeights::Pile)
                .unwrap_err()
                .to_string()
                .contains("\"a\"")
        );
        let table = |entries: &[(&str, f64)]| {
            BaseWeights::Table(entries.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect())
                .resolve(&domains, &[1, 1])
        };
        assert_eq!(
            table(&[("a", 1.0), ("b", 3.0)]).unwrap().weights(),
            [0.25, 0.75]
        );
        assert!(
            table(&[("a", 1.0)])
                .unwrap_err()
                .to_string()
                .contains("\"b\"")
        );
        assert!(table(&[("a", 1.0), ("b", 1.0), ("c", 1.0)]).is_err());
    }
}
