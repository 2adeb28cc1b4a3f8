//! What people look at an index with: samples and statistics; and how inputs are named.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use corpora::program::{good, refused, small_index};
use corpora::{Scratch, line, texts};
use hds::index::Split;
use hds_indexer::sample::{SampleError, SampledDocument, Selection, sample};
use hds_indexer::stats::stats;
use hds_indexer::tokenize::{ByteTokenizer, Tokenizer};

fn sampled(index: &Path, selection: &Selection, count: u64, seed: u64) -> Vec<SampledDocument> {
    let mut all = Vec::new();
    sample(index, selection, count, seed, &ByteTokenizer, |document| {
        all.push(document);
        true
    })
    .unwrap();
    all
}

#[test]
fn samples_are_documents_as_they_were_each_once() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let all = sampled(&index, &Selection::default(), 1000, 1);
    let seen: HashSet<&str> = all.iter().map(|d| d.text.as_str()).collect();
    assert_eq!((all.len(), seen.len()), (120, 120));
    for document in &all {
        let of_split = texts(&index, &document.domain, document.split);
        assert_eq!(document.text, of_split[document.document as usize]);
        assert_eq!(
            (document.bytes, document.tokens),
            (document.text.len() as u64, document.text.len() as u64 + 1)
        );
        assert_eq!(document.source, "x.jsonl");
        assert!(
            document
                .text
                .starts_with(&format!("Number {}.", document.position))
        );
        assert_eq!(
            document.content_hash,
            blake3::hash(document.text.as_bytes()).to_hex()[..32]
        );
    }
    let few = sampled(&index, &Selection::default(), 7, 1);
    assert_eq!(few, all[..7]);
    assert_ne!(few, sampled(&index, &Selection::default(), 7, 2));
    let law = Selection {
        domains: vec!["law & <order>".into()],
        split: Some(Split::Valid),
    };
    let law = sampled(&index, &law, 1000, 1);
    assert!(
        !law.is_empty()
            && law
                .iter()
                .all(|d| d.domain == "law & <order>" && d.split == "valid")
    );
}

#[test]
fn every_document_is_drawn_as_often() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let mut drawn = [0u32; 120];
    for seed in 0..1200 {
        for document in sampled(&index, &Selection::default(), 2, seed) {
            drawn[document.position as usize] += 1;
        }
    }
    // 2400 draws of 120: chi-square of 119 degrees has mean 119 and deviation 15.4.
    let chi: f64 = drawn
        .iter()
        .map(|n| (f64::from(*n) - 20.0).powi(2) / 20.0)
        .sum();
    assert!((60.0..190.0).contains(&chi), "{chi}");
}

#[test]
fn a_sample_of_a_damaged_index_or_with_another_tokenizer_is_refused() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let try_sample = || {
        sample(
            &index,
            &Selection::default(),
            1000,
            0,
            &ByteTokenizer,
            |_| true,
        )
        .map_err(|e| e.to_string())
    };
    let shard = |extension: &str| index.join(format!("domains/web/train/00001.{extension}"));
    for (extension, edit, want) in [
        (
            "tokens",
            (|b: &mut Vec<u8>| _ = b.pop()) as fn(&mut Vec<u8>),
            "bytes",
        ),
        (
            "documents.parquet",
            |b| b.truncate(100),
            "00001.documents.parquet holds 100 bytes",
        ),
        (
            "documents.parquet",
            |b| b.fill(0x55),
            "00001.documents.parquet",
        ),
    ] {
        let good = fs::read(shard(extension)).unwrap();
        let mut bad = good.clone();
        edit(&mut bad);
        fs::write(shard(extension), &bad).unwrap();
        let error = try_sample().unwrap_err();
        assert!(error.contains(want), "{error}");
        assert!(extension == "tokens" || stats(&index, &Selection::default()).is_err());
        fs::write(shard(extension), &good).unwrap();
    }
    try_sample().unwrap();
    struct Other;
    impl Tokenizer for Other {
        fn encode_into(
            &self,
            _: &str,
            _: &mut Vec<u32>,
        ) -> Result<(), hds_indexer::tokenize::TokenizeError> {
            Ok(())
        }
        fn decode(&self, _: &[u32]) -> Result<String, hds_indexer::tokenize::TokenizeError> {
            Ok(String::new())
        }
        fn vocabulary(&self) -> u32 {
            257
        }
        fn end_of_document(&self) -> u32 {
            256
        }
        fn name(&self) -> &str {
            "other"
        }
        fn fingerprint(&self) -> String {
            "0".repeat(64)
        }
        fn engine(&self) -> &'static str {
            "byte"
        }
    }
    let error = sample(&index, &Selection::default(), 1, 0, &Other, |_| true).unwrap_err();
    assert!(matches!(error, SampleError::OtherTokenizer { .. }));
    let text = error.to_string();
    assert!(
        text.contains("\"byte\"") && text.contains("\"other\"") && text.contains("--tokenizer"),
        "{text}"
    );
}

#[test]
fn statistics_are_those_of_sorted_documents() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let found = stats(&index, &Selection::default()).unwrap();
    let mut bytes: Vec<f64> = Vec::new();
    for domain in ["law & <order>", "web"] {
        for split in ["train", "valid"] {
            bytes.extend(texts(&index, domain, split).iter().map(|t| t.len() as f64));
        }
    }
    bytes.sort_by(f64::total_cmp);
    // Rank ⌈q · 120⌉.
    let q = found.all.bytes;
    let want = [0, 1, 5, 29, 59, 89, 113, 118, 119].map(|rank| bytes[rank]);
    assert_eq!(
        [q.min, q.p1, q.p5, q.p25, q.p50, q.p75, q.p95, q.p99, q.max],
        want
    );
    assert_eq!(q.mean, bytes.iter().sum::<f64>() / 120.0);
    assert_eq!(found.all.tokens.p50, q.p50 + 1.0);
    assert_eq!(found.domains.iter().map(|d| d.documents).sum::<u64>(), 120);
    let manifest = corpora::manifest(&index);
    let train = stats(
        &index,
        &Selection {
            domains: vec!["web".into()],
            split: Some(Split::Train),
        },
    )
    .unwrap();
    let summary = &manifest["domains"][1]["train"]["mtld"];
    let mtld = train.domains[0].mtld;
    assert_eq!(
        (mtld.min, mtld.max),
        (
            summary["min"].as_f64().unwrap(),
            summary["max"].as_f64().unwrap()
        )
    );
    assert!((mtld.mean - summary["mean"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn statistics_are_shown_as_tables_json_and_plots() {
    let scratch = Scratch::new();
    small_index(&scratch);
    let folder = scratch.path("");
    let table = good(&folder, &["stats", "index", "--plot", "plot.svg"]);
    for part in [
        "tokens of a document",
        "MTLD of a document",
        "median",
        "law & <order>",
        "all",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let json: serde_json::Value = serde_json::from_str(&good(
        &folder,
        &["stats", "index", "--json", "--plot", "plot.html"],
    ))
    .unwrap();
    assert_eq!(json["all"]["documents"], 120);
    assert!(json["domains"][0]["mtld"]["p95"].as_f64().unwrap() > 0.0);
    let svg = fs::read_to_string(folder.join("plot.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"));
    assert!(svg.contains("law &amp; &lt;order&gt;") && !svg.contains("<order>"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    // Two domains and both together, in two panels.
    assert_eq!(svg.matches("class=\"box\"").count(), 6);
    let html = fs::read_to_string(folder.join("plot.html")).unwrap();
    assert!(
        html.starts_with("<!DOCTYPE html>")
            && html.contains("<svg")
            && html.contains("law &amp; &lt;order&gt;")
    );
    let (code, said) = refused(&folder, &["stats", "index", "--plot", "plot.png"]);
    assert!(
        code == 1 && said.contains("plot.png") && said.contains(".svg"),
        "{said}"
    );
    let (_, said) = refused(&folder, &["stats", "index", "--domain", "books"]);
    assert!(said.contains("books") && said.contains("web"), "{said}");
}

#[test]
fn samples_are_shown_as_text_and_json() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line(&"é".repeat(3000), "web"));
    let folder = scratch.path("");
    good(
        &folder,
        &["build", "a.jsonl", "-o", "index", "--valid-fraction", "0"],
    );
    let text = good(&folder, &["sample", "index", "-n", "1"]);
    assert!(
        text.contains("web, train document 0: 6,001 tokens, 6,000 bytes"),
        "{text}"
    );
    assert!(text.contains("… (4,000 bytes more)") && text.matches('é').count() == 1000);
    let whole = good(&folder, &["sample", "index", "--characters", "0"]);
    assert_eq!(whole.matches('é').count(), 3000);
    let json: serde_json::Value =
        serde_json::from_str(&good(&folder, &["sample", "index", "--json"])).unwrap();
    assert_eq!(json["text"].as_str().unwrap().chars().count(), 3000);
    let (_, said) = refused(&folder, &["sample", "index", "--split", "valid"]);
    assert!(said.contains("hold no document"), "{said}");
}

#[test]
fn patterns_and_lists_name_inputs() {
    let scratch = Scratch::new();
    for name in ["in/b.jsonl", "in/a.jsonl", "in/sub/c.jsonl", "in/x.png"] {
        scratch.write(name, line(name, "web"));
    }
    let folder = scratch.path("");
    let build = |target: &str, inputs: &[&str]| {
        let arguments = [
            &["build", "-o", target, "--valid-fraction", "0", "--json"],
            inputs,
        ]
        .concat();
        good(&folder, &arguments);
        texts(&folder.join(target), "web", "train")
    };
    assert_eq!(build("one", &["in/*.jsonl"]), ["in/a.jsonl", "in/b.jsonl"]);
    assert_eq!(
        build("two", &["in/**/*.jsonl"]),
        ["in/a.jsonl", "in/b.jsonl", "in/sub/c.jsonl"]
    );
    scratch.write("list", "in/sub/c.jsonl\n\nin/a.jsonl\n");
    assert_eq!(
        build("three", &["--files-from", "list"]),
        ["in/sub/c.jsonl", "in/a.jsonl"]
    );
    assert_eq!(
        build("four", &["in/b.jsonl", "--files-from", "list"]),
        ["in/b.jsonl", "in/sub/c.jsonl", "in/a.jsonl"]
    );
    for (inputs, want) in [
        (&["in/*.parquet"][..], "in/*.parquet matches no file"),
        (&["in/*", "-o", "x"], "x.png"),
        (&["in/*.jsonl", "--files-from", "list"], "given twice"),
        (&["--files-from", "absent"], "absent"),
        (&["--files-from", "empty"], "names no file"),
    ] {
        scratch.write("empty", "\n");
        let arguments = [
            &["build"][..],
            inputs,
            if inputs.contains(&"-o") {
                &[]
            } else {
                &["-o", "x"]
            },
        ]
        .concat();
        let (code, said) = refused(&folder, &arguments);
        assert!(code == 1 && said.contains(want), "{said}");
        assert!(!folder.join("x").exists());
    }
    for extension in ["", "."] {
        let arguments = ["build", "in", "-o", "x", "--text-extension", extension];
        let (code, said) = refused(&folder, &arguments);
        assert!(
            code == 2 && said.contains("an extension is empty"),
            "{said}"
        );
    }
}
