//! Parts built apart and joined are, byte for byte, one build; what is not all parts of one build is refused.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;

use corpora::{Scratch, files, line, run, shards};
use hds_indexer::build::{
    Advance, BuildError, BuildOptions, Duplicates, MergeError, MergeSummary, OnError, PartSummary,
    Progress, Silent, build_part, merge,
};
use hds_indexer::input::Part;
use hds_indexer::tokenize::ByteTokenizer;

/// Four files of three domains, one of them mixed, one with something to skip, and one held out.
fn corpus(scratch: &Scratch) -> BuildOptions {
    let text = |i: usize| {
        format!(
            "Document {i}. {}",
            "Words of it, and words. ".repeat(i * 7 % 40)
        )
    };
    let lines = |range: std::ops::Range<usize>, domain: fn(usize) -> &'static str| -> String {
        range.map(|i| line(&text(i), domain(i))).collect()
    };
    scratch.write("pile/a.jsonl", lines(0..120, |_| "web"));
    scratch.write(
        "pile/b.jsonl",
        lines(120..300, |i| ["web", "law", "code"][i % 3]),
    );
    scratch.write(
        "pile/c.jsonl",
        lines(300..330, |_| "law") + "{\"text\": 1}\n" + &lines(330..340, |_| "law"),
    );
    // Twenty copies of documents in the first file.
    scratch.write(
        "pile/d.jsonl",
        // A domain of empty texts alone, and one of others too.
        line("", "void")
            + &line("", "web")
            + &lines(340..420, |i| ["code", "web"][i % 2])
            + &lines(20..40, |_| "code"),
    );
    scratch.write("val.jsonl", lines(420..450, |i| ["web", "law"][i % 2]));
    let mut options = scratch.options(&["pile"]);
    options.held_out = vec![scratch.path("val.jsonl")];
    options.shard_tokens = 9_000;
    options.on_error = OnError::Skip;
    options
}

fn part_folder(scratch: &Scratch, number: u32, of: u32) -> PathBuf {
    scratch.path(&format!("parts-{of}/{number}"))
}

fn build(options: &BuildOptions, part: Part) -> Result<PartSummary, BuildError> {
    build_part(
        options,
        part,
        &ByteTokenizer,
        &Silent,
        &AtomicBool::new(false),
    )
}

/// Builds all parts; gives their folders.
fn build_parts(scratch: &Scratch, options: &BuildOptions, of: u32) -> Vec<PathBuf> {
    (1..=of)
        .map(|number| {
            let mut options = options.clone();
            options.target = part_folder(scratch, number, of);
            fs::create_dir_all(options.target.parent().unwrap()).unwrap();
            // Neither threads nor the times of files matter.
            options.threads = number as usize;
            build(&options, Part::new(number, of).unwrap()).unwrap();
            options.target
        })
        .collect()
}

fn join(parts: &[PathBuf], scratch: &Scratch) -> Result<MergeSummary, MergeError> {
    merge(
        parts,
        &scratch.path("joined"),
        2,
        &Silent,
        &AtomicBool::new(false),
    )
}

fn refusal(parts: &[PathBuf], scratch: &Scratch) -> String {
    let message = join(parts, scratch).unwrap_err().to_string();
    assert!(!scratch.path("joined").exists() && !scratch.path("joined.building").exists());
    message
}

#[test]
fn joined_parts_are_one_build_for_any_number_of_parts() {
    let scratch = Scratch::new();
    for (duplicates, documents) in [(Duplicates::Keep, 470), (Duplicates::Drop, 450)] {
        let mut options = corpus(&scratch);
        options.duplicates = duplicates;
        compare_with_one_build(&scratch, &options, documents);
    }
}

fn compare_with_one_build(scratch: &Scratch, options: &BuildOptions, documents: u64) {
    run(options).unwrap();
    let whole = files(&options.target);
    let manifest = corpora::manifest(&options.target);
    fs::remove_dir_all(&options.target).unwrap();
    // Shards end in the middle of a part, and parts in the middle of a shard.
    assert!(shards(&manifest, "web", "train").len() > 3);
    for of in [1, 2, 3, 5, 9] {
        let mut parts = build_parts(scratch, options, of);
        parts.reverse();
        let summary = join(&parts, scratch).unwrap();
        assert_eq!(
            (summary.parts, summary.documents),
            (of as usize, documents),
            "{of} parts"
        );
        let joined = files(&scratch.path("joined"));
        let names = |files: &std::collections::BTreeMap<String, Vec<u8>>| {
            files.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(&joined), names(&whole), "{of} parts");
        for (name, content) in &whole {
            assert!(joined[name] == *content, "{name} differs, {of} parts");
        }
        fs::remove_dir_all(scratch.path("joined")).unwrap();
        parts
            .iter()
            .for_each(|part| fs::remove_dir_all(part).unwrap());
    }
}

#[test]
fn a_part_without_a_source_is_a_part_all_the_same() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("x", "web"));
    let mut options = scratch.options(&["a.jsonl"]);
    options.target = scratch.path("part");
    let summary = build(&options, Part::new(2, 2).unwrap());
    // One file of two parts: one is empty, whichever it is.
    let first = summary.unwrap();
    options.target = scratch.path("other");
    let second = build(&options, Part::new(1, 2).unwrap()).unwrap();
    assert_eq!(first.documents + second.documents, 1);
    assert_eq!(first.sources + second.sources, 1);
    let parts = [scratch.path("part"), scratch.path("other")];
    assert_eq!(join(&parts, &scratch).unwrap().documents, 1);
}

#[test]
fn parts_that_are_not_all_of_one_build_are_refused() {
    let scratch = Scratch::new();
    let options = corpus(&scratch);
    let parts = build_parts(&scratch, &options, 3);
    let missing = refusal(&parts[1..2], &scratch);
    assert!(
        missing.contains("2 of 3 parts are missing: 1, 3"),
        "{missing}"
    );
    let copy = scratch.path("copy");
    Command::new("cp")
        .arg("-r")
        .args([&parts[0], &copy])
        .status()
        .unwrap();
    let twice = refusal(&[parts.clone(), vec![copy]].concat(), &scratch);
    assert!(twice.contains("are both part 1 of 3"), "{twice}");

    let inside = parts[0].join("joined");
    let error = merge(&parts, &inside, 2, &Silent, &AtomicBool::new(false)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("would lie in the input folder"), "{said}");
    assert!(!inside.exists() && !parts[0].join("joined.building").exists());

    let other_count = build_parts(&scratch, &options, 2);
    let mixed = refusal(
        &[parts[0].clone(), parts[1].clone(), other_count[1].clone()],
        &scratch,
    );
    assert!(mixed.contains("one of 2 parts, not of 3"), "{mixed}");

    let rebuilt = |change: fn(&mut BuildOptions)| {
        let mut options = options.clone();
        change(&mut options);
        options.target = scratch.path("changed");
        build(&options, Part::new(3, 3).unwrap()).unwrap();
        let message = refusal(
            &[parts[0].clone(), parts[1].clone(), options.target.clone()],
            &scratch,
        );
        fs::remove_dir_all(&options.target).unwrap();
        message
    };
    let other_options = rebuilt(|o| o.shard_tokens = 8_000);
    assert!(
        other_options.contains("another build")
            && other_options.contains("shard_tokens 8000 instead of 9000"),
        "{other_options}"
    );
    scratch.write("pile/d.jsonl", line("less", "web"));
    let other_inputs = rebuilt(|_| ());
    assert!(other_inputs.contains("other inputs"), "{other_inputs}");

    let mut tokenizer = options.clone();
    tokenizer.target = scratch.path("index");
    fs::create_dir_all(scratch.path("empty")).unwrap();
    run(&tokenizer).unwrap();
    for (folder, want) in [
        ("index", "a whole index"),
        ("empty", "no part.json"),
        ("absent", "no such folder"),
    ] {
        let message = refusal(&[scratch.path(folder)], &scratch);
        assert!(
            message.contains(want) && message.contains("--shard"),
            "{message}"
        );
    }
    let nothing = refusal(&[], &scratch);
    assert!(nothing.contains("no part is given"), "{nothing}");
}

#[test]
fn a_damaged_part_is_refused_and_the_file_named() {
    let scratch = Scratch::new();
    let options = corpus(&scratch);
    let parts = build_parts(&scratch, &options, 2);
    let tokens = "domains/web/train/00000.tokens";
    let records = "records/domains/web/train/00000.records";
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, &str); 6] = [
        (tokens, |b| b[100] ^= 1, "checksum"),
        (tokens, |b| b.truncate(100), "holds 100 bytes"),
        (records, |b| *b.last_mut().unwrap() ^= 1, "checksum"),
        (records, |b| b[..8].copy_from_slice(&[0xff; 8]), "tokens"),
        (records, |b| b[..8].copy_from_slice(&[0; 8]), "has 0 tokens"),
        (
            records,
            |b| b[40..44].copy_from_slice(&[0xff; 4]),
            "is of source",
        ),
    ];
    for (name, damage, want) in cases {
        let path = parts[0].join(name);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        damage(&mut bad);
        fs::write(&path, &bad).unwrap();
        let message = refusal(&parts, &scratch);
        assert!(
            message.contains(name) && message.contains(want),
            "{message}"
        );
        fs::write(&path, &good).unwrap();
    }
    fs::remove_file(parts[0].join(records)).unwrap();
    let message = refusal(&parts, &scratch);
    assert!(message.contains(records), "{message}");
    let path = parts[1].join("part.json");
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, want) in [
        ("\"version\": 1", "\"version\": 2", "of version 2"),
        ("\"part\": 2", "\"part\": 7", "part 7/2"),
        ("\"documents\"", "\"paragraphs\"", "paragraphs"),
        ("hds-part", "hds-cake", "hds-cake"),
    ] {
        fs::write(&path, good.replacen(from, to, 1)).unwrap();
        let message = refusal(&parts, &scratch);
        assert!(message.contains(want), "{message}");
    }
    let domain = good.replace("\"domain\": \"law\"", "\"domain\": \"a\\u0000\"");
    fs::write(&path, domain).unwrap();
    let message = refusal(&parts, &scratch);
    assert!(
        message.contains("control characters") || message.contains("records"),
        "{message}"
    );
}

#[test]
fn counts_of_sources_that_do_not_add_up_are_refused() {
    let scratch = Scratch::new();
    let parts = build_parts(&scratch, &corpus(&scratch), 2);
    let path = parts[0].join("part.json");
    let good = fs::read_to_string(&path).unwrap();
    fn skip(counts: &[u64]) -> serde_json::Value {
        let one = |n: &u64| serde_json::json!({"reason": "x", "count": n, "first": "line 1"});
        counts.iter().map(one).collect()
    }
    type Edit = fn(&mut serde_json::Value);
    let cases: [(Edit, &str); 6] = [
        (
            |s| s["documents"] = u64::MAX.into(),
            "18446744073709551615 documents, the records have 120",
        ),
        (
            |s| s["documents"] = 121.into(),
            "121 documents, the records have 120",
        ),
        (
            |s| s["documents"] = 0.into(),
            "0 documents, the records have 120",
        ),
        (
            |s| s["bytes"] = u64::MAX.into(),
            "18446744073709551615 bytes",
        ),
        (
            |s| s["bytes"] = (1u64 << 63).into(),
            "9223372036854775808 bytes",
        ),
        (|s| s["skipped"] = skip(&[u64::MAX, 1]), "records left out"),
    ];
    for (edit, want) in cases {
        let mut part: serde_json::Value = serde_json::from_str(&good).unwrap();
        edit(&mut part["sources"][0]);
        fs::write(&path, part.to_string()).unwrap();
        let message = refusal(&parts, &scratch);
        assert!(
            message.contains("part.json: source \"")
                && message.contains("a.jsonl")
                && message.contains(want),
            "{message}"
        );
    }
    fs::write(&path, &good).unwrap();
    join(&parts, &scratch).unwrap();
}

/// Ends a build once it has so many documents.
struct StopAfter<'s>(u64, &'s AtomicBool);

impl Progress for StopAfter<'_> {
    fn advances(&self, advance: Advance) {
        if advance.documents >= self.0 {
            self.1.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn an_interrupted_part_goes_on_but_not_as_another() {
    let scratch = Scratch::new();
    let options = corpus(&scratch);
    run(&options).unwrap();
    let mut interrupted = options.clone();
    interrupted.target = part_folder(&scratch, 1, 2);
    interrupted.checkpoint_every = std::time::Duration::ZERO;
    fs::create_dir_all(interrupted.target.parent().unwrap()).unwrap();
    let (first, stop) = (Part::new(1, 2).unwrap(), AtomicBool::new(false));
    let progress = StopAfter(50, &stop);
    let error = build_part(&interrupted, first, &ByteTokenizer, &progress, &stop).unwrap_err();
    assert!(matches!(error, BuildError::Interrupted { .. }), "{error}");
    assert!(!interrupted.target.exists());
    let other = build(&interrupted, Part::new(2, 2).unwrap()).unwrap_err();
    let message = other.to_string();
    assert!(message.contains("part \"1/2 of"), "{message}");
    assert!(build(&interrupted, first).unwrap().resumed);
    let mut rest = options.clone();
    rest.target = part_folder(&scratch, 2, 2);
    build(&rest, Part::new(2, 2).unwrap()).unwrap();
    join(&[interrupted.target, rest.target], &scratch).unwrap();
    assert!(files(&scratch.path("joined")) == files(&options.target));
}

#[test]
fn the_standard_input_cannot_be_shared_out() {
    let scratch = Scratch::new();
    let mut options = scratch.options(&[]);
    options.inputs = vec!["-".into()];
    let error = build(&options, Part::new(1, 2).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--shard is 1/2") && error.contains("standard input"),
        "{error}"
    );
}

fn hds_index(scratch: &Scratch, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hds-index"))
        .current_dir(scratch.path(""))
        .args(arguments)
        .env_remove("SLURM_ARRAY_TASK_ID")
        .env_remove("JOB_COMPLETION_INDEX")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn batch_systems_build_the_parts_that_merge_joins() {
    let scratch = Scratch::new();
    for name in ["a", "b", "c"] {
        scratch.write(
            &format!("in/{name}.jsonl"),
            line(name, "web") + &line(name, name),
        );
    }
    let good = |output: Output| {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    };
    let common = ["--valid-fraction", "0"];
    let build = |target: &str, more: &[&str], environment: &[(&str, &str)]| {
        let arguments = [&["build", "in/*.jsonl", "-o", target][..], &common, more].concat();
        hds_index(&scratch, &arguments, environment)
    };
    good(build(
        "whole",
        &[],
        &[("SLURM_ARRAY_TASK_ID", "1"), ("JOB_COMPLETION_INDEX", "1")],
    ));
    for id in ["1", "2", "3"] {
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_MAX", "3"),
        ];
        good(build(&format!("slurm-{id}"), &["--shard", "auto"], &slurm));
    }
    for index in ["0", "1", "2"] {
        let kubernetes = [("JOB_COMPLETION_INDEX", index)];
        let said = good(build(
            &format!("pod-{index}"),
            &["--shard", "auto/3", "--json"],
            &kubernetes,
        ));
        let summary: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(
            (&summary["of"], &summary["sources"]),
            (&3.into(), &1.into())
        );
    }
    let whole = files(&scratch.path("whole"));
    for parts in [
        ["slurm-3", "slurm-1", "slurm-2"],
        ["pod-0", "pod-1", "pod-2"],
    ] {
        let target = format!("of-{}", parts[0]);
        let arguments = [&["merge"][..], &parts, &["-o", &target, "--json"]].concat();
        let said = good(hds_index(&scratch, &arguments, &[]));
        let summary: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(
            (&summary["parts"], &summary["documents"]),
            (&3.into(), &6.into())
        );
        assert!(files(&scratch.path(&target)) == whole, "{target}");
    }
    let refused = build("x", &["--shard", "auto"], &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("neither SLURM_ARRAY_TASK_ID"),
        "{said}"
    );
    assert!(!scratch.path("x").exists());
    let again = hds_index(
        &scratch,
        &["merge", "pod-0", "pod-1", "pod-2", "-o", "whole"],
        &[],
    );
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        !again.status.success() && said.contains("whole exists"),
        "{said}"
    );
}
