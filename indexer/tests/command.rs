//! The program as a user meets it: tables, JSON, errors, the standard input.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use corpora::program::hds_index;
use corpora::{Scratch, line, texts};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a failing command says.
fn error(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = hds_index(folder, arguments);
    assert!(
        output.stdout.is_empty(),
        "an error printed data: {}",
        text(&output.stdout)
    );
    (output.status.code().unwrap(), text(&output.stderr))
}

#[test]
fn a_build_prints_its_table_and_inspect_prints_it_again() {
    let scratch = Scratch::new();
    let folder = scratch.path("");
    scratch.write(
        "pile/a.jsonl",
        line("The cat sat on the mat.", "Web") + &line("Ein Satz.", "Law") + &line("x", "Law"),
    );
    scratch.write("pile/README.md", "# A corpus");
    let built = hds_index(
        &folder,
        &[
            "build",
            "pile",
            "-o",
            "index",
            "--valid-fraction",
            "0",
            "--threads",
            "1",
        ],
    );
    assert!(built.status.success(), "{}", text(&built.stderr));
    let table = text(&built.stdout);
    insta::assert_snapshot!("table", table);
    let said = text(&built.stderr);
    assert!(said.contains("indexed 3 documents, 36 tokens"), "{said}");
    let inspected = hds_index(&folder, &["inspect", "index"]);
    assert_eq!(text(&inspected.stdout), table);
    assert!(inspected.stderr.is_empty());
    let json: serde_json::Value =
        serde_json::from_slice(&hds_index(&folder, &["inspect", "index", "--json"]).stdout)
            .unwrap();
    assert_eq!(json["domains"][1]["name"], "Web");
    assert_eq!(json["domains"][1]["train"]["tokens"], 24);
    assert_eq!(json["train"]["documents"], 3);
    let verified = hds_index(&folder, &["verify", "index"]);
    assert!(text(&verified.stdout).starts_with("index is good: 2 shards"));
}

#[test]
fn the_summary_is_json_where_asked_for_and_stderr_is_then_still() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("x", "web") + "broken\n");
    let arguments = [
        "build",
        "a.jsonl",
        "-o",
        "index",
        "--json",
        "--on-error",
        "skip",
        "--valid-fraction",
        "0",
    ];
    let output = hds_index(&scratch.path(""), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&summary["documents"], &summary["tokens"]),
        (&1.into(), &2.into())
    );
    assert_eq!(summary["skipped"][0]["reason"], "broken JSON");
    assert_eq!(summary["skipped"][0]["first"], "a.jsonl, line 2, byte 44");
}

/// Runs the program on a terminal of its own, with what `feed` prints as its standard input, and gives all it showed.
fn on_a_terminal(folder: &Path, feed: &str, arguments: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_hds-index");
    let output = Command::new("script")
        .args([
            "-qec",
            &format!("{feed} | '{program}' {arguments}"),
            "/dev/null",
        ])
        .current_dir(folder)
        .env("COLUMNS", "120")
        // Without a kind of terminal no bar is drawn.
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Some(text(&output.stdout)),
        Ok(output) => panic!("{}", text(&output.stdout)),
        Err(_) => {
            println!("skipped: no program `script` to make a terminal");
            None
        }
    }
}

#[test]
fn a_terminal_shows_how_far_the_build_is() {
    let scratch = Scratch::new();
    let folder = scratch.path("");
    scratch.write("a.jsonl", line("some text", "web").repeat(20_000));
    // Slowly, so that the bar has something to show: a block, then a wait.
    let feed = "(cat a.jsonl; sleep 0.5; cat a.jsonl; sleep 0.5)";
    let Some(shown) = on_a_terminal(&folder, feed, "build - -o i --valid-fraction 0 2>&1") else {
        return;
    };
    assert!(shown.contains("read, "), "{shown}");
    assert!(
        shown.contains(" documents, ") && shown.contains("MB of text/s"),
        "{shown}"
    );
    let big = line(&"words of some length ".repeat(1000), "web").repeat(2000);
    scratch.write("b.jsonl", big);
    let arguments = "build b.jsonl -o j --valid-fraction 0 --threads 1 2>&1";
    let Some(shown) = on_a_terminal(&folder, "true", arguments) else {
        return;
    };
    assert!(
        shown.contains("MiB of ") && shown.contains(" left"),
        "{shown}"
    );
}

#[test]
fn nothing_of_the_progress_is_said_where_nobody_watches() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("some text", "web").repeat(20_000));
    let output = hds_index(
        &scratch.path(""),
        &["build", "a.jsonl", "-o", "i", "--json"],
    );
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["duplicates"], 19_999);
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(summary["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
    }
}

#[test]
fn the_standard_input_may_be_packed() {
    let lines = line("one", "web") + &line("two", "web");
    let zst = zstd::encode_all(lines.as_bytes(), 3).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(lines.as_bytes()).unwrap();
    for content in [lines.clone().into_bytes(), zst, gz.finish().unwrap()] {
        let scratch = Scratch::new();
        let mut child = Command::new(env!("CARGO_BIN_EXE_hds-index"))
            .current_dir(scratch.path(""))
            .args(["build", "-", "-o", "index", "--valid-fraction", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&content).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let index = scratch.path("index");
        assert_eq!(texts(&index, "web", "train"), ["one", "two"]);
        let source = &corpora::manifest(&index)["sources"][0];
        assert_eq!(
            (&source["name"], &source["bytes"]),
            (&"stdin".into(), &content.len().into())
        );
    }
}

#[test]
fn errors_are_one_line_that_says_what_to_do() {
    let scratch = Scratch::new();
    let folder = scratch.path("");
    scratch.write("bad.jsonl", line("x", "web") + "{\"text\": 1}\n");
    scratch.write("x.png", "");
    std::fs::create_dir(scratch.path("empty")).unwrap();
    scratch.write("part/part.json", "{}");
    scratch.write("good.jsonl", line("x", "web"));
    scratch.write("config.json", "{\"hidden_size\": 4}");
    let cases: &[(&[&str], i32, &[&str])] = &[
        (
            &["build", "bad.jsonl", "-o", "i"],
            1,
            &[
                "bad.jsonl, line 2",
                "\"text\" is a number",
                "--on-error skip",
            ],
        ),
        (
            &["build", "x.png", "-o", "i"],
            1,
            &["x.png", "--text-extension"],
        ),
        (&["build", "absent.jsonl", "-o", "i"], 1, &["absent.jsonl"]),
        (
            &["build", "empty", "-o", "i"],
            1,
            &["empty", "no file to index"],
        ),
        (
            &["build", "good.jsonl", "-o", "empty"],
            1,
            &["empty exists", "-o"],
        ),
        (
            &[
                "build",
                "good.jsonl",
                "-o",
                "i",
                "--tokenizer",
                "absent.json",
            ],
            1,
            &["absent.json"],
        ),
        (
            &[
                "build",
                "good.jsonl",
                "-o",
                "i",
                "--tokenizer",
                "config.json",
            ],
            1,
            &["config.json", "tokenizer.json"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--valid-fraction", "2"],
            1,
            &["--valid-fraction is 2"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--valid-fraction", "nan"],
            1,
            &["--valid-fraction"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--valid-fraction", "1"],
            1,
            &["held out", "train"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--threads", "0"],
            1,
            &["--threads is 0"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--shard-tokens", "0"],
            1,
            &["--shard-tokens is 0"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--domain-field", "text"],
            1,
            &["--domain-field"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--domain-field", "a..b"],
            2,
            &["a..b", "meta.pile_set_name"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--domain-from", "moon"],
            2,
            &["moon", "folder"],
        ),
        (
            &["build", "good.jsonl", "-o", "i", "--end-of-document", "x"],
            2,
            &["--tokenizer"],
        ),
        (&["build", "good.jsonl"], 2, &["--output"]),
        (&["build", "-o", "i"], 2, &["INPUT"]),
        (
            &["inspect", "empty"],
            1,
            &["empty is no index", "hds-index build"],
        ),
        (
            &["verify", "absent"],
            1,
            &["absent is no index", "no such folder"],
        ),
        (&["inspect", "part"], 1, &["part is", "hds-index merge"]),
        (
            &["stats", "part/part.json"],
            1,
            &["part.json is no index but a file", "folder"],
        ),
    ];
    for (arguments, want_code, parts) in cases {
        let (code, said) = error(&folder, arguments);
        assert_eq!(code, *want_code, "{arguments:?}: {said}");
        for part in *parts {
            assert!(
                said.contains(part),
                "{arguments:?} does not say {part:?}: {said}"
            );
        }
        if code == 1 {
            let last = said.trim_end().lines().last().unwrap();
            assert!(last.starts_with("error: "), "{arguments:?}: {said}");
        }
        assert!(
            !scratch.path("i").exists() && !scratch.path("i.building").exists(),
            "{arguments:?}"
        );
    }
}

#[test]
fn verify_fails_where_something_is_wrong() {
    let scratch = Scratch::new();
    let folder = scratch.path("");
    scratch.write("a.jsonl", line("x", "web"));
    assert!(
        hds_index(
            &folder,
            &["build", "a.jsonl", "-o", "index", "--valid-fraction", "0"]
        )
        .status
        .success()
    );
    std::fs::write(scratch.path("index/domains/web/train/00000.tokens"), "abcd").unwrap();
    let output = hds_index(&folder, &["verify", "index"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("00000.tokens has checksum"),
        "{}",
        text(&output.stdout)
    );
    let json = hds_index(&folder, &["verify", "index", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["problems"].as_array().unwrap().len(), 1);
}
