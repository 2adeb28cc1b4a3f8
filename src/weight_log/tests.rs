//! Tests of the weight log.

use super::*;
use std::fs;

fn header() -> Header {
    Header::new(DomainSet::new(["a", "b"]).unwrap(), "f00d".into(), 7)
}

fn weights(version: u64, first: f64) -> VersionedMixture {
    let mixture = Mixture::new(vec![first, 1.0 - first], &header().domains).unwrap();
    VersionedMixture { version, mixture }
}

fn entries(path: &Path) -> Vec<Entry> {
    let mut reader = WeightLogReader::open(path).unwrap();
    std::iter::from_fn(|| reader.next_entry().unwrap()).collect()
}

#[test]
fn entries_come_back_bit_for_bit_and_repeats_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.jsonl");
    let mut writer = WeightLogWriter::create(&path, &header()).unwrap();
    let third = weights(2, 1.0 / 3.0);
    writer.record(0, &weights(1, 0.5)).unwrap();
    writer.record(1, &weights(1, 0.5)).unwrap();
    writer.record(2, &third).unwrap();
    writer.sync().unwrap();
    let all = entries(&path);
    assert_eq!(all.len(), 2);
    assert_eq!(
        all[1],
        Entry {
            step: 2,
            weights: third
        }
    );
}

#[test]
fn a_resumed_log_equals_an_uninterrupted_one() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let mut writer = WeightLogWriter::create(&whole, &header()).unwrap();
    for step in 0..10 {
        writer
            .record(step, &weights(step + 1, step as f64 / 10.0))
            .unwrap();
    }
    writer.sync().unwrap();
    let bytes = fs::read(&whole).unwrap();
    for length in bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .map(|(i, _)| i + 1)
    {
        // Cut in the middle of the following line, as a kill would.
        fs::write(&cut, &bytes[..(length + 5).min(bytes.len())]).unwrap();
        let next = entries(&cut).len() as u64;
        let mut writer = WeightLogWriter::resume(&cut, &header(), next).unwrap();
        // The next step is governed by the last version noted, or by the one after it.
        assert!(writer.expect_version(next, next).is_ok());
        assert!(writer.expect_version(next, next + 1).is_ok());
        let lost = writer.expect_version(next, next + 2).unwrap_err();
        assert!(lost.to_string().contains("lost entries"), "{lost}");
        for step in next..10 {
            writer
                .record(step, &weights(step + 1, step as f64 / 10.0))
                .unwrap();
        }
        writer.sync().unwrap();
        assert_eq!(fs::read(&cut).unwrap(), bytes);
    }
}

/// A log of six entries, and its lines.
fn six_entries(path: &Path) -> Vec<String> {
    let mut writer = WeightLogWriter::create(path, &header()).unwrap();
    for step in 0..6 {
        writer.record(step, &weights(2 * step + 1, 0.5)).unwrap();
    }
    writer.sync().unwrap();
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn entries_lost_anywhere_are_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let lines = six_entries(&path);
    for lost in 1..6 {
        let mut kept = lines.clone();
        kept.remove(lost);
        fs::write(&path, kept.concat()).unwrap();
        let error = WeightLogWriter::resume(&path, &header(), 6).unwrap_err();
        let want = format!("line {}: comes after version", lost + 1);
        assert!(error.to_string().contains(&want), "{error}");
        let mut reader = WeightLogReader::open(&path).unwrap();
        let error = std::iter::repeat_with(|| reader.next_entry()).find_map(Result::err);
        assert!(error.unwrap().to_string().contains("lines are missing"));
    }
    // At the end only who knows where the run was can tell.
    fs::write(&path, lines[..6].concat()).unwrap();
    let writer = WeightLogWriter::resume(&path, &header(), 6).unwrap();
    writer
        .expect_last(6, 9, Some(&weights(9, 0.5).digest()))
        .unwrap();
    let error = writer.expect_last(6, 11, None).unwrap_err().to_string();
    assert!(
        error.contains("after version 9 is missing, the run was at 11"),
        "{error}"
    );
}

#[test]
fn the_log_of_another_run_is_told_by_its_last_weights() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    six_entries(&path);
    let writer = WeightLogWriter::resume(&path, &header(), 6).unwrap();
    let error = writer.expect_last(6, 11, Some(&weights(11, 0.25).digest()));
    let error = error.unwrap_err();
    assert!(matches!(error, WeightLogError::OtherRun { .. }), "{error}");
}

#[test]
fn any_changed_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let lines = six_entries(&path);
    let whole = lines.concat();
    let want = entries(&path);
    let read = |text: &str| -> Result<Vec<Entry>, WeightLogError> {
        fs::write(&path, text).unwrap();
        let mut reader = WeightLogReader::open(&path)?;
        reader.expect(&header())?;
        let mut all = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            all.push(entry);
        }
        reader.expect_known(100)?;
        Ok(all)
    };
    assert_eq!(read(&whole).unwrap(), want);
    for at in 0..whole.len() {
        for digit in ["0", "7"] {
            let mut changed = whole.clone();
            changed.replace_range(at..=at, digit);
            // The same number in other words, such as 0.50, is the same entry.
            if changed != whole
                && let Ok(found) = read(&changed)
            {
                assert_eq!(found, want, "byte {at} as {digit}");
            }
        }
    }
    // What else the header says, taken out of it.
    let mut other = header();
    other.stream.insert("batch size".into(), "8".into());
    let mut writer = WeightLogWriter::create(&path, &other).unwrap();
    writer.record(0, &weights(1, 0.5)).unwrap();
    writer.sync().unwrap();
    drop(writer);
    let text = fs::read_to_string(&path).unwrap();
    let error = read(&text.replace(",\"stream\":{\"batch size\":\"8\"}", "")).unwrap_err();
    assert!(
        error.to_string().contains("line 2: its sum does not fit"),
        "{error}"
    );
}

#[test]
fn a_log_made_by_hand_needs_no_sums() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let lines = six_entries(&path);
    let bare: Vec<String> = lines
        .iter()
        .map(|line| match line.find(",\"sum\"") {
            Some(at) => line[..at].to_owned() + "}\n",
            None => line.clone(),
        })
        .collect();
    fs::write(&path, bare.concat()).unwrap();
    assert_eq!(entries(&path).len(), 6);
    // Some with, some without are damage.
    let mixed = [&lines[..4], &bare[4..]].concat();
    fs::write(&path, mixed.concat()).unwrap();
    let mut reader = WeightLogReader::open(&path).unwrap();
    let error = std::iter::repeat_with(|| reader.next_entry()).find_map(Result::err);
    assert!(error.unwrap().to_string().contains("its sum does not fit"));
}

#[test]
fn a_log_cut_by_another_while_it_is_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut writer = WeightLogWriter::create(&path, &header()).unwrap();
    writer.record(0, &weights(1, 0.5)).unwrap();
    writer.flush().unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(30)
        .unwrap();
    let error = writer.record(1, &weights(2, 0.5)).unwrap_err();
    assert!(matches!(error, WeightLogError::Moved { .. }), "{error}");
}

#[test]
fn a_log_moved_away_while_it_is_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    for replaced in [false, true] {
        let mut writer = WeightLogWriter::create(&path, &header()).unwrap();
        writer.record(0, &weights(1, 0.5)).unwrap();
        writer.flush().unwrap();
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        if replaced {
            fs::write(&path, "").unwrap();
        }
        // Nothing new, nothing to lose.
        writer.record(1, &weights(1, 0.5)).unwrap();
        let error = writer.record(2, &weights(2, 0.5)).unwrap_err();
        assert!(matches!(error, WeightLogError::Moved { .. }), "{error}");
        fs::rename(dir.path().join("elsewhere"), &path).unwrap();
        writer.record(2, &weights(2, 0.5)).unwrap();
    }
}

#[test]
fn a_log_of_batches_drawn_otherwise_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let of = |size: &str| {
        let mut header = header();
        header.stream.insert("batch size".into(), size.into());
        header
    };
    WeightLogWriter::create(&path, &of("8"))
        .unwrap()
        .flush()
        .unwrap();
    let reader = WeightLogReader::open(&path).unwrap();
    reader.expect(&of("8")).unwrap();
    // Who does not say what it is of, asks for nothing.
    reader.expect(&header()).unwrap();
    let error = reader.expect(&of("16")).unwrap_err().to_string();
    assert!(
        error.contains("with batch size 8, here it is 16"),
        "{error}"
    );
    assert!(WeightLogWriter::resume(&path, &of("16"), 0).is_err());
}

#[test]
fn damaged_and_foreign_logs_are_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.jsonl");
    let head = serde_json::to_string(&header()).unwrap();
    for (body, expected) in [
        ("", "line 1: no header"),
        ("{\"format\":\"other\"}\n", "line 1: no header with"),
        (
            &head.replace("\"version\":1", "\"version\":2"),
            "format version",
        ),
        (
            &head.replace("\"seed\"", "\"sead\""),
            "line 1: unknown field",
        ),
    ] {
        fs::write(&path, body).unwrap();
        let text = WeightLogReader::open(&path).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    for (line, expected) in [
        (
            "{\"step\":0,\"version\":1,\"after\":0,\"weights\":[0.5]}",
            "1 weights for 2 domains",
        ),
        (
            "{\"step\":0,\"version\":1,\"after\":0,\"weights\":[-1,2]}",
            "domain \"a\" is -1",
        ),
        ("{\"step\":0}", "line 2: missing field"),
        ("not json", "line 2"),
    ] {
        fs::write(&path, format!("{head}\n{line}\n")).unwrap();
        let text = WeightLogReader::open(&path)
            .unwrap()
            .next_entry()
            .unwrap_err()
            .to_string();
        assert!(text.contains(expected), "{text}");
    }
    let mut other = header();
    other.seed = 8;
    let text = WeightLogReader::open(&path)
        .unwrap()
        .expect(&other)
        .unwrap_err()
        .to_string();
    assert!(text.contains("another seed"), "{text}");
}

#[test]
fn a_log_has_one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.jsonl");
    let mut first = WeightLogWriter::create(&path, &header()).unwrap();
    first.record(0, &weights(1, 0.5)).unwrap();
    first.flush().unwrap();
    let before = fs::read(&path).unwrap();
    for refused in [
        WeightLogWriter::create(&path, &header()),
        WeightLogWriter::resume(&path, &header(), 0),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, WeightLogError::InUse { .. }), "{error}");
    }
    let reader = WeightLogReader::open(&path).unwrap();
    let error = reader.expect_unused().unwrap_err();
    assert!(matches!(error, WeightLogError::InUse { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(first);
    reader.expect_unused().unwrap();
    drop(reader);
    WeightLogWriter::resume(&path, &header(), 1).unwrap();
}
