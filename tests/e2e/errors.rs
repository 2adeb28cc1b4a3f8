//! Wrong input gives a clear error, leaves nothing half made, and never a panic.

use std::fs;

use hds_tests::{fail, own_corpus, succeed, text};

#[test]
fn a_bad_line_names_file_and_line_and_publishes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, out) = (dir.path().join("corpus"), dir.path().join("index"));
    fs::create_dir(&corpus).unwrap();
    let good = r#"{"text": "some words", "meta": {"pile_set_name": "a"}}"#;
    fs::write(
        corpus.join("a.jsonl"),
        format!("{good}\n{{\"text\": \n{good}\n"),
    )
    .unwrap();
    let message = fail("hds-index", &["build", text(&corpus), "-o", text(&out)]);
    assert!(
        message.contains("a.jsonl") && message.contains("line 2"),
        "{message}"
    );
    assert!(!out.exists());
    succeed(
        "hds-index",
        &[
            "build",
            text(&corpus),
            "-o",
            text(&out),
            "--on-error",
            "skip",
            "--valid-fraction",
            "0",
        ],
    );
    let (manifest, _) = hds::index::Manifest::load(&out).unwrap();
    assert_eq!(manifest.domains[0].train.documents, 2);
    assert_eq!(
        manifest.sources[0]
            .skipped
            .iter()
            .map(|s| s.count)
            .sum::<u64>(),
        1
    );
}

#[test]
fn unusable_inputs_and_options_are_said_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus");
    own_corpus(&corpus);
    let out = dir.path().join("index");
    let empty = dir.path().join("empty.jsonl");
    fs::write(&empty, "").unwrap();
    let odd = dir.path().join("data.xyz");
    fs::write(&odd, "words").unwrap();
    let absent = dir.path().join("absent.jsonl");
    for (arguments, expected) in [
        (
            vec![
                "build",
                text(&corpus),
                "-o",
                text(&out),
                "--tokenizer",
                "none.json",
            ],
            "none.json",
        ),
        (
            vec![
                "build",
                text(&corpus),
                "-o",
                text(&out),
                "--tokenizer",
                text(&empty),
            ],
            "empty.jsonl",
        ),
        (vec!["build", text(&empty), "-o", text(&out)], "no document"),
        (vec!["build", text(&odd), "-o", text(&out)], "data.xyz"),
        (
            vec!["build", text(&absent), "-o", text(&out)],
            "absent.jsonl",
        ),
        (
            vec![
                "build",
                text(&corpus),
                "-o",
                text(&out),
                "--valid-fraction",
                "1.5",
            ],
            "1.5",
        ),
        (
            vec![
                "build",
                text(&corpus),
                "-o",
                text(&out),
                "--threads",
                "many",
            ],
            "many",
        ),
        (
            vec!["build", text(&corpus), "-o", text(&out), "--frobnicate"],
            "--frobnicate",
        ),
        (
            vec![
                "build",
                text(&corpus),
                "-o",
                text(&out),
                "--text-field",
                "body",
            ],
            "body",
        ),
        (vec!["inspect", text(&corpus)], "manifest.json"),
        (vec!["inspect", "s3://bucket/index"], "a folder is wanted"),
        (
            vec!["verify", "https://host/index"],
            "copy the index to one",
        ),
        (vec!["stats", "s3:/bucket/index"], "s3://bucket/index"),
        (vec!["sample", "ftp://host/index"], "not of ftp://"),
    ] {
        let message = fail("hds-index", &arguments);
        assert!(
            message.contains(expected),
            "expected {expected:?} for {arguments:?}:\n{message}"
        );
        assert!(!out.exists(), "{arguments:?} published something");
    }
}

#[test]
fn wrong_run_configurations_name_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, index) = (dir.path().join("corpus"), dir.path().join("index"));
    own_corpus(&corpus);
    succeed("hds-index", &["build", text(&corpus), "-o", text(&index)]);
    let config = dir.path().join("run.toml");
    fs::write(&config, format!("[data]\nindex = {index:?}\n")).unwrap();
    let out = dir.path().join("run");
    for (set, expected) in [
        ("run.stepz=3", "stepz"),
        ("run.steps=0", "run.steps"),
        ("run.threads=100000", "at most 1024"),
        ("run.steps=4\nseed=99", "key=value"),
        ("reward.clamp=nan", "reward.clamp"),
        ("reward.alignment_weight=inf", "reward.alignment_weight"),
        ("signals.layers=foo", "\"late\""),
        ("data.base_weights=foo", "\"natural\""),
        ("model.preset=gigantic", "gigantic"),
        ("scheduler.policy=magic", "magic"),
        ("optimizer.learning_rate=-1", "optimizer.learning_rate"),
        (
            "optimizer.learning_rate=1e-39",
            "optimizer.learning_rate: is",
        ),
        ("optimizer.epsilon=1e-60", "optimizer.epsilon: is"),
        (
            "optimizer={schedule=\"warmup_stable_decay\",warmup_fraction=0.5,decay_fraction=0.9}",
            "optimizer.decay_fraction",
        ),
        ("signals.layers=[0,0]", "signals.layers: 0 is there twice"),
        ("signals.layers=[-1]", "signals.layers: layer -1"),
        ("signals.gradients={kind=\"exact\",rank=3}", "rank"),
        (
            "scheduler={policy=\"doge\",doge={target={nowhere=1.0}}}",
            "scheduler.doge.target: no domain is named \"nowhere\"",
        ),
        ("data.target={code=0.0}", "at least one must be above 0"),
        ("data.index=nowhere", "nowhere"),
        ("data.base_weights=pile", "code"),
        ("data.base_weights={ code = 1.0, config = 1.0 }", "prose"),
        ("run.device=quantum", "quantum"),
        ("data.sequence_length=100000000", "max_position_embeddings"),
    ] {
        let message = fail(
            "hds-train",
            &[
                "run",
                "--config",
                text(&config),
                "--out",
                text(&out),
                "--set",
                "model.preset=cpu",
                "--set",
                "run.steps=2",
                "--set",
                "data.sequence_length=32",
                "--set",
                "data.batch_size=8",
                "--set",
                set,
            ],
        );
        assert!(
            message.contains(expected),
            "expected {expected:?} for {set}:\n{message}"
        );
        assert!(!out.exists(), "a run that did not start left {out:?}");
    }
    let message = fail(
        "hds-train",
        &["run", "--config", "none.toml", "--out", text(&out)],
    );
    assert!(message.contains("none.toml"), "{message}");
    let message = fail("hds-train", &["report", text(&corpus)]);
    assert!(message.contains("metrics.jsonl"), "{message}");
}
