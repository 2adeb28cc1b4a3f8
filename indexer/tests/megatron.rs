//! Megatron datasets in and out: round trips, both formats of the index, and every way in which one can be wrong.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;

use corpora::megatron::{Modern, ids16, import_options, import_with, legacy};
use corpora::program::{hds_index, refused};
use corpora::{Scratch, domains, line, run, run_with, shared, texts, tokens};
use hds_indexer::build::{ImportOptions, OnError};
use hds_indexer::export::{Selection, export_megatron};
use hds_indexer::tokenize::{ByteTokenizer, TokenizerChoice, load};

#[test]
fn an_exported_index_comes_back_the_same() {
    let scratch = Scratch::new();
    let lines: String = (0..200)
        .map(|i| {
            line(
                &format!("Text {i}, {}", "né ".repeat(i % 23)),
                ["web", "a/b: c"][i % 2],
            )
        })
        .collect();
    scratch.write("x.jsonl", lines);
    let mut options = scratch.options(&["x.jsonl"]);
    (options.valid_fraction, options.shard_tokens) = (0.2, 1000);
    run(&options).unwrap();
    let datasets =
        export_megatron(&options.target, &Selection::default(), &scratch.path("out")).unwrap();
    let names: Vec<&str> = datasets
        .iter()
        .map(|d| d.prefix.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "a%2Fb%3A%20c_train",
            "a%2Fb%3A%20c_valid",
            "web_train",
            "web_valid"
        ]
    );
    let mut back = import_options(
        &scratch,
        &["web=out/web_train", "a/b: c=out/a%2Fb%3A%20c_train"],
    );
    back.held_out = import_options(
        &scratch,
        &["web=out/web_valid", "a/b: c=out/a%2Fb%3A%20c_valid"],
    )
    .inputs;
    back.shard_tokens = 1000;
    let summary = import_with(&back, &ByteTokenizer).unwrap();
    assert_eq!(summary.documents, 200);
    assert_eq!(domains(&back.target), domains(&options.target));
    let (old, new) = (
        corpora::manifest(&options.target),
        corpora::manifest(&back.target),
    );
    for domain in ["web", "a/b: c"] {
        for split in ["train", "valid"] {
            assert!(!texts(&options.target, domain, split).is_empty());
            assert_eq!(
                texts(&back.target, domain, split),
                texts(&options.target, domain, split)
            );
            // Tokens, MTLD and places are the same bytes.
            let files = |manifest: &serde_json::Value| {
                corpora::shards(manifest, domain, split)
                    .iter()
                    .flat_map(|s| [s["tokens_file"].clone(), s["documents_file"].clone()])
                    .collect::<Vec<_>>()
            };
            assert_eq!(files(&new), files(&old), "{domain} {split}");
        }
    }
    assert_eq!(new["options"]["import"], "megatron");
}

#[test]
fn the_minipile_makes_the_round_trip_with_the_tokenizer_of_pythia() {
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
        minipile.join("ArxivLatex.jsonl.zst"),
        minipile.join("WikipediaZh.jsonl.zst"),
    ];
    options.inputs.retain(|p| p.exists());
    run_with(&options, &*tokenizer).unwrap();
    export_megatron(&options.target, &Selection::default(), &scratch.path("out")).unwrap();
    let inputs: Vec<String> = domains(&options.target)
        .iter()
        .map(|d| format!("{d}=out/{d}_train"))
        .collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let back = import_options(&scratch, &inputs);
    import_with(&back, &*tokenizer).unwrap();
    for domain in domains(&options.target) {
        assert!(
            tokens(&back.target, &domain, "train") == tokens(&options.target, &domain, "train"),
            "{domain}"
        );
    }
}

#[test]
fn documents_are_closed_where_they_are_not_and_may_have_several_sequences() {
    let scratch = Scratch::new();
    // "ab" closed, "cd" + "e" in two sequences out of order and not closed, an empty one, one of its end alone.
    scratch.write("x.bin", ids16(&[97, 98, 256, 101, 99, 100, 256]));
    let index = Modern {
        code: 8,
        lengths: vec![3, 2, 1, 0, 1],
        pointers: vec![0, 8, 6, 12, 12],
        ends: vec![0, 1, 3, 4, 5],
    };
    scratch.write("x.idx", index.bytes());
    let options = import_options(&scratch, &["x"]);
    let summary = import_with(&options, &ByteTokenizer).unwrap();
    assert_eq!(texts(&options.target, "x", "train"), ["ab", "cde"]);
    assert_eq!(
        (summary.skipped[0].reason.as_str(), summary.skipped[0].count),
        ("empty text", 2)
    );
    assert_eq!(summary.skipped[0].first, "x.idx, document 2");
}

#[test]
fn every_type_of_id_and_both_old_formats_are_read() {
    let ids = [104i64, 105, 256, 106];
    let wide = |bytes: usize| {
        ids.iter()
            .flat_map(|id| id.to_le_bytes()[..bytes].to_vec())
            .collect::<Vec<u8>>()
    };
    for (code, width) in [(3, 2), (4, 4), (5, 8), (8, 2)] {
        for (ends, want) in [
            (Some(&[0, 2][..]), vec!["hij"]),
            (Some(&[0, 1, 2][..]), vec!["hi", "j"]),
            (None, vec!["hi", "j"]),
        ] {
            let scratch = Scratch::new();
            scratch.write(
                "old.bin",
                if want.len() == 1 {
                    // One document of both items: its end in the middle would be a token of it.
                    [104i64, 105, 106]
                        .iter()
                        .flat_map(|id| id.to_le_bytes()[..width].to_vec())
                        .collect()
                } else {
                    wide(width)
                },
            );
            let lengths: &[i64] = if want.len() == 1 { &[2, 1] } else { &[3, 1] };
            scratch.write("old.idx", legacy(code, width as u64, lengths, ends));
            let options = import_options(&scratch, &["old.idx"]);
            import_with(&options, &ByteTokenizer).unwrap();
            assert_eq!(
                texts(&options.target, "old", "train"),
                want,
                "code {code}, ends {ends:?}"
            );
        }
    }
    // One byte an id: no end of document fits, so it is added.
    for code in [1, 2] {
        let scratch = Scratch::new();
        scratch.write("b.bin", b"hij");
        let index = Modern {
            code,
            lengths: vec![2, 1],
            pointers: vec![0, 2],
            ends: vec![0, 1, 2],
        };
        scratch.write("b.idx", index.bytes());
        let options = import_options(&scratch, &["b.bin"]);
        import_with(&options, &ByteTokenizer).unwrap();
        assert_eq!(texts(&options.target, "b", "train"), ["hi", "j"]);
    }
}

#[test]
fn a_hostile_index_is_refused_with_the_reason() {
    type Edit = fn(&mut Vec<u8>);
    fn put(bytes: &mut [u8], at: usize, value: i64) {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    // Three sequences: lengths at 34, pointers at 46, ends of documents at 70.
    let cases: &[(&str, Edit)] = &[
        ("neither MMIDIDX nor TNTIDX", |b| b[0] = b'X'),
        ("neither MMIDIDX nor TNTIDX", |b| b.clear()),
        ("ends inside its header", |b| b.truncate(20)),
        ("version 2", |b| b[9] = 2),
        ("floats", |b| b[17] = 6),
        ("floats", |b| b[17] = 7),
        ("type 9 is unknown", |b| b[17] = 9),
        ("102 bytes", |b| put(b, 18, 4)),
        ("102 bytes", |b| put(b, 18, i64::MAX)),
        ("102 bytes", |b| put(b, 26, -1)),
        ("101 bytes", |b| _ = b.pop()),
        ("103 bytes", |b| b.push(0)),
        ("multimodal", |b| b.extend([0; 3])),
        ("a length is -1", |b| b[34..38].fill(0xff)),
        ("behind the .bin", |b| {
            b[38..42].copy_from_slice(&100i32.to_le_bytes())
        }),
        ("a place is -2", |b| put(b, 46, -2)),
        ("no multiple of 2", |b| put(b, 46, 1)),
        ("behind the .bin", |b| put(b, 54, i64::MAX - 1)),
        ("overlap", |b| {
            b[38..42].copy_from_slice(&5i32.to_le_bytes())
        }),
        ("starts at sequence 1", |b| put(b, 70, 1)),
        ("ends at sequence -1", |b| put(b, 78, -1)),
        ("ends at sequence 9", |b| put(b, 86, 9)),
        ("ends at sequence 0", |b| {
            put(b, 78, 2);
            put(b, 86, 0);
        }),
        ("last document ends at sequence 2", |b| put(b, 94, 2)),
    ];
    let scratch = Scratch::new();
    scratch.write("x.bin", ids16(&[97, 256, 98, 99, 256, 100, 256]));
    let good = Modern::of(&[2, 3, 2]).bytes();
    assert_eq!(good.len(), 102);
    let options = import_options(&scratch, &["x"]);
    for (number, (want, edit)) in cases.iter().enumerate() {
        let mut bad = good.clone();
        edit(&mut bad);
        scratch.write("x.idx", &bad);
        let error = import_with(&options, &ByteTokenizer)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(want) && error.contains("x.idx"),
            "case {number}, {want}: {error}"
        );
        // What is found at opening leaves nothing of the dataset to go on with.
        let whole = error.contains("x.idx: ");
        assert_eq!(error.contains("--on-error skip"), !whole, "{error}");
        assert!(!scratch.path("imported").exists() && !scratch.path("imported.building").exists());
    }
    scratch.write("x.idx", &good);
    import_with(&options, &ByteTokenizer).unwrap();
    assert_eq!(texts(&options.target, "x", "train"), ["a", "bc", "d"]);
}

#[test]
fn a_hostile_old_index_is_refused_with_the_reason() {
    let good = legacy(8, 2, &[2, 3], Some(&[0, 1, 2]));
    let edits: &[(&str, usize, i64)] = &[
        ("version 3", 8, 3),
        ("ids have 4 bytes", 24, 4),
        ("bytes, ", 32, i64::MAX),
        ("bytes, ", 40, 1),
        ("bytes, ", 48, -1),
        ("starts at dimension 1", 56, 1),
        ("does not have one dimension", 64, 2),
        ("first item's place is -1", 80, -1),
        ("its size is 2", 88, 3),
        ("starts at sequence 2", 120, 2),
    ];
    let scratch = Scratch::new();
    scratch.write("x.bin", ids16(&[97, 256, 98, 99, 256]));
    let options = import_options(&scratch, &["x"]);
    for (want, at, value) in edits {
        let mut bad = good.clone();
        bad[*at..at + 8].copy_from_slice(&value.to_le_bytes());
        scratch.write("x.idx", &bad);
        let error = import_with(&options, &ByteTokenizer)
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[test]
fn a_dataset_that_the_end_of_document_closes_nowhere_is_warned_of() {
    let scratch = Scratch::new();
    scratch.write("open.bin", ids16(&[97, 0, 98, 99, 0]));
    scratch.write("open.idx", Modern::of(&[2, 3]).bytes());
    // One document that is closed suffices.
    scratch.write("good.bin", ids16(&[97, 256, 98, 99, 0]));
    scratch.write("good.idx", Modern::of(&[2, 3]).bytes());
    let options = import_options(&scratch, &["open", "good"]);
    let summary = import_with(&options, &ByteTokenizer).unwrap();
    let warned: Vec<&String> = summary
        .warnings
        .iter()
        .filter(|w| w.contains("ended with id"))
        .collect();
    let want = format!(
        "no document of {} ended with id 256 (<|endoftext|>)",
        scratch.path("open").display()
    );
    assert!(
        warned.len() == 1 && warned[0].starts_with(&want),
        "{warned:?}"
    );
    let arguments = ["import", "open", "-o", "index", "--valid-fraction", "0"];
    let output = hds_index(&scratch.path(""), &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("warning: no document of open ended"),
        "{said}"
    );
}

#[test]
fn an_empty_domain_before_the_prefix_is_refused() {
    let scratch = Scratch::new();
    scratch.write("x.bin", ids16(&[97, 256]));
    scratch.write("x.idx", Modern::of(&[2]).bytes());
    let folder = scratch.path("");
    let (code, said) = refused(&folder, &["import", "=x", "-o", "index"]);
    assert!(
        code == 1 && said.contains("=x: the domain before `=` is empty"),
        "{said}"
    );
    assert!(!folder.join("index").exists());
}

#[test]
fn ids_of_another_tokenizer_and_missing_files_are_named() {
    let scratch = Scratch::new();
    scratch.write("x.bin", ids16(&[97, 256, 98, 300, 256]));
    scratch.write("x.idx", Modern::of(&[2, 3]).bytes());
    let mut options = import_options(&scratch, &["x"]);
    let error = import_with(&options, &ByteTokenizer)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("x.idx, document 1: token 1 has the id 300, the tokenizer has 257 ids"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    let summary = import_with(&options, &ByteTokenizer).unwrap();
    assert_eq!(
        (summary.documents, summary.skipped[0].reason.as_str()),
        (1, "unknown token")
    );
    fs::remove_file(scratch.path("x.bin")).unwrap();
    options.target = scratch.path("other");
    let error = import_with(&options, &ByteTokenizer)
        .unwrap_err()
        .to_string();
    assert!(error.contains("x.bin"), "{error}");
    let twice = import_options(&scratch, &["x", "x.idx"]);
    scratch.write("x.bin", "");
    let error = import_with(&twice, &ByteTokenizer).unwrap_err().to_string();
    assert!(error.contains("given twice"), "{error}");
}

#[test]
fn the_index_of_another_bin_is_refused() {
    let scratch = Scratch::new();
    let bytes = Modern::of(&[3, 2]).bytes();
    scratch.write("a.idx", bytes);
    let ids: Vec<u8> = ids16(&[1, 2, 0, 3, 0]);
    for more in [2, 4, 10] {
        let mut longer = ids.clone();
        longer.resize(ids.len() + more, 1);
        scratch.write("a.bin", longer);
        let options = import_options(&scratch, &["a"]);
        let error = import_with(&options, &ByteTokenizer)
            .unwrap_err()
            .to_string();
        assert!(error.contains("it is the .idx of another .bin"), "{error}");
        let skip = ImportOptions {
            on_error: OnError::Skip,
            ..options
        };
        // What the .idx names is whole, and the rest is counted.
        let summary = import_with(&skip, &ByteTokenizer).unwrap();
        assert_eq!(summary.skipped.len(), 1, "{summary:?}");
        fs::remove_dir_all(scratch.path("imported")).unwrap();
    }
    scratch.write("a.bin", ids);
    import_with(&import_options(&scratch, &["a"]), &ByteTokenizer).unwrap();
}

#[cfg(unix)]
#[test]
fn pipes_are_refused_at_once() {
    let scratch = Scratch::new();
    for name in ["a.idx", "a.bin"] {
        let status = std::process::Command::new("mkfifo")
            .arg(scratch.path(name))
            .status();
        assert!(status.unwrap().success());
    }
    let error = import_with(&import_options(&scratch, &["a"]), &ByteTokenizer).unwrap_err();
    assert!(error.to_string().contains("a."), "{error}");
}
