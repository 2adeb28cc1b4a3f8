//! What we export is read, and what we import is written, by megatron-core itself.
//!
//! Needs a Python with the packages megatron-core and torch: `HDS_MEGATRON_PYTHON` names it.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use corpora::{Scratch, domains, line, run_with, shared, tokens};
use hds_indexer::build::{BuildOptions, ImportOptions, OnError, Silent, import};
use hds_indexer::export::{Selection, export_megatron};
use hds_indexer::input::MegatronName;
use hds_indexer::tokenize::{ByteTokenizer, Tokenizer, TokenizerChoice, load};

/// The Python, or the reason why the test cannot run.
fn python() -> Option<OsString> {
    let python = std::env::var_os("HDS_MEGATRON_PYTHON");
    if python.is_none() {
        println!("skipped: HDS_MEGATRON_PYTHON names no Python with megatron-core");
    }
    python
}

fn megatron_core(python: &OsString, arguments: &[&str], input: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/megatron_core.py");
    let mut child = Command::new(python)
        .arg(script)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The documents of a split, cut behind the ids that the run-time table says.
fn documents(index: &Path, domain: &str, split: &str) -> Vec<Vec<u32>> {
    let tokens = tokens(index, domain, split);
    let mut ends: Vec<usize> = corpora::runtime_rows(index, domain, split)
        .iter()
        .skip(1)
        .map(|r| r.0 as usize)
        .collect();
    ends.push(tokens.len());
    let mut start = 0;
    ends.into_iter()
        .map(|end| tokens[std::mem::replace(&mut start, end)..end].to_vec())
        .collect()
}

fn check_export(
    python: &OsString,
    scratch: &Scratch,
    options: &BuildOptions,
    tokenizer: &dyn Tokenizer,
    id_type: &str,
) {
    run_with(options, tokenizer).unwrap();
    let out = scratch.path("out");
    for dataset in export_megatron(&options.target, &Selection::default(), &out).unwrap() {
        let read = megatron_core(python, &["read", dataset.prefix.to_str().unwrap()], "");
        let read: serde_json::Value = serde_json::from_str(&read).unwrap();
        assert_eq!(read["type"], id_type);
        let got: Vec<Vec<u32>> = serde_json::from_value(read["documents"].clone()).unwrap();
        assert_eq!(got.len() as u64, dataset.documents);
        assert!(
            got == documents(&options.target, &dataset.domain, dataset.split),
            "{}",
            dataset.domain
        );
    }
}

#[test]
fn megatron_core_reads_the_tokens_that_we_export() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let lines: String = (0..300)
        .map(|i| {
            line(
                &format!("Text {i}{}", " né".repeat(i % 50)),
                ["web", "law"][i % 2],
            )
        })
        .collect();
    scratch.write("x.jsonl", lines);
    let mut options = scratch.options(&["x.jsonl"]);
    (options.valid_fraction, options.shard_tokens) = (0.2, 1000);
    check_export(&python, &scratch, &options, &ByteTokenizer, "uint16");
}

#[test]
fn megatron_core_reads_the_minipile_that_we_export() {
    let Some(python) = python() else { return };
    let (Some(minipile), Some(tokenizer)) = (shared("minipile"), shared("20B_tokenizer.json"))
    else {
        return;
    };
    let tokenizer = load(&TokenizerChoice::File {
        path: tokenizer,
        end_of_document: None,
    })
    .unwrap();
    let scratch = Scratch::new();
    let mut options = scratch.options(&[]);
    options.inputs = vec![
        minipile.join("EuroParl.jsonl.zst"),
        minipile.join("WikipediaZh.jsonl.zst"),
    ];
    check_export(&python, &scratch, &options, &*tokenizer, "uint16");
}

#[test]
fn we_import_the_tokens_that_megatron_core_writes() {
    let Some(python) = python() else { return };
    let texts: Vec<String> = (0..200)
        .map(|i| format!("Document {i}. {}", "Word é. ".repeat(i % 31)))
        .collect();
    for (id_type, is_closed) in [
        ("uint16", true),
        ("int32", true),
        ("int64", false),
        ("uint8", false),
    ] {
        let scratch = Scratch::new();
        let ids = |text: &String| -> Vec<u32> {
            let end = is_closed.then_some(256);
            text.bytes().map(u32::from).chain(end).collect()
        };
        let documents: Vec<Vec<u32>> = texts.iter().map(ids).collect();
        let prefix = scratch.path("web");
        megatron_core(
            &python,
            &["write", prefix.to_str().unwrap(), id_type],
            &serde_json::to_string(&documents).unwrap(),
        );
        let options = ImportOptions {
            inputs: vec![MegatronName {
                domain: None,
                prefix,
            }],
            held_out: Vec::new(),
            target: scratch.path("index"),
            valid_fraction: 0.0,
            on_error: OnError::Stop,
            shard_tokens: BuildOptions::SHARD_TOKENS,
            threads: 2,
            restart: false,
            checkpoint_every: BuildOptions::CHECKPOINT_EVERY,
        };
        import(&options, &ByteTokenizer, &Silent, &AtomicBool::new(false)).unwrap();
        assert_eq!(domains(&options.target), ["web"]);
        assert_eq!(
            corpora::texts(&options.target, "web", "train"),
            texts,
            "{id_type}"
        );
    }
}
