//! The TOML file of a comparison.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CompareError;
use crate::run::RunConfig;

/// Most runs at a time; each holds a model.
const MOST_AT_ONCE: usize = 256;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareConfig {
    /// Configuration of a run that all share; relative to this file.
    pub run: PathBuf,
    /// Overrides that all share.
    #[serde(default)]
    pub set: Vec<String>,
    /// Each policy is run with each: the same initial weights and the same draws where weights are the same.
    pub seeds: Vec<u64>,
    /// Runs at a time.
    #[serde(default = "one")]
    pub at_once: usize,
    /// Name of the policy that the others are measured against, the paper's TPW.
    pub baseline: String,
    /// The policies.
    pub policy: Vec<PolicyEntry>,
}

/// One policy of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyEntry {
    /// Its name in tables and folders.
    pub name: String,
    /// What makes it: overrides of the run's configuration.
    #[serde(default)]
    pub set: Vec<String>,
}

fn one() -> usize {
    1
}

impl CompareConfig {
    /// Reads and checks a file, and with it the configuration of every run.
    ///
    /// # Errors
    /// If it cannot be read, a key is unknown, or a run's configuration is wrong.
    pub fn load(path: &Path) -> Result<Self, CompareError> {
        let fail = |reason: String| CompareError::Config {
            path: path.to_owned(),
            reason,
        };
        let text = fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
        let mut config: Self = toml::from_str(&text).map_err(|e| fail(e.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.run = folder.join(&config.run);
        config.check().map_err(fail)?;
        for policy in &config.policy {
            let overrides = config.overrides(policy, config.seeds[0]);
            RunConfig::load(&config.run, &overrides).map_err(|source| CompareError::Run {
                policy: policy.name.clone(),
                source,
            })?;
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let mut names = BTreeSet::new();
        for PolicyEntry { name, .. } in &self.policy {
            if name.is_empty() || name.starts_with('.') || !name.chars().all(good) {
                return Err(format!(
                    "policy {name:?}: a name is letters, digits, '.', '_' and '-', not beginning with '.'"
                ));
            }
            if !names.insert(name) {
                return Err(format!("policy {name:?} is there twice"));
            }
        }
        if !names.contains(&self.baseline) {
            return Err(format!("baseline {:?} is no policy", self.baseline));
        }
        if self.seeds.is_empty() {
            return Err("seeds is empty; give at least one, better three".into());
        }
        if self.seeds.iter().collect::<BTreeSet<_>>().len() < self.seeds.len() {
            return Err("a seed is there twice".into());
        }
        if !(1..=MOST_AT_ONCE).contains(&self.at_once) {
            return Err(format!(
                "at_once is {}, must be 1 to {MOST_AT_ONCE}",
                self.at_once
            ));
        }
        Ok(())
    }

    /// The overrides of one run.
    pub fn overrides(&self, policy: &PolicyEntry, seed: u64) -> Vec<String> {
        let shared = self.set.iter().chain(&policy.set).cloned();
        shared.chain([format!("run.seed={seed}")]).collect()
    }

    /// The folder of one run.
    pub fn folder(out: &Path, policy: &PolicyEntry, seed: u64) -> PathBuf {
        out.join("runs")
            .join(&policy.name)
            .join(format!("seed-{seed}"))
    }
}
