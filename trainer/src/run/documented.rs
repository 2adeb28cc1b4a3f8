//! The reference of the configuration and the recipes, held against the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::config::RunConfig;
use crate::compare::CompareConfig;

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn dotted(table: &toml::Table, prefix: &str, keys: &mut BTreeSet<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => {
                dotted(inner, &format!("{name}."), keys);
            }
            _ => {
                keys.insert(name);
            }
        }
    }
}

#[test]
fn every_key_is_in_the_reference_once() {
    let page = fs::read_to_string(project("docs/configuration.md")).unwrap();
    let mut section = None;
    let mut documented = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let name = title.strip_prefix("`[").and_then(|t| t.strip_suffix("]`"));
            section = name.map(str::to_owned);
        } else if let (Some(section), Some(cell)) = (&section, line.strip_prefix("| `"))
            && let Some((key, _)) = cell.split_once("` |")
        {
            documented.push(format!("{section}.{key}"));
        }
    }
    let unique: BTreeSet<&String> = documented.iter().collect();
    assert_eq!(unique.len(), documented.len(), "a key is documented twice");

    let text = RunConfig::default().to_toml().unwrap();
    let mut keys = BTreeSet::new();
    dotted(&toml::from_str(&text).unwrap(), "", &mut keys);
    assert!(keys.len() > 80, "{}", keys.len());
    // A section whose keys are all unset is an empty table.
    let known = |key: &String| {
        let section = format!("{key}.");
        unique.contains(key) || unique.iter().any(|k| k.starts_with(&section))
    };
    let missing: Vec<&String> = keys.iter().filter(|key| !known(key)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/configuration.md: {missing:?}"
    );
}

#[test]
fn every_recipe_is_a_configuration_and_has_a_model() {
    let mut recipes = 0;
    for entry in fs::read_dir(project("trainer/recipes")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_stem()
            .is_some_and(|name| name.to_string_lossy().starts_with("compare"))
        {
            // Checks every policy's configuration.
            CompareConfig::load(&path).unwrap();
            continue;
        }
        let config = RunConfig::load(&path, &[]).unwrap();
        let length = config.data.sequence_length as u64;
        // Pythia's tokenizer.
        config.model.resolve(50_277, length).unwrap();
        recipes += 1;
    }
    assert!(recipes >= 3);
}
