//! Bad input: a located error and no index, or, where asked for, a counted skip and the good documents.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use corpora::{Scratch, line, manifest, run, texts};
use hds_indexer::build::{BuildError, OnError};

/// Builds one file both ways: gives the error, and the documents, the reason and the first place when skipping.
fn both_ways(name: &str, content: &[u8]) -> (String, Vec<String>, Vec<(String, u64, String)>) {
    let scratch = Scratch::new();
    scratch.write(name, content);
    let mut options = scratch.options(&[name]);
    let error = run(&options).expect_err(name).to_string();
    assert!(
        !scratch.path("index").exists(),
        "{name}: an index was published"
    );
    assert!(
        !scratch.path("index.building").exists(),
        "{name}: something was left behind"
    );
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    let index = scratch.path("index");
    let skipped = manifest(&index)["sources"][0]["skipped"].clone();
    let skipped: Vec<_> = skipped
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let text = |key: &str| s[key].as_str().unwrap().to_owned();
            (text("reason"), s["count"].as_u64().unwrap(), text("first"))
        })
        .collect();
    assert_eq!(summary.skipped.len(), skipped.len());
    (error, texts(&index, "web", "train"), skipped)
}

#[test]
fn a_bad_line_is_located_or_skipped() {
    let good = line("good", "web");
    let cases: &[(&str, &[u8])] = &[
        ("broken JSON", b"{\"text\": \"x"),
        ("broken JSON", b"nonsense"),
        ("broken JSON", b"{\"text\":\"a\x00b\"}"),
        ("not an object", b"[1, 2]"),
        ("not an object", b"\"text\""),
        (
            "two values on a line",
            b"{\"text\":\"x\",\"meta\":{\"pile_set_name\":\"web\"}}{}",
        ),
        (
            "field missing",
            b"{\"txt\": \"x\", \"meta\":{\"pile_set_name\":\"web\"}}",
        ),
        ("field missing", b"{\"text\": \"x\"}"),
        (
            "field not a string",
            b"{\"text\": 7, \"meta\":{\"pile_set_name\":\"web\"}}",
        ),
        (
            "field not a string",
            b"{\"text\": \"x\", \"meta\":{\"pile_set_name\":7}}",
        ),
        ("field twice", b"{\"text\":\"x\",\"text\":\"y\"}"),
        ("not UTF-8", b"{\"text\": \"\xff\xfe\"}"),
        (
            "lone surrogate",
            b"{\"text\": \"\\ud800\", \"meta\":{\"pile_set_name\":\"web\"}}",
        ),
        (
            "domain name",
            b"{\"text\": \"x\", \"meta\":{\"pile_set_name\":\"\"}}",
        ),
        (
            "domain name",
            b"{\"text\": \"x\", \"meta\":{\"pile_set_name\":\"a\\nb\"}}",
        ),
    ];
    for (reason, bad) in cases {
        let mut content = good.repeat(2).into_bytes();
        content.extend_from_slice(bad);
        content.push(b'\n');
        content.extend_from_slice(bad);
        content.push(b'\n');
        content.extend_from_slice(good.as_bytes());
        let (error, documents, skipped) = both_ways("x.jsonl", &content);
        assert!(
            error.contains("x.jsonl, line 3, byte "),
            "{reason}: {error}"
        );
        assert!(error.contains("--on-error skip"), "{reason}: {error}");
        let byte: usize = error
            .split("byte ")
            .nth(1)
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let start = 2 * good.len();
        assert!(
            (start..=start + bad.len()).contains(&byte),
            "{reason}: byte {byte} in {error}"
        );
        assert_eq!(documents, ["good"; 3], "{reason}");
        assert_eq!(skipped.len(), 1, "{reason}: {skipped:?}");
        assert_eq!(
            (skipped[0].0.as_str(), skipped[0].1),
            (*reason, 2),
            "{reason}"
        );
        assert!(
            skipped[0].2.starts_with("line 3, byte "),
            "{reason}: {skipped:?}"
        );
    }
}

#[test]
fn escaped_nul_empty_lines_and_odd_blanks_are_fine() {
    let scratch = Scratch::new();
    let content = format!(
        "\n  \t\r\n{}\r\n\n{}",
        line("a\0b", "web").trim_end(),
        line("c", "web")
    );
    scratch.write("x.jsonl", content);
    run(&scratch.options(&["x.jsonl"])).unwrap();
    assert_eq!(texts(&scratch.path("index"), "web", "train"), ["a\0b", "c"]);
}

#[test]
fn an_empty_text_is_left_out_and_counted() {
    let scratch = Scratch::new();
    scratch.write(
        "x.jsonl",
        line("a", "web") + &line("", "web") + &line("b", "web"),
    );
    let summary = run(&scratch.options(&["x.jsonl"])).unwrap();
    assert_eq!(texts(&scratch.path("index"), "web", "train"), ["a", "b"]);
    let skipped = &summary.skipped[0];
    assert_eq!((skipped.reason.as_str(), skipped.count), ("empty text", 1));
    let byte = line("a", "web").len();
    assert_eq!(skipped.first, format!("x.jsonl, line 2, byte {byte}"));
}

#[test]
fn truncated_and_damaged_archives_end_the_build_or_the_source() {
    let many: String = (0..20_000)
        .map(|i| line(&format!("document {i} {}", i * 7919 % 10_007), "web"))
        .collect();
    let zst = zstd::encode_all(many.as_bytes(), 3).unwrap();
    let gz = {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(many.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let mut flipped = zst.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    let mut trailing = zst.clone();
    trailing.extend(b"garbage behind the last frame");
    for (name, content, whole) in [
        ("cut.jsonl.zst", &zst[..zst.len() / 2], false),
        ("cut-checksum.jsonl.zst", &zst[..zst.len() - 1], true),
        ("cut.jsonl.gz", &gz[..gz.len() / 2], false),
        ("cut-trailer.jsonl.gz", &gz[..gz.len() - 2], true),
        ("flipped.jsonl.zst", &flipped[..], false),
        ("trailing.jsonl.zst", &trailing[..], true),
    ] {
        let (error, documents, skipped) = both_ways(name, content);
        assert!(error.contains("truncated or damaged"), "{name}: {error}");
        assert!(
            error.contains(name) && error.contains("line "),
            "{name}: {error}"
        );
        let reasons: Vec<_> = skipped.iter().map(|s| (s.0.as_str(), s.1)).collect();
        assert_eq!(reasons, [("rest of a damaged archive", 1)], "{name}");
        assert!(documents.len() > 1000, "{name}: only {}", documents.len());
        assert!(
            whole || documents.len() < 20_000,
            "{name}: {}",
            documents.len()
        );
        for (i, document) in documents.iter().enumerate() {
            assert_eq!(
                *document,
                format!("document {i} {}", i * 7919 % 10_007),
                "{name}"
            );
        }
    }
}

#[test]
fn an_input_without_documents_is_an_error() {
    let scratch = Scratch::new();
    let empty_zst = zstd::encode_all(&b""[..], 3).unwrap();
    for (name, content) in [
        ("a.jsonl", &b""[..]),
        ("b.jsonl", b"\n\n"),
        ("c.jsonl.zst", b""),
        ("d.jsonl.zst", &empty_zst),
        ("e.jsonl.gz", b""),
        ("f.jsonl", b"{\"text\":\"\"}\n"),
    ] {
        scratch.write(name, content);
        let error = run(&scratch.options(&[name])).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("holds no document"),
            "{name}: {error}"
        );
        let mut options = scratch.options(&[name]);
        options.on_error = OnError::Skip;
        let error = run(&options).unwrap_err();
        assert!(
            matches!(error, BuildError::NoDocument { .. }),
            "{name}: {error}"
        );
        assert!(!scratch.path("index").exists() && !scratch.path("index.building").exists());
    }
    // Beside others it may be skipped, and is counted.
    scratch.write("good.jsonl", line("x", "web"));
    let mut options = scratch.options(&["a.jsonl", "good.jsonl"]);
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(summary.skipped[0].reason, "no document");
    assert!(summary.skipped[0].first.starts_with("a.jsonl"));
}

#[test]
fn holding_everything_out_is_an_error() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", line("x", "web"));
    let mut options = scratch.options(&["x.jsonl"]);
    options.valid_fraction = 1.0;
    let error = run(&options).unwrap_err();
    assert!(
        matches!(error, BuildError::NothingToTrain { documents: 1 }),
        "{error}"
    );
    assert!(!scratch.path("index").exists());
}

#[test]
fn a_text_file_that_is_no_text_is_located() {
    let scratch = Scratch::new();
    scratch.write("corpus/web/a.txt", "fine");
    scratch.write("corpus/web/b.txt", b"ab\xffcd");
    scratch.write("corpus/web/c.txt", "");
    let mut options = scratch.options(&["corpus"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("b.txt, byte 2") && error.contains("UTF-8"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(texts(&scratch.path("index"), "web", "train"), ["fine"]);
    let skipped: Vec<_> = summary
        .skipped
        .iter()
        .map(|s| (s.reason.as_str(), s.first.as_str()))
        .collect();
    assert_eq!(
        skipped,
        [
            ("not UTF-8", "corpus/, web/b.txt, byte 2"),
            ("empty text", "corpus/, web/c.txt")
        ]
    );
}

#[cfg(unix)]
#[test]
fn a_file_that_vanishes_is_named() {
    // A link that leads nowhere by the time it is opened: the plan saw the file through it.
    let scratch = Scratch::new();
    scratch.write("corpus/web/a.txt", "fine");
    std::os::unix::fs::symlink("gone", scratch.path("corpus/web/b.txt")).unwrap();
    let mut options = scratch.options(&["corpus"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("b.txt"), "{error}");
    // Met by the plan and by the reader, counted once.
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    let skipped = &summary.skipped[0];
    assert_eq!(
        (summary.skipped.len(), skipped.count, skipped.first.as_str()),
        (1, 1, "corpus/, web/b.txt")
    );
    assert_eq!(summary.documents, 1);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_beside_record_files_is_counted() {
    let scratch = Scratch::new();
    scratch.write("corpus/a.jsonl", line("a", "web"));
    std::os::unix::fs::symlink("gone", scratch.path("corpus/b.jsonl")).unwrap();
    let mut options = scratch.options(&["corpus"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("b.jsonl"), "{error}");
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(summary.documents, 1);
    let skipped = &summary.skipped[0];
    assert_eq!(
        (
            skipped.reason.as_str(),
            skipped.count,
            skipped.first.as_str()
        ),
        ("unreadable", 1, "corpus/, b.jsonl")
    );
}

#[test]
fn a_target_among_the_input_is_refused() {
    let scratch = Scratch::new();
    scratch.write("corpus/web/a.txt", "a");
    for target in ["corpus/index", "corpus/web/../web/deep/index"] {
        let mut options = scratch.options(&["corpus"]);
        options.target = scratch.path(target);
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains("would lie in the input folder"), "{error}");
    }
    let entries = std::fs::read_dir(scratch.path("corpus")).unwrap().count();
    assert_eq!(entries, 1);
}

#[test]
fn damaged_parquet_is_named() {
    let scratch = Scratch::new();
    for (name, content) in [
        ("a.parquet", &b""[..]),
        ("b.parquet", b"PAR1"),
        ("c.parquet", b"nonsense, long enough for a footer"),
    ] {
        scratch.write(name, content);
        let error = run(&scratch.options(&[name])).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn nothing_that_exists_is_overwritten() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", line("x", "web"));
    scratch.write("index", "a file");
    let error = run(&scratch.options(&["x.jsonl"])).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    assert_eq!(std::fs::read(scratch.path("index")).unwrap(), b"a file");
}

#[test]
fn too_many_domains_are_taken_for_a_wrong_field() {
    let scratch = Scratch::new();
    let lines: String = (0..4097)
        .map(|i| line("x", &format!("domain {i}")))
        .collect();
    scratch.write("x.jsonl", lines);
    let error = run(&scratch.options(&["x.jsonl"])).unwrap_err().to_string();
    assert!(
        error.contains("4096") && error.contains("meta.pile_set_name"),
        "{error}"
    );
    assert!(!scratch.path("index.building").exists());
}

#[test]
fn a_domain_field_that_the_first_record_lacks_is_not_passed_over() {
    let scratch = Scratch::new();
    let lines = "{\"text\":\"a\"}\n".to_owned() + &line("b", "web") + "{\"text\":\"c\"}\n";
    scratch.write("x.jsonl", lines);
    let mut options = scratch.options(&["x.jsonl"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("--domain-from"),
        "{error}"
    );
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(summary.documents, 2);
    assert_eq!(summary.skipped[0].count, 1);
    // Asked for, it is no fault.
    options.target = scratch.path("by_file");
    options.on_error = OnError::Stop;
    options.fields.domain_from = hds_indexer::input::DomainFrom::File;
    assert_eq!(run(&options).unwrap().documents, 3);
}

#[test]
fn a_wrong_checksum_says_that_earlier_lines_are_not_safe() {
    use std::io::Write as _;
    let scratch = Scratch::new();
    let content: String = (0..2000)
        .map(|i| line(&format!("text {i}"), "web"))
        .collect();
    let mut zst = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zst.include_checksum(true).unwrap();
    zst.write_all(content.as_bytes()).unwrap();
    let mut zst = zst.finish().unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(content.as_bytes()).unwrap();
    let mut gz = gz.finish().unwrap();
    // The checksums: the last four bytes of a frame, the four before the length of a member.
    let (last, before) = (zst.len() - 1, gz.len() - 5);
    zst[last] ^= 1;
    gz[before] ^= 1;
    for (name, packed) in [("x.jsonl.zst", zst), ("y.jsonl.gz", gz)] {
        scratch.write(name, packed);
        let mut options = scratch.options(&[name]);
        options.target = scratch.path(&format!("{name}.index"));
        let error = run(&options).unwrap_err().to_string();
        assert!(
            error.contains("lines before this one may be too"),
            "{error}"
        );
        options.on_error = OnError::Skip;
        let summary = run(&options).unwrap();
        assert!(summary.skipped[0].reason.contains("may be damaged too"));
    }
}

#[test]
fn a_packed_file_under_a_plain_name_is_unpacked() {
    let scratch = Scratch::new();
    let packed = zstd::encode_all(line("a", "web").as_bytes(), 1).unwrap();
    scratch.write("x.jsonl", packed);
    assert_eq!(run(&scratch.options(&["x.jsonl"])).unwrap().documents, 1);
}

#[test]
fn an_archive_packed_with_a_dictionary_is_told_as_that() {
    let samples: Vec<Vec<u8>> = (0..2000)
        .map(|i| line(&format!("text {i} of many"), "web").into_bytes())
        .collect();
    let dictionary = zstd::dict::from_samples(&samples, 4096).unwrap();
    let mut packed = zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap();
    let scratch = Scratch::new();
    scratch.write("x.jsonl.zst", packed.compress(&samples[0]).unwrap());
    let mut options = scratch.options(&["x.jsonl.zst"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("x.jsonl.zst"), "{error}");
    assert!(error.contains("zstd -d -D DICTIONARY"), "{error}");
    scratch.write("y.jsonl", line("good", "web"));
    options = scratch.options(&["x.jsonl.zst", "y.jsonl"]);
    options.on_error = OnError::Skip;
    let summary = run(&options).unwrap();
    assert_eq!(summary.skipped[0].reason, "packed with a dictionary");
}
