//! A trained model as a folder that `transformers` and other tools of Hugging Face's read.
//!
//! In: a trained model, a new folder, the numbers to store, the tokenizer. Out: `config.json`, safetensors, and with a tokenizer
//! `tokenizer.json`, `tokenizer_config.json`. Always holds: the folder is whole or absent; a folder that is there is refused.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use hds::durable::{self, FileError};
use hds::index::IndexError;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use thiserror::Error;

use super::contents::CONTENTS_FILE;
use super::trained::{Trained, TrainedError};
use crate::model::{Model, ModelError};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Numbers that weights are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredAs {
    /// 32 bits, as trained.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision, as published Pythia models are.
    F16,
}

impl StoredAs {
    fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::F16 => Kind::Half,
        }
    }
}

/// Why a model cannot be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no model.
    #[error(transparent)]
    Trained(#[from] TrainedError),
    /// Its files.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The run's index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// The target lies where a run keeps what it goes on from.
    #[error(
        "--out {path} lies in {among}, where a run keeps its checkpoints; choose a place outside the run"
    )]
    AmongCheckpoints {
        /// The target.
        path: PathBuf,
        /// The folder.
        among: PathBuf,
    },
    /// The target is there.
    #[error("{path} is there already; choose another --out")]
    Exists {
        /// The target.
        path: PathBuf,
    },
}

/// Writes the model of `trained` to the new folder `out`.
///
/// With `clamp`, weights beyond the range of those numbers are stored as its ends; gives how many.
/// `tokenizer` is the `tokenizer.json` of the run's index; it is checked against that index where the index is at hand.
///
/// # Errors
/// A target that is there or among checkpoints, weights that the numbers do not hold, a damaged model, another tokenizer, or a failed file operation; nothing is left then.
pub fn export(
    trained: &Trained,
    out: &Path,
    stored: StoredAs,
    tokenizer: Option<&Path>,
    clamp: bool,
) -> Result<u64, ExportError> {
    if out.symlink_metadata().is_ok() {
        return Err(ExportError::Exists {
            path: out.to_owned(),
        });
    }
    if let Some(among) = checkpoints_around(out) {
        return Err(ExportError::AmongCheckpoints {
            path: out.to_owned(),
            among,
        });
    }
    let manifest = match &trained.config {
        Some(config) => config.data.manifest_of(&config.data.index)?,
        None => None,
    };
    let entry = manifest.as_ref().map(|manifest| &manifest.tokenizer);
    if let Some(file) = tokenizer {
        match entry {
            Some(entry) => Tokenizer::of_index(entry, Some(file))?,
            None => Tokenizer::from_file(file)?,
        };
    }
    let mut model = Model::load_huggingface(&trained.model, Device::Cpu, Kind::Float)?;
    let clamped = match clamp {
        true => model.clamp_to(stored.kind()),
        false => 0,
    };
    let parent = out.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|e| FileError::new("create", parent, e))?;
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let staging = parent.join(format!(".{name}.partial"));
    if staging.exists() {
        fs::remove_dir_all(&staging).map_err(|e| FileError::new("remove", &staging, e))?;
    }
    fs::create_dir(&staging).map_err(|e| FileError::new("create", &staging, e))?;
    let end_of_document = entry.map_or(0, |entry| entry.end_of_document);
    let write = || -> Result<(), ExportError> {
        model.export_huggingface(&staging, stored.kind(), end_of_document)?;
        if let Some(file) = tokenizer {
            write_tokenizer(&staging, file, &model, end_of_document)?;
        }
        sync_all(&staging)?;
        durable::publish_folder(&staging, out)?;
        Ok(())
    };
    let outcome = write();
    if outcome.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&staging);
    }
    outcome.map(|()| clamped)
}

/// The checkpoint, or folder of a run's checkpoints, that a place would lie in.
fn checkpoints_around(out: &Path) -> Option<PathBuf> {
    let out = std::path::absolute(out).ok()?;
    let there = out
        .ancestors()
        .skip(1)
        .find_map(|a| a.canonicalize().ok())?;
    there
        .ancestors()
        .find(|folder| {
            let named = folder.file_name().is_some_and(|name| name == "checkpoints");
            let of_run = || folder.parent().map(|run| run.join("config.toml"));
            folder.join(CONTENTS_FILE).is_file()
                || (named && of_run().is_some_and(|config| config.is_file()))
        })
        .map(Path::to_owned)
}

/// Writes the tokenizer's file as it is, and what `AutoTokenizer` needs beside it.
fn write_tokenizer(
    folder: &Path,
    file: &Path,
    model: &Model,
    end_of_document: u32,
) -> Result<(), ExportError> {
    let bytes = fs::read(file).map_err(|e| FileError::new("read", file, e))?;
    durable::write_file(&folder.join("tokenizer.json"), |w| w.write_all(&bytes))?;
    let end = Tokenizer::from_file(file)?.token(end_of_document);
    let mut settings = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config().max_position_embeddings,
        "clean_up_tokenization_spaces": false,
        "add_bos_token": false,
        "add_eos_token": false,
    });
    if let (Some(end), Some(settings)) = (end, settings.as_object_mut()) {
        for name in ["bos_token", "eos_token", "unk_token"] {
            settings.insert(name.to_owned(), end.clone().into());
        }
    }
    durable::write_json(&folder.join("tokenizer_config.json"), &settings)?;
    Ok(())
}

fn sync_all(folder: &Path) -> Result<(), FileError> {
    let fail = |e| FileError::new("sync", folder, e);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|e| FileError::new("sync", &path, e))?;
    }
    Ok(())
}
