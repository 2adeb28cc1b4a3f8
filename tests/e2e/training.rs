//! `hds-train run` under the HDS agent: it learns, it can be killed, it goes on exactly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hds_tests::{binary, fail, minipile, own_corpus, succeed, terminate, text};
use serde_json::Value;

const STEPS: u64 = 60;
const WARM_UP: u64 = 10;

pub(crate) struct Setting {
    _folder: tempfile::TempDir,
    pub root: PathBuf,
    pub config: PathBuf,
}

/// An index of the minipile's bytes where it is there, else of this project's own files.
pub(crate) fn setting() -> Setting {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let corpus = match minipile() {
        Some(folder) => folder,
        None => {
            own_corpus(&root.join("corpus"));
            root.join("corpus")
        }
    };
    let index = root.join("index");
    succeed(
        "hds-index",
        &[
            "build",
            text(&corpus),
            "-o",
            text(&index),
            "--valid-fraction",
            "0.05",
        ],
    );
    let config = root.join("run.toml");
    let warm_up_fraction = WARM_UP as f64 / STEPS as f64;
    let toml = format!(
        r#"
        [run]
        steps = {STEPS}
        threads = 1
        [data]
        index = {index:?}
        sequence_length = 64
        batch_size = 24
        micro_batch_size = 12
        [model]
        preset = "cpu"
        hidden_size = 64
        num_hidden_layers = 2
        num_attention_heads = 4
        intermediate_size = 256
        [optimizer]
        learning_rate = 3e-3
        minimum_learning_rate = 3e-4
        [evaluation]
        interval_steps = 20
        sequences_per_domain = 4
        [checkpoint]
        interval_steps = 10
        [scheduler]
        policy = "hds"
        [scheduler.hds]
        warm_up_fraction = {warm_up_fraction}
        least_transitions = 8
        minibatch = 16
        "#
    );
    fs::write(&config, toml).unwrap();
    Setting {
        _folder: folder,
        root,
        config,
    }
}

pub(crate) fn records(run: &Path) -> Vec<Value> {
    fs::read_to_string(run.join("metrics.jsonl"))
        .unwrap()
        .lines()
        .map(|line| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            value.as_object_mut().unwrap().remove("timing");
            value
        })
        .collect()
}

pub(crate) fn steps(records: &[Value]) -> impl Iterator<Item = &Value> {
    records.iter().filter(|r| r["kind"] == "step")
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

pub(crate) fn start(setting: &Setting, out: &Path, more: &[&str]) -> Child {
    Command::new(binary("hds-train"))
        .args(["run", "--config", text(&setting.config), "--out", text(out)])
        .args(more)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(crate) fn wait_for_steps(run: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(300);
    let done = || {
        fs::read_to_string(run.join("metrics.jsonl"))
            .unwrap_or_default()
            .matches(r#""kind":"step""#)
            .count()
    };
    while done() < count {
        assert!(
            Instant::now() < deadline,
            "no {count} steps within five minutes"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_learns_moves_its_weights_and_goes_on_exactly_after_a_kill() {
    let setting = setting();
    let whole = setting.root.join("whole");
    let run = ["run", "--config", text(&setting.config), "--out"];
    succeed("hds-train", &[&run[..], &[text(&whole)]].concat());
    let expected = records(&whole);
    check_learning(&expected);

    // Killed without warning a few steps after a checkpoint, in the middle of whatever it does.
    let killed = setting.root.join("killed");
    let mut child = start(&setting, &killed, &[]);
    wait_for_steps(&killed, 33);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = steps(&records_of_whole_lines(&killed)).count();
    assert!(
        before < STEPS as usize,
        "the run ended before it could be killed"
    );
    succeed(
        "hds-train",
        &[&run[..], &[text(&killed), "--resume"]].concat(),
    );
    assert_eq!(records(&killed), expected);
    assert_eq!(
        fs::read(killed.join("weights.jsonl")).unwrap(),
        fs::read(whole.join("weights.jsonl")).unwrap()
    );
    let last = format!("checkpoints/step-{STEPS:08}/model/model.safetensors");
    assert!(fs::read(killed.join(&last)).unwrap() == fs::read(whole.join(&last)).unwrap());
    let events = fs::read_to_string(killed.join("events.jsonl")).unwrap();
    assert!(events.contains(r#""kind":"resume""#), "{events}");

    let shown = succeed("hds-train", &["report", text(&whole)]);
    assert!(shown.contains("report.html"), "{shown}");
    let page = fs::read_to_string(whole.join("report.html")).unwrap();
    assert!(page.contains("<svg"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(
            !page.contains(outside),
            "the page needs the network: {outside}"
        );
    }
    assert!(!page.contains("=\"NaN") && !page.contains(" NaN") && !page.contains(",NaN"));

    let message = fail("hds-train", &[&run[..], &[text(&whole)]].concat());
    assert!(message.contains("--resume"), "{message}");
    let message = fail(
        "hds-train",
        &[&run[..], &[text(&whole), "--resume", "--set", "run.seed=9"]].concat(),
    );
    assert!(message.contains("run.seed"), "{message}");
}

fn records_of_whole_lines(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn check_learning(records: &[Value]) {
    let losses: Vec<f64> = steps(records)
        .map(|r| r["loss"].as_f64().unwrap())
        .collect();
    assert_eq!(losses.len(), STEPS as usize);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&losses[..5]), mean(&losses[losses.len() - 5..]));
    assert!(last < first - 0.5, "loss went from {first} to {last}");

    let perplexities: Vec<f64> = records
        .iter()
        .filter(|r| r["kind"] == "eval")
        .map(|r| r["macro_perplexity"].as_f64().unwrap())
        .collect();
    assert_eq!(perplexities.len(), 4);
    assert!(perplexities[3] < perplexities[0] / 1.5, "{perplexities:?}");

    let base = numbers(&records[0]["base_weights"]);
    let mut moved = false;
    for record in steps(records) {
        let weights = numbers(&record["weights"]);
        assert!(
            (weights.iter().sum::<f64>() - 1.0).abs() < 1e-6,
            "{weights:?}"
        );
        let step = record["step"].as_u64().unwrap();
        let distance: f64 = weights.iter().zip(&base).map(|(a, b)| (a - b).abs()).sum();
        moved |= step > WARM_UP && distance > 0.05;
        // K values of each term, none of them null: numbers() fails on those.
        let rewards = &record["rewards"];
        for term in "alignment_raw alignment diversity_raw diversity total".split(' ') {
            assert_eq!(numbers(&rewards[term]).len(), base.len());
        }
        assert!(rewards["stability"].is_number(), "{rewards}");
    }
    assert!(
        moved,
        "the weights never left the base weights after warm-up"
    );
}

#[test]
fn sigterm_saves_and_the_run_can_go_on() {
    let setting = setting();
    let out = setting.root.join("run");
    let mut child = start(&setting, &out, &[]);
    wait_for_steps(&out, 13);
    assert_eq!(terminate(&mut child).code(), Some(75));
    let done = steps(&records(&out)).count() as u64;
    assert!(done < STEPS);
    assert!(
        out.join(format!("checkpoints/step-{done:08}/run.json"))
            .exists()
    );
    succeed("hds-train", &["run", "--out", text(&out), "--resume"]);
    assert_eq!(steps(&records(&out)).count() as u64, STEPS);
}

#[test]
fn a_run_over_a_url_is_the_run_over_the_folder() {
    let setting = setting();
    let url = format!("data.index=file://{}/index", setting.root.display());
    let cache = format!("data.cache={}", setting.root.join("cache").display());
    let remote = [
        "--set",
        &url,
        "--set",
        &cache,
        "--set",
        "data.cache_piece=64KiB",
    ];
    let run = |name: &str, more: &[&str]| {
        let out = setting.root.join(name);
        let first = [
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&out),
        ];
        let steps = ["--set", "run.steps=20"];
        succeed("hds-train", &[&first[..], &steps, more].concat());
        records(&out)
    };
    let folder = run("folder", &[]);
    assert_eq!(steps(&folder).count(), 20);
    assert!(run("remote", &remote) == folder);
    assert!(setting.root.join("cache/files").is_dir());
    let out = setting.root.join("unused");
    let wrong = ["--set", "data.cache_piece=3MiB", "--out", text(&out)];
    let first = ["run", "--config", text(&setting.config)];
    let error = fail("hds-train", &[&first[..], &wrong].concat());
    assert!(
        error.contains("data.cache_piece: is 3MiB, must be"),
        "{error}"
    );
}

#[test]
fn shards_cut_short_under_a_run_that_reads_them_are_an_error() {
    let setting = setting();
    let out = setting.root.join("run");
    let mut child = start(&setting, &out, &["--set", "data.access=read"]);
    wait_for_steps(&out, 1);
    let domains = setting.root.join("index/domains");
    for domain in fs::read_dir(domains).unwrap() {
        let tokens = domain.unwrap().path().join("train/00000.tokens");
        let file = fs::OpenOptions::new().write(true).open(tokens).unwrap();
        file.set_len(100).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(steps(&records(&out)).count() < STEPS as usize);
}

#[test]
fn what_a_run_needs_to_go_on_is_missed() {
    let setting = setting();
    let out = setting.root.join("run");
    let mut child = start(&setting, &out, &[]);
    wait_for_steps(&out, 25);
    terminate(&mut child);
    let resume = ["run", "--out", text(&out), "--resume"];

    let log = out.join("weights.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&log, lines[..lines.len() - 3].join("\n") + "\n").unwrap();
    let error = fail("hds-train", &resume);
    assert!(error.contains("has lost entries"), "{error}");
    fs::write(&log, whole).unwrap();

    let checkpoints: Vec<_> = fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(checkpoints.len(), 2);
    for checkpoint in &checkpoints {
        fs::write(checkpoint.join("run.json"), "").unwrap();
    }
    let error = fail("hds-train", &resume);
    assert!(error.contains("no whole checkpoint is left"), "{error}");
    for checkpoint in &checkpoints {
        let name = checkpoint.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_run_that_ends_without_learning_fails() {
    let setting = setting();
    let out = setting.root.join("run");
    let error = fail(
        "hds-train",
        &[
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&out),
            "--set",
            "run.steps=6",
            "--set",
            "optimizer.learning_rate=1e30",
            "--set",
            "optimizer.minimum_learning_rate=0.0",
        ],
    );
    assert!(error.contains("not finite, no update"), "{error}");
    assert!(error.contains("lower optimizer.learning_rate"), "{error}");
}

#[test]
fn fixed_weights_stay_and_need_no_rewards() {
    let setting = setting();
    let out = setting.root.join("fixed");
    succeed(
        "hds-train",
        &[
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&out),
            "--set",
            "scheduler.policy=fixed",
            "--set",
            "run.steps=4",
        ],
    );
    let records = records(&out);
    for record in steps(&records) {
        assert_eq!(record["weights"], records[0]["base_weights"]);
        assert!(record["rewards"].is_null());
    }
}

#[test]
fn a_domain_that_is_only_held_out_is_drawn_by_no_policy() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let corpus = root.join("corpus");
    own_corpus(&corpus);
    let file = |name: &str| corpus.join(name);
    let index = root.join("index");
    succeed(
        "hds-index",
        &[
            "build",
            text(&file("code.jsonl")),
            text(&file("prose.jsonl")),
            "--valid",
            text(&file("config.jsonl")),
            "-o",
            text(&index),
        ],
    );
    let config = root.join("run.toml");
    let toml = format!(
        r#"
        [run]
        steps = 4
        threads = 1
        [data]
        index = {index:?}
        sequence_length = 32
        batch_size = 8
        [model]
        preset = "cpu"
        hidden_size = 32
        num_hidden_layers = 1
        num_attention_heads = 2
        intermediate_size = 64
        [evaluation]
        sequences_per_domain = 1
        [scheduler.hds]
        warm_up_fraction = 0.5
        least_transitions = 1
        minibatch = 4
        "#
    );
    fs::write(&config, toml).unwrap();
    for policy in ["hds", "odm", "ac_odm", "ado", "doge", "fixed"] {
        let out = root.join(policy);
        let chosen = format!("scheduler.policy={policy}");
        let arguments = ["run", "--config", text(&config), "--out", text(&out)];
        succeed("hds-train", &[&arguments[..], &["--set", &chosen]].concat());
        let records = records(&out);
        let domains = records[0]["domains"].as_array().unwrap();
        let held_out = domains.iter().position(|d| d == "config").unwrap();
        let mut seen = 0;
        for step in steps(&records) {
            assert_eq!(numbers(&step["weights"])[held_out], 0.0, "{policy}");
            assert_eq!(numbers(&step["samples"])[held_out], 0.0, "{policy}");
            seen += 1;
        }
        assert_eq!(seen, 4, "{policy}");
    }
    // As a target its gradient is measured on held-out text, for the others to be rewarded by, and it is still not drawn.
    let out = root.join("target");
    let arguments = ["run", "--config", text(&config), "--out", text(&out)];
    let target = ["--set", "data.target={config=1.0}"];
    succeed("hds-train", &[&arguments[..], &target].concat());
    let targeted = records(&out);
    let domains = targeted[0]["domains"].as_array().unwrap();
    let held_out = domains.iter().position(|d| d == "config").unwrap();
    for step in steps(&targeted) {
        let aligned = numbers(&step["rewards"]["alignment_raw"]);
        assert_eq!(aligned[held_out], 0.0);
        assert!(aligned.iter().any(|a| *a != 0.0), "{aligned:?}");
        assert_eq!(numbers(&step["samples"])[held_out], 0.0);
    }
    let evaluated: Vec<&Value> = targeted.iter().filter(|r| r["kind"] == "eval").collect();
    for eval in &evaluated {
        let loss = eval["losses"][held_out].as_f64().unwrap();
        let perplexity = eval["target_perplexity"].as_f64().unwrap();
        assert!((perplexity / loss.exp() - 1.0).abs() < 1e-9, "{eval}");
    }
    assert_eq!(evaluated.len(), 2);
    let unknown = ["--set", "data.target={law=1.0}"];
    let other = root.join("unknown");
    let arguments = ["run", "--config", text(&config), "--out", text(&other)];
    let message = fail("hds-train", &[&arguments[..], &unknown].concat());
    assert!(message.contains("data.target.law"), "{message}");
    // A full log disk ends no training.
    let out = root.join("silent");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(binary("hds-train"))
        .args(["run", "--config", text(&config), "--out", text(&out)])
        .stderr(full)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    assert!(out.join("checkpoints/step-00000004").is_dir());
    // Nor does a new run overwrite what is left of another.
    fs::remove_file(out.join("metrics.jsonl")).unwrap();
    let again = ["run", "--config", text(&config), "--out", text(&out)];
    let message = fail("hds-train", &again);
    assert!(message.contains("is of a run already"), "{message}");
    let message = fail("hds-train", &[&again[..], &["--resume"]].concat());
    assert!(message.contains("metrics.jsonl"), "{message}");
    assert!(out.join("checkpoints/step-00000004").is_dir());
}
