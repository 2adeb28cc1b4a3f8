//! Exports for other programs: the document table as Parquet, and what is refused.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use corpora::program::{hds_index, small_index};
use corpora::{Scratch, line, run, texts};
use hds_indexer::export::{ExportError, Selection, export_documents, export_megatron};
use hds_indexer::stats::stats;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

#[test]
fn the_document_table_is_one_parquet_file() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let target = scratch.path("documents.parquet");
    let summary = export_documents(&index, &Selection::default(), &target).unwrap();
    assert_eq!(summary.documents, 120);
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&target).unwrap())
        .unwrap()
        .build()
        .unwrap();
    let (mut rows, mut tokens, mut mtld) = (0, 0, 0.0);
    for batch in reader {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().clone();
        for row in 0..batch.num_rows() {
            let (domain, split) = (column("domain"), column("split"));
            let (domain, split) = (
                domain.as_string::<i32>().value(row),
                split.as_string::<i32>().value(row),
            );
            let document = column("document").as_primitive::<UInt64Type>().value(row);
            let text = &texts(&index, domain, split)[document as usize];
            assert_eq!(
                column("bytes").as_primitive::<UInt64Type>().value(row),
                text.len() as u64
            );
            assert_eq!(column("source").as_string::<i32>().value(row), "x.jsonl");
            assert_eq!(
                column("content_hash").as_fixed_size_binary().value(row),
                &blake3::hash(text.as_bytes()).as_bytes()[..16]
            );
            tokens += column("tokens").as_primitive::<UInt64Type>().value(row);
            mtld += column("mtld").as_primitive::<Float64Type>().value(row);
            rows += 1;
        }
    }
    let found = stats(&index, &Selection::default()).unwrap();
    assert_eq!(
        (rows, tokens as f64),
        (120, (found.all.tokens.mean * 120.0).round())
    );
    assert!((mtld / 120.0 - found.all.mtld.mean).abs() < 1e-9);
    let again = export_documents(&index, &Selection::default(), &target)
        .unwrap_err()
        .to_string();
    assert!(again.contains("documents.parquet exists"), "{again}");
    // A damaged table leaves no file behind.
    fs::write(
        index.join("domains/web/train/00000.documents.parquet"),
        "PAR1",
    )
    .unwrap();
    let other = scratch.path("other.parquet");
    let error = export_documents(&index, &Selection::default(), &other)
        .unwrap_err()
        .to_string();
    assert!(error.contains("00000.documents.parquet"), "{error}");
    assert!(!other.exists() && !scratch.path("other.parquet.partial").exists());
}

#[test]
fn an_export_holds_the_index_against_its_checksums() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("some text", "web"));
    let options = scratch.options(&["a.jsonl"]);
    run(&options).unwrap();
    let out = scratch.path("out");
    let export = |selection: &Selection| export_megatron(&options.target, selection, &out);
    let unknown = Selection {
        domains: vec!["law".into()],
        split: None,
    };
    let error = export(&unknown).unwrap_err().to_string();
    assert!(error.contains("law") && error.contains("web"), "{error}");
    let nothing = Selection {
        domains: vec![],
        split: Some(hds::index::Split::Valid),
    };
    assert!(matches!(export(&nothing), Err(ExportError::Nothing { .. })));
    let path = options.target.join("domains/web/train/00000.tokens");
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[3] ^= 1;
    for (content, want) in [(&bad[..], "checksum"), (&good[1..], "bytes")] {
        fs::write(&path, content).unwrap();
        let error = export(&Selection::default()).unwrap_err().to_string();
        assert!(
            error.contains("00000.tokens") && error.contains(want),
            "{error}"
        );
        assert!(!out.exists() && !scratch.path("out.building").exists());
    }
    fs::write(&path, &good).unwrap();
    export(&Selection::default()).unwrap();
    let error = export(&Selection::default()).unwrap_err().to_string();
    assert!(error.contains("out exists"), "{error}");
}

#[test]
fn a_table_that_its_checksum_disowns_is_neither_exported_nor_counted() {
    let scratch = Scratch::new();
    let index = small_index(&scratch);
    let target = scratch.path("out");
    let (megatron, documents, counted) = (
        || export_megatron(&index, &Selection::default(), &target).map(|_| ()),
        || export_documents(&index, &Selection::default(), &target).map(|_| ()),
        || stats(&index, &Selection::default()).map(|_| ()),
    );
    // A bit of a document's place: readers alone would take it, as places still ascend.
    let path = index.join("domains/web/train/00001.documents.arrow");
    let good = fs::read(&path).unwrap();
    let rows = corpora::runtime_rows(&index, "web", "train");
    let shard = &corpora::shards(&corpora::manifest(&index), "web", "train")[1];
    let second = shard["first_document"].as_u64().unwrap() as usize + 1;
    let place = rows[second].0.to_le_bytes();
    let at = good.windows(8).position(|bytes| bytes == place).unwrap();
    let mut bad = good.clone();
    bad[at] ^= 1;
    fs::write(&path, &bad).unwrap();
    let error = megatron().unwrap_err().to_string();
    assert!(
        error.contains("web/train/00001.documents.arrow has checksum")
            && error.ends_with("run `hds-index verify`"),
        "{error}"
    );
    assert!(!target.exists() && !scratch.path("out.building").exists());
    // The other table is not read for it, nor this one for the others.
    documents().unwrap();
    counted().unwrap();
    fs::remove_file(&target).unwrap();
    fs::write(&path, &good).unwrap();

    let path = index.join("domains/web/train/00001.documents.parquet");
    let mut bad = fs::read(&path).unwrap();
    // A byte of the hash of a document, stored as it is: readers alone would take it.
    let text = &texts(&index, "web", "train")[second];
    let hash = blake3::hash(text.as_bytes());
    let at = bad
        .windows(16)
        .position(|bytes| bytes == &hash.as_bytes()[..16])
        .unwrap();
    bad[at] ^= 1;
    fs::write(&path, &bad).unwrap();
    for error in [
        documents().unwrap_err().to_string(),
        counted().unwrap_err().to_string(),
    ] {
        assert!(
            error.contains("web/train/00001.documents.parquet has checksum")
                && error.ends_with("run `hds-index verify`"),
            "{error}"
        );
    }
    assert!(!target.exists());
    megatron().unwrap();
}

#[test]
fn the_commands_export_and_import() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("some text", "web") + &line("more", "law"));
    let folder = scratch.path("");
    let good = |arguments: &[&str]| {
        let output = hds_index(&folder, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    good(&["build", "a.jsonl", "-o", "index", "--valid-fraction", "0"]);
    let lines = good(&["export", "megatron", "index", "-o", "m"]);
    assert_eq!(lines, "5 m/law_train\n10 m/web_train\n");
    good(&[
        "import",
        "law=m/law_train",
        "web=m/web_train.idx",
        "-o",
        "back",
        "--valid-fraction",
        "0",
    ]);
    assert_eq!(texts(&scratch.path("back"), "law", "train"), ["more"]);
    let verified = good(&["verify", "back"]);
    assert!(verified.starts_with("back is good"), "{verified}");
    let output = hds_index(&folder, &["import", "absent", "-o", "x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("absent.idx"),
        "{said}"
    );
}
