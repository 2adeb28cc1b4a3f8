//! A tokenizer trained on a corpus serves its build.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;

use corpora::program::{good, refused};
use corpora::{Scratch, line, run_with};
use hds_indexer::tokenize::{TokenizerChoice, load};

#[test]
fn a_trained_tokenizer_serves_a_build() {
    let scratch = Scratch::new();
    let lines: String = (0..400)
        .map(|i| line(&format!("The {i}th document tells of tokenizers, of trees and of naïve 世界 sentences.\n"), "web"))
        .collect();
    scratch.write("in/x.jsonl", &lines);
    scratch.write(
        "in/y.jsonl",
        line(
            "Another file with other words altogether: zebra zebra zebra.",
            "law",
        ),
    );
    let folder = scratch.path("");
    let train = |output: &str, more: &[&str]| {
        let arguments = [
            &[
                "train-tokenizer",
                "in/*.jsonl",
                "--vocabulary",
                "340",
                "-o",
                output,
                "--json",
            ],
            more,
        ]
        .concat();
        let summary: serde_json::Value = serde_json::from_str(&good(&folder, &arguments)).unwrap();
        summary
    };
    let summary = train("t.json", &["--special-token", "<|fim|>"]);
    assert_eq!(
        (&summary["vocabulary"], &summary["documents"]),
        (&340.into(), &401.into())
    );
    train("again.json", &["--special-token", "<|fim|>"]);
    assert_eq!(
        fs::read(folder.join("t.json")).unwrap(),
        fs::read(folder.join("again.json")).unwrap()
    );
    let few = train("few.json", &["--sample-bytes", "3000"]);
    let few = few["text_bytes"].as_u64().unwrap();
    assert!((2_000..4_000).contains(&few), "{few}");

    let tokenizer = load(&TokenizerChoice::File {
        path: folder.join("t.json"),
        end_of_document: None,
    })
    .unwrap();
    assert_eq!(
        (
            tokenizer.vocabulary(),
            tokenizer.end_of_document(),
            tokenizer.engine()
        ),
        (340, 0, "fastokens")
    );
    // Any text comes back, and words of the sample are few tokens.
    let mut ids = Vec::new();
    let hard = "zebra\u{0} \u{1f600} naïve 世界 <|fim|>\r\n\t  x";
    tokenizer.encode_into(hard, &mut ids).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), hard);
    assert!(ids.contains(&2), "the special token is id 2: {ids:?}");
    ids.clear();
    tokenizer.encode_into(" tokenizers", &mut ids).unwrap();
    assert!(ids.len() <= 2, "{ids:?}");

    let mut options = scratch.options(&["in"]);
    options.target = scratch.path("index");
    let built = run_with(&options, &*tokenizer).unwrap();
    assert!(
        built.tokens < built.text_bytes / 3,
        "{} tokens",
        built.tokens
    );
    let text = good(
        &folder,
        &["sample", "index", "-t", "t.json", "--domain", "law"],
    );
    assert!(
        text.contains("zebra zebra zebra.") && text.contains("MTLD"),
        "{text}"
    );
    let (_, said) = refused(&folder, &["sample", "index"]);
    assert!(said.contains("the tokenizer.json of \"t\""), "{said}");

    for (arguments, want) in [
        (
            &[
                "train-tokenizer",
                "in",
                "--vocabulary",
                "100",
                "-o",
                "z.json",
            ][..],
            "--vocabulary is 100",
        ),
        (
            &[
                "train-tokenizer",
                "in",
                "--vocabulary",
                "400",
                "-o",
                "t.json",
            ],
            "t.json exists",
        ),
        (
            &[
                "train-tokenizer",
                "bad.jsonl",
                "--vocabulary",
                "400",
                "-o",
                "z.json",
            ],
            "bad.jsonl, line 2",
        ),
        (
            &[
                "train-tokenizer",
                "empty.jsonl",
                "--vocabulary",
                "400",
                "-o",
                "z.json",
            ],
            "holds no text",
        ),
    ] {
        scratch.write("bad.jsonl", line("x", "web") + "{\"text\": 1}\n");
        scratch.write("empty.jsonl", "");
        let (code, said) = refused(&folder, arguments);
        assert!(code == 1 && said.contains(want), "{said}");
        assert!(!folder.join("z.json").exists());
    }
}

#[test]
fn an_empty_and_a_doubled_special_token_are_refused() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", line("Some words of a text.", "web"));
    let folder = scratch.path("");
    let given = |tokens: &[&str]| {
        let mut arguments = vec!["train-tokenizer", "x.jsonl", "-o", "t.json"];
        arguments.extend(["--vocabulary", "300"]);
        for &token in tokens {
            arguments.extend(["--special-token", token]);
        }
        let (code, said) = refused(&folder, &arguments);
        assert!(code == 1 && !folder.join("t.json").exists(), "{said}");
        said
    };
    let empty = given(&["<|a|>", ""]);
    assert!(empty.contains("--special-token is empty"), "{empty}");
    let twice = given(&["<|a|>", "<|b|>", "<|a|>"]);
    assert!(twice.contains("\"<|a|>\" is given twice"), "{twice}");
    for token in ["<|endoftext|>", "<|padding|>"] {
        let known = given(&[token]);
        let want = format!("{token:?} is one that every trained tokenizer has");
        assert!(known.contains(&want), "{known}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_located_once() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", line("words", "web"));
    let arguments = [
        "train-tokenizer",
        "x.jsonl",
        "--vocabulary",
        "300",
        "--text-field",
        "nope",
        "-o",
        "t.json",
    ];
    let (code, said) = refused(&scratch.path(""), &arguments);
    assert!(code == 1 && said.contains("no field \"nope\""), "{said}");
    assert_eq!(said.matches("x.jsonl, line 1").count(), 1, "{said}");
    assert_eq!(said.matches("nope").count(), 1, "{said}");
}
