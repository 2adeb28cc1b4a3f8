//! Exact copies are counted, and left out where asked to, in whatever domain, split, file or packing they stand.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use corpora::{Scratch, domains, files, line, manifest, run, texts};
use hds_indexer::build::{BuildOptions, Duplicates};

/// Three files with copies within and across them; every text with the file and line it stands on.
fn corpus(scratch: &Scratch) -> [&'static str; 3] {
    scratch.write(
        "a.jsonl",
        line("one", "web") + &line("two", "web") + &line("one", "web") + &line("three", "code"),
    );
    scratch.write(
        "b.jsonl.zst",
        zstd::encode_all(
            (line("four", "code") + &line("two", "code") + &line("one ", "code")).as_bytes(),
            3,
        )
        .unwrap(),
    );
    scratch.write("c.jsonl", line("three", "law") + &line("four", "law"));
    ["a.jsonl", "b.jsonl.zst", "c.jsonl"]
}

#[test]
fn copies_are_counted_and_kept_by_default() {
    let scratch = Scratch::new();
    let inputs = corpus(&scratch);
    let summary = run(&scratch.options(&inputs)).unwrap();
    let index = scratch.path("index");
    assert_eq!((summary.documents, summary.duplicates), (9, 4));
    assert!(
        summary
            .warnings
            .iter()
            .any(|w| w.contains("4 of 9 documents")),
        "{:?}",
        summary.warnings
    );
    assert_eq!(texts(&index, "web", "train"), ["one", "two", "one"]);
    let manifest = manifest(&index);
    let counts: Vec<_> = manifest["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["name"].as_str().unwrap(), &d["train"]["duplicates"]))
        .collect();
    assert_eq!(
        counts,
        [("code", &1.into()), ("law", &2.into()), ("web", &1.into())]
    );
    assert!(!scratch.path("index.building").exists());
}

#[test]
fn copies_are_left_out_where_asked_to_and_counted_for_their_source() {
    let scratch = Scratch::new();
    let inputs = corpus(&scratch);
    let options = BuildOptions {
        duplicates: Duplicates::Drop,
        ..scratch.options(&inputs)
    };
    let summary = run(&options).unwrap();
    let index = scratch.path("index");
    assert_eq!((summary.documents, summary.duplicates), (5, 0));
    assert_eq!(texts(&index, "web", "train"), ["one", "two"]);
    // A blank behind it makes another text.
    assert_eq!(texts(&index, "code", "train"), ["three", "four", "one "]);
    assert_eq!(domains(&index), ["code", "web"]);
    let skipped = &summary.skipped[0];
    assert_eq!(
        (
            skipped.reason.as_str(),
            skipped.count,
            skipped.first.as_str()
        ),
        ("exact copy", 4, "a.jsonl, line 3")
    );
    let manifest = manifest(&index);
    let sources = manifest["sources"].as_array().unwrap();
    let counts: Vec<_> = sources.iter().map(|s| s["documents"].as_u64()).collect();
    assert_eq!(counts, [Some(3), Some(2), Some(0)]);
    assert_eq!(sources[1]["skipped"][0]["first"], "line 2");
    let report = hds_indexer::verify::verify(&index, 2, &Default::default()).unwrap();
    assert!(report.is_good(), "{report:?}");
    assert!(!scratch.path("index.building").exists());
}

#[test]
fn an_index_without_copies_is_that_of_the_corpus_without_them() {
    let texts: Vec<String> = (0..3000)
        .map(|i| {
            format!(
                "text {} {}",
                i * i % 1777,
                "word ".repeat(i * i % 1777 % 50)
            )
        })
        .collect();
    let mut seen = std::collections::HashSet::new();
    let first: String = texts
        .iter()
        .filter(|text| seen.insert(*text))
        .map(|text| line(text, ["web", "code"][text.len() % 2]))
        .collect();
    let all: String = texts
        .iter()
        .map(|text| line(text, ["web", "code"][text.len() % 2]))
        .collect();
    let mut indexes = Vec::new();
    for (content, duplicates, threads) in [
        (&all, Duplicates::Drop, 1),
        (&all, Duplicates::Drop, 3),
        (&first, Duplicates::Keep, 2),
    ] {
        let scratch = Scratch::new();
        scratch.write("x.jsonl", content);
        let options = BuildOptions {
            duplicates,
            threads,
            shard_tokens: 20_000,
            valid_fraction: 0.1,
            ..scratch.options(&["x.jsonl"])
        };
        let summary = run(&options).unwrap();
        assert_eq!(summary.documents, seen.len() as u64);
        let mut files = files(&scratch.path("index"));
        files.retain(|name, _| name.ends_with(".tokens") || name.ends_with(".arrow"));
        assert!(files.len() > 10, "{}", files.len());
        indexes.push(files);
    }
    assert!(indexes[0] == indexes[1], "the number of threads tells");
    assert!(indexes[0] == indexes[2], "not the corpus without copies");
}
