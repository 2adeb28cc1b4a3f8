//! `hds-train run --resume` where going on would be wrong: runs that gave up, changed configurations, checkpoints that are none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hds_tests::{binary, fail, run, succeed, terminate, text};

use crate::training::{Setting, records, setting, start, steps, wait_for_steps};

fn checkpoint(out: &Path, step: u64) -> PathBuf {
    out.join(format!("checkpoints/step-{step:08}"))
}

/// Starts a run of 12 steps that saves every four, with further settings; gives what it said.
fn started(setting: &Setting, out: &Path, sets: &[&str]) -> std::process::Output {
    let mut arguments = vec!["run", "--config", text(&setting.config), "--out", text(out)];
    let few = [
        "run.steps=12",
        "checkpoint.interval_steps=4",
        "scheduler.policy=fixed",
    ];
    for set in few.iter().chain(sets) {
        arguments.extend(["--set", set]);
    }
    run("hds-train", &arguments)
}

/// Makes a checkpoint one that was written after so many bad steps, with a list that fits.
fn spoil(checkpoint: &Path, bad_steps: u64) {
    let path = checkpoint.join("run.json");
    let state = fs::read_to_string(&path).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&state).unwrap();
    state["bad_steps"] = bad_steps.into();
    fs::write(&path, state.to_string()).unwrap();
    relist(checkpoint, "run.json");
}

/// Corrects the list of a checkpoint after a file was changed.
fn relist(checkpoint: &Path, file: &str) {
    let contents = checkpoint.join("contents.json");
    let mut list: serde_json::Value =
        serde_json::from_slice(&fs::read(&contents).unwrap()).unwrap();
    let bytes = fs::read(checkpoint.join(file)).unwrap();
    let sum = hds::index::Checksum::of(&bytes).to_string();
    list["files"][file] = serde_json::json!({"bytes": bytes.len(), "blake3": sum});
    fs::write(contents, list.to_string()).unwrap();
}

#[test]
fn a_run_that_gave_up_does_not_go_on_as_if_it_had_ended() {
    let setting = setting();
    let out = setting.root.join("run");
    let ended = started(&setting, &out, &[]);
    assert!(ended.status.success(), "{ended:?}");
    let resume = ["run", "--out", text(&out), "--resume"];
    // After its last step, and before.
    spoil(&checkpoint(&out, 12), 1);
    let error = fail("hds-train", &resume);
    for words in ["gave up", "step-00000012", "remove", "step-00000008"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    fs::remove_dir_all(checkpoint(&out, 12)).unwrap();
    spoil(&checkpoint(&out, 8), 3);
    let few = [&resume[..], &["--set", "run.max_bad_steps=3"]].concat();
    let error = fail("hds-train", &few);
    assert!(error.contains("run.max_bad_steps above 3"), "{error}");
    // What is asked for is done.
    succeed("hds-train", &resume);
    assert_eq!(steps(&records(&out)).count(), 12);
}

#[test]
fn weights_that_are_not_finite_are_not_saved_over_good_ones() {
    let setting = setting();
    let out = setting.root.join("run");
    let wild = [
        "optimizer.learning_rate=1e30",
        "optimizer.minimum_learning_rate=0",
        "checkpoint.keep=1",
    ];
    let ended = started(&setting, &out, &wild);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("lower optimizer.learning_rate"), "{said}");
    let last = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let last = last.lines().last().unwrap();
    assert!(last.contains("\"kind\":\"gave_up\""), "{last}");
    // Whatever is there can be gone on from, or there is nothing and the run begins anew; and it ends as it did.
    let again = run("hds-train", &["run", "--out", text(&out), "--resume"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

#[test]
fn a_configuration_that_was_changed_in_the_folder_is_noticed() {
    let setting = setting();
    let out = setting.root.join("run");
    let mut child = start(&setting, &out, &["--set", "scheduler.policy=fixed"]);
    wait_for_steps(&out, 11);
    terminate(&mut child);
    let path = out.join("config.toml");
    let before = fs::read_to_string(&path).unwrap();
    let change = |from: &str, to: &str| {
        assert!(before.contains(from), "{from} in {before}");
        fs::write(&path, before.replace(from, to)).unwrap();
    };
    let resume = ["run", "--out", text(&out), "--resume"];
    for (from, to, key) in [
        (
            "steps = 60",
            "steps = 70",
            "run.steps is 60 there and 70 now",
        ),
        ("\nbatch_size = 24", "\nbatch_size = 12", "data.batch_size"),
        (
            "learning_rate = 0.003\n",
            "learning_rate = 0.004\n",
            "optimizer.learning_rate",
        ),
        ("hidden_size = 64", "hidden_size = 128", "model.hidden_size"),
        ("policy = \"fixed\"", "policy = \"odm\"", "scheduler.policy"),
    ] {
        change(from, to);
        let error = fail("hds-train", &resume);
        assert!(
            error.contains(key) && error.contains("step-000000"),
            "{key}: {error}"
        );
    }
    // Of how it is saved, not of what it is.
    change("keep = 2", "keep = 3");
    succeed("hds-train", &resume);
}

#[test]
fn checkpoints_that_are_none_are_named_and_the_one_before_taken() {
    let setting = setting();
    let out = setting.root.join("run");
    assert!(
        started(&setting, &out, &["checkpoint.keep=4"])
            .status
            .success()
    );
    // Listed by nobody.
    let contents = checkpoint(&out, 12).join("contents.json");
    fs::write(&contents, r#"{"version":1,"files":{}}"#).unwrap();
    // Renamed.
    fs::rename(checkpoint(&out, 8), checkpoint(&out, 10)).unwrap();
    let eval = run("hds-train", &["eval", text(&out), "--json"]);
    let said = String::from_utf8_lossy(&eval.stderr).into_owned();
    for words in [
        "step-00000012",
        "lists no file",
        "step-00000010",
        "is of step 8",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let got: serde_json::Value = serde_json::from_slice(&eval.stdout).unwrap();
    assert_eq!(got["step"], 4);
    let error = fail("hds-train", &["eval", text(&checkpoint(&out, 10))]);
    assert!(error.contains("is of step 8"), "{error}");
    // An export would be taken for one.
    for place in ["checkpoints/mine", "checkpoints/step-00000004/mine"] {
        let target = out.join(place);
        let error = fail("hds-train", &["export", text(&out), "--out", text(&target)]);
        assert!(error.contains("keeps its checkpoints"), "{error}");
        assert!(!target.exists());
    }
    // The log that belongs to the checkpoints.
    let log = out.join("metrics.jsonl");
    let whole = fs::read(&log).unwrap();
    for left in [Some(&whole[..100]), None] {
        match left {
            Some(part) => fs::write(&log, part).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        let error = fail("hds-train", &["run", "--out", text(&out), "--resume"]);
        assert!(error.contains("put the whole file back"), "{error}");
    }
}

#[test]
fn sequences_of_one_token_are_trained_on() {
    let setting = setting();
    for policy in ["fixed", "hds"] {
        let out = setting.root.join(policy);
        let policy = format!("scheduler.policy={policy}");
        let ended = started(&setting, &out, &["data.sequence_length=1", &policy]);
        assert!(ended.status.success(), "{ended:?}");
        let records = records(&out);
        assert!(steps(&records).all(|step| step["loss"].is_number()));
    }
}

#[test]
fn a_model_beyond_the_machine_is_refused_and_a_signal_is_heeded_while_one_is_made() {
    let setting = setting();
    let out = setting.root.join("run");
    let deep = ["model.num_hidden_layers=1048576"];
    let ended = started(&setting, &out, &deep);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.contains("of memory") && said.contains("are free"),
        "{said}"
    );
    assert!(!out.exists());
    // Enough blocks for a while.
    let mut child = Command::new(binary("hds-train"))
        .args([
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&out),
        ])
        .args([
            "--set",
            "model.num_hidden_layers=40000",
            "--set",
            "model.hidden_size=16",
            "--set",
            "model.rotary_pct=0.5",
        ])
        .args([
            "--set",
            "data.micro_batch_size=1",
            "--set",
            "data.sequence_length=1",
        ])
        .args([
            "--set",
            "run.recompute=true",
            "--set",
            "scheduler.policy=fixed",
        ])
        .spawn()
        .unwrap();
    let lock = out.join("run.lock");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !lock.exists() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let asked = std::time::Instant::now();
    assert_eq!(terminate(&mut child).code(), Some(75));
    assert!(asked.elapsed() < std::time::Duration::from_secs(20));
    assert!(!out.exists(), "a run that did not begin left its folder");
}

#[test]
fn a_signal_is_heeded_between_two_passes_of_a_step() {
    let setting = setting();
    let out = setting.root.join("run");
    // One step of 4,000 passes.
    let many = [
        "--set",
        "data.batch_size=4000",
        "--set",
        "data.micro_batch_size=1",
    ];
    let few = ["--set", "run.steps=2", "--set", "scheduler.policy=fixed"];
    let mut child = start(&setting, &out, &[&many[..], &few].concat());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let evaluated = || {
        fs::read_to_string(out.join("metrics.jsonl"))
            .unwrap_or_default()
            .contains("eval")
    };
    while !evaluated() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(terminate(&mut child).code(), Some(75));
    let done = steps(&records(&out)).count() as u64;
    assert!(done < 2);
    assert!(checkpoint(&out, done).is_dir());
    let resume = ["run", "--out", text(&out), "--resume"];
    succeed("hds-train", &resume);
    let whole = setting.root.join("whole");
    let arguments = [
        "run",
        "--config",
        text(&setting.config),
        "--out",
        text(&whole),
    ];
    succeed("hds-train", &[&arguments[..], &many, &few].concat());
    assert_eq!(records(&out), records(&whole));
}
