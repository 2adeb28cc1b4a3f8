//! Parquet as it is found: nested and flat names, nulls, binary strings, dictionaries, wrong columns, damage.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
    StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};
use corpora::{Scratch, domains, run, texts};
use hds_indexer::build::OnError;
use hds_indexer::input::DomainFrom;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

fn file(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(100))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn strings(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn every_kind_of_string_column_gives_the_same_texts() {
    let values = ["one", "two", "one", "drei é"];
    let mut dictionary = StringDictionaryBuilder::<Int32Type>::new();
    values.iter().for_each(|v| dictionary.append_value(v));
    let kinds: Vec<(&str, ArrayRef)> = vec![
        ("string", strings(&values)),
        ("large", Arc::new(LargeStringArray::from(values.to_vec()))),
        ("view", Arc::new(StringViewArray::from(values.to_vec()))),
        ("dictionary", Arc::new(dictionary.finish())),
        ("binary", Arc::new(BinaryArray::from_iter_values(values))),
    ];
    let packings = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
        Compression::GZIP(Default::default()),
        Compression::LZ4_RAW,
    ];
    for (i, (kind, column)) in kinds.into_iter().enumerate() {
        let scratch = Scratch::new();
        scratch.write("web.parquet", file(vec![("text", column)], packings[i]));
        run(&scratch.options(&["web.parquet"])).unwrap();
        assert_eq!(
            texts(&scratch.path("index"), "web", "train"),
            values,
            "{kind}"
        );
    }
}

#[test]
fn a_flat_column_may_have_a_dotted_name() {
    let scratch = Scratch::new();
    let content = file(
        vec![
            ("text", strings(&["a", "b"])),
            ("meta.pile_set_name", strings(&["x", "y"])),
        ],
        Compression::SNAPPY,
    );
    scratch.write("t.parquet", content);
    run(&scratch.options(&["t.parquet"])).unwrap();
    assert_eq!(domains(&scratch.path("index")), ["x", "y"]);
}

#[test]
fn a_column_of_text_where_the_domain_would_be_inside_is_named() {
    let scratch = Scratch::new();
    let columns = vec![
        ("text", strings(&["a", "b"])),
        ("meta", strings(&[r#"{"pile_set_name": "x"}"#; 2])),
    ];
    scratch.write("t.parquet", file(columns, Compression::SNAPPY));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hds-index"))
        .arg("build")
        .arg(scratch.path("t.parquet"))
        .arg("-o")
        .arg(scratch.path("index"))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("column meta is text"), "{told}");
    assert_eq!(domains(&scratch.path("index")), ["t"]);
}

#[test]
fn nulls_are_located_also_inside_structures() {
    let inner = Fields::from(vec![Field::new("pile_set_name", DataType::Utf8, true)]);
    let names: ArrayRef = Arc::new(StringArray::from(vec![
        Some("web"),
        Some("web"),
        None,
        Some("web"),
    ]));
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let meta: ArrayRef = Arc::new(StructArray::new(inner, vec![names], Some(nulls)));
    let text: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        Some("b"),
        Some("c"),
        None,
    ]));
    let scratch = Scratch::new();
    scratch.write(
        "t.parquet",
        file(vec![("meta", meta), ("text", text)], Compression::SNAPPY),
    );
    let mut options = scratch.options(&["t.parquet"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("t.parquet, row 1") && error.contains("meta.pile_set_name"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(texts(&options.target, "web", "train"), ["a"]);
    assert_eq!(
        (summary.skipped[0].count, summary.skipped[0].first.as_str()),
        (3, "t.parquet, row 1")
    );
}

#[test]
fn columns_that_are_no_strings_are_refused() {
    let mut list = ListBuilder::new(StringBuilder::new());
    list.append_value([Some("a")]);
    let list: ArrayRef = Arc::new(list.finish());
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let scratch = Scratch::new();
    for (name, column) in [("list.parquet", list), ("numbers.parquet", numbers)] {
        scratch.write(
            name,
            file(
                vec![("text", column), ("other", strings(&["x"]))],
                Compression::SNAPPY,
            ),
        );
        let error = run(&scratch.options(&[name])).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("text"), "{error}");
    }
    let mut options = scratch.options(&["list.parquet"]);
    options.fields.text = "content".parse().unwrap();
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("no column content") && error.contains("other"),
        "{error}"
    );
    options.fields.text = "other".parse().unwrap();
    options.fields.domain_from = DomainFrom::Field;
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("no column meta.pile_set_name"), "{error}");
}

#[test]
fn bytes_that_are_not_utf8_are_located() {
    let column: ArrayRef = Arc::new(BinaryArray::from(vec![&b"good"[..], b"\xff", b"good too"]));
    let scratch = Scratch::new();
    scratch.write(
        "web.parquet",
        file(vec![("text", column)], Compression::SNAPPY),
    );
    let mut options = scratch.options(&["web.parquet"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("row 1") && error.contains("UTF-8"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    run(&options).unwrap();
    assert_eq!(texts(&options.target, "web", "train"), ["good", "good too"]);
}

#[test]
fn a_table_without_rows_holds_no_document() {
    let scratch = Scratch::new();
    scratch.write(
        "t.parquet",
        file(vec![("text", strings(&[]))], Compression::SNAPPY),
    );
    let error = run(&scratch.options(&["t.parquet"]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("holds no document"), "{error}");
}

#[test]
fn damage_anywhere_gives_an_error_or_the_right_documents_never_a_panic() {
    let values: Vec<String> = (0..300)
        .map(|i| format!("text {i} {}", "word ".repeat(i % 30)))
        .collect();
    let column: ArrayRef = Arc::new(StringArray::from(values));
    let good = file(vec![("text", column)], Compression::SNAPPY);
    let scratch = Scratch::new();
    for at in (0..good.len()).step_by(good.len() / 60) {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        scratch.write("web.parquet", &bad);
        let mut options = scratch.options(&["web.parquet"]);
        options.on_error = OnError::Skip;
        let _ = run(&options);
        let _ = std::fs::remove_dir_all(&options.target);
        assert!(!scratch.path("index.building").exists(), "byte {at}");
    }
}

#[test]
fn a_page_that_is_not_what_its_checksum_says_is_an_error() {
    // Written by pyarrow 26 with write_page_checksum=True, which the writer of this project's library does not have.
    let mut file = include_bytes!("corpora/page_checksums.parquet").to_vec();
    let scratch = Scratch::new();
    scratch.write("whole.parquet", &file);
    assert_eq!(
        run(&scratch.options(&["whole.parquet"])).unwrap().documents,
        1
    );

    let place = file
        .windows(6)
        .position(|bytes| bytes == b"stored")
        .unwrap();
    file[place] = b'S';
    let scratch = Scratch::new();
    scratch.write("damaged.parquet", &file);
    let error = run(&scratch.options(&["damaged.parquet"]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("damaged.parquet") && error.contains("CRC"),
        "{error}"
    );
    assert!(!scratch.path("index").exists());
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let columns = vec![("text", strings(&["a"])), ("text", strings(&["b"]))];
    let scratch = Scratch::new();
    scratch.write("web.parquet", file(columns, Compression::SNAPPY));
    let error = run(&scratch.options(&["web.parquet"]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"text\" occurs twice"), "{error}");
}

#[test]
fn an_encrypted_file_is_told_as_that() {
    let scratch = Scratch::new();
    // Only the marks of one whose footer is encrypted.
    let content = [&b"PARE"[..], &[7; 40], &40u32.to_le_bytes(), b"PARE"].concat();
    scratch.write("x.parquet", content);
    let error = run(&scratch.options(&["x.parquet"]))
        .unwrap_err()
        .to_string();
    let want = "x.parquet: encrypted Parquet is not supported";
    assert!(error.contains(want), "{error}");
}
