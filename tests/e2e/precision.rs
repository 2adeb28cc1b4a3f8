//! 16-bit passes, recomputed activations, documents by themselves: they train, resume exactly, and are evaluated as they were trained.

use std::fs;
use std::path::Path;

use hds_tests::{fail, succeed, text};
use serde_json::Value;

use crate::training::{Setting, numbers, records, setting, steps};

const VARIANTS: [(&str, [&str; 2]); 3] = [
    ("bf16", ["run.precision=bf16", "data.attention=document"]),
    ("fp16", ["run.precision=fp16", "run.recompute=true"]),
    (
        "documents",
        ["data.attention=document", "data.loss=within_documents"],
    ),
];

fn run(setting: &Setting, out: &Path, more: &[&str]) {
    let mut arguments = vec![
        "run",
        "--config",
        text(&setting.config),
        "--out",
        text(out),
        "--set",
        "run.steps=20",
        "--set",
        "optimizer.decay_on=all",
    ];
    for change in more {
        arguments.extend(["--set", change]);
    }
    succeed("hds-train", &arguments);
}

fn losses(all: &[Value]) -> Vec<f64> {
    steps(all).map(|s| s["loss"].as_f64().unwrap()).collect()
}

fn first_and_last_loss(all: &[Value]) -> (f64, f64) {
    let losses = losses(all);
    assert_eq!(losses.len(), 20);
    (losses[0], losses[19])
}

#[test]
fn narrow_numbers_and_documents_train_resume_exactly_and_evaluate_alike() {
    let setting = setting();
    let plain = setting.root.join("plain");
    run(&setting, &plain, &[]);
    let all_plain = records(&plain);
    let (plain_first, _) = first_and_last_loss(&all_plain);
    for (name, changes) in VARIANTS {
        let out = setting.root.join(name);
        run(&setting, &out, &changes);
        let whole = records(&out);
        let (first, last) = first_and_last_loss(&whole);
        assert!(last < first - 0.1, "{name}: {first} to {last}");
        assert!(
            (first - plain_first).abs() < 0.1,
            "{name}: {first}, plain {plain_first}"
        );
        // Where a batch has no document's end, nothing is hidden from anybody.
        assert_ne!(losses(&whole), losses(&all_plain), "{name} changes nothing");
        if name == "fp16" {
            let scale = steps(&whole).map(|s| s["loss_scale"].as_f64().unwrap());
            assert!(scale.last().unwrap() > 1.0);
        }

        let logged = whole.iter().rfind(|r| r["kind"] == "eval").unwrap();
        let evaluation = succeed("hds-train", &["eval", text(&out), "--json"]);
        let evaluation: Value = serde_json::from_str(&evaluation).unwrap();
        assert_eq!(
            evaluation["macro_perplexity"], logged["macro_perplexity"],
            "{name}"
        );

        fs::remove_dir_all(out.join("checkpoints/step-00000020")).unwrap();
        succeed("hds-train", &["run", "--resume", "--out", text(&out)]);
        assert_eq!(records(&out), whole, "{name}: a resumed run is another");
    }
    let documents = records(&setting.root.join("documents"));
    let weights = steps(&documents).map(|s| numbers(&s["weights"]));
    assert!(weights.flatten().all(f64::is_finite));
}

/// Each domain's alignment at a run's first step, before the model has changed.
pub(crate) fn first_alignment(run: &Path) -> Vec<f64> {
    let all = records(run);
    let first = steps(&all).next().unwrap().clone();
    let alignment = numbers(&first["rewards"]["alignment_raw"]);
    assert!(alignment.iter().any(|a| *a != 0.0), "{first}");
    alignment
}

/// That two are the same within a part of the greatest of them.
pub(crate) fn assert_aligned(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    let most = want.iter().fold(0f64, |most, a| most.max(a.abs()));
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let error = (got - want).abs() / most;
        assert!(error <= tolerance, "{what}: {got}, want {want} of {most}");
    }
}

#[test]
fn alignment_does_not_depend_on_how_a_step_is_passed_through_the_model() {
    let setting = setting();
    let exact = "signals.gradients={ kind = \"exact\" }";
    let sketch = "signals.gradients={ kind = \"sketch\", rank = 16, seed = 0 }";
    for (kind, gradients) in [("exact", exact), ("sketch", sketch)] {
        let go = |name: &str, change: &str| {
            let out = setting.root.join(format!("{kind}-{name}"));
            run(&setting, &out, &[gradients, "run.steps=2", change]);
            out
        };
        let plain = go("plain", "run.recompute=false");
        let want = first_alignment(&plain);
        for (name, change, tolerance) in [
            ("recompute", "run.recompute=true", 1e-5),
            ("passes", "data.micro_batch_size=4", 1e-4),
            ("bf16", "run.precision=bf16", 5e-2),
        ] {
            let out = go(name, change);
            let what = format!("{kind} {name}");
            assert_aligned(&first_alignment(&out), &want, tolerance, &what);
        }
    }
}

#[test]
fn precisions_that_are_none_and_gpus_that_are_not_there_are_named() {
    let setting = setting();
    let out = setting.root.join("none");
    let refused = |change: &str| {
        let config = text(&setting.config);
        let arguments = [
            "run",
            "--config",
            config,
            "--out",
            text(&out),
            "--set",
            change,
        ];
        let message = fail("hds-train", &arguments);
        assert!(!out.join("metrics.jsonl").exists());
        message
    };
    let message = refused("run.precision=fp8");
    assert!(
        message.contains("precision") && message.contains("bf16"),
        "{message}"
    );
    let message = refused("run.device=cuda:77");
    assert!(message.contains("cuda:77"), "{message}");
    assert!(
        message.contains("setup --cuda") || message.contains("GPUs"),
        "{message}"
    );
}
