//! The agent's state on disk: `policy.json`, `networks.safetensors`, `optimizers.safetensors` and
//! `replay.safetensors` in one folder.
//!
//! Always holds: names and shapes of every tensor are checked before anything is changed by it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use super::super::error::PolicyError;
use super::super::saved::{self, file_error};
use super::Progress;
use super::agent::Agent;
use super::network::Network;
use super::replay::Replay;
use crate::optimizer::AdamW;
use crate::tensors;

const NETWORKS: &str = "networks.safetensors";
const OPTIMIZERS: &str = "optimizers.safetensors";
const REPLAY: &str = "replay.safetensors";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    progress: Progress,
    replay_oldest: u64,
}

fn networks(agent: &Agent) -> [(&'static str, &Network); 3] {
    [
        ("actor", &agent.actor),
        ("critics", &agent.critics),
        ("targets", &agent.targets),
    ]
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
pub(super) fn save(
    folder: &Path,
    policy: &'static str,
    progress: &Progress,
    agent: &Agent,
    replay: &Replay,
) -> Result<(), PolicyError> {
    let mut all: Vec<(String, Tensor)> = networks(agent)
        .into_iter()
        .flat_map(|(name, network)| {
            let named = network.named().iter();
            named.map(move |(part, tensor)| (format!("{name}.{part}"), tensor.detach()))
        })
        .collect();
    all.push(("log_temperature".into(), agent.log_temperature.detach()));
    write(folder, NETWORKS, &all)?;
    let optimizers = [
        ("actor", &agent.actor_optimizer),
        ("critics", &agent.critic_optimizer),
        ("temperature", &agent.temperature_optimizer),
    ];
    let all: Vec<(String, Tensor)> = optimizers
        .into_iter()
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
        progress: progress.clone(),
        replay_oldest: oldest as u64,
    };
    saved::write(folder, policy, &saved)
}

/// Reads everything back into an agent and replay of the same configuration.
pub(super) fn restore(
    folder: &Path,
    policy: &'static str,
    agent: &mut Agent,
    replay: &mut Replay,
) -> Result<Progress, PolicyError> {
    let saved: Saved = saved::read(folder, policy)?;
    let differs = |file: &str, field: String, got: String, want: String| PolicyError::State {
        path: folder.join(file),
        field,
        got,
        want,
    };

    let mut stored = read(folder, NETWORKS)?;
    let mut plan = Vec::new();
    let own = networks(agent).into_iter().flat_map(|(name, network)| {
        let named = network.named().iter();
        named.map(move |(part, tensor)| (format!("{name}.{part}"), tensor))
    });
    for (name, tensor) in own.chain([("log_temperature".to_owned(), &agent.log_temperature)]) {
        match stored.remove(&name) {
            Some(value) if value.size() == tensor.size() => plan.push((tensor.detach(), value)),
            other => {
                let got = other.map_or("missing".into(), |t| format!("{:?}", t.size()));
                return Err(differs(NETWORKS, name, got, format!("{:?}", tensor.size())));
            }
        }
    }
    if let Some(name) = stored.keys().min() {
        let want = "no such tensor".to_owned();
        return Err(differs(NETWORKS, name.clone(), "there".into(), want));
    }

    let mut states = read(folder, OPTIMIZERS)?;
    for (name, optimizer) in [
        ("actor", &mut agent.actor_optimizer),
        ("critics", &mut agent.critic_optimizer),
        ("temperature", &mut agent.temperature_optimizer),
    ] {
        load_optimizer(&mut states, name, optimizer)
            .map_err(|e| file_error(&folder.join(OPTIMIZERS), e))?;
    }
    let rows = read(folder, REPLAY)?
        .remove("rows")
        .filter(|rows| rows.kind() == Kind::Float)
        .and_then(|rows| Vec::<f32>::try_from(rows.view(-1)).ok())
        .and_then(|rows| replay.restore(rows, saved.replay_oldest as usize));
    if rows.is_none() {
        let reason = "the rows do not fit this run's domains, layers and replay capacity; resume \
                      with the configuration it was saved under";
        return Err(file_error(&folder.join(REPLAY), reason));
    }
    no_grad(|| {
        for (mut own, value) in plan {
            own.copy_(&value);
        }
    });
    Ok(saved.progress)
}

fn load_optimizer(
    states: &mut HashMap<String, Tensor>,
    name: &str,
    optimizer: &mut AdamW,
) -> Result<(), crate::optimizer::OptimizerError> {
    let prefix = format!("{name}/");
    let mine = states
        .extract_if(|key, _| key.starts_with(&prefix))
        .map(|(key, tensor)| (key[prefix.len()..].to_owned(), tensor))
        .collect();
    optimizer.load_state(&mine)
}
