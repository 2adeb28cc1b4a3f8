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

/// Refuses another preset over a section of which the file gives every key, as a run folder's `config.toml` does: nothing but
/// its name would change. `before` is the file's table, `after` the same with all overrides in their places, in whatever form
/// they were given. A whole section that an override gives takes the file's keys away with it, and is what it says.
///
/// # Errors
/// Names the preset's key.
pub(super) fn check_presets(before: &toml::Table, after: &toml::Table) -> Result<(), ConfigError> {
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
        let of = |table| section_of(table, section);
        let (Some(file), Some(now)) = (of(before), of(after)) else {
            continue;
        };
        let complete = |table: &toml::Table| all.keys().all(|key| table.contains_key(key));
        if complete(file) && complete(now) && file.get("preset") != now.get("preset") {
            let reason = format!(
                "the file gives every key of [{section}], so the preset would change its own name only; \
                 start from the file that the run was made of"
            );
            let key = format!("{section}.preset");
            return Err(ConfigError::Key { key, reason });
        }
    }
    Ok(())
}

fn section_of<'a>(table: &'a toml::Table, section: &str) -> Option<&'a toml::Table> {
    let mut parts = section.split('.');
    parts.try_fold(table, |table, part| table.get(part)?.as_table())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::RunConfig;
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
        let check = |table: &toml::Table, text: &str| {
            let mut after = table.clone();
            apply(&mut after, text).unwrap();
            check_presets(table, &after)
        };
        for text in [
            "reward.preset=paper",
            "reward . preset=paper",
            "reward.preset='paper'",
        ] {
            let error = check(&table, text).unwrap_err().to_string();
            assert!(error.contains("reward.preset"), "{text}: {error}");
        }
        for text in [
            "reward.preset=default",
            "reward.preset='default'",
            "scheduler.hds.preset=paper",
            "reward={preset=\"paper\"}",
        ] {
            check(&table, text).unwrap();
        }
        table["reward"].as_table_mut().unwrap().remove("clamp");
        check(&table, "reward.preset=paper").unwrap();
    }

    #[test]
    fn a_whole_section_takes_the_place_of_the_files() {
        // A run folder's configuration gives every key.
        let folders = RunConfig::parse("[data]\nindex = \"i\"", Path::new("x.toml"), &[]);
        let folders = folders.unwrap().to_toml().unwrap();
        let with = |text: &str| RunConfig::parse(&folders, Path::new("x.toml"), &[text.to_owned()]);
        let paper: RewardConfig = toml::from_str("preset = \"paper\"").unwrap();
        assert_ne!(paper, RewardConfig::default());
        assert_eq!(with("reward={preset=\"paper\"}").unwrap().reward, paper);
        let error = with("reward .preset=paper").unwrap_err().to_string();
        assert!(error.contains("start from the file"), "{error}");
        let hds = with("scheduler.hds={preset=\"paper\"}")
            .unwrap()
            .scheduler
            .hds;
        assert_eq!(
            hds,
            toml::from_str::<HdsConfig>("preset = \"paper\"").unwrap()
        );
        // Every key again, but another preset's name.
        let table: toml::Table = toml::from_str(&folders).unwrap();
        let mut reward = table["reward"].clone();
        reward["preset"] = "paper".into();
        let error = with(&format!("reward={reward}")).unwrap_err().to_string();
        assert!(error.contains("start from the file"), "{error}");
    }
}
