//! Configuration that starts from a named preset: a TOML table is read over the preset's values.
//!
//! In: a table such as `{ preset = "paper", discount = 0.9 }` and the values of each preset. Out: the
//! whole configuration. Always holds: a key the configuration does not have is an error; a written
//! configuration (every key present) reads back equal. Leaves the meaning of the keys to their owners.

use serde::{Deserialize, Serialize};

/// Where a configuration starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// What works best by our measurements.
    #[default]
    Default,
    /// What the paper and its authors' code say, to the letter.
    Paper,
}

impl Preset {
    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Paper => "paper",
        }
    }
}

/// Reads `table` over the values of the preset that it names (or of [`Preset::Default`]).
///
/// `values` gives a preset's configuration as a table; `finish` reads the merged table.
///
/// # Errors
/// If `preset` names none, a value is of a wrong type, or a key is unknown.
pub fn overlay<T: Serialize, E: serde::de::Error>(
    table: toml::Table,
    values: impl FnOnce(Preset) -> T,
    finish: impl FnOnce(toml::Value) -> Result<T, toml::de::Error>,
) -> Result<T, E> {
    let preset = match table.get("preset") {
        Some(value) => Preset::deserialize(value.clone())
            .map_err(|e| E::custom(format!("preset: {}", e.message())))?,
        None => Preset::default(),
    };
    let mut merged = match toml::Value::try_from(values(preset)) {
        Ok(toml::Value::Table(merged)) => merged,
        Ok(_) => return Err(E::custom("a preset is a table")),
        Err(e) => return Err(E::custom(e)),
    };
    for (key, value) in table {
        merged.insert(key, value);
    }
    // Messages of a value's reader name the key; the caller's reader adds where the table stands.
    finish(toml::Value::Table(merged)).map_err(|e| E::custom(e.message()))
}

/// Implements `Serialize` and `Deserialize` for a configuration type that derives both with
/// `#[serde(remote = "Self")]` and has a `fn preset_values(Preset) -> Self`.
macro_rules! configuration_with_presets {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let table = <toml::Table as serde::Deserialize>::deserialize(deserializer)?;
                $crate::preset::overlay(table, <$type>::preset_values, <$type>::deserialize)
            }
        }
    };
}
pub(crate) use configuration_with_presets;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(remote = "Self", deny_unknown_fields)]
    struct Sample {
        preset: Preset,
        rate: f64,
        count: u64,
    }

    impl Sample {
        fn preset_values(preset: Preset) -> Self {
            match preset {
                Preset::Default => Self {
                    preset,
                    rate: 1.0,
                    count: 1,
                },
                Preset::Paper => Self {
                    preset,
                    rate: 2.0,
                    count: 2,
                },
            }
        }
    }
    configuration_with_presets!(Sample);

    #[test]
    fn keys_are_read_over_the_named_preset() {
        let sample: Sample = toml::from_str("preset = \"paper\"\ncount = 7").unwrap();
        assert_eq!(
            sample,
            Sample {
                preset: Preset::Paper,
                rate: 2.0,
                count: 7
            }
        );
        let sample: Sample = toml::from_str("rate = 3").unwrap();
        assert_eq!(
            sample,
            Sample {
                preset: Preset::Default,
                rate: 3.0,
                count: 1
            }
        );
    }

    #[test]
    fn a_written_configuration_reads_back_equal() {
        let sample = Sample {
            preset: Preset::Paper,
            rate: 0.1,
            count: 3,
        };
        let text = toml::to_string(&sample).unwrap();
        assert_eq!(toml::from_str::<Sample>(&text).unwrap(), sample);
        let json = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
    }

    #[test]
    fn unknown_keys_and_presets_are_refused_by_name() {
        let text = toml::from_str::<Sample>("speed = 1")
            .unwrap_err()
            .to_string();
        assert!(text.contains("speed") && text.contains("rate"), "{text}");
        let text = toml::from_str::<Sample>("preset = \"best\"")
            .unwrap_err()
            .to_string();
        assert!(text.contains("preset") && text.contains("best"), "{text}");
        let text = toml::from_str::<Sample>("count = \"x\"")
            .unwrap_err()
            .to_string();
        assert!(text.contains("invalid type"), "{text}");
    }
}
