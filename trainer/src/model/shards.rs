//! A checkpoint's tensors, in one safetensors file or in shards with an index.
//!
//! # Source
//! Hugging Face's layout: `model.safetensors`, or `model.safetensors.index.json` with `weight_map`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::ModelError;
use crate::tensors::{self, TensorFile};

const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Largest index that is read: far above that of any model.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// What older checkpoints have instead; unpacking it can run any program.
const PICKLED: &str = "pytorch_model.bin";

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
    weight_map: BTreeMap<String, String>,
}

/// The open files of a checkpoint and which tensor is in which.
pub(super) struct Shards {
    folder: PathBuf,
    files: Vec<(PathBuf, TensorFile)>,
    place: HashMap<String, usize>,
}

impl Shards {
    /// Opens `model.safetensors` in a folder, or else every shard that its index names.
    pub(super) fn open(folder: &Path) -> Result<Self, ModelError> {
        let mut shards = Self {
            folder: folder.to_owned(),
            files: Vec::new(),
            place: HashMap::new(),
        };
        let whole = folder.join(WHOLE);
        let index_path = folder.join(INDEX);
        if !whole.exists() && !index_path.exists() && folder.join(PICKLED).exists() {
            return Err(ModelError::Pickled {
                path: folder.join(PICKLED),
            });
        }
        if whole.exists() || !index_path.exists() {
            shards.add(whole)?;
            return Ok(shards);
        }
        let bytes = read_bounded(&index_path, MAX_INDEX_BYTES)?;
        let index: Index = serde_json::from_slice(&bytes).map_err(|source| ModelError::Json {
            path: index_path.clone(),
            source,
        })?;
        let mut names: Vec<&String> = Vec::new();
        for (name, shard) in &index.weight_map {
            let plain = Path::new(shard)
                .file_name()
                .is_some_and(|file| file == shard.as_str());
            if !plain {
                return Err(ModelError::ShardName {
                    path: index_path,
                    name: name.clone(),
                    shard: shard.clone(),
                });
            }
            if !names.contains(&shard) {
                names.push(shard);
            }
        }
        for name in names {
            shards.add(folder.join(name))?;
        }
        Ok(shards)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), ModelError> {
        let file = TensorFile::open(&path)?;
        for name in file.names() {
            self.place.insert(name.to_owned(), self.files.len());
        }
        self.files.push((path, file));
        Ok(())
    }

    /// All names with the file that has each, in no particular order.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.place
            .iter()
            .map(|(name, &i)| (name.as_str(), self.files[i].0.as_path()))
    }

    /// Reads a tensor of a known shape; nothing is read if its shape is another.
    pub(super) fn tensor(&mut self, name: &str, want: &[i64]) -> Result<Tensor, ModelError> {
        let Some(&place) = self.place.get(name) else {
            return Err(ModelError::Missing {
                path: self.folder.clone(),
                name: name.to_owned(),
            });
        };
        let (path, file) = &mut self.files[place];
        let got = file.shape(name).unwrap_or_default();
        if got != want {
            return Err(ModelError::Shape {
                path: path.clone(),
                name: name.to_owned(),
                got,
                want: want.to_vec(),
            });
        }
        let floating = [Kind::Half, Kind::BFloat16, Kind::Float, Kind::Double];
        if !file.kind(name).is_some_and(|kind| floating.contains(&kind)) {
            return Err(ModelError::NotFloating {
                path: path.clone(),
                name: name.to_owned(),
            });
        }
        let tensor = file.tensor(name, Device::Cpu)?;
        if tensor.isfinite().all().int64_value(&[]) == 0 {
            return Err(ModelError::NotFinite {
                path: path.clone(),
                name: name.to_owned(),
            });
        }
        Ok(tensor)
    }
}

/// Writes tensors to one file, or to shards of at most `shard_bytes` and an index.
pub(super) fn write(
    folder: &Path,
    named: &[(String, Tensor)],
    shard_bytes: u64,
) -> Result<(), ModelError> {
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes_of = |t: &Tensor| (t.numel() * t.kind().elt_size_in_bytes()) as u64;
    let total: u64 = named.iter().map(|(_, t)| bytes_of(t)).sum();
    if total <= shard_bytes {
        tensors::write(&folder.join(WHOLE), named, &metadata)?;
        return Ok(());
    }
    let mut groups: Vec<Vec<(String, Tensor)>> = Vec::new();
    let mut filled = u64::MAX;
    for (name, tensor) in named {
        let bytes = bytes_of(tensor);
        if filled.saturating_add(bytes) > shard_bytes {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        if let Some(group) = groups.last_mut() {
            group.push((name.clone(), tensor.shallow_clone()));
        }
    }
    let count = groups.len();
    let mut weight_map = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        let file = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
        tensors::write(&folder.join(&file), group, &metadata)?;
        for (name, _) in group {
            weight_map.insert(name.clone(), file.clone());
        }
    }
    let mut metadata = serde_json::Map::new();
    metadata.insert("total_size".to_owned(), total.into());
    let index = Index {
        metadata,
        weight_map,
    };
    durable::write_json(&folder.join(INDEX), &index)?;
    Ok(())
}

/// Reads a small file, refusing one that is not small.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, ModelError> {
    let fail = |source| FileError::new("read", path, source);
    Ok(durable::read_regular(path, limit).map_err(fail)?)
}
