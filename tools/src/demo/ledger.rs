//! Remembers which steps are done, and of what inputs.
//!
//! In: a step's name and a key, the hash of all its inputs. Out: whether it was started or finished with that key.
//! Kept in one small JSON file, replaced whole; a file that cannot be read counts as empty, and steps run again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::DemoError;

/// The record of steps.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    steps: Map<String, Value>,
}

impl Ledger {
    /// Reads the record at `path`.
    pub(super) fn open(path: &Path) -> Self {
        let steps = fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self {
            path: path.to_path_buf(),
            steps,
        }
    }

    /// The result of `step` if it was finished with `key`.
    pub(super) fn finished(&self, step: &str, key: &str) -> Option<String> {
        let entry = self.steps.get(step).filter(|entry| entry["key"] == key)?;
        entry["result"].as_str().map(str::to_owned)
    }

    /// Whether `step` was started with `key` and not finished.
    pub(super) fn is_started(&self, step: &str, key: &str) -> bool {
        self.steps
            .get(step)
            .is_some_and(|entry| entry["key"] == key && entry["result"].is_null())
    }

    /// Records that `step` begins.
    pub(super) fn start(&mut self, step: &str, key: &str) -> Result<(), DemoError> {
        self.steps.insert(step.into(), json!({ "key": key }));
        self.save()
    }

    /// Records that `step` is done.
    pub(super) fn finish(&mut self, step: &str, key: &str, result: &str) -> Result<(), DemoError> {
        self.steps
            .insert(step.into(), json!({ "key": key, "result": result }));
        self.save()
    }

    fn save(&self) -> Result<(), DemoError> {
        let beside = self.path.with_extension("json.hds-tmp");
        let text = format!("{:#}\n", Value::Object(self.steps.clone()));
        fs::write(&beside, text).map_err(DemoError::io(&beside, "write it"))?;
        fs::rename(&beside, &self.path).map_err(DemoError::io(&self.path, "replace it"))
    }
}

/// Hash of inputs, told apart by their lengths.
pub(super) fn key(inputs: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for input in inputs {
        hasher.update(&(input.len() as u64).to_le_bytes());
        hasher.update(input);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Hash of the names and contents of the files in `folder`, and of `also`.
pub(super) fn key_of_folder(folder: &Path, also: &str) -> io::Result<String> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut inputs = vec![also.as_bytes().to_vec()];
    for path in paths.iter().filter(|path| path.is_file()) {
        inputs.push(
            path.file_name()
                .unwrap_or_default()
                .as_encoded_bytes()
                .to_vec(),
        );
        inputs.push(blake3::hash(&fs::read(path)?).as_bytes().to_vec());
    }
    Ok(key(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_as_done_for_the_same_inputs_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("steps.json");
        let mut ledger = Ledger::open(&path);
        ledger.start("index", "a").expect("saved");
        assert!(Ledger::open(&path).is_started("index", "a"));
        assert!(!ledger.is_started("index", "b"));
        ledger.finish("index", "a", "3 domains").expect("saved");
        let ledger = Ledger::open(&path);
        assert_eq!(ledger.finished("index", "a").as_deref(), Some("3 domains"));
        assert_eq!(ledger.finished("index", "b"), None);
        assert!(!ledger.is_started("index", "a"));
    }

    #[test]
    fn a_damaged_record_counts_as_empty() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("steps.json");
        fs::write(&path, "{\"index\": ").expect("written");
        assert_eq!(Ledger::open(&path).finished("index", "a"), None);
    }

    #[test]
    fn keys_tell_inputs_apart() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab"]), key(&[b"ab"]));
    }
}
