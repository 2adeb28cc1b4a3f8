//! `hds-train eval` and `export`: what a run logged, again; other models and indexes; MMLU; and what does not fit.

use std::fs;
use std::path::{Path, PathBuf};

use hds_tests::{fail, own_corpus, succeed, text};
use serde_json::Value;

use crate::training::{Setting, numbers, records, setting};

/// A run of 20 steps with evaluations and checkpoints every 10, both kept.
fn finished(setting: &Setting) -> PathBuf {
    let out = setting.root.join("run");
    let arguments = [
        "run",
        "--config",
        text(&setting.config),
        "--out",
        text(&out),
    ];
    let changes = [
        "--set",
        "run.steps=20",
        "--set",
        "evaluation.interval_steps=10",
    ];
    succeed("hds-train", &[&arguments[..], &changes].concat());
    out
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed("hds-train", &[arguments, &["--json"]].concat())).unwrap()
}

/// The loss of each domain; none where it has no held-out sequence.
fn losses(evaluation: &Value) -> Vec<Option<f64>> {
    let domains = evaluation["domains"].as_array().unwrap();
    let losses: Vec<_> = domains.iter().map(|d| d["loss"].as_f64()).collect();
    assert!(losses.iter().any(Option::is_some), "{evaluation}");
    losses
}

/// The losses of a record of the metrics.
fn logged_losses(record: &Value) -> Vec<Option<f64>> {
    let losses = record["losses"].as_array().unwrap();
    losses.iter().map(Value::as_f64).collect()
}

#[test]
fn an_evaluation_is_what_the_run_logged_and_holds_for_the_exported_model() {
    let setting = setting();
    let run = finished(&setting);
    let logged = records(&run);
    let of_step = |step: u64| {
        let found = logged
            .iter()
            .find(|r| r["kind"] == "eval" && r["step"] == step);
        found.unwrap().clone()
    };
    for step in [10, 20] {
        let chosen = step.to_string();
        let got = json(&["eval", text(&run), "--step", &chosen]);
        let want = of_step(step);
        assert_eq!(losses(&got), logged_losses(&want));
        assert_eq!(got["macro_perplexity"], want["macro_perplexity"]);
        assert_eq!(got["base_perplexity"], want["base_perplexity"]);
        assert_eq!(got["target_perplexity"], want["target_perplexity"]);
        assert_eq!(got["step"], step);
    }
    let newest = json(&["eval", text(&run)]);
    assert_eq!(newest["step"], 20);
    // Bytes: every token but the ends of documents is one.
    for domain in newest["domains"].as_array().unwrap() {
        let Some(loss) = domain["loss"].as_f64() else {
            continue;
        };
        let bits = loss / std::f64::consts::LN_2;
        let ratio = domain["bits_per_byte"].as_f64().unwrap() / bits;
        assert!((1.0..1.1).contains(&ratio), "{domain}");
    }
    let checkpoint = run.join("checkpoints/step-00000010");
    let of_checkpoint = json(&["eval", text(&checkpoint)]);
    assert_eq!(losses(&of_checkpoint), logged_losses(&of_step(10)));

    let index = setting.root.join("index");
    let exported = setting.root.join("exported");
    succeed(
        "hds-train",
        &["export", text(&run), "--out", text(&exported)],
    );
    let folder = [
        "eval",
        text(&exported),
        "--index",
        text(&index),
        "--sequence-length",
        "64",
        "--batch-size",
        "12",
        "--threads",
        "1",
    ];
    let limited = json(&[&folder[..], &["--tokens", "256"]].concat());
    assert_eq!(losses(&limited), losses(&newest));
    assert_eq!(limited["step"], Value::Null);
    let uniform = json(
        &[
            &folder[..],
            &["--tokens", "256", "--base-weights", "uniform"],
        ]
        .concat(),
    );
    let off = uniform["base_perplexity"].as_f64().unwrap()
        / uniform["macro_perplexity"].as_f64().unwrap();
    assert!((off - 1.0).abs() < 1e-9);
    let table = succeed("hds-train", &["eval", text(&run)]);
    for word in ["mean over domains", "base weights", "bits/byte"] {
        assert!(table.contains(word), "{table}");
    }
    assert!(!table.contains("target"), "{table}");

    // A target of one domain is that domain.
    let domains = newest["domains"].as_array().unwrap();
    let one = domains.iter().find(|d| d["loss"].is_number()).unwrap();
    let target = format!("{{ {:?} = 2 }}", one["name"].as_str().unwrap());
    let got = json(&["eval", text(&run), "--target", &target]);
    let off = got["target_perplexity"].as_f64().unwrap() / one["perplexity"].as_f64().unwrap();
    assert!((off - 1.0).abs() < 1e-9);
    let base = json(&["eval", text(&run), "--target", "base"]);
    assert_eq!(base["target_perplexity"], base["base_perplexity"]);
    let table = succeed("hds-train", &["eval", text(&run), "--target", &target]);
    assert!(
        table.contains("target") && table.contains("100 %"),
        "{table}"
    );
    for (wrong, word) in [("{ nowhere = 1 }", "nowhere"), ("best", "\"base\"")] {
        let message = fail("hds-train", &["eval", text(&run), "--target", wrong]);
        assert!(message.contains(word), "{message}");
        assert_eq!(
            message.matches("the domains are").count(),
            usize::from(word == "nowhere"),
            "{message}"
        );
    }

    // Training goes on from the exported model: before its first step it is that model.
    let further = setting.root.join("further");
    let config = setting.root.join("further.toml");
    let shape = ["hidden_size", "num_hidden", "num_attention", "intermediate"];
    let kept: Vec<String> = fs::read_to_string(&setting.config)
        .unwrap()
        .lines()
        .filter(|line| !shape.iter().any(|key| line.trim().starts_with(key)))
        .map(str::to_owned)
        .collect();
    fs::write(&config, kept.join("\n")).unwrap();
    let start = format!("model.start_from={}", text(&exported));
    let arguments = ["run", "--config", text(&config), "--out", text(&further)];
    let changes = ["--set", &start, "--set", "run.steps=2"];
    succeed("hds-train", &[&arguments[..], &changes].concat());
    let first = records(&further).into_iter().find(|r| r["kind"] == "eval");
    assert_eq!(logged_losses(&first.unwrap()), losses(&newest));

    let half = setting.root.join("half");
    let arguments = ["export", text(&run), "--out", text(&half)];
    succeed(
        "hds-train",
        &[&arguments[..], &["--stored-as", "f16", "--step", "10"]].concat(),
    );
    let bytes = |folder: &Path| {
        fs::metadata(folder.join("model.safetensors"))
            .unwrap()
            .len()
    };
    assert!(bytes(&half) < bytes(&exported) * 6 / 10);
    let message = fail("hds-train", &arguments);
    assert!(message.contains("is there already"), "{message}");
    let names = fs::read_dir(&setting.root).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    let partial = names.filter(|name| name.to_string_lossy().contains("partial"));
    assert_eq!(partial.count(), 0);
}

#[test]
fn what_does_not_fit_an_evaluation_is_said() {
    let setting = setting();
    let run = finished(&setting);
    let root = &setting.root;
    let corpus = root.join("corpus");
    own_corpus(&corpus);
    let other = |vocabulary: &str| {
        let tokenizer = root.join(format!("{vocabulary}.json"));
        let index = root.join(format!("index-{vocabulary}"));
        let files = text(&corpus).to_owned();
        succeed(
            "hds-index",
            &[
                "train-tokenizer",
                &files,
                "--vocabulary",
                vocabulary,
                "-o",
                text(&tokenizer),
            ],
        );
        let build = ["build", &files, "-o", text(&index), "-t", text(&tokenizer)];
        succeed("hds-index", &build);
        (index, tokenizer)
    };
    let (small, tokenizer) = other("340");
    let (large, _) = other("500");
    let empty = root.join("empty");
    fs::create_dir(&empty).unwrap();
    let model = run.join("checkpoints/step-00000020/model");
    let (run, small, large) = (text(&run), text(&small), text(&large));
    let nothing_held_out = root.join("all");
    let build = ["build", text(&corpus), "-o", text(&nothing_held_out)];
    succeed(
        "hds-index",
        &[&build[..], &["--valid-fraction", "0"]].concat(),
    );
    for (arguments, words) in [
        (vec![text(&empty)], ["no trained model", "config.toml"]),
        (
            vec![run, "--step", "15"],
            ["no checkpoint of step 15", "10, 20"],
        ),
        (vec![text(&model)], ["no run", "--index"]),
        (vec![text(&model), "--step", "3"], ["--step", "is none"]),
        (vec![run, "--index", small], ["340", "ids mean other text"]),
        (vec![run, "--index", large], ["500 ids", "384"]),
        (
            vec![run, "--index", "nowhere"],
            ["nowhere is no index", "hds-index build"],
        ),
        (
            vec![run, "--tokens", "63"],
            ["--tokens", "at least the sequence length 64"],
        ),
        (
            vec![run, "--sequence-length", "4096"],
            ["--sequence-length", "2048"],
        ),
        (
            vec![run, "--index", text(&nothing_held_out)],
            ["holds out no sequence", "--valid-fraction"],
        ),
        (
            vec![run, "--base-weights", "pile"],
            ["base_weights", "--base-weights natural"],
        ),
        (vec![run, "--device", "tpu"], ["tpu", "cuda"]),
        (
            vec![run, "--mmlu", text(&empty)],
            ["no questions", "test.jsonl"],
        ),
    ] {
        let message = fail("hds-train", &[&["eval"], &arguments[..]].concat());
        for word in words {
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
    }
    let out = root.join("out");
    let export = [
        "export",
        run,
        "--out",
        text(&out),
        "--tokenizer",
        text(&tokenizer),
    ];
    let message = fail("hds-train", &export);
    assert!(
        message.contains("is not the tokenizer of the index"),
        "{message}"
    );
    assert!(!out.exists());

    // A damaged newest checkpoint is named and the one before it taken.
    let damaged = Path::new(run).join("checkpoints/step-00000020/model/model.safetensors");
    let mut bytes = fs::read(&damaged).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let output = hds_tests::run("hds-train", &["eval", run, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("model.safetensors has another checksum"),
        "{said}"
    );
    let got: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(got["step"], 10);
}

#[test]
fn mmlu_is_scored_with_the_tokenizer_of_the_index() {
    let setting = setting();
    let run = finished(&setting);
    let folder = setting.root.join("mmlu");
    for split in ["test", "dev"] {
        let inner = folder.join(split);
        fs::create_dir_all(&inner).unwrap();
        for subject in ["anatomy", "virology"] {
            let line = "\"Which, of these?\",a,b,c,d,B\n";
            let file = inner.join(format!("{subject}_{split}.csv"));
            fs::write(file, line.repeat(3)).unwrap();
        }
    }
    let samples = setting.root.join("samples.jsonl");
    let asked = ["eval", text(&run), "--mmlu", text(&folder)];
    let scores = json(&[&asked[..], &["--shots", "2", "--samples", text(&samples)]].concat());
    assert_eq!(scores["overall"]["questions"], 6);
    assert_eq!(scores["groups"][1]["name"], "other");
    // The same question with the same examples has the same answer.
    let accuracy = scores["subjects"][0]["accuracy"].as_f64().unwrap();
    assert!(accuracy == 0.0 || accuracy == 1.0, "{scores}");
    let lines = fs::read_to_string(&samples).unwrap();
    assert_eq!(lines.lines().count(), 6);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(numbers(&first["log_likelihoods"]).iter().all(|l| *l < 0.0));
    let message = fail("hds-train", &[&asked[..], &["--limit", "0"]].concat());
    assert!(message.contains("--limit 0"), "{message}");
    let message = fail("hds-train", &[&asked[..], &["--shots", "4"]].concat());
    assert!(message.contains("--shots asks for 4"), "{message}");
    let message = fail(
        "hds-train",
        &[&asked[..], &["--subjects", "alchemy"]].concat(),
    );
    assert!(message.contains("anatomy, virology"), "{message}");
    let table = succeed("hds-train", &[&asked[..], &["--limit", "1"]].concat());
    assert!(
        table.contains("virology") && table.contains("mmlu"),
        "{table}"
    );
}
