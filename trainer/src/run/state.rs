//! What a checkpoint says of the run itself: its place, and the small numbers of its parts.
//!
//! In and out: `run.json` in a checkpoint. Tensors lie beside it: `model/` (Hugging Face layout),
//! `optimizer.safetensors`, and `policy/`, which the policy writes itself.

use std::path::{Path, PathBuf};

use hds_loader::LoaderState;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::precision::LossScale;

/// Version of `run.json`.
pub const FORMAT_VERSION: u32 = 1;

/// The contents of `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Steps done.
    pub step: u64,
    /// Training tokens seen.
    pub tokens: u64,
    /// Optimizer steps applied (steps without those skipped).
    pub updates: u64,
    /// Steps in a row, up to this one, that were skipped as not finite.
    pub bad_steps: u64,
    /// Length of `metrics.jsonl`.
    pub metrics_bytes: u64,
    /// The loader's state.
    pub loader: LoaderState,
    /// Version of the weights in force for the next step.
    pub weights_version: u64,
    /// Those weights; length K.
    pub weights: Vec<f64>,
    /// Running state of the reward's scaling.
    pub reward: serde_json::Value,
    /// ‖Δω‖₂ of each selected layer at the last update.
    pub weight_change_norms: Vec<f64>,
    /// Scale of the loss, in the precision that needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
}

impl RunState {
    /// The file in a checkpoint.
    pub fn path(checkpoint: &Path) -> PathBuf {
        checkpoint.join("run.json")
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it is not there, not of this version, or not of this shape.
    pub fn read(checkpoint: &Path) -> Result<Self, RunError> {
        let path = Self::path(checkpoint);
        let fail = |reason: String| RunError::State {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read(&path).map_err(|e| fail(e.to_string()))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(FORMAT_VERSION)) {
            return Err(fail(format!(
                "version {version:?}, this program knows {FORMAT_VERSION}"
            )));
        }
        serde_json::from_value(value).map_err(|e| fail(e.to_string()))
    }
}
