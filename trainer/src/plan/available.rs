//! Whether this machine has the memory that a run takes, before any of it is taken.
//!
//! In: the configuration, the processes of the run and those on this machine. Out: nothing, or an error with both figures. Always
//! holds: what is counted is the least that the run's tensors take, so that no run is refused that could go on; a machine that
//! does not tell what it has refuses nothing. Counts main memory: a run on a GPU is left to it.

use std::fs;
use std::path::Path;

use thiserror::Error;

use super::table::size;
use super::{Memory, Plan, PlanOptions};
use crate::run::RunConfig;

/// A run that does not fit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "this run takes about {} of memory{} (weights, gradients and optimizer {}, passes {}, agent and signals {}, bookkeeping of tensors {}), \
     and {} are free ({source_of_it}); take a smaller model, data.micro_batch_size or data.sequence_length, run.recompute = true, \
     or more machines (hds-train plan shows the parts)",
    size(*need), processes(*local), size(*model), size(*passes), size(*others), size(*tensors), size(*have)
)]
pub struct MemoryError {
    need: u64,
    local: u64,
    model: u64,
    passes: u64,
    others: u64,
    tensors: u64,
    have: u64,
    source_of_it: &'static str,
}

fn processes(local: u64) -> String {
    match local {
        1 => String::new(),
        n => format!(" in the {n} processes of this machine"),
    }
}

/// Parameters of a block, each a tensor with a gradient and two moments.
const TENSORS_OF_A_BLOCK: u64 = 12;
/// What libtorch and the allocator keep of each of those, beside its numbers; measured at about 1.6 KB.
const BYTES_OF_A_TENSOR: u64 = 1_600;

/// Refuses a run that takes more memory than this machine has free. What is wrong with the configuration otherwise is left to
/// the run's own start.
///
/// # Errors
/// With what it takes and what there is.
pub fn check_memory(config: &RunConfig, world: usize, local: usize) -> Result<(), MemoryError> {
    if config.run.device != "cpu" {
        return Ok(());
    }
    let options = PlanOptions {
        gpus: 1,
        precision: config.run.precision,
        domains: None,
        vocabulary: None,
        rate: None,
    };
    let (Ok(plan), Some((have, source_of_it))) = (
        Plan::new(config, &options),
        available(&|path| fs::read_to_string(path).ok()),
    ) else {
        return Ok(());
    };
    let blocks = plan.models.shape.num_hidden_layers.unsigned_abs();
    let (world, local) = (world.max(1) as u64, local.max(1) as u64);
    compare(&plan.memory, config, blocks, (world, local)).map_or(Ok(()), |error| {
        match error.need > have {
            true => Err(MemoryError {
                have,
                source_of_it,
                ..error
            }),
            false => Ok(()),
        }
    })
}

/// What a run takes, as the error that it would be.
fn compare(
    memory: &Memory,
    config: &RunConfig,
    blocks: u64,
    (world, local): (u64, u64),
) -> Option<MemoryError> {
    let most = match config.run.recompute {
        true => memory.total_checkpointed,
        false => memory.total,
    };
    let passes = most.checked_sub(memory.persistent)?;
    let model = memory.weights + memory.gradients + memory.optimizer.div_ceil(world);
    // The agent is rank 0's alone.
    let others = local
        .checked_mul(memory.signals)?
        .checked_add(memory.agent)?;
    let others = others.checked_add(memory.replay_in_main_memory)?;
    let tensors = blocks.saturating_mul(TENSORS_OF_A_BLOCK * BYTES_OF_A_TENSOR);
    let (model, passes) = (local.checked_mul(model)?, local.checked_mul(passes)?);
    let tensors = local.checked_mul(tensors)?;
    let need = [passes, others, tensors];
    let need = need.into_iter().try_fold(model, u64::checked_add)?;
    Some(MemoryError {
        need,
        local,
        model,
        passes,
        others,
        tensors,
        have: 0,
        source_of_it: "",
    })
}

/// Bytes that this process may still take, and who says so: the machine, or the control group that it is in.
fn available(read: &dyn Fn(&Path) -> Option<String>) -> Option<(u64, &'static str)> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let kilobytes = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_end_matches("kB").trim().parse().ok()
        };
        let swap = kilobytes("SwapFree:").unwrap_or(0);
        let free = kilobytes("MemAvailable:")?.saturating_add(swap);
        Some((free.saturating_mul(1024), "MemAvailable of /proc/meminfo"))
    });
    let limits = control_groups(read).into_iter();
    let limits = limits.map(|free| (free, "the limit of its control group"));
    machine.into_iter().chain(limits).min()
}

/// What each control group around this process leaves, of both versions.
fn control_groups(read: &dyn Fn(&Path) -> Option<String>) -> Vec<u64> {
    let mut left = Vec::new();
    for line in read(Path::new("/proc/self/cgroup"))
        .unwrap_or_default()
        .lines()
    {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, names) = match controllers {
            "" => (
                "/sys/fs/cgroup",
                ["memory.max", "memory.current", "inactive_file"],
            ),
            _ if controllers.split(',').any(|name| name == "memory") => (
                "/sys/fs/cgroup/memory",
                [
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                ],
            ),
            _ => continue,
        };
        // In a container the group's own path may not be there, only what is mounted as the root.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            left.extend(left_of(read, &Path::new(root).join(group), names));
        }
    }
    left
}

fn left_of(
    read: &dyn Fn(&Path) -> Option<String>,
    group: &Path,
    [limit, usage, cache]: [&str; 3],
) -> Option<u64> {
    let number = |name: &str| -> Option<u64> { read(&group.join(name))?.trim().parse().ok() };
    // "max" is no number, and no limit.
    let limit = number(limit)?;
    let statistics = read(&group.join("memory.stat")).unwrap_or_default();
    let cached = statistics
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == cache)
        .and_then(|(_, bytes)| bytes.trim().parse().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(number(usage)?.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 100 kB\nMemAvailable:   8000 kB\nSwapFree:        2000 kB\n";

    fn read<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        move |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn the_least_of_the_machine_and_its_control_groups_counts() {
        let memory = ("/proc/meminfo", MEMINFO);
        let machine = Some((10_000 * 1024, "MemAvailable of /proc/meminfo"));
        assert_eq!(available(&read(&[])), None);
        assert_eq!(available(&read(&[memory])), machine);
        let group = "the limit of its control group";
        let second = [
            memory,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "5000000\n"),
            ("/sys/fs/cgroup/a/memory.current", "3000000\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 1000000\n",
            ),
        ];
        assert_eq!(available(&read(&second)), Some((3_000_000, group)));
        let first = [
            memory,
            ("/proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4000000"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000"),
        ];
        assert_eq!(available(&read(&first)), Some((3_000_000, group)));
        let large = [
            memory,
            ("/proc/self/cgroup", "4:memory:/\n"),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000"),
        ];
        assert_eq!(available(&read(&large)), machine);
    }

    #[test]
    fn a_model_that_no_machine_holds_is_refused_with_the_figures() {
        let check = |text: &str, world, local| {
            let text = format!("[data]\nindex = \"nowhere\"\n{text}");
            let config = RunConfig::parse(&text, Path::new("x.toml"), &[]).unwrap();
            check_memory(&config, world, local)
        };
        check("", 1, 1).unwrap();
        // Small blocks, of whose tensors the numbers are the least part.
        let tiny = "[model]\nnum_hidden_layers = 1048576\nhidden_size = 2\nnum_attention_heads = 1\nrotary_pct = 1.0\n";
        for deep in ["[model]\nnum_hidden_layers = 1048576\n", tiny] {
            let error = check(deep, 1, 1).unwrap_err().to_string();
            assert!(
                error.contains("takes about") && error.contains("are free"),
                "{error}"
            );
        }
        let error = check("[model]\npreset = \"12b\"\n", 64, 64)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the 64 processes"), "{error}");
        let gpu = "[run]\ndevice = \"cuda\"\n[model]\npreset = \"12b\"\n";
        check(gpu, 1, 1).unwrap();
    }
}
