//! What Python names in words, as the crates' types.
//!
//! In: the keyword arguments of `Core`. Out: a configuration and which arrays a batch has.

use std::path::PathBuf;

use hds_loader::{Access, ByteSize, RemoteOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Arrays of a batch, in the order in which they lie in its memory.
pub(crate) const KEYS: [&str; 8] = [
    "input_ids",
    "labels",
    "position_ids",
    "domain_ids",
    "sample_ids",
    "cu_seqlens",
    "mtld",
    "loss_mask",
];

/// What `labels` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// The token after each input: what a plain cross-entropy takes.
    Next,
    /// The inputs themselves: models that shift them take that.
    Same,
}

/// How a batch becomes arrays.
#[derive(Clone, Debug)]
pub(crate) struct ArrayOptions {
    /// Which of [`KEYS`] are wanted.
    pub(crate) wanted: [bool; KEYS.len()],
    pub(crate) labels: Labels,
    /// The label where no loss is wanted.
    pub(crate) ignore_index: i64,
    /// Whether the first token of a document is no target either.
    pub(crate) mask_boundaries: bool,
    /// Whether positions begin again with each document.
    pub(crate) reset_position_ids: bool,
}

impl ArrayOptions {
    pub(crate) fn new(
        keys: &[String],
        labels: &str,
        ignore_index: i64,
        mask_boundaries: bool,
        reset_position_ids: bool,
    ) -> PyResult<Self> {
        let mut wanted = [false; KEYS.len()];
        for key in keys {
            let place = KEYS.iter().position(|known| known == key);
            let place = place.ok_or_else(|| {
                PyValueError::new_err(format!("keys: no {key:?}; there are {}", KEYS.join(", ")))
            })?;
            wanted[place] = true;
        }
        let labels = match labels {
            "next" => Labels::Next,
            "same" => Labels::Same,
            other => {
                let text = format!("labels: {other:?} is neither \"next\" nor \"same\"");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(Self {
            wanted,
            labels,
            ignore_index,
            mask_boundaries,
            reset_position_ids,
        })
    }

    pub(crate) fn wants(&self, key: &str) -> bool {
        let place = KEYS.iter().position(|known| *known == key);
        place.is_some_and(|place| self.wanted[place])
    }
}

/// A value of an enumeration that serde knows by name.
pub(crate) fn named<T: DeserializeOwned>(field: &str, name: &str) -> PyResult<T> {
    serde_json::from_value(Value::String(name.to_owned()))
        .map_err(|e| PyValueError::new_err(format!("{field}: {e}")))
}

/// Access by its name.
pub(crate) fn access(name: &str) -> PyResult<Access> {
    match name {
        "map" => Ok(Access::Map),
        "read" => Ok(Access::Read),
        other => Err(PyValueError::new_err(format!(
            "access: {other:?} is neither \"map\" nor \"read\""
        ))),
    }
}

/// How an index behind a URL is read.
pub(crate) fn remote(
    cache: Option<PathBuf>,
    limit: &str,
    piece: &str,
    fetch: &str,
) -> PyResult<RemoteOptions> {
    let size = |field: &str, text: &str| {
        let size = text.parse::<ByteSize>();
        size.map_err(|e| PyValueError::new_err(format!("{field}: {e}")))
    };
    let options = RemoteOptions {
        cache,
        cache_limit: size("cache_limit", limit)?,
        piece: size("cache_piece", piece)?,
        fetch: named("fetch", fetch)?,
        ..RemoteOptions::default()
    };
    options.check().map_err(PyValueError::new_err)?;
    Ok(options)
}
