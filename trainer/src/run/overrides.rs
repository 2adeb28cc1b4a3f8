//! Overrides of a run's configuration, `dotted.key=value`.
//!
//! In: a table and the text of an override. Out: the table with the value in its place. Always holds: a
//! text is one key and one value, or an error; nothing of it is dropped.

use super::config::ConfigError;
use crate::reward::RewardConfig;
use crate::scheduler::HdsConfig;

/// Puts a value into its place. The value is TOML, or a bare word for a string.
///
/// # Errors
/// If the text is no `key=value`, the key leads through something that is no table, or the value is a
/// number that TOML cannot hold.
pub(super) fn apply(table: &mut toml::Table, text: &str) -> Result<(), ConfigError> {
    let bad = || ConfigError::Override {
        text: text.to_owned(),
    };
    let (key, raw) = text.split_once('=').ok_or_else(bad)?;
    // A line break would begin another key, which must not be dropped.
    if text.contains(char::is_control) {
        return Err(bad());
    }
    let value = match toml::from_str::<toml::Table>(&format!("v = {raw}")) {
        Ok(mut parsed) => parsed.remove("v").ok_or_else(bad)?,
        Err(_) if raw.trim().parse::<f64>().is_ok() => {
            return Err(ConfigError::Key {
                key: key.to_owned(),
                reason: format!("{raw} is no number that TOML has; whole ones are below 2^63"),
            });
        }
        Err(_) => toml::Value::String(raw.to_owned()),
    };
    let mut parts: Vec<&str> = key.split('.').map(str::trim).collect();
    let last = parts.pop().filter(|p| !p.is_empty()).ok_or_else(bad)?;
    let mut place = table;
    for part in parts {
        let next = place
            .entry(part.to_owned())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = match next {
            toml::Value::Table(inner) => inner,
            other => {
                return Err(ConfigError::Key {
                    key: key.to_owned(),
                    reason: format!("{part} is {}, not a table", other.type_str()),
                });
            }
        };
    }
    place.insert(last.to_owned(), value);
    Ok(())
}

/// Refuses to put another preset over a section of which the file gives every key, as a run folder's `config.toml` does:
/// nothing but its name would change.
///
/// # Errors
/// Names the preset's key.
pub(super) fn check_presets(table: &toml::Table, overrides: &[String]) -> Result<(), ConfigError> {
    let keys = |value: Result<toml::Value, toml::ser::Error>| match value {
        Ok(toml::Value::Table(table)) => table,
        _ => toml::Table::new(),
    };
    let sections = [
        (
            "reward",
            keys(toml::Value::try_from(RewardConfig::default())),
        ),
        (
            "scheduler.hds",
            keys(toml::Value::try_from(HdsConfig::default())),
        ),
    ];
    for (section, all) in sections {
        let key = format!("{section}.preset");
        let Some(wanted) = overrides.iter().rev().find_map(|text| {
            let (name, value) = text.split_once('=')?;
            (name.trim() == key).then(|| value.trim().trim_matches('"'))
        }) else {
            continue;
        };
        let mut place = Some(table);
        for part in section.split('.') {
            place = place.and_then(|table| table.get(part)?.as_table());
        }
        let Some(given) = place else { continue };
        let complete = all.keys().all(|key| given.contains_key(key));
        let same = given.get("preset").and_then(|v| v.as_str()) == Some(wanted);
        if complete && !same {
            let reason = format!(
                "the file gives every key of [{section}], so the preset would change its own name only; \
                 start from the file that the run was made of"
            );
            return Err(ConfigError::Key { key, reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_toml_or_a_bare_word_and_never_two() {
        let mut table = toml::Table::new();
        for (text, want) in [
            ("a.b=3", "3"),
            ("a.b=[1, 2]", "[1, 2]"),
            ("a.b=fixed", "\"fixed\""),
            ("a.b=/data/pile 1", "\"/data/pile 1\""),
        ] {
            apply(&mut table, text).unwrap();
            assert_eq!(table["a"]["b"].to_string(), want);
        }
        for (text, want) in [
            ("a.b=4\nseed = 99", "key=value"),
            ("a.b", "key=value"),
            ("a.=1", "key=value"),
            ("a.b.c=1", "b is array"),
            ("a.n=18446744073709551615", "below 2^63"),
        ] {
            table.insert("a".into(), toml::from_str::<toml::Value>("b = []").unwrap());
            let error = apply(&mut table, text).unwrap_err().to_string();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_preset_that_could_change_only_its_name_is_refused() {
        let reward = toml::Value::try_from(RewardConfig::default()).unwrap();
        let mut table = toml::Table::from_iter([("reward".to_owned(), reward)]);
        let check = |table: &toml::Table, text: &str| check_presets(table, &[text.to_owned()]);
        let error = check(&table, "reward.preset=paper")
            .unwrap_err()
            .to_string();
        assert!(error.contains("reward.preset"), "{error}");
        check(&table, "reward.preset=default").unwrap();
        check(&table, "scheduler.hds.preset=paper").unwrap();
        table["reward"].as_table_mut().unwrap().remove("clamp");
        check(&table, "reward.preset=paper").unwrap();
    }
}
