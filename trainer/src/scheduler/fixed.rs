//! The policy that changes nothing: the same weights at every step.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use hds::Mixture;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::{Decision, Policy, RunFacts, pile_weights, saved};
use crate::signals::Observation;

/// Which weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FixedMixture {
    /// The run's base weights.
    Base,
    /// 1/K each.
    Uniform,
    /// In proportion to the domains' training tokens.
    Natural,
    /// The Pile's weights, for its domains.
    Pile,
    /// Those of `weights`, by domain.
    Given,
    /// Those of the JSON file `file`, an object of domain names and weights.
    File,
}

/// `[scheduler.fixed]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FixedConfig {
    /// Which weights.
    pub mixture: FixedMixture,
    /// Weight per domain for `mixture = "given"`; every domain is named; they are divided by their sum.
    pub weights: BTreeMap<String, f64>,
    /// File of weights for `mixture = "file"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl Default for FixedConfig {
    fn default() -> Self {
        Self {
            mixture: FixedMixture::Base,
            weights: BTreeMap::new(),
            file: None,
        }
    }
}

impl FixedConfig {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let missing = |key: &str, want: &str| {
            Err(PolicyError::Config {
                key: format!("scheduler.fixed.{key}"),
                got: "missing".into(),
                want: want.into(),
            })
        };
        match self.mixture {
            FixedMixture::Given if self.weights.is_empty() => {
                missing("weights", "a table of domain names and weights")
            }
            FixedMixture::File if self.file.is_none() => missing(
                "file",
                "the path of a JSON object of domain names and weights",
            ),
            _ => Ok(()),
        }
    }
}

/// The same weights at every step.
#[derive(Debug)]
pub(super) struct FixedPolicy {
    weights: Vec<f64>,
}

impl FixedPolicy {
    pub(super) fn new(config: &FixedConfig, run: &RunFacts<'_>) -> Result<Self, PolicyError> {
        let named = |key: &'static str, by_name: &BTreeMap<String, f64>| {
            for name in by_name.keys() {
                run.domains
                    .find(name)
                    .map_err(|source| PolicyError::Domain { key, source })?;
            }
            let weights = run.domains.names().iter().map(|name| {
                by_name
                    .get(name)
                    .copied()
                    .ok_or_else(|| PolicyError::Config {
                        key: format!("{key}.{name:?}"),
                        got: "missing".into(),
                        want: "a weight for every domain (0 leaves one out)".into(),
                    })
            });
            Mixture::normalized(weights.collect::<Result<_, _>>()?, run.domains)
                .map_err(|source| PolicyError::Weights { key, source })
        };
        let mixture = match config.mixture {
            FixedMixture::Base => {
                Mixture::new(run.base_weights.clone(), run.domains).map_err(|source| {
                    PolicyError::Weights {
                        key: "base weights",
                        source,
                    }
                })?
            }
            FixedMixture::Uniform => Mixture::uniform(run.domains),
            FixedMixture::Natural => {
                let tokens = run.natural_tokens.iter().map(|&n| n as f64).collect();
                Mixture::normalized(tokens, run.domains).map_err(|source| PolicyError::Weights {
                    key: "training tokens per domain",
                    source,
                })?
            }
            FixedMixture::Pile => pile_weights(run.domains)?,
            FixedMixture::Given => named("scheduler.fixed.weights", &config.weights)?,
            FixedMixture::File => {
                let path = config.file.as_deref().unwrap_or(Path::new(""));
                let bytes = hds::durable::read_regular(path, MOST_BYTES)
                    .map_err(|e| saved::file_error(path, e))?;
                let by_name: Unrepeated =
                    serde_json::from_slice(&bytes).map_err(|e| saved::file_error(path, e))?;
                named("scheduler.fixed.file", &by_name.0)?
            }
        };
        Ok(Self {
            weights: mixture.weights().to_vec(),
        })
    }
}

/// A JSON object of which no name stands there twice: of two weights of a domain nobody knows which is meant.
struct Unrepeated(BTreeMap<String, f64>);

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = BTreeMap<String, f64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of domain names and weights")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut weights = BTreeMap::new();
                while let Some((name, weight)) = map.next_entry::<String, f64>()? {
                    let text = format!("domain {name:?} has two weights; leave one");
                    if weights.insert(name, weight).is_some() {
                        return Err(serde::de::Error::custom(text));
                    }
                }
                Ok(weights)
            }
        }
        deserializer.deserialize_map(Names).map(Self)
    }
}

/// Longest file of weights.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    weights: Vec<f64>,
}

impl Policy for FixedPolicy {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn initial(&mut self) -> Vec<f64> {
        self.weights.clone()
    }

    fn next(&mut self, _observation: &Observation) -> Result<Decision, PolicyError> {
        Ok(Decision {
            weights: self.weights.clone(),
            diagnostics: BTreeMap::new(),
        })
    }

    fn save(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state = State {
            weights: self.weights.clone(),
        };
        saved::write(folder, self.name(), &state)
    }

    fn restore(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let state: State = saved::read(folder, self.name())?;
        if state.weights != self.weights {
            return Err(PolicyError::State {
                path: folder.join("policy.json"),
                field: "weights".into(),
                got: format!("{:?}", state.weights),
                want: format!("{:?}", self.weights),
            });
        }
        Ok(())
    }

    fn parameters(&self) -> u64 {
        0
    }

    fn wants_rewards(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{facts, observation};
    use super::super::{SchedulerConfig, build};
    use super::*;
    use hds::DomainSet;

    fn initial(text: &str) -> Result<Vec<f64>, PolicyError> {
        let domains = DomainSet::new(["a", "b"]).unwrap();
        let config: SchedulerConfig = toml::from_str(text).unwrap();
        let mut run = facts(&domains, 10);
        run.base_weights = vec![0.25, 0.75];
        run.natural_tokens = vec![3, 1];
        build(&config, &run).map(|mut policy| policy.initial())
    }

    #[test]
    fn each_mixture_gives_its_weights() {
        let fixed = |what: &str| initial(&format!("policy = 'fixed'\nfixed.mixture = '{what}'"));
        assert_eq!(fixed("base").unwrap(), [0.25, 0.75]);
        assert_eq!(fixed("uniform").unwrap(), [0.5, 0.5]);
        assert_eq!(fixed("natural").unwrap(), [0.75, 0.25]);
        let given = "policy = 'fixed'\nfixed = {mixture = 'given', weights = {b = 3, a = 1}}";
        assert_eq!(initial(given).unwrap(), [0.25, 0.75]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weights.json");
        std::fs::write(&file, r#"{"a": 1, "b": 4}"#).unwrap();
        let text = format!("policy = 'fixed'\nfixed = {{mixture = 'file', file = {file:?}}}");
        assert_eq!(initial(&text).unwrap(), [0.2, 0.8]);
        std::fs::write(&file, r#"{"a": 1, "b": 4, "a": 2}"#).unwrap();
        let error = initial(&text).unwrap_err().to_string();
        assert!(
            error.contains("weights.json") && error.contains("\"a\" has two weights"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_dotted_key_and_the_domain() {
        for (text, want) in [
            ("fixed.mixture = 'given'", "scheduler.fixed.weights"),
            ("fixed.mixture = 'file'", "scheduler.fixed.file"),
            ("fixed = {mixture = 'given', weights = {a = 1}}", "\"b\""),
            (
                "fixed = {mixture = 'given', weights = {a = 1, b = 1, c = 1}}",
                "\"c\"",
            ),
            (
                "fixed = {mixture = 'given', weights = {a = 1, b = -1}}",
                "\"b\"",
            ),
            (
                "fixed = {mixture = 'file', file = '/no/such/file'}",
                "/no/such/file",
            ),
            ("fixed.mixture = 'pile'", "\"a\""),
        ] {
            let error = initial(&format!("policy = 'fixed'\n{text}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn weights_stay_and_a_state_of_other_weights_is_refused() {
        let domains = DomainSet::new(["a", "b"]).unwrap();
        let run = facts(&domains, 10);
        let config: SchedulerConfig = toml::from_str("policy = 'fixed'").unwrap();
        let mut policy = build(&config, &run).unwrap();
        let weights = policy.initial();
        assert_eq!(
            policy.next(&observation(2, 0, &weights)).unwrap().weights,
            weights
        );
        let dir = tempfile::tempdir().unwrap();
        policy.save(dir.path()).unwrap();
        policy.restore(dir.path()).unwrap();
        let mut other = run.clone();
        other.base_weights = vec![0.1, 0.9];
        let error = build(&config, &other)
            .unwrap()
            .restore(dir.path())
            .unwrap_err();
        assert!(error.to_string().contains("policy.json"), "{error}");
    }
}
