//! Arrow IPC as it is found: files and streams, packed or not, every kind of string, nested domains, large batches, damage.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, LargeStringArray,
    RecordBatch, StringArray, StringViewArray, StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Fields};
use corpora::{Scratch, domains, run, texts};
use hds_indexer::build::OnError;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn options(packing: Option<CompressionType>) -> IpcWriteOptions {
    IpcWriteOptions::default()
        .try_with_compression(packing)
        .unwrap()
}

fn file(batches: &[RecordBatch], packing: Option<CompressionType>) -> Vec<u8> {
    let mut writer =
        FileWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options(packing))
            .unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.into_inner().unwrap()
}

fn stream(batches: &[RecordBatch], packing: Option<CompressionType>) -> Vec<u8> {
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options(packing))
            .unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.into_inner().unwrap()
}

fn strings(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn every_kind_of_string_in_files_and_streams_gives_the_same_texts() {
    let values = [
        "one",
        "two",
        "one",
        "drei é and a text that is longer than a view holds in place",
    ];
    let mut dictionary = StringDictionaryBuilder::<Int32Type>::new();
    values.iter().for_each(|v| dictionary.append_value(v));
    let bytes = values.map(str::as_bytes).to_vec();
    let kinds: Vec<(&str, ArrayRef)> = vec![
        ("string", strings(&values)),
        ("large", Arc::new(LargeStringArray::from(values.to_vec()))),
        ("view", Arc::new(StringViewArray::from(values.to_vec()))),
        ("binary", Arc::new(BinaryArray::from(bytes.clone()))),
        (
            "large binary",
            Arc::new(LargeBinaryArray::from(bytes.clone())),
        ),
        ("binary view", Arc::new(BinaryViewArray::from(bytes))),
        ("dictionary", Arc::new(dictionary.finish())),
    ];
    let packings = [
        None,
        Some(CompressionType::LZ4_FRAME),
        Some(CompressionType::ZSTD),
    ];
    for (kind, column) in kinds {
        let batches = [batch(vec![
            ("id", Arc::new(Int64Array::from(vec![1; 4]))),
            ("text", column),
        ])];
        for packing in packings {
            for (name, content) in [
                ("web.arrow", file(&batches, packing)),
                ("web.feather", file(&batches, packing)),
                ("web.ipc", stream(&batches, packing)),
            ] {
                let scratch = Scratch::new();
                scratch.write(name, content);
                run(&scratch.options(&[name])).unwrap();
                let got = texts(&scratch.path("index"), "web", "train");
                assert_eq!(got, values, "{kind} {name} {packing:?}");
            }
        }
    }
}

#[test]
fn domains_may_lie_in_structures_or_have_dotted_names() {
    let inner = Fields::from(vec![Field::new("pile_set_name", DataType::Utf8, true)]);
    let meta: ArrayRef = Arc::new(StructArray::new(inner, vec![strings(&["x", "y"])], None));
    let flat = vec![
        ("meta.pile_set_name", strings(&["x", "y"])),
        ("text", strings(&["a", "b"])),
    ];
    for columns in [vec![("text", strings(&["a", "b"])), ("meta", meta)], flat] {
        let scratch = Scratch::new();
        scratch.write("t.arrow", stream(&[batch(columns)], None));
        run(&scratch.options(&["t.arrow"])).unwrap();
        assert_eq!(domains(&scratch.path("index")), ["x", "y"]);
        assert_eq!(texts(&scratch.path("index"), "y", "train"), ["b"]);
    }
}

#[test]
fn nulls_are_located_in_columns_structures_and_dictionaries() {
    let inner = Fields::from(vec![Field::new("pile_set_name", DataType::Utf8, true)]);
    let names: ArrayRef = Arc::new(StringArray::from(vec![
        Some("web"),
        Some("web"),
        None,
        Some("web"),
    ]));
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let meta: ArrayRef = Arc::new(StructArray::new(inner, vec![names], Some(nulls)));
    let mut text = StringDictionaryBuilder::<Int32Type>::new();
    text.extend([Some("a"), Some("b"), Some("c"), None]);
    let text: ArrayRef = Arc::new(text.finish());
    let scratch = Scratch::new();
    scratch.write(
        "t.arrow",
        file(&[batch(vec![("meta", meta), ("text", text)])], None),
    );
    let mut options = scratch.options(&["t.arrow"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("t.arrow, row 1") && error.contains("meta.pile_set_name"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(texts(&options.target, "web", "train"), ["a"]);
    assert_eq!(
        (summary.skipped[0].count, summary.skipped[0].first.as_str()),
        (3, "t.arrow, row 1")
    );
}

#[test]
fn wrong_and_missing_columns_are_named() {
    let scratch = Scratch::new();
    let columns = vec![
        ("text", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("other", strings(&["x"])),
    ];
    scratch.write("t.arrow", file(&[batch(columns)], None));
    let mut options = scratch.options(&["t.arrow"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("t.arrow") && error.contains("\"text\" is a column of another type"),
        "{error}"
    );
    options.fields.text = "content".parse().unwrap();
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("no column content") && error.contains("text, other"),
        "{error}"
    );
}

#[test]
fn many_and_large_batches_keep_order_and_go_on_after_an_interruption() {
    let texts_of = |from: usize, to: usize| -> Vec<String> {
        (from..to)
            .map(|i| format!("{i} {}", "word ".repeat(i % 97 * 20)))
            .collect()
    };
    let batch_of = |texts: &[String]| {
        batch(vec![(
            "text",
            Arc::new(StringArray::from(texts.to_vec())) as ArrayRef,
        )])
    };
    let batches = [
        batch_of(&texts_of(0, 5000)),
        batch_of(&texts_of(5000, 5001)),
        batch_of(&texts_of(5001, 9000)),
    ];
    let scratch = Scratch::new();
    scratch.write("web.arrow", stream(&batches, Some(CompressionType::ZSTD)));
    let mut options = scratch.options(&["web.arrow"]);
    run(&options).unwrap();
    let want = texts_of(0, 9000);
    assert_eq!(texts(&options.target, "web", "train"), want);
    let whole = corpora::files(&options.target);
    // Ended by a progress that counts documents, then gone on with, again and again.
    options.target = scratch.path("again");
    options.checkpoint_every = std::time::Duration::ZERO;
    let mut runs = 0;
    loop {
        runs += 1;
        let stop = std::sync::atomic::AtomicBool::new(false);
        let progress = StopAfter {
            documents: 2000,
            stop: &stop,
        };
        match hds_indexer::build::build(
            &options,
            &hds_indexer::tokenize::ByteTokenizer,
            &progress,
            &stop,
        ) {
            Ok(_) => break,
            Err(hds_indexer::build::BuildError::Interrupted { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(runs > 2, "{runs} runs");
    assert!(corpora::files(&options.target) == whole);
}

struct StopAfter<'s> {
    documents: u64,
    stop: &'s std::sync::atomic::AtomicBool,
}

impl hds_indexer::build::Progress for StopAfter<'_> {
    fn advances(&self, advance: hds_indexer::build::Advance) {
        if advance.documents >= self.documents {
            self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn files_cut_anywhere_are_errors_and_damage_is_never_a_panic() {
    let values: Vec<String> = (0..300)
        .map(|i| format!("text {i} {}", "word ".repeat(i % 30)))
        .collect();
    let columns = || {
        vec![(
            "text",
            Arc::new(StringArray::from(values.clone())) as ArrayRef,
        )]
    };
    let scratch = Scratch::new();
    for good in [
        file(&[batch(columns())], None),
        stream(&[batch(columns())], Some(CompressionType::LZ4_FRAME)),
    ] {
        for cut in (0..good.len()).step_by(good.len() / 40) {
            scratch.write("web.arrow", &good[..cut]);
            let error = match run(&scratch.options(&["web.arrow"])) {
                Ok(_) => panic!("cut at {cut} of {}", good.len()),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("web.arrow"), "{error}");
        }
        for at in (0..good.len()).step_by(good.len() / 200) {
            for flip in [0xff, 0x80, 0x01] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                scratch.write("web.arrow", &bad);
                let mut options = scratch.options(&["web.arrow"]);
                options.on_error = OnError::Skip;
                let _ = run(&options);
                let _ = std::fs::remove_dir_all(&options.target);
                assert!(!scratch.path("index.building").exists(), "byte {at}");
            }
        }
    }
}

#[test]
fn lengths_are_not_believed() {
    // A stream whose first message announces 2 GiB, one of negative length, and a packed buffer that announces 2^60 bytes.
    let scratch = Scratch::new();
    let mut cases = vec![
        [[0xff; 4], 0x7fff_ffffu32.to_le_bytes()].concat(),
        [[0xff; 4], 0xffff_fff0u32.to_le_bytes()].concat(),
        b"ARROW1\0\0".to_vec(),
        b"ARROW1".to_vec(),
        vec![0; 7],
    ];
    let mut packed = stream(
        &[batch(vec![("text", strings(&["word "; 2000]))])],
        Some(CompressionType::ZSTD),
    );
    let announced = (2000 * 5u64).to_le_bytes();
    let at = packed.windows(8).position(|w| w == announced).unwrap();
    packed[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    cases.push(packed);
    for content in cases {
        scratch.write("web.arrow", &content);
        let error = run(&scratch.options(&["web.arrow"]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("web.arrow") && error.contains("no whole Arrow IPC file"),
            "{error}"
        );
    }
}

#[test]
fn what_follows_the_end_of_a_file_or_stream_is_not_passed_over() {
    let batches = [batch(vec![("text", strings(&["a", "b"]))])];
    let (file, stream) = (file(&batches, None), stream(&batches, None));
    for (first, more, what) in [
        (&stream, &stream[..], "stream"),
        (&stream, &file, "stream"),
        (&file, &file, "file"),
        (&file, &stream, "file"),
        (&file, b"\n", "file"),
        (&file, b"ARROW1", "file"),
    ] {
        let scratch = Scratch::new();
        scratch.write("web.arrow", [first, more].concat());
        let mut options = scratch.options(&["web.arrow"]);
        let error = run(&options).unwrap_err().to_string();
        let want = format!("{} bytes follow the end of the {what}", more.len());
        assert!(error.contains(&want), "{error}");
        options.on_error = OnError::Skip;
        let summary = run(&options).unwrap();
        assert_eq!(summary.documents, 2);
        assert_eq!(summary.skipped[0].reason, "rest of a damaged table");
    }
}

#[test]
fn a_footer_must_list_what_the_file_holds() {
    let batches = [
        batch(vec![("text", strings(&["a", "b"]))]),
        batch(vec![("text", strings(&["c", "d"]))]),
    ];
    let good = file(&batches, None);
    let scratch = Scratch::new();
    let error_of = |content: &[u8]| {
        scratch.write("web.arrow", content);
        run(&scratch.options(&["web.arrow"]))
            .unwrap_err()
            .to_string()
    };
    for cut in 1..20 {
        let error = error_of(&good[..good.len() - cut]);
        assert!(error.contains("web.arrow, row 4"), "{error}");
        assert!(error.contains("footer is cut off"), "{error}");
    }
    // The mark of the end where the second batch begins: what is behind it is neither a batch nor a footer.
    let [first, second] = [0, 1].map(|nth| {
        let starts = good.windows(4).enumerate();
        let marks = starts.filter(|(at, w)| at % 8 == 0 && *w == [0xff; 4]);
        marks.map(|(at, _)| at).nth(nth + 1).unwrap()
    });
    let mut ended = good.clone();
    ended[second + 4..second + 8].fill(0);
    let error = error_of(&ended);
    assert!(error.contains("web.arrow, row 2"), "{error}");
    // Without the first batch.
    let error = error_of(&[&good[..first], &good[second..]].concat());
    assert!(error.contains("its footer lists 2 batches"), "{error}");
}

#[test]
fn a_batch_that_says_it_is_empty_and_is_not_is_a_fault() {
    let batches = [
        batch(vec![("text", strings(&["a"; 300]))]),
        batch(vec![("text", strings(&["b"; 300]))]),
    ];
    let rows = 300i64.to_le_bytes();
    for good in [file(&batches, None), stream(&batches, None)] {
        // The first place is the length of the first batch, or that of its column.
        let mut bad = good.clone();
        let at = bad.windows(8).position(|w| w == rows).unwrap();
        bad[at..at + 8].fill(0);
        let scratch = Scratch::new();
        scratch.write("web.arrow", bad);
        let error = run(&scratch.options(&["web.arrow"]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("web.arrow, row 0"), "{error}");
        assert!(error.contains("rows, its first column"), "{error}");
    }
}

#[test]
fn a_stream_without_the_mark_of_its_end_is_taken_and_told() {
    let scratch = Scratch::new();
    let good = stream(&[batch(vec![("text", strings(&["a", "b"]))])], None);
    scratch.write("web.arrow", &good[..good.len() - 8]);
    let arguments = ["build", "web.arrow", "-o", "index"];
    let output = corpora::program::hds_index(&scratch.path(""), &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("web.arrow: the Arrow stream has no end-of-stream mark"),
        "{said}"
    );
    assert_eq!(said.matches("end-of-stream").count(), 1);
    scratch.write("whole.arrow", &good);
    let arguments = ["build", "whole.arrow", "-o", "whole", "--threads", "1"];
    let output = corpora::program::hds_index(&scratch.path(""), &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("note:"), "{said}");
    let want = "indexed 2 documents, 4 tokens in ";
    assert!(
        said.contains(want) && said.contains(", 1 thread,"),
        "{said}"
    );
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let columns = vec![("text", strings(&["a"])), ("text", strings(&["b"]))];
    let scratch = Scratch::new();
    scratch.write("web.arrow", file(&[batch(columns)], None));
    let error = run(&scratch.options(&["web.arrow"]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"text\" occurs twice"), "{error}");
}
