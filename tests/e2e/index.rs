//! `hds-index` on real text.

use std::fs;
use std::path::Path;

use hds_tests::{own_corpus, shared_data, succeed, text};
use sha2::{Digest, Sha256};

fn build(corpus: &Path, out: &Path, more: &[&str]) {
    let mut arguments = vec!["build", text(corpus), "-o", text(out)];
    arguments.extend(more);
    succeed("hds-index", &arguments);
}

/// All files of a folder with their bytes, by relative path.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(root: &Path, folder: &Path, all: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, all);
            } else {
                let name = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                all.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    let mut all = Vec::new();
    walk(folder, folder, &mut all);
    all.sort();
    all
}

#[test]
fn any_thread_count_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus");
    own_corpus(&corpus);
    let builds: Vec<_> = ["1", "2", "5"]
        .iter()
        .map(|threads| {
            let out = dir.path().join(format!("index-{threads}"));
            build(
                &corpus,
                &out,
                &["--threads", threads, "--valid-fraction", "0.1"],
            );
            contents(&out)
        })
        .collect();
    assert!(builds[0].len() > 6);
    assert!(builds[0] == builds[1] && builds[0] == builds[2]);
}

#[test]
fn inspect_counts_what_was_built() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, out) = (dir.path().join("corpus"), dir.path().join("index"));
    own_corpus(&corpus);
    build(&corpus, &out, &[]);
    let json: serde_json::Value =
        serde_json::from_str(&succeed("hds-index", &["inspect", text(&out), "--json"])).unwrap();
    let lines: usize = fs::read_dir(&corpus)
        .unwrap()
        .map(|e| {
            fs::read_to_string(e.unwrap().path())
                .unwrap()
                .lines()
                .count()
        })
        .sum();
    let shown = json.to_string();
    let table = succeed("hds-index", &["inspect", text(&out)]);
    for domain in ["code", "config", "prose"] {
        assert!(
            table.contains(domain) && shown.contains(domain),
            "{table}\n{shown}"
        );
    }
    let (manifest, _) = hds::index::Manifest::load(&out).unwrap();
    let documents: u64 = manifest
        .domains
        .iter()
        .map(|d| d.train.documents + d.valid.documents)
        .sum();
    assert_eq!(documents, lines as u64);
    succeed("hds-index", &["verify", text(&out)]);
}

#[test]
fn the_minipile_verifies_with_the_pythia_tokenizer() {
    let Some(data) = shared_data() else { return };
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = data.join("20B_tokenizer.json");
    let [out, other] = ["1", "2"].map(|threads| {
        let out = dir.path().join(threads);
        let options = [
            "--tokenizer",
            text(&tokenizer),
            "--valid-fraction",
            "0",
            "--threads",
            threads,
        ];
        build(&data.join("minipile"), &out, &options);
        out
    });
    // The manifests have the checksum of every other file.
    let manifest = |index: &Path| fs::read(index.join("manifest.json")).unwrap();
    assert!(manifest(&out) == manifest(&other));
    let golden = fs::read_to_string(data.join("neox_docs_golden.jsonl")).unwrap();
    let (manifest, _) = hds::index::Manifest::load(&out).unwrap();
    let mut seen = 0;
    for line in golden.lines() {
        let want: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = want["domain"].as_str().unwrap();
        // The file also has a line for the sum of all domains.
        let Some(domain) = manifest.domains.iter().find(|d| d.name == name) else {
            continue;
        };
        seen += 1;
        assert_eq!(
            Some(domain.train.documents),
            want["docs"].as_u64(),
            "{name}"
        );
        // The golden count leaves out the end-of-document ids, the golden hash has them.
        let tokens = want["tokens"].as_u64().unwrap() + domain.train.documents;
        assert_eq!(domain.train.tokens, tokens, "{name}");
        assert_eq!(
            ids_sha256(&out, domain),
            want["sha256_u32le_ids_eod0"].as_str().unwrap()
        );
    }
    assert_eq!(seen, 20);
    succeed("hds-index", &["verify", text(&out)]);
}

/// SHA-256 of all ids of a domain's training split as little-endian u32.
fn ids_sha256(index: &Path, domain: &hds::index::DomainEntry) -> String {
    let mut hasher = Sha256::new();
    for shard in &domain.train.shards {
        let bytes = fs::read(index.join(&shard.tokens_file.path)).unwrap();
        for id in bytes.chunks_exact(2) {
            hasher.update(u32::from(u16::from_le_bytes([id[0], id[1]])).to_le_bytes());
        }
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
