//! The parts of a run's start: device, base weights, model, and whether a folder holds the same run.

use std::fs;
use std::io::Write;
use std::path::Path;

use hds::durable::{self, FileError};
use hds::index::Split;
use hds::{DomainSet, Mixture};
use hds_loader::Index;
use tch::{Cuda, Device};

use super::checkpoint::CheckpointError;
use super::config::{ConfigError, RunConfig, RunSection};
use super::error::RunError;
use super::folder::RunFolder;
use super::interrupt::Interrupt;
use crate::distributed::Group;
use crate::model::{Model, ModelError};
use crate::scheduler::RunFacts;

/// Keys of where and how a process works: its own, whatever run it is part of.
pub const OF_A_PROCESS: [&str; 10] = [
    "run.device",
    "run.threads",
    "data.index",
    "data.access",
    "data.cache",
    "data.cache_limit",
    "data.cache_piece",
    "data.fetch",
    "distributed.join_seconds",
    "distributed.operation_seconds",
];

/// Further keys that may differ between a run and its continuation.
const OF_A_START: [&str; 6] = [
    "run.max_bad_steps",
    "run.recompute",
    "run.tensorboard",
    "checkpoint.interval_steps",
    "checkpoint.keep",
    "checkpoint.keep_every",
];

/// Refuses to go on where every checkpoint is damaged.
///
/// # Errors
/// If there is one.
pub fn refuse_damaged(damaged: Vec<CheckpointError>) -> Result<(), RunError> {
    let mut damaged = damaged.into_iter();
    let Some(newest) = damaged.next() else {
        return Ok(());
    };
    let older = damaged.map(|error| error.to_string()).collect();
    Err(RunError::AllDamaged { newest, older })
}

/// Sets threads and finds the device: this rank's share of the machine's cores, its own GPU.
///
/// # Errors
/// If the device has an unknown name or is not there.
pub fn prepare_device(run: &RunSection, group: &Group) -> Result<Device, RunError> {
    let fail = |reason: &str| RunError::Device {
        device: run.device.clone(),
        reason: reason.into(),
    };
    let threads = match run.threads {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            (cores / group.local_world()).clamp(1, 1024) as i32
        }
        n => i32::try_from(n).map_err(|_| fail("run.threads is too large"))?,
    };
    tch::set_num_threads(threads);
    let number = match run.device.as_str() {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => group.local_rank(),
        other => other
            .strip_prefix("cuda:")
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| fail("is neither cpu, cuda nor cuda:N"))?,
    };
    crate::cuda::load().map_err(fail)?;
    let count = Cuda::device_count();
    if !Cuda::is_available() || i64::try_from(number).unwrap_or(i64::MAX) >= count {
        return Err(fail(&format!(
            "libtorch sees {count} GPUs (nvidia-smi lists what the driver has); use --set run.device=cpu to train without"
        )));
    }
    Ok(Device::Cuda(number))
}

/// The base mixture over the index's domains.
///
/// # Errors
/// If the configured weights do not fit.
pub fn base_weights(config: &RunConfig, index: &Index) -> Result<Mixture, RunError> {
    Ok(config
        .data
        .base_weights
        .resolve(index.domains(), &training_tokens(index))?)
}

fn training_tokens(index: &Index) -> Vec<u64> {
    index
        .manifest()
        .domains
        .iter()
        .map(|d| d.split(Split::Train).tokens)
        .collect()
}

/// A new model for the index's vocabulary, that of `model.start_from`, or the checkpoint's.
///
/// # Errors
/// If the model cannot be built or loaded, or an end is asked for meanwhile.
pub fn model(
    config: &RunConfig,
    index: &Index,
    device: Device,
    checkpoint: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<Model, RunError> {
    let go_on = || !interrupt.is_asked();
    let load = |folder: &Path| {
        let kind = config.run.precision.kind();
        let loaded = Model::load_huggingface_while(folder, device, kind, &go_on);
        unless_stopped(loaded, config)
    };
    if let Some(checkpoint) = checkpoint {
        return load(&checkpoint.join("model"));
    }
    let vocabulary = index.manifest().tokenizer.vocabulary;
    let model_config = config
        .model
        .resolve(u64::from(vocabulary), config.data.sequence_length as u64)?;
    if let Some(folder) = &config.model.start_from {
        return load(folder);
    }
    let (kind, seed) = (config.run.precision.kind(), config.run.seed);
    let made = Model::new_while(&model_config, device, kind, seed, &go_on);
    unless_stopped(made, config)
}

fn unless_stopped(made: Result<Model, ModelError>, config: &RunConfig) -> Result<Model, RunError> {
    let mut model = made.map_err(|error| match error {
        ModelError::Stopped => RunError::Interrupted,
        other => other.into(),
    })?;
    model.recompute_activations(config.run.recompute);
    Ok(model)
}

/// What a policy may know of the run.
pub fn run_facts<'a>(
    config: &RunConfig,
    index: &'a Index,
    base: &Mixture,
    target: &Mixture,
    model: &Model,
    layers: usize,
    device: Device,
) -> RunFacts<'a> {
    RunFacts {
        domains: index.domains(),
        base_weights: base.weights().to_vec(),
        target: target.weights().to_vec(),
        natural_tokens: training_tokens(index),
        total_steps: config.run.steps,
        sequence_length: config.data.sequence_length as u64,
        layers,
        model_parameters: model.config().parameter_count(),
        seed: config.run.seed,
        index: Some(index.fingerprint().to_string()),
        device,
    }
}

/// Whether each domain has a training window of `sequence_length` + 1 tokens; length K.
pub fn readable(index: &Index, sequence_length: usize) -> Vec<bool> {
    let splits = index
        .domains()
        .ids()
        .map(|id| index.split(id, Split::Train));
    splits
        .map(|stream| stream.windows(sequence_length) > 0)
        .collect()
}

/// A policy's weights as a mixture of the domains that are `readable`: the others' weight goes to those
/// in proportion, so that no policy need know which domains are only held out.
///
/// # Errors
/// If they are none.
pub fn mixture(
    mut weights: Vec<f64>,
    domains: &DomainSet,
    readable: &[bool],
    policy: &str,
    step: u64,
) -> Result<Mixture, RunError> {
    let mut moved = false;
    for (weight, &there) in weights.iter_mut().zip(readable) {
        if !there && *weight > 0.0 {
            *weight = 0.0;
            moved = true;
        }
    }
    if moved && weights.iter().all(|&weight| weight == 0.0) {
        let shares = readable.iter().map(|&there| f64::from(u8::from(there)));
        weights = shares.collect();
    }
    // Weights that sum to 1 to the last bits are kept as they are: a replay must draw the same.
    let exact = Mixture::new(weights.clone(), domains);
    exact
        .or_else(|_| Mixture::normalized(weights, domains))
        .map_err(|source| RunError::Weights {
            policy: policy.to_owned(),
            step,
            source,
        })
}

/// Writes the resolved configuration to a file.
///
/// # Errors
/// If it cannot be written.
pub fn write_config(path: &Path, config: &RunConfig) -> Result<(), RunError> {
    let text = config.to_toml()?;
    durable::write_file(path, |w| w.write_all(text.as_bytes()))?;
    Ok(())
}

/// Checks that the run in a folder was started with the same configuration, but for what may differ.
///
/// # Errors
/// If it cannot be read, or another key differs.
pub fn check_same_run(path: &Path, config: &RunConfig) -> Result<(), RunError> {
    let saved = RunConfig::load(path, &[])?;
    let mut differences = Vec::new();
    compare(&as_table(&saved)?, &as_table(config)?, "", &mut differences);
    let may_differ =
        |key: &String| OF_A_PROCESS.contains(&key.as_str()) || OF_A_START.contains(&key.as_str());
    match differences.into_iter().find(|(key, ..)| !may_differ(key)) {
        None => Ok(()),
        Some((key, got, want)) => {
            let path = path.parent().unwrap_or(path).to_owned();
            Err(RunError::OtherRun {
                path,
                key,
                got,
                want,
            })
        }
    }
}

/// A configuration as a table.
///
/// # Errors
/// If a value cannot be written as TOML (a bug of ours).
pub fn as_table(config: &RunConfig) -> Result<toml::Table, ConfigError> {
    toml::from_str(&config.to_toml()?).map_err(|source| ConfigError::Syntax {
        path: "(resolved)".into(),
        source: Box::new(source),
    })
}

/// Puts what differs between two tables into `differences`: dotted key, value in `saved`, value in `now`.
pub fn compare(
    saved: &toml::Table,
    now: &toml::Table,
    prefix: &str,
    differences: &mut Vec<(String, String, String)>,
) {
    let show = |v: Option<&toml::Value>| v.map_or("unset".to_owned(), ToString::to_string);
    let mut keys: Vec<&String> = saved.keys().chain(now.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let dotted = format!("{prefix}{key}");
        match (saved.get(key), now.get(key)) {
            (Some(toml::Value::Table(a)), Some(toml::Value::Table(b))) => {
                compare(a, b, &format!("{dotted}."), differences);
            }
            (a, b) if a == b => {}
            (a, b) => differences.push((dotted, show(a), show(b))),
        }
    }
}

/// Makes a folder.
///
/// # Errors
/// If the system refuses.
pub fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|e| FileError::new("create", path, e))
}

/// Notes a start or a resume with the time of day in the run's `events.jsonl`.
///
/// # Errors
/// If it cannot be written.
pub fn note_event(
    folder: &RunFolder,
    step: u64,
    resumed: bool,
    ranks: usize,
) -> Result<(), FileError> {
    let path = folder.events();
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let kind = if resumed { "resume" } else { "start" };
    let line =
        serde_json::json!({"kind": kind, "step": step, "unix_seconds": seconds, "ranks": ranks});
    fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut f| writeln!(f, "{line}"))
        .map_err(|e| FileError::new("write", &path, e))
}
