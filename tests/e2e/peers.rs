//! What others read of ours: TensorBoard the event files, the lm-evaluation-harness the exported model.
//!
//! Needs a Python with the packages tensorboard, or transformers and lm_eval: `HDS_EVALUATION_PYTHON` names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hds_tests::{python_with, run_python, shared_data, succeed, text};
use serde_json::Value;

use crate::training::{numbers, records, setting, start, wait_for_steps};

#[test]
fn tensorboard_reads_the_metrics_and_no_step_twice_after_a_kill() {
    let Some(python) = python_with(&["tensorboard"]) else {
        return;
    };
    let setting = setting();
    let out = setting.root.join("run");
    let mut child = start(&setting, &out, &[]);
    wait_for_steps(&out, 33);
    child.kill().unwrap();
    child.wait().unwrap();
    succeed("hds-train", &["run", "--out", text(&out), "--resume"]);

    let folder = out.join("tensorboard");
    let read = run_python(&python, "tensorboard_scalars.py", &[text(&folder)]);
    let mut seen = BTreeSet::new();
    for entry in read["raw"].as_array().unwrap() {
        let place = (entry[2].to_string(), entry[1].as_u64().unwrap());
        assert!(seen.insert(place), "twice in the files: {entry}");
    }
    let files: BTreeSet<&str> = read["raw"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e[0].as_str())
        .collect();
    assert_eq!(files.len(), 2, "one from the start, one from the resume");

    let records = records(&out);
    let shown = |tag: &str| -> BTreeMap<u64, f64> {
        let points = read["shown"][tag].as_array();
        let points = points.unwrap_or_else(|| panic!("no {tag}"));
        points
            .iter()
            .map(|p| (p[0].as_u64().unwrap(), p[1].as_f64().unwrap()))
            .collect()
    };
    let domain = records[0]["domains"][2].as_str().unwrap().to_owned();
    let of_steps = |field: &dyn Fn(&Value) -> Option<f64>| -> BTreeMap<u64, f64> {
        let steps = records.iter().filter(|r| r["kind"] == "step");
        steps
            .filter_map(|r| Some((r["step"].as_u64()? + 1, field(r)?)))
            .collect()
    };
    let of_evaluations = |field: &dyn Fn(&Value) -> Option<f64>| -> BTreeMap<u64, f64> {
        let found = records.iter().filter(|r| r["kind"] == "eval");
        found
            .filter_map(|r| Some((r["step"].as_u64()?, field(r)?)))
            .collect()
    };
    for (tag, want) in [
        ("train/loss".to_owned(), of_steps(&|r| r["loss"].as_f64())),
        (
            format!("weights/{domain}"),
            of_steps(&|r| r["weights"][2].as_f64()),
        ),
        (
            format!("reward/{domain}"),
            of_steps(&|r| r["rewards"]["total"][2].as_f64()),
        ),
        (
            "policy/alpha".to_owned(),
            of_steps(&|r| r["policy"]["alpha"].as_f64()),
        ),
        (
            "held_out/macro_perplexity".to_owned(),
            of_evaluations(&|r| r["macro_perplexity"].as_f64()),
        ),
        (
            format!("held_out_loss/{domain}"),
            of_evaluations(&|r| r["losses"][2].as_f64()),
        ),
    ] {
        let got = shown(&tag);
        assert!(!want.is_empty(), "{tag}");
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            want.keys().collect::<Vec<_>>(),
            "{tag}"
        );
        for (step, value) in &want {
            // Event files hold 32 bits.
            assert_eq!(got[step], f64::from(*value as f32), "{tag} at {step}");
        }
    }
}

#[test]
fn the_harness_gives_the_perplexity_and_the_mmlu_of_the_exported_model() {
    let Some(python) = python_with(&["lm_eval", "transformers", "datasets"]) else {
        return;
    };
    let Some(shared) = shared_data() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let tokenizer = shared.join("20B_tokenizer.json");
    let index = root.join("index");
    let corpus =
        ["GSM8K", "WorldFactbook"].map(|name| shared.join(format!("minipile/{name}.jsonl.zst")));
    let build = [
        "build",
        text(&corpus[0]),
        text(&corpus[1]),
        "-o",
        text(&index),
    ];
    let options = ["-t", text(&tokenizer), "--valid-fraction", "0.01"];
    succeed("hds-index", &[&build[..], &options].concat());
    let config = root.join("run.toml");
    let toml = format!(
        "[run]\nsteps = 20\n[data]\nindex = {index:?}\nsequence_length = 128\nbatch_size = 8\n\
         [model]\npreset = \"14m\"\nhidden_size = 64\nnum_hidden_layers = 2\n\
         [optimizer]\nlearning_rate = 3e-3\n\
         [evaluation]\nsequences_per_domain = 20\n[scheduler]\npolicy = \"fixed\"\n"
    );
    fs::write(&config, toml).unwrap();
    let run = root.join("run");
    succeed(
        "hds-train",
        &["run", "--config", text(&config), "--out", text(&run)],
    );
    let exported = root.join("exported");
    let export = ["export", text(&run), "--out", text(&exported)];
    succeed(
        "hds-train",
        &[&export[..], &["--tokenizer", text(&tokenizer)]].concat(),
    );

    // All windows there are.
    let held_out: Value = serde_json::from_str(&succeed(
        "hds-train",
        &[
            "eval",
            text(&exported),
            "--index",
            text(&index),
            "--sequence-length",
            "128",
            "--tokens",
            "12800000",
            "--json",
        ],
    ))
    .unwrap();
    let mmlu = root.join("mmlu");
    fs::create_dir(&mmlu).unwrap();
    for split in ["test", "dev"] {
        let packed = shared.join(format!("mmlu/{split}.jsonl.zst"));
        let lines = zstd::decode_all(fs::File::open(packed).unwrap()).unwrap();
        fs::write(mmlu.join(format!("{split}.jsonl")), lines).unwrap();
    }
    for (shots, limit, most) in [("0", "3", "100000"), ("5", "2", "0")] {
        let samples = root.join("samples.jsonl");
        let scores: Value = serde_json::from_str(&succeed(
            "hds-train",
            &[
                "eval",
                text(&run),
                "--mmlu",
                text(&mmlu),
                "--shots",
                shots,
                "--limit",
                limit,
                "--tokenizer",
                text(&tokenizer),
                "--samples",
                text(&samples),
                "--json",
            ],
        ))
        .unwrap();
        let theirs = run_python(
            &python,
            "lm_eval_scores.py",
            &[
                text(&exported),
                text(&index),
                "128",
                most,
                text(&mmlu),
                shots,
                limit,
            ],
        );
        let domains = held_out["domains"].as_array().unwrap();
        for domain in domains.iter().filter(|_| most != "0") {
            let name = domain["name"].as_str().unwrap();
            let (got, want) = (
                domain["loss"].as_f64().unwrap(),
                theirs["losses"][name].as_f64().unwrap(),
            );
            assert!(
                (got - want).abs() < 1e-4,
                "{name}: {got}, the harness {want}"
            );
        }
        let mut asked: BTreeMap<String, usize> = BTreeMap::new();
        let mut furthest = 0f64;
        for line in fs::read_to_string(&samples).unwrap().lines() {
            let ours: Value = serde_json::from_str(line).unwrap();
            let subject = ours["subject"].as_str().unwrap();
            let place = asked.entry(subject.to_owned()).or_default();
            let want = numbers(&theirs["log_likelihoods"][subject][*place]);
            *place += 1;
            for (got, want) in numbers(&ours["log_likelihoods"]).iter().zip(&want) {
                furthest = furthest.max((got - want).abs());
            }
        }
        assert_eq!(asked.len(), 57);
        assert!(furthest < 1e-3, "log-likelihoods differ by {furthest}");
        println!("{shots} examples: log-likelihoods differ by {furthest} at most");
        let parts = [&scores["subjects"], &scores["groups"]];
        let parts = parts.iter().flat_map(|part| part.as_array().unwrap());
        for part in parts.chain([&scores["overall"]]) {
            let name = part["name"].as_str().unwrap().replace(' ', "_");
            let want = numbers(&theirs["mmlu"][&name]);
            let accuracy = part["accuracy"].as_f64().unwrap();
            assert!((accuracy - want[0]).abs() < 1e-9, "{part}: {want:?}");
            let error = part["standard_error"].as_f64().unwrap();
            assert!((error - want[1]).abs() < 1e-9, "{part}: {want:?}");
        }
    }
}
