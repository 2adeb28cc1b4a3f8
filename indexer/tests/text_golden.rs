//! Both text engines against values that others computed: Hugging Face's ids and three packages' MTLD.
//!
//! The values lie in the shared data folder (`HDS_SHARED`, else `../shared` beside the workspace); without it each test says `skipped`.

#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use hds_indexer::{
    lexical::{mtld_of_ids, mtld_of_tokens},
    tokenize::{EndOfDocument, Tokenizer, TokenizerChoice, load},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn data(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("HDS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join("data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!(
        "skipped: {} is not there; set HDS_SHARED to the folder with the shared data",
        path.display()
    );
    None
}

fn json_lines(path: &Path) -> impl Iterator<Item = Value> {
    BufReader::new(File::open(path).unwrap())
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

fn neox() -> Option<Box<dyn Tokenizer>> {
    let path = data("20B_tokenizer.json")?;
    Some(
        load(&TokenizerChoice::File {
            path,
            end_of_document: None,
        })
        .unwrap(),
    )
}

#[test]
fn neox_tokenizer_uses_the_fast_engine() {
    let Some(tokenizer) = neox() else { return };
    assert_eq!((tokenizer.engine(), tokenizer.note()), ("fastokens", None));
    assert_eq!(
        (tokenizer.vocabulary(), tokenizer.end_of_document()),
        (50_277, 0)
    );
    assert_eq!(tokenizer.name(), "20B_tokenizer");
    assert_eq!(tokenizer.fingerprint().len(), 64);
}

#[test]
fn hard_strings_have_hugging_faces_ids() {
    let (Some(tokenizer), Some(path)) = (neox(), data("neox_golden.jsonl")) else {
        return;
    };
    let mut count = 0;
    for line in json_lines(&path) {
        let text = line["text"].as_str().unwrap();
        let mut got = vec![9];
        tokenizer.encode_into(text, &mut got).unwrap();
        assert_eq!(got[1..], ids(&line["ids"]), "{text:?}");
        count += 1;
    }
    assert_eq!(count, 267);
}

#[test]
fn minipile_domains_have_hugging_faces_ids() {
    let (Some(tokenizer), Some(path)) = (neox(), data("neox_docs_golden.jsonl")) else {
        return;
    };
    for line in json_lines(&path) {
        let domain = line["domain"].as_str().unwrap();
        let Some(corpus) = data(&format!("minipile/{domain}.jsonl.zst")) else {
            return;
        };
        let reader = zstd::Decoder::new(File::open(corpus).unwrap()).unwrap();
        let (mut hash, mut docs, mut tokens, mut ids) = (Sha256::new(), 0u64, 0u64, Vec::new());
        for line in BufReader::new(reader).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            ids.clear();
            tokenizer
                .encode_into(line["text"].as_str().unwrap(), &mut ids)
                .unwrap();
            ids.push(tokenizer.end_of_document());
            docs += 1;
            tokens += ids.len() as u64;
            hash.update(
                ids.iter()
                    .flat_map(|id| id.to_le_bytes())
                    .collect::<Vec<u8>>(),
            );
        }
        assert_eq!(docs, line["docs"].as_u64().unwrap(), "{domain}");
        let hash: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hash,
            line["sha256_u32le_ids_eod0"].as_str().unwrap(),
            "{domain}: {tokens} tokens"
        );
    }
}

#[test]
fn mtld_of_golden_words() {
    let Some(path) = data("mtld_golden.jsonl") else {
        return;
    };
    let mut count = 0;
    for line in json_lines(&path) {
        let words: Vec<&str> = line["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|w| w.as_str().unwrap())
            .collect();
        // The package divides by zero on an empty list; ours is 0.
        let want = line["lexicalrichness"].as_f64().unwrap_or(0.0);
        let got = mtld_of_tokens(&words);
        assert!(
            (got - want).abs() <= 1e-9,
            "{}: {got}, not {want}",
            line["name"]
        );
        count += 1;
    }
    assert_eq!(count, 49);
}

#[test]
fn mtld_of_golden_ids() {
    let Some(path) = data("mtld_golden_ids.jsonl") else {
        return;
    };
    let mut count = 0;
    for line in json_lines(&path) {
        let want = line["lexicalrichness"].as_f64().unwrap_or(0.0);
        let got = mtld_of_ids(&ids(&line["ids"]));
        assert!(
            (got - want).abs() <= 1e-9,
            "{}: {got}, not {want}",
            line["text"]
        );
        count += 1;
    }
    assert_eq!(count, 28);
}

#[test]
fn end_of_document_can_be_named() {
    let Some(path) = data("20B_tokenizer.json") else {
        return;
    };
    let choose = |named: &str| {
        load(&TokenizerChoice::File {
            path: path.clone(),
            end_of_document: Some(EndOfDocument::from(named)),
        })
        .map(|tokenizer| tokenizer.end_of_document())
    };
    assert_eq!(choose("<|padding|>").unwrap(), 1);
    assert_eq!(choose("7").unwrap(), 7);
    assert!(
        choose("<none>")
            .unwrap_err()
            .to_string()
            .contains("no token \"<none>\"")
    );
    assert!(choose("50277").is_err());
}
