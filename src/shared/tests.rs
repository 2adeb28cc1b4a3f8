//! Shared weights under threads and processes that read and publish at once, and files that are not right.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;

use super::*;

const K: usize = 37;
const READERS: usize = 3;
/// Tells the test program that it was started to read, and from where.
const CHILD: &str = "HDS_SHARED_WEIGHTS_TEST_CHILD";

fn domains() -> DomainSet {
    DomainSet::new((0..K).map(|i| format!("d{i}"))).unwrap()
}

/// Weights that only this version has; every one of them changes from version to version.
fn mixture(version: u64) -> Mixture {
    let raw = (0..K as u64).map(|i| 1.0 + (version.wrapping_mul(i + 3) % 1009) as f64);
    Mixture::normalized(raw.collect(), &domains()).unwrap()
}

fn versioned(version: u64) -> VersionedMixture {
    VersionedMixture {
        version,
        mixture: mixture(version),
    }
}

fn writer(path: &Path, step: u64) -> SharedWeightsWriter {
    SharedWeightsWriter::create(path, &domains(), &versioned(1), step).unwrap()
}

/// Settles batches 0..steps and gives the version of each, checking that every mixture is whole.
fn read_all(shared: &SharedWeights, steps: u64, mut done: impl FnMut(u64)) -> Vec<u64> {
    let mut versions = vec![];
    while (versions.len() as u64) < steps {
        let step = versions.len() as u64;
        match shared.settle(step, Duration::from_millis(20)) {
            Ok(now) => {
                assert_eq!(now.mixture, mixture(now.version), "a torn mixture");
                versions.push(now.version);
                done(step);
            }
            Err(SharedWeightsError::Horizon { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    versions
}

fn check_streams(streams: &[Vec<u64>], last_version: u64) {
    assert!(streams.iter().all(|s| *s == streams[0]), "readers disagree");
    assert!(streams[0].is_sorted());
    let changes = streams[0].windows(2).filter(|w| w[0] != w[1]).count();
    assert!(changes > 10, "the weights changed {changes} times");
    assert!(*streams[0].last().unwrap() <= last_version);
}

#[test]
fn threads_agree_on_every_batch_and_see_whole_mixtures() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    writer.set_horizon(64);
    let steps = 20_000;
    let progress: Vec<AtomicU64> = (0..READERS).map(|_| AtomicU64::new(0)).collect();
    let streams = std::thread::scope(|scope| {
        let readers: Vec<_> = progress
            .iter()
            .map(|mine| {
                let shared = SharedWeights::open(&path, &domains()).unwrap();
                scope.spawn(move || read_all(&shared, steps, |step| mine.store(step + 1, Relaxed)))
            })
            .collect();
        let slowest = || progress.iter().map(|p| p.load(Relaxed)).min().unwrap();
        while slowest() < steps {
            // No reader gets further ahead than the entries that are kept.
            writer.set_horizon(slowest() + 1000);
            for _ in 0..50 {
                let next = writer.version() + 1;
                assert_eq!(writer.publish(&mixture(next)).unwrap(), next);
            }
        }
        readers
            .into_iter()
            .map(|r| r.join().unwrap())
            .collect::<Vec<_>>()
    });
    check_streams(&streams, writer.version());
    assert_eq!(writer.reader().frontier(), steps);
}

#[test]
fn processes_agree_on_every_batch_and_see_whole_mixtures() {
    let steps = 1500; // below SLOTS: a child may start late
    if let Some(path) = std::env::var_os(CHILD) {
        let shared = SharedWeights::open(Path::new(&path), &domains()).unwrap();
        let versions = read_all(&shared, steps, |_| std::thread::yield_now());
        let text: Vec<String> = versions.iter().map(u64::to_string).collect();
        #[allow(clippy::print_stdout)] // the parent process reads it
        {
            println!("versions {} end", text.join(" "));
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    writer.set_horizon(0);
    let name = "shared::tests::processes_agree_on_every_batch_and_see_whole_mixtures";
    let mut children: Vec<_> = (0..READERS)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut horizon = 0;
    while writer.reader().frontier() < steps {
        horizon = steps.min(horizon + 3);
        writer.set_horizon(horizon);
        for _ in 0..20 {
            writer.publish(&mixture(writer.version() + 1)).unwrap();
        }
    }
    let streams: Vec<Vec<u64>> = children
        .iter_mut()
        .map(|child| {
            let mut text = String::new();
            let mut out = child.stdout.take().unwrap();
            out.read_to_string(&mut text).unwrap();
            assert!(child.wait().unwrap().success(), "{text}");
            let list = text.split_once("versions ").unwrap().1;
            let list = list.split_once(" end").unwrap().0;
            list.split(' ').map(|v| v.parse().unwrap()).collect()
        })
        .collect();
    assert_eq!(streams[0].len() as u64, steps);
    check_streams(&streams, writer.version());
}

#[test]
fn what_is_published_after_a_batch_governs_the_next_and_settled_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 5);
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    let settle = |step| shared.settle(step, Duration::ZERO).unwrap().version;
    assert_eq!(settle(5), 1);
    assert_eq!(writer.publish(&mixture(2)).unwrap(), 2);
    assert_eq!(shared.look(6).unwrap().version, 2);
    assert_eq!(writer.publish(&mixture(3)).unwrap(), 3);
    assert_eq!(settle(6), 3);
    // A reader that skips ahead settles what lies between.
    assert_eq!(settle(9), 3);
    writer.publish(&mixture(4)).unwrap();
    let late = SharedWeights::open(&path, &domains()).unwrap();
    for (step, version) in [(5, 1), (6, 3), (8, 3), (9, 3), (10, 4)] {
        let now = late.settle(step, Duration::ZERO).unwrap();
        assert_eq!((now.version, &now.mixture), (version, &mixture(version)));
    }
    assert_eq!(settle(10), 4);
}

#[test]
fn any_number_of_changes_between_two_batches_takes_one_slot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    shared.settle(0, Duration::ZERO).unwrap();
    for version in 2..2 * SLOTS {
        writer.publish(&mixture(version)).unwrap();
    }
    assert_eq!(shared.look(0).unwrap().version, 1);
    // But a reader that is more settled changes behind than are kept is told so.
    for step in 1..=SLOTS {
        shared.settle(step, Duration::ZERO).unwrap();
        writer.publish(&mixture(step)).unwrap();
    }
    let error = shared.settle(0, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("batch 0 any more"), "{error}");
    assert!(shared.settle(SLOTS, Duration::ZERO).is_ok());
}

#[test]
fn a_batch_beyond_the_horizon_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    writer.set_horizon(1);
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    shared.settle(0, Duration::ZERO).unwrap();
    let error = shared.settle(1, Duration::from_millis(5)).unwrap_err();
    assert!(error.to_string().contains("below 1"), "{error}");
    writer.stop_readers();
    assert_eq!(shared.stops(), 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shared.settle(1, Duration::from_secs(60)).unwrap().version);
        writer.publish(&mixture(2)).unwrap();
        writer.set_horizon(2);
        assert_eq!(waiting.join().unwrap(), 2);
    });
}

#[test]
fn one_writer_a_file_and_a_dead_one_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let first = writer(&path, 0);
    let error = SharedWeightsWriter::create(&path, &domains(), &versioned(1), 0).unwrap_err();
    assert!(error.to_string().contains("another writer"), "{error}");
    let old = SharedWeights::open(&path, &domains()).unwrap();
    drop(first);
    let second = writer(&path, 7);
    second.publish(&mixture(2)).unwrap();
    // Who still has the old file goes on with what it said.
    assert_eq!(old.look(7).unwrap().version, 1);
    let new = SharedWeights::open(&path, &domains()).unwrap();
    assert_eq!(new.look(7).unwrap().version, 2);
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "no partial file is left");
}

#[test]
fn a_reader_tells_a_file_made_anew_and_its_lock_is_the_writers_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let first = writer(&path, 0);
    let (own, old) = (
        first.reader(),
        SharedWeights::open(&path, &domains()).unwrap(),
    );
    drop(first);
    old.settle(0, Duration::ZERO).unwrap();
    // Removed is not replaced: a run may end its readers after its writer.
    std::fs::rename(&path, dir.path().join("kept")).unwrap();
    old.settle(1, Duration::ZERO).unwrap();
    std::fs::rename(dir.path().join("kept"), &path).unwrap();
    let second = writer(&path, 2);
    second.publish(&mixture(2)).unwrap();
    for reader in [&own, &old] {
        let error = reader.settle(2, Duration::ZERO).unwrap_err();
        assert!(
            matches!(error, SharedWeightsError::Replaced { .. }),
            "{error}"
        );
        // What it knows stays known, for the state to go on from.
        assert_eq!(reader.look(2).unwrap().version, 1);
    }
    let new = SharedWeights::open(&path, &domains()).unwrap();
    assert_eq!(new.settle(2, Duration::ZERO).unwrap().version, 2);
    let error = new.look(1).unwrap_err().to_string();
    assert!(error.contains("they begin with batch 2"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_writer_follows_links_and_replaces_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("weights"), dir.path().join("link"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let create = || SharedWeightsWriter::create(&link, &domains(), &versioned(1), 0);
    let error = create().unwrap_err().to_string();
    assert!(error.contains("cannot follow the link"), "{error}");
    drop(writer(&path, 3));
    let writer = create().unwrap();
    writer.publish(&mixture(2)).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    assert_eq!(shared.settle(0, Duration::ZERO).unwrap().version, 2);
}

#[test]
fn a_file_cut_short_under_reader_and_writer_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    shared.settle(0, Duration::ZERO).unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(64)
        .unwrap();
    for error in [
        shared.settle(1, Duration::ZERO).unwrap_err(),
        shared.look(0).unwrap_err(),
        writer.publish(&mixture(2)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("was cut short"), "{error}");
    }
    writer.set_horizon(4);
    writer.stop_readers();
    assert_eq!((shared.frontier(), shared.stops()), (0, 0));
}

#[test]
fn damage_to_any_word_ends_in_an_error_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        FORMAT,
        DOMAINS,
        DIGEST,
        SLOT_COUNT,
        PROCESS,
        GATE,
        COUNT,
        HORIZON,
        STOPS,
        HEADER - 1,
        HEADER + NUMBER,
        HEADER + STEP,
        HEADER + VERSION,
        HEADER + SUM,
        HEADER + WEIGHTS,
        HEADER + WEIGHTS + K - 1,
    ];
    let try_one = &|word: usize, mask: u64| {
        let path = dir.path().join(format!("{word}-{mask}"));
        let writer = writer(&path, 0);
        let shared = SharedWeights::open(&path, &domains()).unwrap();
        shared.settle(0, Duration::ZERO).unwrap();
        writer.publish(&mixture(2)).unwrap();
        let place = shared.board.words.at(word);
        place.store(place.load(Relaxed) ^ mask, Relaxed);
        for step in 0..3 {
            let fresh = SharedWeights::open(&path, &domains());
            let found = fresh.and_then(|fresh| fresh.settle(step, Duration::ZERO));
            if let Ok(now) = found {
                assert_eq!(now.mixture, mixture(now.version), "word {word}, {mask:x}");
                assert_eq!(
                    now.version,
                    1 + u64::from(step > 0),
                    "word {word}, {mask:x}"
                );
            }
        }
        let _ = writer.publish(&mixture(3));
    };
    std::thread::scope(|scope| {
        for word in words {
            for mask in [0xff << 56, u64::MAX] {
                scope.spawn(move || try_one(word, mask));
            }
        }
    });
}

#[test]
fn files_that_are_not_right_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let others = DomainSet::new((0..K).map(|i| format!("e{i}"))).unwrap();
    let fewer = DomainSet::new(["a"]).unwrap();
    let reason = |domains: &DomainSet| {
        let error = SharedWeights::open(&path, domains).unwrap_err();
        error.to_string()
    };
    assert!(reason(&domains()).contains("cannot open"));
    for (content, want) in [
        (vec![], "has 0 bytes"),
        (vec![7; 127], "has 127 bytes"),
        (vec![7; 640], "HDSLIVE2"),
    ] {
        std::fs::write(&path, content).unwrap();
        assert!(reason(&domains()).contains(want), "{}", reason(&domains()));
    }
    // A writer does not write over what is not its own.
    let error = SharedWeightsWriter::create(&path, &domains(), &versioned(1), 0).unwrap_err();
    assert!(error.to_string().contains("no file of weights"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), [7; 640]);
    std::fs::remove_file(&path).unwrap();
    let writer = writer(&path, 0);
    assert!(reason(&fewer).contains("37 domains, not 1"));
    assert!(reason(&others).contains("other names"));
    let wrong = Mixture::uniform(&fewer);
    let error = writer.publish(&wrong).unwrap_err().to_string();
    assert!(error.contains("1 weights for 37 domains"), "{error}");
    let error = SharedWeightsWriter::create(
        &dir.path().join("x"),
        &domains(),
        &VersionedMixture {
            version: 1,
            mixture: wrong,
        },
        0,
    );
    assert!(error.is_err());
    // Bytes that are no mixture, by a writer that means them.
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    let mut numbers = mixture(1).weights().to_vec();
    numbers[3] = f64::NAN;
    let words = &shared.board.words;
    words
        .at(HEADER + WEIGHTS + 3)
        .store(f64::NAN.to_bits(), Relaxed);
    words
        .at(HEADER + SUM)
        .store(sum_of(0, 1, &numbers), Relaxed);
    let error = shared.look(0).unwrap_err().to_string();
    assert!(error.contains("\"d3\" is NaN"), "{error}");
    // Cut short.
    drop(writer);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    assert!(
        reason(&domains()).contains("slots"),
        "{}",
        reason(&domains())
    );
}

#[test]
fn a_writer_that_ended_is_gone_though_nobody_asked_how() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let writer = writer(&path, 0);
    writer.set_horizon(0);
    let shared = SharedWeights::open(&path, &domains()).unwrap();
    let alive = shared.settle(0, Duration::ZERO).unwrap_err();
    assert!(
        matches!(alive, SharedWeightsError::Horizon { .. }),
        "{alive}"
    );
    // Not waited for: it stays in the list of processes.
    let mut child = Command::new("true").spawn().unwrap();
    let process = shared.board.words.at(PROCESS);
    process.store(u64::from(child.id()), Relaxed);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_ended(u64::from(child.id())) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let gone = shared.settle(0, Duration::ZERO).unwrap_err();
    assert!(
        matches!(gone, SharedWeightsError::WriterGone { .. }),
        "{gone}"
    );
    child.wait().unwrap();
    assert!(has_ended(u64::from(child.id())));
    assert!(!has_ended(u64::from(std::process::id())));
}

#[test]
fn a_gate_that_damage_left_closed_does_not_hold_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer(&dir.path().join("weights"), 0);
    let shared = writer.reader();
    shared.settle(4, Duration::ZERO).unwrap();
    let gate = shared.board.words.at(GATE);
    gate.store(gate.load(Relaxed) | 1, Relaxed);
    assert_eq!(writer.publish(&mixture(2)).unwrap(), 2);
    assert_eq!(shared.settle(5, Duration::ZERO).unwrap().version, 2);
}
