//! Whatever is done to an index, `verify` finds it and names the file.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use corpora::{Scratch, files, line, manifest, run};
use hds::index::Checksum;
use hds_indexer::build::BuildOptions;
use hds_indexer::verify::{Report, verify};

fn index(scratch: &Scratch) -> PathBuf {
    let lines: String = (0..500)
        .map(|i| {
            line(
                &format!("document {i} of some words"),
                ["web", "code"][i % 2],
            )
        })
        .collect();
    scratch.write("x.jsonl", lines);
    let options = BuildOptions {
        valid_fraction: 0.2,
        shard_tokens: 3000,
        ..scratch.options(&["x.jsonl"])
    };
    run(&options).unwrap();
    options.target
}

fn report(index: &Path) -> Report {
    verify(index, 2, &AtomicU64::new(0)).unwrap()
}

/// Writes a file of the index, and the checksum and size that make the manifest agree with it.
fn forge(index: &Path, file: &str, content: &[u8]) {
    fs::write(index.join(file), content).unwrap();
    fn walk(value: &mut serde_json::Value, file: &str, content: &[u8]) {
        match value {
            serde_json::Value::Object(map) => {
                if map.get("path").and_then(|p| p.as_str()) == Some(file) {
                    map.insert("bytes".into(), content.len().into());
                    map.insert("blake3".into(), Checksum::of(content).to_string().into());
                }
                map.values_mut().for_each(|v| walk(v, file, content));
            }
            serde_json::Value::Array(items) => {
                items.iter_mut().for_each(|v| walk(v, file, content))
            }
            _ => {}
        }
    }
    let mut manifest = manifest(index);
    walk(&mut manifest, file, content);
    write_manifest(index, &manifest);
}

/// Writes a manifest with its checksum, as somebody would who means it.
fn write_manifest(index: &Path, manifest: &serde_json::Value) {
    let text = manifest.to_string();
    let sum = format!("{}  manifest.json\n", Checksum::of(text.as_bytes()));
    fs::write(index.join("manifest.json"), text).unwrap();
    fs::write(index.join("manifest.blake3"), sum).unwrap();
}

#[test]
fn any_change_of_the_manifest_is_found() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    let path = index.join("manifest.json");
    let good = fs::read_to_string(&path).unwrap();
    let domain = manifest(&index)["domains"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    for (from, to) in [
        ("\"name\": \"byte\"", "\"name\": \"bite\""),
        ("\"valid_fraction\": 0.", "\"valid_fraction\": 0.9"),
        (&*format!("\"name\": \"{domain}\""), "\"name\": \"Aaa\""),
        ("\n}", "\n} "),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(good, bad, "{from}");
        fs::write(&path, bad).unwrap();
        let problems = report(&index).problems;
        assert_eq!(problems.len(), 1, "{from}: {problems:?}");
        assert!(
            problems[0].contains("one of them was changed since"),
            "{problems:?}"
        );
    }
    fs::write(&path, &good).unwrap();
    assert!(report(&index).is_good());
    let sum = index.join("manifest.blake3");
    for bad in [Some("nonsense"), Some(""), None] {
        match bad {
            Some(text) => fs::write(&sum, text).unwrap(),
            None => fs::remove_file(&sum).unwrap(),
        }
        let problems = report(&index).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("manifest.blake3"), "{problems:?}");
    }
}

#[test]
fn a_fresh_index_is_good() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    let report = report(&index);
    assert!(
        report.is_good() && report.strangers.is_empty(),
        "{report:?}"
    );
    assert!(report.shards > 4);
    let bytes: usize = files(&index)
        .iter()
        .filter(|f| !f.0.starts_with("manifest."))
        .map(|f| f.1.len())
        .sum();
    assert_eq!(report.bytes, bytes as u64);
}

#[test]
fn a_flipped_bit_a_short_file_and_a_missing_one_are_found_in_every_file() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    for (name, content) in files(&index) {
        if name.starts_with("manifest.") {
            continue;
        }
        let path = index.join(&name);
        let found = |what: &str| {
            let report = report(&index);
            assert_eq!(
                report.problems.len(),
                1,
                "{name} {what}: {:?}",
                report.problems
            );
            assert!(
                !report.problems[0].contains("hds-index verify"),
                "{:?}",
                report.problems
            );
            assert!(
                report.problems[0].contains(&name),
                "{name} {what}: {:?}",
                report.problems
            );
        };
        let mut flipped = content.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(&path, &flipped).unwrap();
        found("flipped");
        fs::write(&path, &content[..content.len() - 1]).unwrap();
        found("short");
        fs::remove_file(&path).unwrap();
        found("missing");
        fs::write(&path, &content).unwrap();
    }
    assert!(report(&index).is_good());
}

#[test]
fn swapped_shards_are_found() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    let (a, b) = (
        "domains/web/train/00000.tokens",
        "domains/web/train/00001.tokens",
    );
    fs::rename(index.join(a), index.join("c")).unwrap();
    fs::rename(index.join(b), index.join(a)).unwrap();
    fs::rename(index.join("c"), index.join(b)).unwrap();
    assert_eq!(report(&index).problems.len(), 2);
}

#[test]
fn tokens_that_fit_their_checksum_but_not_the_index_are_found() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    let file = "domains/web/train/00000.tokens";
    let good = fs::read(index.join(file)).unwrap();

    let mut large = good.clone();
    large[0..2].copy_from_slice(&257u16.to_le_bytes());
    forge(&index, file, &large);
    let problems = report(&index).problems;
    assert!(
        problems[0].contains(file) && problems[0].contains("257"),
        "{problems:?}"
    );

    let mut open = good.clone();
    let end = open.len() - 2;
    open[end..].copy_from_slice(&7u16.to_le_bytes());
    forge(&index, file, &open);
    let problems = report(&index).problems;
    assert!(
        problems[0].contains("should close a document"),
        "{problems:?}"
    );
}

#[test]
fn tables_of_another_shard_or_of_nonsense_are_found() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    for extension in ["documents.arrow", "documents.parquet"] {
        let file = format!("domains/web/train/00000.{extension}");
        let good = fs::read(index.join(&file)).unwrap();
        let other = fs::read(index.join(format!("domains/web/train/00001.{extension}"))).unwrap();
        for bad in [
            &other[..],
            b"",
            b"ARROW1",
            &good[..good.len() / 2],
            &vec![0xff; 2000],
        ] {
            forge(&index, &file, bad);
            let problems = report(&index).problems;
            assert!(
                problems.iter().any(|p| p.contains(&file)),
                "{file}: {problems:?}"
            );
        }
        // Every byte of the metadata turned over: an error or, where it means nothing, none; never a panic.
        for at in (0..good.len()).step_by(41) {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            forge(&index, &file, &bad);
            let _ = report(&index);
        }
        forge(&index, &file, &good);
    }
    assert!(report(&index).is_good());
}

#[test]
fn a_manifest_that_counts_wrongly_is_found() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    let good = manifest(&index);
    type Edit = fn(&mut serde_json::Value);
    let edits: [(&str, Edit); 4] = [
        ("bytes", |m| m["domains"][0]["train"]["bytes"] = 1.into()),
        ("words", |m| m["domains"][0]["valid"]["words"] = 1.into()),
        ("mtld", |m| {
            m["domains"][1]["train"]["mtld"]["mean"] = 1.0.into()
        }),
        ("sources", |m| m["sources"][0]["documents"] = 1.into()),
    ];
    for (field, edit) in edits {
        let mut bad = good.clone();
        edit(&mut bad);
        write_manifest(&index, &bad);
        let problems = report(&index).problems;
        assert_eq!(problems.len(), 1, "{field}: {problems:?}");
        assert!(problems[0].contains(field), "{problems:?}");
    }
}

#[test]
fn a_file_that_does_not_belong_is_named_but_no_fault() {
    let scratch = Scratch::new();
    let index = index(&scratch);
    fs::write(index.join("notes.txt"), "mine").unwrap();
    let report = report(&index);
    assert!(report.is_good());
    assert_eq!(report.strangers, [PathBuf::from("notes.txt")]);
}
