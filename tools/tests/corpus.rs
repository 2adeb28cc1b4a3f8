//! A small corpus of what this machine has, made twice.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use hds_tools::corpus;
use hds_tools::project::Project;

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("the corpus").flatten();
    entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                fs::read(entry.path()).expect("a file"),
            )
        })
        .collect()
}

#[test]
fn the_corpus_is_well_formed_and_the_same_each_time() {
    let project = Project::locate();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("corpus");
    let tallies = corpus::run(&project, &out, 8).expect("a corpus");
    let first = files(&out);
    assert!(tallies.len() >= 3, "{tallies:?}");
    assert_eq!(first.len(), tallies.len());

    let mut seen = HashSet::new();
    let home = std::env::var("HOME").unwrap_or_default();
    for tally in &tallies {
        let name = tally.domain.name();
        let text = zstd::decode_all(first[&format!("{name}.jsonl.zst")].as_slice()).expect("zstd");
        let text = String::from_utf8(text).expect("UTF-8");
        let mut bytes = 0;
        for line in text.lines() {
            let document: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(document["meta"]["pile_set_name"], name);
            let text = document["text"].as_str().expect("text");
            assert!(text.len() <= 16 << 10, "{} bytes", text.len());
            assert!(
                seen.insert(text.trim().to_owned()),
                "twice: {}",
                document["meta"]["source"]
            );
            assert!(
                home.matches('/').count() < 2 || !text.contains(&home),
                "{}",
                document["meta"]["source"]
            );
            bytes += text.len() as u64;
        }
        assert_eq!(
            (text.lines().count() as u64, bytes),
            (tally.documents, tally.text_bytes)
        );
    }

    let again = corpus::run(&project, &out, 8).expect("a corpus");
    assert_eq!(again, tallies);
    assert!(files(&out) == first, "another corpus from the same machine");

    fs::write(out.join("thesis.tex"), "precious").expect("written");
    let refusal = corpus::run(&project, &out, 8)
        .expect_err("not a corpus")
        .to_string();
    assert!(refusal.contains("holds thesis.tex"), "{refusal}");
    assert!(out.join("thesis.tex").exists());
}
