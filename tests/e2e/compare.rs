//! `hds-train compare`: runs policies beside each other, goes on after a stop, and shows what they reached.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hds_tests::{binary, fail, run, succeed, terminate, text};

use crate::training::setting;

const COMPARISON: &str = r#"
run = "run.toml"
set = ["run.steps=40"]
seeds = [1, 2]
at_once = 2
baseline = "base"
[[policy]]
name = "base"
set = ["scheduler.policy=fixed"]
[[policy]]
name = "hds"
"#;

#[test]
fn a_comparison_goes_on_after_a_stop_and_runs_nothing_twice() {
    let setting = setting();
    let file = setting.root.join("compare.toml");
    fs::write(&file, COMPARISON).unwrap();
    let out = setting.root.join("comparison");
    let command = ["compare", "--config", text(&file), "--out", text(&out)];

    let mut child = start(&command);
    let first = out.join("runs/base/seed-1/metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(300);
    while fs::read_to_string(&first)
        .unwrap_or_default()
        .lines()
        .count()
        < 5
    {
        assert!(Instant::now() < deadline, "no steps within five minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(terminate(&mut child).code(), Some(75));

    let table = succeed("hds-train", &command);
    for word in ["base", "hds", "mean over domains", "the paper's HDS"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let events = fs::read_to_string(out.join("runs/base/seed-1/events.jsonl")).unwrap();
    assert!(events.contains("\"resume\""), "{events}");
    let json = fs::read(out.join("compare.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    for policy in json["policies"].as_array().unwrap() {
        assert_eq!(policy["unfinished"], 0, "{policy}");
        assert!(policy["macro_perplexity"].as_f64().unwrap() > 1.0);
    }
    let page = fs::read_to_string(out.join("compare.html")).unwrap();
    assert!(page.contains("runs/hds/seed-2/report.html"));

    let again = run("hds-train", &command);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        said.contains("4 runs finished before, 0 now, 0 failed"),
        "{said}"
    );
}

fn start(command: &[&str]) -> Child {
    let mut program = Command::new(binary("hds-train"));
    program.args(command).stdout(Stdio::null());
    program.stderr(Stdio::null()).spawn().unwrap()
}

/// The processes that a process has started and that are not gone.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether a process is there and no zombie.
fn alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

#[test]
fn runs_of_a_killed_comparison_save_and_end() {
    let setting = setting();
    let file = setting.root.join("compare.toml");
    // Longer than anybody waits for.
    fs::write(&file, COMPARISON.replace("steps=40", "steps=100000")).unwrap();
    let out = setting.root.join("comparison");
    let command = ["compare", "--config", text(&file), "--out", text(&out)];
    let mut child = start(&command);
    let deadline = Instant::now() + Duration::from_secs(300);
    let wait_for = |done: &dyn Fn() -> bool| {
        while !done() {
            assert!(Instant::now() < deadline, "waited for five minutes");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let run = |policy: &str| out.join("runs").join(policy).join("seed-1");
    let lines = |policy: &str| {
        let text = fs::read_to_string(run(policy).join("metrics.jsonl"));
        text.unwrap_or_default().lines().count()
    };
    wait_for(&|| lines("base") > 4 && lines("hds") > 4);
    let runs = children(child.id());
    assert_eq!(runs.len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(&|| !runs.iter().any(|&pid| alive(pid)));
    for policy in ["base", "hds"] {
        // The header, an evaluation before the first step, the steps, one every twenty, and all of them are in a checkpoint.
        let log = fs::read_to_string(run(policy).join("metrics.jsonl")).unwrap();
        let steps = log
            .lines()
            .filter(|line| line.contains("\"kind\":\"step\""));
        let checkpoint = format!("checkpoints/step-{:08}", steps.count());
        assert!(
            run(policy).join(&checkpoint).exists(),
            "{policy}: {checkpoint}"
        );
    }

    // None is finished: there is nothing to compare yet.
    let error = fail("hds-train", &[&command[..], &["--no-runs"]].concat());
    assert!(error.contains("no run in"), "{error}");
}

#[test]
fn runs_that_are_missing_are_counted() {
    let setting = setting();
    let file = setting.root.join("compare.toml");
    let few = COMPARISON.replace("steps=40", "steps=4");
    fs::write(&file, few.replace("[1, 2]", "[1]")).unwrap();
    let out = setting.root.join("comparison");
    let command = ["compare", "--config", text(&file), "--out", text(&out)];
    let no_runs = [&command[..], &["--no-runs"]].concat();
    succeed("hds-train", &command);
    succeed("hds-train", &no_runs);
    fs::write(&file, few).unwrap();
    let partial = run("hds-train", &no_runs);
    assert_eq!(partial.status.code(), Some(75));
    let said = String::from_utf8_lossy(&partial.stderr);
    assert!(said.contains("2 of 4 runs are not finished"), "{said}");
    let table = String::from_utf8_lossy(&partial.stdout);
    assert!(table.contains("1 of 2"), "{table}");
}

#[test]
fn a_policy_that_gives_up_is_run_once_and_counts_as_infinite() {
    let setting = setting();
    let file = setting.root.join("compare.toml");
    let wild = "\n[[policy]]\nname = \"wild\"\nset = [\"optimizer.learning_rate=1e30\", \"scheduler.policy=fixed\"]\n";
    let comparison = COMPARISON.replace("steps=40", "steps=6") + wild;
    fs::write(&file, comparison.replace("[1, 2]", "[1]")).unwrap();
    let out = setting.root.join("comparison");
    let command = ["compare", "--config", text(&file), "--out", text(&out)];
    let error = fail("hds-train", &command);
    assert!(error.contains("wild seed 1 failed"), "{error}");
    let again = run("hds-train", &command);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(
        said.contains("3 runs finished before, 0 now, 0 failed"),
        "{said}"
    );
    assert!(said.contains("gave up after"), "{said}");
    let table = String::from_utf8_lossy(&again.stdout);
    assert!(table.contains('∞') && !table.contains("0 of 1"), "{table}");
}

#[test]
fn a_run_that_fails_is_named_and_stops_no_other() {
    let setting = setting();
    let file = setting.root.join("compare.toml");
    let broken = "\n[[policy]]\nname = \"broken\"\nset = [\"data.index=nowhere\"]\n";
    let comparison = COMPARISON.replace("steps=40", "steps=10") + broken;
    fs::write(&file, comparison.replace("[1, 2]", "[1]")).unwrap();
    let out = setting.root.join("comparison");
    let error = fail(
        "hds-train",
        &["compare", "--config", text(&file), "--out", text(&out)],
    );
    assert!(error.contains("broken seed 1 failed"), "{error}");
    assert!(error.contains("nowhere"), "{error}");
    assert!(error.contains("2 now, 1 failed"), "{error}");
    assert!(out.join("compare.html").exists());
}
