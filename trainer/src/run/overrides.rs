//! Overrides of a run's configuration, `dotted.key=value`.
//!
//! In: a table and the text of an override. Out: the table with the value in its place. Always holds: a
//! text is one key and one value, or an error; nothing of it is dropped.

use super::config::ConfigError;

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
}
