//! `[data]` of a run's configuration: the index, how it is read, what a batch is, base weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hds::index::{IndexError, Manifest};
use hds::{DomainSet, Mixture};
use hds_loader::{Access, ByteSize, Fetch, Index, RemoteOptions, is_remote};
use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use super::target::Target;
use crate::scheduler::pile_weights;

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataSection {
    /// Folder or URL of the index.
    pub index: PathBuf,
    /// How its files are read: `map`, or `read` where maps are slow or the files may change under the run.
    pub access: Access,
    /// Folder that keeps what is fetched of an index behind a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Most bytes of that folder.
    pub cache_limit: ByteSize,
    /// Bytes fetched together.
    pub cache_piece: ByteSize,
    /// When bytes of a remote file are used.
    pub fetch: Fetch,
    /// Tokens the model predicts per sequence, L.
    pub sequence_length: usize,
    /// Sequences per optimizer step, B.
    pub batch_size: usize,
    /// Sequences per forward and backward pass; 0 takes the whole batch at once.
    pub micro_batch_size: usize,
    /// Sequences that every domain of positive base weight gets at the least in each batch.
    pub minimum_per_domain: usize,
    /// How far a token sees back.
    pub attention: Attention,
    /// Which tokens' losses count.
    pub loss: CountedLosses,
    /// Weights before and without an agent: `natural`, `uniform`, `pile`, or a table by domain.
    pub base_weights: BaseWeights,
    /// What the run should get good at: `uniform`, `base`, or a table by domain.
    pub target: Target,
}

impl Default for DataSection {
    fn default() -> Self {
        // Paper, section 5 of the method: L = 1024, B = 1152 as 8 GPUs × 8 × 18.
        let remote = RemoteOptions::default();
        Self {
            index: PathBuf::new(),
            access: Access::Map,
            cache: remote.cache,
            cache_limit: remote.cache_limit,
            cache_piece: remote.piece,
            fetch: remote.fetch,
            sequence_length: 1024,
            batch_size: 1152,
            micro_batch_size: 8,
            minimum_per_domain: 0,
            attention: Attention::default(),
            loss: CountedLosses::default(),
            base_weights: BaseWeights::Named(NamedWeights::Natural),
            target: Target::default(),
        }
    }
}

impl DataSection {
    /// The manifest of the index at a place, this section's or another; `None` where there is no such folder.
    ///
    /// # Errors
    /// If it is damaged, or a server is of no use.
    pub fn manifest_of(&self, place: &Path) -> Result<Option<Manifest>, IndexError> {
        if is_remote(place) {
            let index = Index::open_from(place, self.access, &self.remote())?;
            return Ok(Some(index.manifest().clone()));
        }
        if !place.exists() {
            return Ok(None);
        }
        Ok(Some(Manifest::load(place)?.0))
    }

    /// How an index behind a URL is read.
    pub fn remote(&self) -> RemoteOptions {
        RemoteOptions {
            cache: self.cache.clone(),
            cache_limit: self.cache_limit,
            piece: self.cache_piece,
            fetch: self.fetch,
            ..RemoteOptions::default()
        }
    }
}

/// How far a token sees back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// To the beginning of its sequence, over documents' ends, as Pythia was trained.
    #[default]
    Sequence,
    /// To the beginning of its document.
    Document,
}

/// Which tokens' losses count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedLosses {
    /// All.
    #[default]
    All,
    /// Not those of documents' first tokens, which nothing before them says anything of.
    WithinDocuments,
}

/// The weights of the corpus itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be \"natural\", \"uniform\", \"pile\" or a weight for each domain, { name = 0.5, ... }"
)]
pub enum BaseWeights {
    /// By rule.
    Named(NamedWeights),
    /// By domain; any positive sum, divided by it. Every domain of the index must be named.
    Table(BTreeMap<String, f64>),
}

/// Rules for base weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedWeights {
    /// Proportional to the training tokens of each domain.
    Natural,
    /// The same for every domain.
    Uniform,
    /// The Pile's published weights; the index's domains must be The Pile's sets.
    Pile,
}

impl BaseWeights {
    /// The mixture over the index's domains; `tokens` are each domain's training tokens.
    ///
    /// # Errors
    /// If a domain has no weight, a name is no domain of the index, or the weights are no mixture.
    pub fn resolve(&self, domains: &DomainSet, tokens: &[u64]) -> Result<Mixture, ConfigError> {
        let from_table = |lookup: &dyn Fn(&str) -> Option<f64>| {
            domains
                .names()
                .iter()
                .map(|name| {
                    lookup(name).ok_or_else(|| ConfigError::Key {
                        key: "data.base_weights".into(),
                        reason: format!("no weight for domain {name:?} of the index"),
                    })
                })
                .collect::<Result<Vec<f64>, _>>()
        };
        let raw = match self {
            Self::Named(NamedWeights::Uniform) => vec![1.0; domains.len()],
            Self::Named(NamedWeights::Natural) => tokens.iter().map(|&t| t as f64).collect(),
            Self::Named(NamedWeights::Pile) => {
                return pile_weights(domains).map_err(|e| ConfigError::Key {
                    key: "data.base_weights".into(),
                    reason: e.to_string(),
                });
            }
            Self::Table(table) => {
                for name in table.keys() {
                    domains.find(name).map_err(|e| ConfigError::Key {
                        key: format!("data.base_weights.{name}"),
                        reason: e.to_string(),
                    })?;
                }
                from_table(&|name| table.get(name).copied())?
            }
        };
        Mixture::normalized(raw, domains).map_err(|source| ConfigError::BaseWeights { source })
    }
}
