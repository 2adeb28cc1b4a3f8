//! Every input format gives the same index of the same documents, whatever its packing, for any number of threads.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema};
use corpora::{
    Scratch, domains, files, line, manifest, run, run_with, runtime_rows, texts, tokens,
};
use hds_indexer::build::BuildOptions;
use hds_indexer::input::{DomainFrom, TextExtensions};
use hds_indexer::tokenize::{TokenizeError, Tokenizer};

/// Documents of several domains and of very different lengths.
fn documents() -> Vec<(String, &'static str)> {
    let names = ["web", "code", "Wikipedia (en)"];
    let mut state = 7u64;
    (0..600)
        .map(|i| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let words = if i == 300 {
                200_000
            } else {
                (state >> 33) % 300 + 1
            };
            let text: Vec<String> = (0..words)
                .map(|w| format!("w{}é", (w * 7919 + state) % 97))
                .collect();
            (
                format!("{i} \"quoted\"\n{}", text.join(" ")),
                names[(state >> 20) as usize % 3],
            )
        })
        .collect()
}

fn jsonl(documents: &[(String, &str)]) -> String {
    documents
        .iter()
        .map(|(text, domain)| line(text, domain))
        .collect()
}

fn expected(documents: &[(String, &str)], domain: &str) -> Vec<String> {
    let of_domain = documents.iter().filter(|d| d.1 == domain);
    of_domain.map(|d| d.0.clone()).collect()
}

/// Frames of many sizes, a skippable frame between each two.
fn zstd_frames(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (i, part) in content.chunks(10_007).enumerate() {
        packed.extend(zstd::encode_all(part, 1 + (i % 5) as i32).unwrap());
        packed.extend([0x50 + (i % 16) as u8, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    }
    packed
}

fn gzip_members(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for part in content.chunks(10_007) {
        let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        member.write_all(part).unwrap();
        packed.extend(member.finish().unwrap());
    }
    packed
}

fn parquet(documents: &[(String, &str)]) -> Vec<u8> {
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(documents.iter().map(|d| d.1)));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(
        documents.iter().map(|d| &d.0),
    ));
    let inner = Fields::from(vec![Field::new("pile_set_name", DataType::Utf8, true)]);
    let schema = Schema::new(vec![
        Field::new("meta", DataType::Struct(inner.clone()), true),
        Field::new("text", DataType::Utf8, true),
    ]);
    let meta: ArrayRef = Arc::new(StructArray::new(inner, vec![names], None));
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![meta, text]).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(170))
        .build();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), Arc::new(schema), Some(properties))
            .unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn all_packings_give_the_documents_in_their_order() {
    let documents = documents();
    let lines = jsonl(&documents);
    let windows = lines.replace('\n', "\r\n");
    let long_window = {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(28).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.write_all(lines.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a.jsonl", lines.clone().into_bytes()),
        ("b.json", lines.trim_end().as_bytes().to_vec()),
        ("c.jsonl", format!("\u{feff}{windows}").into_bytes()),
        (
            "d.jsonl.zst",
            zstd::encode_all(lines.as_bytes(), 3).unwrap(),
        ),
        ("e.jsonl.zst", zstd_frames(lines.as_bytes())),
        ("f.jsonl.zst", long_window),
        ("g.jsonl.gz", gzip_members(lines.as_bytes())),
        // Names that say another thing than the first bytes.
        ("i.jsonl.gz", zstd_frames(lines.as_bytes())),
        ("j.jsonl.zst", gzip_members(lines.as_bytes())),
        ("k.jsonl.zst", lines.clone().into_bytes()),
        ("l.jsonl.gz", format!("\u{feff}{windows}").into_bytes()),
        ("h.parquet", parquet(&documents)),
    ];
    for (name, content) in cases {
        let scratch = Scratch::new();
        scratch.write(name, content);
        run(&scratch.options(&[name])).unwrap();
        let index = scratch.path("index");
        assert_eq!(domains(&index), ["Wikipedia (en)", "code", "web"], "{name}");
        for domain in domains(&index) {
            assert!(
                texts(&index, &domain, "train") == expected(&documents, &domain),
                "{name}: the documents of {domain} differ"
            );
        }
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_on_how_the_input_is_packed() {
    let documents = documents();
    let lines = jsonl(&documents);
    let mut first = None;
    for threads in [1, 2, 5] {
        let scratch = Scratch::new();
        scratch.write("x.jsonl.zst", zstd_frames(lines.as_bytes()));
        let options = BuildOptions {
            threads,
            valid_fraction: 0.1,
            shard_tokens: 40_000,
            ..scratch.options(&["x.jsonl.zst"])
        };
        run(&options).unwrap();
        let got = files(&scratch.path("index"));
        assert!(
            got.len() > 30,
            "the test wants many shards, got {} files",
            got.len()
        );
        match &first {
            None => first = Some(got),
            Some(want) => {
                let names = |f: &std::collections::BTreeMap<String, Vec<u8>>| {
                    f.keys().cloned().collect::<Vec<_>>()
                };
                assert_eq!(names(&got), names(want));
                for (name, content) in &got {
                    assert!(
                        content == &want[name],
                        "{name} differs with {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn offsets_sums_and_lexical_diversity_are_those_of_the_documents() {
    let documents = documents();
    let scratch = Scratch::new();
    scratch.write("x.jsonl", jsonl(&documents));
    let options = BuildOptions {
        shard_tokens: 40_000,
        ..scratch.options(&["x.jsonl"])
    };
    run(&options).unwrap();
    let index = scratch.path("index");
    let want = expected(&documents, "web");
    let rows = runtime_rows(&index, "web", "train");
    assert_eq!(rows.len(), want.len());
    let mut meter = hds_indexer::lexical::LexicalMeter::new();
    let (mut offset, mut words, mut mtld) = (0, 0, 0.0);
    for (text, (got_offset, got_mtld)) in want.iter().zip(&rows) {
        let lexical = meter.measure(text);
        assert_eq!((*got_offset, *got_mtld), (offset, lexical.mtld as f32));
        offset += text.len() as u64 + 1;
        words += lexical.words;
        mtld += lexical.mtld;
    }
    let manifest = manifest(&index);
    let web = manifest["domains"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["name"] == "web")
        .unwrap();
    assert_eq!(web["train"]["tokens"], offset);
    assert_eq!(web["train"]["bytes"], offset - want.len() as u64);
    assert_eq!(web["train"]["words"], words);
    let mean = web["train"]["mtld"]["mean"].as_f64().unwrap();
    assert!(
        (mean - mtld / want.len() as f64).abs() < 1e-9 * mean,
        "{mean}"
    );
    for shard in corpora::shards(&manifest, "web", "train") {
        let one = shard["documents"] == 1;
        assert!(
            one || shard["tokens"].as_u64().unwrap() <= 40_000,
            "{shard}"
        );
    }
}

#[test]
fn held_out_documents_are_chosen_by_the_hash_of_the_text() {
    let documents: Vec<(String, &str)> = (0..2000)
        .map(|i| (format!("text {}", i % 1000), "web"))
        .collect();
    let scratch = Scratch::new();
    scratch.write("x.jsonl", jsonl(&documents));
    let options = BuildOptions {
        valid_fraction: 0.25,
        ..scratch.options(&["x.jsonl"])
    };
    run(&options).unwrap();
    let held_out = |text: &str| {
        let hash = blake3::hash(text.as_bytes());
        // The first hexadecimal digit is below 4 for a quarter of all hashes.
        hash.to_hex().as_bytes()[0] < b'4'
    };
    let (valid, train): (Vec<String>, Vec<String>) = documents
        .into_iter()
        .map(|d| d.0)
        .partition(|text| held_out(text));
    let index = scratch.path("index");
    assert_eq!(texts(&index, "web", "valid"), valid);
    assert_eq!(texts(&index, "web", "train"), train);
    assert!(valid.len() > 400 && valid.len() < 600);
}

#[test]
fn a_held_out_input_goes_to_the_held_out_split() {
    let scratch = Scratch::new();
    scratch.write("train.jsonl", line("one", "web") + &line("two", "code"));
    scratch.write("val.jsonl", line("three", "web"));
    let options = BuildOptions {
        held_out: vec![scratch.path("val.jsonl")],
        ..scratch.options(&["train.jsonl"])
    };
    let summary = run(&options).unwrap();
    let index = scratch.path("index");
    assert_eq!(texts(&index, "web", "train"), ["one"]);
    assert_eq!(texts(&index, "web", "valid"), ["three"]);
    assert!(
        summary.warnings.iter().any(|w| w.contains("code")),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn domains_come_from_where_they_are_said_to() {
    let scratch = Scratch::new();
    let lines = r#"{"text":"t","a":{"b":"inner"},"c":"flat"}"#;
    scratch.write("corpus/sub/file.jsonl", lines);
    let with = |domain_from: DomainFrom, field: &str| {
        let mut options = scratch.options(&["corpus"]);
        options.fields.domain_from = domain_from;
        options.fields.domain = field.parse().unwrap();
        let _ = std::fs::remove_dir_all(&options.target);
        run(&options).map(|_| domains(&options.target).join(","))
    };
    assert_eq!(with(DomainFrom::Auto, "c").unwrap(), "flat");
    assert_eq!(with(DomainFrom::Auto, "absent").unwrap(), "file");
    assert_eq!(with(DomainFrom::Field, "a.b").unwrap(), "inner");
    assert_eq!(with(DomainFrom::File, "c").unwrap(), "file");
    assert_eq!(with(DomainFrom::Folder, "c").unwrap(), "sub");
    assert_eq!(with(DomainFrom::Named("all".into()), "c").unwrap(), "all");
    let error = with(DomainFrom::Field, "a.x").unwrap_err().to_string();
    assert!(error.contains("a.x") && error.contains("line 1"), "{error}");
}

#[test]
fn text_files_are_documents_of_their_folders() {
    let scratch = Scratch::new();
    scratch.write("corpus/code/b.rs", "fn b() {}");
    scratch.write("corpus/code/deep/a.py", "a = 1");
    scratch.write("corpus/prose/x.txt", "\u{feff}Prose.");
    scratch.write("corpus/top.md", "# Top");
    run(&scratch.options(&["corpus"])).unwrap();
    let index = scratch.path("index");
    assert_eq!(domains(&index), ["code", "corpus", "prose"]);
    assert_eq!(texts(&index, "code", "train"), ["fn b() {}", "a = 1"]);
    assert_eq!(texts(&index, "corpus", "train"), ["# Top"]);
    assert_eq!(texts(&index, "prose", "train"), ["Prose."]);

    let mut options = scratch.options(&["corpus"]);
    options.target = scratch.path("by-file");
    options.fields.domain_from = DomainFrom::File;
    run(&options).unwrap();
    assert_eq!(domains(&options.target), ["a", "b", "top", "x"]);

    scratch.write("odd/package.json", "{\n  \"name\": \"x\"\n}");
    let mut options = scratch.options(&["odd"]);
    options.target = scratch.path("odd-index");
    assert!(run(&options).is_err());
    options.fields.text_extensions = TextExtensions::new(["json"]);
    run(&options).unwrap();
    assert_eq!(
        texts(&options.target, "odd", "train"),
        ["{\n  \"name\": \"x\"\n}"]
    );
}

#[test]
fn a_folder_and_its_files_given_one_by_one_hold_the_same_documents() {
    let scratch = Scratch::new();
    scratch.write("corpus/a.jsonl", line("one", "web"));
    scratch.write("corpus/b.jsonl", line("two", "web"));
    run(&scratch.options(&["corpus"])).unwrap();
    let mut options = scratch.options(&["corpus/b.jsonl", "corpus/a.jsonl"]);
    options.target = scratch.path("other");
    run(&options).unwrap();
    assert_eq!(
        texts(&scratch.path("index"), "web", "train"),
        ["one", "two"]
    );
    assert_eq!(
        texts(&scratch.path("other"), "web", "train"),
        ["two", "one"]
    );
}

/// Every character is an id, shifted up so that ids need more than 16 bits.
struct Wide {
    vocabulary: u32,
    shift: u32,
}

impl Tokenizer for Wide {
    fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError> {
        ids.extend(text.bytes().map(|b| u32::from(b) + self.shift));
        Ok(())
    }
    fn decode(&self, _: &[u32]) -> Result<String, TokenizeError> {
        Ok(String::new())
    }
    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }
    fn end_of_document(&self) -> u32 {
        self.vocabulary - 1
    }
    fn name(&self) -> &str {
        "wide"
    }
    fn fingerprint(&self) -> String {
        format!("wide {} {}", self.vocabulary, self.shift)
    }
    fn engine(&self) -> &'static str {
        "wide"
    }
}

#[test]
fn ids_are_stored_as_wide_as_the_vocabulary_needs_and_never_wrap() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", line("az", "web"));
    let index = scratch.path("index");
    for (vocabulary, wide) in [(65_536, false), (65_537, true)] {
        let tokenizer = Wide {
            vocabulary,
            shift: vocabulary - 200,
        };
        run_with(&scratch.options(&["x.jsonl"]), &tokenizer).unwrap();
        assert_eq!(
            manifest(&index)["token_type"],
            if wide { "u32" } else { "u16" }
        );
        let base = vocabulary - 200;
        assert_eq!(
            tokens(&index, "web", "train"),
            [base + 97, base + 122, vocabulary - 1]
        );
        std::fs::remove_dir_all(&index).unwrap();
    }
    // A tokenizer that breaks its word is found out, also where bad records are skipped.
    let liar = Wide {
        vocabulary: 65_536,
        shift: 65_536,
    };
    let mut options = scratch.options(&["x.jsonl"]);
    options.on_error = hds_indexer::build::OnError::Skip;
    let error = run_with(&options, &liar).unwrap_err().to_string();
    assert!(error.contains("65633"), "{error}");
    assert!(!index.exists());
}
