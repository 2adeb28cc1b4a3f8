//! `hds-train compare`: runs policies beside each other, goes on after a stop, and shows what they reached.

use std::fs;
use std::process::{Command, Stdio};
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

    let mut child = Command::new(binary("hds-train"))
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
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
