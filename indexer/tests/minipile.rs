//! The 20 domains of the minipile with the tokenizer of Pythia: counts and ids equal the golden file.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use corpora::{Scratch, manifest, run_with, shared, tokens};
use hds_indexer::build::BuildOptions;
use hds_indexer::tokenize::{TokenizerChoice, load};
use sha2::{Digest, Sha256};

#[test]
fn every_domain_equals_the_golden_file_for_one_and_two_threads() {
    let (Some(corpus), Some(tokenizer), Some(golden)) = (
        shared("minipile"),
        shared("20B_tokenizer.json"),
        shared("neox_docs_golden.jsonl"),
    ) else {
        return;
    };
    let tokenizer = load(&TokenizerChoice::File {
        path: tokenizer,
        end_of_document: None,
    })
    .unwrap();
    let golden = std::fs::read_to_string(golden).unwrap();
    let mut manifests = Vec::new();
    for threads in [1, 2] {
        let scratch = Scratch::new();
        let options = BuildOptions {
            inputs: vec![corpus.clone()],
            threads,
            ..scratch.options(&[])
        };
        let summary = run_with(&options, &*tokenizer).unwrap();
        println!(
            "{threads} threads: {:.1} MB/s, {:.1} s, {}",
            summary.megabytes_per_second, summary.seconds, summary.engine
        );
        let index = scratch.path("index");
        let got = manifest(&index);
        let domains = got["domains"].as_array().unwrap();
        assert_eq!(domains.len(), 20);
        for domain in domains {
            let name = domain["name"].as_str().unwrap();
            let want = golden
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
                .find(|want| want["domain"] == name)
                .expect(name);
            assert_eq!(domain["train"]["documents"], want["docs"], "{name}");
            assert_eq!(domain["train"]["bytes"], want["text_bytes"], "{name}");
            let mut hash = Sha256::new();
            let ids = tokens(&index, name, "train");
            // The golden count is without ends of documents.
            let ends = want["docs"].as_u64().unwrap();
            assert_eq!(
                ids.len() as u64,
                want["tokens"].as_u64().unwrap() + ends,
                "{name}"
            );
            assert_eq!(domain["train"]["tokens"], ids.len(), "{name}");
            for id in ids {
                hash.update(id.to_le_bytes());
            }
            let hash: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hash, want["sha256_u32le_ids_eod0"], "{name}");
        }
        manifests.push(std::fs::read(index.join("manifest.json")).unwrap());
    }
    // Manifests hold the checksums of all files.
    assert!(
        manifests[0] == manifests[1],
        "one and two threads give different manifests"
    );
}
