//! `hds-train plan` against a real run: the size of a checkpoint, and memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use hds_tests::{binary, fail, succeed, text};
use serde_json::Value;

use crate::training::setting;

fn plan(config: &Path, more: &[&str]) -> Value {
    let arguments = ["plan", text(config), "--json"];
    serde_json::from_str(&succeed("hds-train", &[&arguments[..], more].concat())).unwrap()
}

fn size(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => size(&path),
                false => fs::metadata(&path).unwrap().len(),
            }
        })
        .sum()
}

#[test]
fn a_checkpoint_is_as_large_as_planned_and_the_plan_reads_the_index() {
    let setting = setting();
    let out = setting.root.join("run");
    let changes = ["--set", "run.steps=12"];
    let run = [
        "run",
        "--config",
        text(&setting.config),
        "--out",
        text(&out),
    ];
    succeed("hds-train", &[&run[..], &changes].concat());
    let planned = plan(&setting.config, &changes);
    let got = size(&out.join("checkpoints/step-00000012"));
    let want = planned["disk"]["checkpoint"].as_u64().unwrap();
    // Headers and small JSON files come on top.
    assert!(
        (want..want + want / 10 + 100_000).contains(&got),
        "planned {want}, got {got}"
    );
    assert_eq!(planned["assumptions"], serde_json::json!([]));
    assert_eq!(planned["models"]["shape"]["vocab_size"], 384);
    assert!(planned["tokens"]["epochs"].as_f64().unwrap() > 0.0);
    let header = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let header: Value = serde_json::from_str(header.lines().next().unwrap()).unwrap();
    let models = &planned["models"];
    assert_eq!(models["parameters"]["total"], header["parameters"]);
    assert_eq!(models["agent_parameters"], header["agent_parameters"]);

    let config = text(&setting.config);
    let table = succeed(
        "hds-train",
        &["plan", config, "--tokens-per-second", "1000"],
    );
    assert!(table.contains("training time"), "{table}");
    for (more, word) in [
        (&["--tflops", "100"][..], "--mfu"),
        (&["--tflops", "100", "--mfu", "2"], "--mfu"),
        (&["--gpus", "0"], "--gpus"),
        (&["--set", "model.preset=3b"], "no model preset"),
    ] {
        let message = fail("hds-train", &[&["plan", config][..], more].concat());
        assert!(message.contains(word), "{message}");
    }
}

/// The most memory that a run had at any time, in bytes.
fn most_memory(config: &Path, out: &Path, changes: &[&str]) -> Option<u64> {
    let mut child = Command::new(binary("hds-train"))
        .args(["run", "--config", text(config), "--out", text(out)])
        .args(changes)
        // What is freed goes back to the system at once, so that the allocator's loss, a fifth and more, stays out.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_TRIM_THRESHOLD_", "65536")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = None;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = kib.map(|kib| kib * 1024).or(most);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    most
}

#[test]
fn a_larger_pass_takes_the_memory_that_the_plan_says() {
    let setting = setting();
    let of = |micro: &str| {
        let micro_batch = format!("data.micro_batch_size={micro}");
        let changes = [
            "run.steps=3",
            "data.sequence_length=256",
            "data.batch_size=32",
            &micro_batch,
            "model.hidden_size=128",
            "model.intermediate_size=512",
            "model.num_hidden_layers=4",
            "evaluation.interval_steps=0",
            "evaluation.sequences_per_domain=1",
            "evaluation.batch_size=1",
            "scheduler.policy=fixed",
        ];
        let changes: Vec<&str> = changes
            .iter()
            .flat_map(|change| ["--set", change])
            .collect();
        let planned = plan(&setting.config, &changes)["memory"]["total"]
            .as_u64()
            .unwrap();
        let out = setting.root.join(format!("run-{micro}"));
        most_memory(&setting.config, &out, &changes).map(|got| (planned as f64, got as f64))
    };
    let (Some(small), Some(large)) = (of("2"), of("32")) else {
        println!("skipped: no /proc to read a process's memory from");
        return;
    };
    // The libraries are in both.
    let (planned, got) = (large.0 - small.0, large.1 - small.1);
    println!("planned {planned}, measured {got}");
    assert!(
        (0.8..1.1).contains(&(got / planned)),
        "planned {planned}, measured {got}"
    );
}
