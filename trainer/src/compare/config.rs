//! The TOML file of a comparison.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CompareError;
use crate::report::CONFIG_FILE;
use crate::run::{RunConfig, check_same_run};

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
        let budget =
            |run: &RunConfig| (run.run.steps, run.data.batch_size, run.data.sequence_length);
        let mut first = None;
        for policy in &config.policy {
            let run = config.of_run(policy, config.seeds[0])?;
            if *first.get_or_insert(budget(&run)) != budget(&run) {
                return Err(fail(format!(
                    "policy {:?} has other run.steps, data.batch_size or data.sequence_length than those before it",
                    policy.name
                )));
            }
        }
        Ok(config)
    }

    /// The configuration of one run.
    fn of_run(&self, policy: &PolicyEntry, seed: u64) -> Result<RunConfig, CompareError> {
        let overrides = self.overrides(policy, seed);
        RunConfig::load(&self.run, &overrides).map_err(|source| CompareError::Run {
            policy: policy.name.clone(),
            source,
        })
    }

    /// Refuses runs that are there and were made with another configuration, finished or not.
    ///
    /// # Errors
    /// Names the first such run and what differs.
    pub fn check_runs(&self, out: &Path) -> Result<(), CompareError> {
        for policy in &self.policy {
            for &seed in &self.seeds {
                let saved = Self::folder(out, policy, seed).join(CONFIG_FILE);
                if saved.exists() {
                    check_same_run(&saved, &self.of_run(policy, seed)?).map_err(|source| {
                        CompareError::OtherRun {
                            source: Box::new(source),
                        }
                    })?;
                }
            }
        }
        Ok(())
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
        let mut all = self
            .set
            .iter()
            .chain(self.policy.iter().flat_map(|p| &p.set));
        if all.any(|text| {
            text.split('=')
                .next()
                .is_some_and(|key| key.trim() == "run.seed")
        }) {
            return Err("run.seed is set; give seeds instead".into());
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
