//! Damaged and hostile indexes: an error that names the file and what is wrong, never a panic.

use std::fs;
use std::path::Path;

use hds::index::{Checksum, Manifest};
use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{Access, DocumentSpan, Index, Loader, LoaderConfig, Split, TokensMut};
use proptest::prelude::*;

use crate::builder::{Domain, TestIndex, documents, save, table, write};

fn index() -> TestIndex {
    let domain = Domain {
        name: "web".into(),
        train: vec![documents(1, 9, |d| 3 + d), documents(2, 4, |_| 6)],
        valid: vec![documents(3, 2, |_| 8)],
    };
    write(&[domain], 50_000)
}

/// Puts other bytes where the table of the first shard is, and their size into the manifest.
fn replace_table(files: &TestIndex, content: &[u8]) {
    fs::write(files.train_file("web", 0, "documents.arrow"), content).unwrap();
    let (mut manifest, _) = Manifest::load(files.path()).unwrap();
    let entry = &mut manifest.domains[0].train.shards[0].documents_file;
    entry.bytes = content.len() as u64;
    entry.blake3 = Checksum::of(content);
    save(&manifest, files.path());
}

/// Reads every token and every span, mapped and not; the error, if there is one.
fn read_everything(folder: &Path) -> Result<Vec<DocumentSpan>, String> {
    let mapped = read_with(folder, Access::Map);
    assert_eq!(mapped, read_with(folder, Access::Read));
    mapped
}

fn read_with(folder: &Path, access: Access) -> Result<Vec<DocumentSpan>, String> {
    let index = Index::open_with(folder, access).map_err(|e| e.to_string())?;
    let stream = index.split(DomainId(0), Split::Train);
    let mut spans = vec![];
    let count = stream.tokens() as u32;
    stream
        .spans(0, count, &mut spans)
        .map_err(|e| e.to_string())?;
    // From every token, so that every way of the search is gone.
    for from in 0..count {
        let mut part = vec![];
        stream
            .spans(u64::from(from), count - from, &mut part)
            .map_err(|e| e.to_string())?;
        let covered: u32 = part.iter().map(|s| s.length).sum();
        assert_eq!(covered, count - from, "spans fill the range");
    }
    let mut out = vec![0; count as usize];
    stream
        .read(0, TokensMut::I64(&mut out))
        .map_err(|e| e.to_string())?;
    Ok(spans)
}

fn offsets() -> Vec<u64> {
    (0..9).map(|d| (0..d).map(|i| 3 + i).sum()).collect()
}

#[test]
fn every_changed_byte_of_a_document_table_is_harmless() {
    let files = index();
    let path = files.train_file("web", 0, "documents.arrow");
    let good = fs::read(&path).unwrap();
    let right = read_everything(files.path()).unwrap();
    let mut refused = 0;
    for place in 0..good.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[place] ^= change;
            fs::write(&path, &bad).unwrap();
            match read_everything(files.path()) {
                Ok(spans) => assert_eq!(spans.len(), right.len()),
                Err(text) => {
                    assert!(text.contains("00000.documents.arrow"), "{place}: {text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > good.len() / 3, "{refused} of {}", good.len());
}

#[test]
fn a_table_cut_anywhere_is_refused() {
    let files = index();
    let good = fs::read(files.train_file("web", 0, "documents.arrow")).unwrap();
    for length in 0..good.len() {
        // A manifest that agrees: the cut must be seen by the parser.
        replace_table(&files, &good[..length]);
        let text = read_everything(files.path()).unwrap_err();
        assert!(
            text.contains("documents.arrow: is no document table"),
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn garbage_in_a_document_table_is_harmless(
        edits in prop::collection::vec((0.0f64..1.0, prop::collection::vec(any::<u8>(), 1..24)), 1..5),
        cut in prop::option::of(0.0f64..1.0),
    ) {
        let files = index();
        let mut bytes = fs::read(files.train_file("web", 0, "documents.arrow")).unwrap();
        for (place, garbage) in edits {
            let at = (place * bytes.len() as f64) as usize;
            let end = (at + garbage.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&garbage[..end - at]);
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        replace_table(&files, &bytes);
        let _ = read_everything(files.path());
    }

    #[test]
    fn garbage_in_a_manifest_is_harmless(place in 0.0f64..1.0, garbage in "[0-9\"{}a-z,./-]{1,9}") {
        let files = index();
        let path = files.path().join("manifest.json");
        let mut text = fs::read_to_string(&path).unwrap();
        let at = (place * text.len() as f64) as usize;
        let end = (at + garbage.len()).min(text.len());
        text.replace_range(at..end, &garbage);
        fs::write(&path, text).unwrap();
        let _ = read_everything(files.path());
    }
}

#[test]
fn each_wrong_document_table_says_what_is_wrong() {
    let mtld = vec![5.0f32; 9];
    let change = |row: usize, value: u64| {
        let mut offsets = offsets();
        offsets[row] = value;
        table(&offsets, &mtld, 65_536)
    };
    let mtld_of = |value: f32| {
        let mut mtld = mtld.clone();
        mtld[8] = value;
        table(&offsets(), &mtld, 65_536)
    };
    let cases = [
        (
            change(0, 1),
            "the first token_offset is 1, the manifest says 0",
        ),
        (change(4, 3), "token_offset of row 4 is 3, not after"),
        (
            change(4, 1000),
            "token_offset of row 4 is 1000, not inside the shard's tokens 0..63",
        ),
        (
            change(8, u64::MAX),
            "token_offset of row 8 is 18446744073709551615, not inside",
        ),
        (mtld_of(f32::NAN), "mtld of row 8 is NaN"),
        (mtld_of(-1.0), "mtld of row 8 is -1"),
        (mtld_of(f32::INFINITY), "mtld of row 8 is inf"),
        (table(&offsets()[..8], &mtld[..8], 65_536), "8 rows for 9"),
        (
            table(&offsets(), &mtld, 5),
            "2 batches for 1 in the manifest",
        ),
        (table(&[], &[], 5), "0 batches for 1 in the manifest"),
        (b"PAR1 and so on, but no Arrow PAR1".to_vec(), "ARROW1"),
        (vec![], "too short"),
    ];
    for (content, reason) in cases {
        let files = index();
        replace_table(&files, &content);
        let text = read_everything(files.path()).unwrap_err();
        assert!(text.contains(reason), "{reason}: {text}");
        assert!(text.contains("00000.documents.arrow"), "{text}");
    }
    let files = index();
    replace_table(&files, &table(&offsets(), &mtld, 65_536));
    read_everything(files.path()).unwrap();
}

#[test]
fn tables_of_other_columns_or_compressed_are_refused() {
    use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
    use arrow_ipc::writer::FileWriter;
    use std::sync::Arc;
    let column: ArrayRef = Arc::new(UInt64Array::from(offsets()));
    let batch = RecordBatch::try_from_iter([("token_offset", Arc::clone(&column))]).unwrap();
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let one_column = writer.into_inner().unwrap();
    let swapped =
        RecordBatch::try_from_iter([("token_offset", Arc::clone(&column)), ("mtld", column)])
            .unwrap();
    let mut writer = FileWriter::try_new(Vec::new(), &swapped.schema()).unwrap();
    writer.write(&swapped).unwrap();
    for content in [one_column, writer.into_inner().unwrap()] {
        let files = index();
        replace_table(&files, &content);
        let text = read_everything(files.path()).unwrap_err();
        assert!(text.contains("its columns are"), "{text}");
    }
}

#[test]
fn missing_files_and_wrong_sizes_are_found_at_opening() {
    for extension in ["tokens", "documents.arrow"] {
        let files = index();
        let path = files.train_file("web", 1, extension);
        let mut content = fs::read(&path).unwrap();
        content.push(0);
        fs::write(&path, &content).unwrap();
        let text = Index::open(files.path()).unwrap_err().to_string();
        for part in [
            path.to_str().unwrap(),
            "the manifest says",
            "hds-index verify",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        fs::remove_file(&path).unwrap();
        let text = Index::open(files.path()).unwrap_err().to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        fs::create_dir(&path).unwrap();
        let text = Index::open(files.path()).unwrap_err().to_string();
        assert!(text.contains("no regular file"), "{text}");
    }
    let empty = tempfile::tempdir().unwrap();
    let text = Index::open(empty.path()).unwrap_err().to_string();
    assert!(text.contains("hds-index build"), "{text}");
}

#[test]
fn a_file_that_shrank_between_opening_and_first_use_is_an_error() {
    for extension in ["tokens", "documents.arrow"] {
        let files = index();
        let index = Index::open(files.path()).unwrap();
        let live = LiveWeights::new(Mixture::uniform(index.domains()));
        // Reading ahead would open the files before they shrink.
        let config = LoaderConfig {
            read_ahead_batches: 0,
            ..LoaderConfig::new(4, 8, 0)
        };
        let mut loader = Loader::new(index, live, config).unwrap();
        for shard in [0, 1] {
            let path = files.train_file("web", shard, extension);
            fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(2)
                .unwrap();
        }
        let text = loader.next_batch().unwrap_err().to_string();
        assert!(text.contains("holds 2 bytes"), "{text}");
        assert_eq!((loader.step(), loader.samples()), (0, &[0][..]));
    }
}

#[test]
fn an_id_beyond_the_vocabulary_names_file_and_place() {
    let files = index();
    let path = files.train_file("web", 1, "tokens");
    let mut content = fs::read(&path).unwrap();
    content[2 * 13..][..2].copy_from_slice(&50_000u16.to_le_bytes());
    fs::write(&path, content).unwrap();
    let index = Index::open(files.path()).unwrap();
    let stream = index.split(DomainId(0), Split::Train);
    let first = stream.tokens() - 24;
    stream.read(first, TokensMut::U16(&mut [0; 13])).unwrap();
    stream
        .read(first + 14, TokensMut::U16(&mut [0; 10]))
        .unwrap();
    let error = stream
        .read(first - 5, TokensMut::U16(&mut [0; 25]))
        .unwrap_err();
    let text = error.to_string();
    for part in ["00001.tokens", "token 13 is 50000", "vocabulary of 50000"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_wide_vocabulary_is_read_as_u32() {
    let mut domain = Domain {
        name: "web".into(),
        train: vec![documents(1, 9, |d| 3 + d)],
        valid: vec![],
    };
    domain.train[0][8].tokens[0] = 99_999;
    let files = write(&[domain.clone()], 100_000);
    let index = Index::open(files.path()).unwrap();
    let stream = index.split(DomainId(0), Split::Train);
    let mut out = vec![0; stream.tokens() as usize];
    stream.read(0, TokensMut::U32(&mut out)).unwrap();
    let want: Vec<u32> = domain.train[0]
        .iter()
        .flat_map(|d| d.tokens.clone())
        .collect();
    assert_eq!(out, want);
    // Into a type too small: an error, not a wrapped id.
    let mut small = vec![0u16; out.len()];
    let error = stream.read(0, TokensMut::U16(&mut small)).unwrap_err();
    assert!(error.to_string().contains("do not fit 16 bits"), "{error}");
}

#[test]
fn a_file_cut_short_while_it_is_read_is_an_error_without_maps() {
    let files = index();
    let index = Index::open_with(files.path(), Access::Read).unwrap();
    let stream = index.split(DomainId(0), Split::Train);
    let last = stream.tokens() - 5;
    stream.read(last, TokensMut::U16(&mut [0; 5])).unwrap();
    let cut = |extension: &str| {
        let path = files.train_file("web", 1, extension);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(40).unwrap();
    };
    cut("tokens");
    let error = stream.read(last, TokensMut::U16(&mut [0; 5])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("00001.tokens holds 40 bytes, the manifest says 48"),
        "{text}"
    );
    stream.spans(last, 5, &mut vec![]).unwrap();
    cut("documents.arrow");
    let text = stream.spans(last, 5, &mut vec![]).unwrap_err().to_string();
    assert!(
        text.contains("00001.documents.arrow holds 40 bytes"),
        "{text}"
    );
}

#[test]
fn looking_again_finds_a_file_cut_short_under_a_map() {
    let files = index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let mut loader = Loader::new(index.clone(), live, LoaderConfig::new(4, 8, 0)).unwrap();
    loader.next_batch().unwrap();
    index.look_again().unwrap();
    let path = files.train_file("web", 0, "tokens");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    let text = index.look_again().unwrap_err().to_string();
    assert!(text.contains("00000.tokens holds 0 bytes"), "{text}");
    // Without it this read would end the process.
    let stream = index.split(DomainId(0), Split::Train);
    let error = stream.read(0, TokensMut::U16(&mut [0; 4])).unwrap_err();
    assert!(error.to_string().contains("holds 0 bytes"), "{error}");
}
