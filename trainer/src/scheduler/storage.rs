//! The state of a policy that has networks, on disk: `policy.json`, `networks.safetensors`,
//! `optimizers.safetensors` and `replay.safetensors` in one folder.
//!
//! Always holds: names and shapes of every tensor are checked before any network is changed.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use super::error::PolicyError;
use super::parameters::Parameters;
use super::replay::Replay;
use super::saved::{self, file_error};
use crate::optimizer::{AdamW, OptimizerError};
use crate::tensors;

const NETWORKS: &str = "networks.safetensors";
const OPTIMIZERS: &str = "optimizers.safetensors";
const REPLAY: &str = "replay.safetensors";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<T> {
    progress: T,
    replay_oldest: u64,
}

/// The named parts of a learning policy.
pub(super) struct Parts<'a> {
    pub networks: Vec<(&'static str, &'a Parameters)>,
    /// Single tensors that are learnt.
    pub tensors: Vec<(&'static str, &'a Tensor)>,
}

impl Parts<'_> {
    /// Every tensor by its full name.
    fn all(&self) -> Vec<(String, Tensor)> {
        let networks = self.networks.iter().flat_map(|(name, network)| {
            let named = network.named().iter();
            named.map(move |(part, tensor)| (format!("{name}.{part}"), tensor.detach()))
        });
        let single = self.tensors.iter();
        networks
            .chain(single.map(|(name, tensor)| ((*name).to_owned(), tensor.detach())))
            .collect()
    }
}

fn write(folder: &Path, file: &str, all: &[(String, Tensor)]) -> Result<(), PolicyError> {
    let path = folder.join(file);
    tensors::write(&path, all, &BTreeMap::new()).map_err(|e| file_error(&path, e))
}

fn read(folder: &Path, file: &str) -> Result<HashMap<String, Tensor>, PolicyError> {
    let path = folder.join(file);
    tensors::read(&path, Device::Cpu).map_err(|e| file_error(&path, e))
}

/// Writes everything into a folder.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn save<T: Serialize + DeserializeOwned>(
    folder: &Path,
    policy: &'static str,
    progress: &T,
    parts: &Parts<'_>,
    optimizers: &[(&'static str, &AdamW)],
    replay: &Replay,
) -> Result<(), PolicyError> {
    write(folder, NETWORKS, &parts.all())?;
    let all: Vec<(String, Tensor)> = optimizers
        .iter()
        .flat_map(|(name, optimizer)| {
            let state = optimizer.state().into_iter();
            state.map(move |(part, tensor)| (format!("{name}/{part}"), tensor))
        })
        .collect();
    write(folder, OPTIMIZERS, &all)?;
    let (values, oldest) = replay.saved();
    write(
        folder,
        REPLAY,
        &[("rows".into(), Tensor::from_slice(values))],
    )?;
    let saved = Saved {
        progress,
        replay_oldest: oldest as u64,
    };
    saved::write_as::<Saved<T>>(folder, policy, &saved)
}

/// Reads the networks of a saved policy into parts of the same shapes.
///
/// # Errors
/// If the file is missing or damaged, or a tensor is missing, extra or of another shape; nothing is
/// changed then.
pub(super) fn restore_networks(folder: &Path, parts: &Parts<'_>) -> Result<(), PolicyError> {
    let differs = |field: String, got: String, want: String| PolicyError::State {
        path: folder.join(NETWORKS),
        field,
        got,
        want,
    };
    let mut stored = read(folder, NETWORKS)?;
    let mut plan = Vec::new();
    for (name, tensor) in parts.all() {
        match stored.remove(&name) {
            Some(value) if value.size() == tensor.size() => plan.push((tensor, value)),
            other => {
                let got = other.map_or("missing".into(), |t| format!("{:?}", t.size()));
                return Err(differs(name, got, format!("{:?}", tensor.size())));
            }
        }
    }
    if let Some(name) = stored.keys().min() {
        return Err(differs(
            name.clone(),
            "there".into(),
            "no such tensor".into(),
        ));
    }
    no_grad(|| {
        for (mut own, value) in plan {
            own.copy_(&value);
        }
    });
    Ok(())
}

/// Reads everything back into parts, optimizers and replay of the same configuration; gives the
/// progress.
///
/// # Errors
/// If a file is missing, damaged, or does not fit; what was to be restored is then of no use.
pub(super) fn restore<T: DeserializeOwned>(
    folder: &Path,
    policy: &'static str,
    parts: &Parts<'_>,
) -> Result<Restored<T>, PolicyError> {
    let saved: Saved<T> = saved::read(folder, policy)?;
    restore_networks(folder, parts)?;
    Ok(Restored {
        progress: saved.progress,
        replay_oldest: saved.replay_oldest,
        optimizers: read(folder, OPTIMIZERS)?,
        rows: read(folder, REPLAY)?.remove("rows"),
    })
}

/// What was read, for the parts of a policy that must be borrowed mutably.
pub(super) struct Restored<T> {
    pub progress: T,
    replay_oldest: u64,
    optimizers: HashMap<String, Tensor>,
    rows: Option<Tensor>,
}

impl<T> Restored<T> {
    /// Puts the saved states into optimizers and replay.
    ///
    /// # Errors
    /// If one does not fit.
    pub(super) fn into_parts(
        mut self,
        folder: &Path,
        optimizers: Vec<(&'static str, &mut AdamW)>,
        replay: &mut Replay,
    ) -> Result<T, PolicyError> {
        for (name, optimizer) in optimizers {
            load_optimizer(&mut self.optimizers, name, optimizer)
                .map_err(|e| file_error(&folder.join(OPTIMIZERS), e))?;
        }
        let rows = self
            .rows
            .filter(|rows| rows.kind() == Kind::Float)
            .and_then(|rows| Vec::<f32>::try_from(rows.view(-1)).ok())
            .and_then(|rows| replay.restore(rows, self.replay_oldest as usize));
        if rows.is_none() {
            let reason = "the rows do not fit this run's domains, layers and replay capacity; \
                          resume with the configuration it was saved under";
            return Err(file_error(&folder.join(REPLAY), reason));
        }
        Ok(self.progress)
    }
}

fn load_optimizer(
    states: &mut HashMap<String, Tensor>,
    name: &str,
    optimizer: &mut AdamW,
) -> Result<(), OptimizerError> {
    let prefix = format!("{name}/");
    let mine = states
        .extract_if(|key, _| key.starts_with(&prefix))
        .map(|(key, tensor)| (key[prefix.len()..].to_owned(), tensor))
        .collect();
    optimizer.load_state(&mine)
}
