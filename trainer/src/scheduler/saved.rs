//! `policy.json`: the part of a policy's state that is plain numbers.
//!
//! In: a policy's name and state. Out: a JSON file that names format, version and policy, so that a
//! state of another policy or version is refused by name.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::PolicyError;

/// Version of the file's outer form.
const VERSION: u32 = 1;
/// Longest state of a policy; what is large is kept in files of tensors.
const MOST_BYTES: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<T> {
    version: u32,
    policy: String,
    state: T,
}

pub(super) fn file_error(path: &Path, reason: impl ToString) -> PolicyError {
    PolicyError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn path_in(folder: &Path) -> PathBuf {
    folder.join("policy.json")
}

/// Writes a policy's state.
///
/// # Errors
/// If the file cannot be written, or the state has numbers that JSON has not, which could not be read again.
pub(super) fn write<T: Serialize + DeserializeOwned>(
    folder: &Path,
    policy: &'static str,
    state: &T,
) -> Result<(), PolicyError> {
    write_as::<T>(folder, policy, state)
}

/// [`write`], of what is read as an `R`.
///
/// # Errors
/// As [`write`].
pub(super) fn write_as<R: DeserializeOwned>(
    folder: &Path,
    policy: &'static str,
    state: &impl Serialize,
) -> Result<(), PolicyError> {
    let path = path_in(folder);
    let saved = Saved {
        version: VERSION,
        policy: policy.to_owned(),
        state,
    };
    let text = serde_json::to_vec(&saved.state).map_err(|e| file_error(&path, e))?;
    serde_json::from_slice::<R>(&text)
        .map_err(|e| file_error(&path, format!("the state could not be read again: {e}")))?;
    hds::durable::write_json(&path, &saved).map_err(|e| file_error(&path, e))
}

/// Reads the state of the policy of this name.
///
/// # Errors
/// If the file is missing, damaged, or of another policy or version.
pub(super) fn read<T: DeserializeOwned>(
    folder: &Path,
    policy: &'static str,
) -> Result<T, PolicyError> {
    let path = path_in(folder);
    let bytes = hds::durable::read_regular(&path, MOST_BYTES).map_err(|e| file_error(&path, e))?;
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| file_error(&path, e))?;
    let saved: Saved<serde_json::Value> =
        serde_json::from_value(value).map_err(|e| file_error(&path, e))?;
    let differs = |field: &str, got: String, want: String| PolicyError::State {
        path: path.clone(),
        field: field.to_owned(),
        got,
        want,
    };
    if saved.version != VERSION {
        return Err(differs(
            "version",
            saved.version.to_string(),
            VERSION.to_string(),
        ));
    }
    if saved.policy != policy {
        return Err(differs("policy", saved.policy, policy.to_owned()));
    }
    serde_json::from_value(saved.state).map_err(|e| file_error(&path, e))
}

/// Checks that a vector of a saved state has the run's length.
///
/// # Errors
/// If not; names the field.
pub(super) fn check_length(
    folder: &Path,
    field: &str,
    got: usize,
    want: usize,
) -> Result<(), PolicyError> {
    if got == want {
        return Ok(());
    }
    Err(PolicyError::State {
        path: path_in(folder),
        field: format!("length of {field}"),
        got: got.to_string(),
        want: want.to_string(),
    })
}
