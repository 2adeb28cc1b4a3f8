//! Tables with bits of every byte flipped in turn: either all rows come, or a fault of the file, never a panic, never fewer rows in silence.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch, StringArray, StructArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{Field, Fields};
use corpora::Scratch;
use corpora::program::hds_index;
use hds_indexer::input::{Cursor, Payload, Plan, PlanOptions, Reader};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

const ROWS: usize = 24;
/// Those of a byte that are flipped; all eight take twice the time.
const BITS: [u32; 4] = [0, 1, 4, 7];

/// Texts and domains, these inside a structure.
fn batches() -> Vec<RecordBatch> {
    let batch = |from: usize| {
        let texts: Vec<String> = (from..from + ROWS / 2)
            .map(|i| format!("text {i}"))
            .collect();
        let text: ArrayRef = Arc::new(StringArray::from(texts));
        let mut names = StringDictionaryBuilder::<Int32Type>::new();
        (from..from + ROWS / 2).for_each(|i| names.append_value(["web", "law"][i % 2]));
        let names: ArrayRef = Arc::new(names.finish());
        let inner = Fields::from(vec![Field::new(
            "pile_set_name",
            names.data_type().clone(),
            true,
        )]);
        let meta: ArrayRef = Arc::new(StructArray::new(inner, vec![names], None));
        RecordBatch::try_from_iter_with_nullable([("text", text, true), ("meta", meta, true)])
            .unwrap()
    };
    vec![batch(0), batch(ROWS / 2)]
}

fn parquet(compression: Compression, dictionary: bool) -> Vec<u8> {
    let batches = batches();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(dictionary)
        .set_max_row_group_row_count(Some(ROWS / 2))
        .build();
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.into_inner().unwrap()
}

fn arrow(packing: Option<CompressionType>, is_file: bool) -> Vec<u8> {
    let batches = batches();
    let options = IpcWriteOptions::default()
        .try_with_compression(packing)
        .unwrap();
    let schema = batches[0].schema();
    if is_file {
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        batches.iter().for_each(|b| writer.write(b).unwrap());
        writer.into_inner().unwrap()
    } else {
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        batches.iter().for_each(|b| writer.write(b).unwrap());
        writer.into_inner().unwrap()
    }
}

/// Reads a file as a build does; the rows, or the fault.
fn read(path: &Path) -> Result<usize, String> {
    let scratch_fields = Scratch::new().options(&[]).fields;
    let plan = Plan::new(&[path.into()], &[], &PlanOptions::default()).unwrap();
    let mut reader = Reader::new(&plan, &scratch_fields, Cursor::default(), Arc::default());
    let (mut rows, mut fault) = (0, None);
    while let Some(block) = reader.next_block() {
        match block.payload {
            Payload::Rows(block) => {
                for row in 0..block.rows {
                    // As the threads of a build take them.
                    let _ = (block.text(row), block.domain(row));
                }
                rows += block.rows;
            }
            Payload::Fault { error, .. } => fault = Some(error.to_string()),
            _ => {}
        }
    }
    fault.map_or(Ok(rows), Err)
}

/// Gives the first files that tripped the library.
fn flip_bits(name: &str, good: &[u8]) -> Vec<Vec<u8>> {
    let scratch = Scratch::new();
    let path = scratch.write(name, good);
    assert_eq!(read(&path), Ok(ROWS), "{name}");
    let (mut faults, mut tripped) = (0, Vec::new());
    for at in 0..good.len() {
        for bit in BITS {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << bit;
            std::fs::write(&path, &bad).unwrap();
            match catch_unwind(AssertUnwindSafe(|| read(&path))) {
                Ok(Ok(rows)) => assert_eq!(rows, ROWS, "{name}, byte {at}, bit {bit}"),
                Ok(Err(fault)) => {
                    assert!(fault.contains(name), "{fault}");
                    faults += 1;
                    if fault.contains("its reader gave up") && tripped.len() < 3 {
                        tripped.push(bad);
                    }
                }
                Err(_) => panic!("{name}, byte {at}, bit {bit}: a panic escapes"),
            }
        }
    }
    println!(
        "{name}: {faults} faults of {} flips",
        good.len() * BITS.len()
    );
    assert!(faults > good.len() / 4);
    tripped
}

#[test]
fn a_parquet_file_with_a_bit_flipped_is_whole_or_a_fault() {
    let mut tripped = flip_bits("plain.parquet", &parquet(Compression::UNCOMPRESSED, false));
    let packed = parquet(Compression::SNAPPY, true);
    tripped.extend(flip_bits("dictionary.parquet", &packed));
    assert!(
        !tripped.is_empty(),
        "no flip makes the library panic any more"
    );
    let scratch = Scratch::new();
    let folder = scratch.path("");
    scratch.write("good.jsonl", corpora::line("a text", "web"));
    for bad in tripped {
        scratch.write("bad.parquet", bad);
        let build = |more: &[&str]| {
            let arguments = [
                "build",
                "bad.parquet",
                "good.jsonl",
                "-o",
                "index",
                "--restart",
            ];
            let output = hds_index(&folder, &[&arguments, more].concat());
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(
                !said.contains("panicked") && !said.contains("backtrace"),
                "{said}"
            );
            (output.status.code(), said)
        };
        let (code, said) = build(&[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("error: bad.parquet"), "{said}");
        let (code, said) = build(&["--on-error", "skip"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("rest of a damaged table"), "{said}");
        std::fs::remove_dir_all(scratch.path("index")).unwrap();
    }
}

#[test]
fn an_arrow_file_or_stream_with_a_bit_flipped_is_whole_or_a_fault() {
    flip_bits("file.arrow", &arrow(None, true));
    flip_bits("stream.arrow", &arrow(None, false));
    let packing = Some(CompressionType::ZSTD);
    flip_bits("packed.arrow", &arrow(packing, true));
}
