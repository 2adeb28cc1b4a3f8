//! A reader started at the cursor behind any block gives exactly the records that follow.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use corpora::{Scratch, line};
use hds_indexer::input::{
    BLOCK_BYTES, Cursor, Payload, Plan, PlanOptions, Reader, RecordFields, TextExtensions,
};
use parquet::arrow::ArrowWriter;

fn fields() -> RecordFields {
    RecordFields {
        text: "text".parse().unwrap(),
        domain: Default::default(),
        domain_from: Default::default(),
        text_extensions: TextExtensions::default(),
    }
}

/// Every record with its source and number, and the cursors behind the blocks with the number of records before them.
fn read(plan: &Plan, start: Cursor) -> (Vec<String>, Vec<(Cursor, usize)>) {
    let fields = fields();
    let mut reader = Reader::new(plan, &fields, start, Arc::new(AtomicU64::new(0)));
    let (mut records, mut cursors) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        let source = block.source;
        let mut record = |number: u64, content: &[u8]| {
            let hash = blake3::hash(content).to_hex();
            records.push(format!("{source} {number} {hash}"));
        };
        match &block.payload {
            Payload::Lines(lines) => {
                let text = lines.bytes.strip_suffix(b"\n").unwrap_or(&lines.bytes);
                for (number, line) in (lines.first_line..).zip(text.split(|b| *b == b'\n')) {
                    record(number, line);
                }
            }
            Payload::Rows(rows) => {
                for row in 0..rows.rows {
                    record(rows.first_row + row as u64, rows.text(row).unwrap());
                }
            }
            Payload::Texts(texts) => {
                for text in texts {
                    record(text.position, &text.bytes);
                }
            }
            Payload::Tokens(tokens) => {
                let mut start = 0;
                for (number, &end) in (tokens.first_document..).zip(&tokens.ends) {
                    let ids = tokens.ids[start..end]
                        .iter()
                        .flat_map(|id| id.to_le_bytes());
                    record(number, &ids.collect::<Vec<u8>>());
                    start = end;
                }
            }
            Payload::Fault { error, .. } => records.push(format!("{source} {error}")),
            Payload::End => {}
        }
        cursors.push((block.after, records.len()));
    }
    (records, cursors)
}

#[test]
fn every_cursor_is_a_place_to_go_on_from() {
    let scratch = Scratch::new();
    let texts: Vec<String> = (0..3000)
        .map(|i| format!("{i} {}", "some words ".repeat(i * 37 % 800)))
        .collect();
    let lines: String = texts.iter().map(|t| line(t, "web")).collect();
    let mut inputs: Vec<PathBuf> = Vec::new();
    inputs.push(scratch.write("a.jsonl", &lines));
    inputs.push(scratch.write(
        "b.jsonl.zst",
        zstd::encode_all(lines.as_bytes(), 1).unwrap(),
    ));
    let cut = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    inputs.push(scratch.write("cut.jsonl.zst", &cut[..cut.len() * 2 / 3]));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(lines.as_bytes()).unwrap();
    inputs.push(scratch.write("c.jsonl.gz", gz.finish().unwrap()));
    let column: ArrayRef = Arc::new(StringArray::from(texts.clone()));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    inputs.push(scratch.write("d.parquet", writer.into_inner().unwrap()));
    for (i, text) in texts.iter().enumerate() {
        scratch.write(&format!("folder/{}/{i}.txt", i % 7), text);
    }
    inputs.push(scratch.path("folder"));
    inputs.push(scratch.write("single.md", "# Alone"));

    let plan = Plan::new(&inputs, &[], &PlanOptions::default()).unwrap();
    let (all, cursors) = read(&plan, Cursor::default());
    assert!(all.len() > 5 * 3000 + 1000, "{}", all.len());
    assert_eq!(
        all.iter()
            .filter(|r| r.contains("truncated or damaged"))
            .count(),
        1
    );
    assert!(
        cursors.len() > 30,
        "the test wants many blocks of {BLOCK_BYTES} bytes, got {}",
        cursors.len()
    );
    for (cursor, before) in cursors {
        let (rest, _) = read(&plan, cursor);
        assert!(rest == all[before..], "differs behind {cursor:?}");
    }
}
