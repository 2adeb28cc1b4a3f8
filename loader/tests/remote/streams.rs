//! The stream over HTTP is the stream of the folder.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use hds_loader::{EvaluationSequences, Fetch, Packing, Split, TokensMut};

use crate::reader::{Task, index_with_vocabulary, pieces, small_index};
use crate::servers::Nginx;

#[test]
fn every_batch_over_http_is_the_one_of_the_folder() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let unused = files.path().join("unused");
    for packing in [Packing::Windows, Packing::Documents] {
        let local = Task {
            packing,
            ..Task::new(files.path().to_str().unwrap(), &unused)
        };
        let want = local.run().unwrap();
        for (fetch, piece, read_ahead) in [
            (Fetch::Pieces, 4096, 2),
            (Fetch::Pieces, 65_536, 0),
            (Fetch::Files, 16_384, 2),
            (Fetch::Files, 1 << 20, 0),
        ] {
            let cache = tempfile::tempdir().unwrap();
            let task = Task {
                fetch,
                piece,
                read_ahead,
                packing,
                ..Task::new(server.url(""), cache.path())
            };
            assert!(task.run().unwrap() == want, "{fetch:?}, pieces of {piece}");
            assert!(!pieces(cache.path()).is_empty());
        }
    }
    assert!(!unused.exists());
}

#[test]
fn the_second_run_asks_the_server_for_the_manifest_alone() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let first = task.run().unwrap();
    let before = server.answered().len();
    assert!(task.run().unwrap() == first);
    let more = server.answered().split_off(before);
    // Reading ahead may have been ended with the first run.
    let asked = more.iter().filter(|a| a.uri == "/manifest.json").count();
    assert_eq!(asked, 1);
    let mut ranges = server.pieces();
    let all = ranges.len();
    ranges.sort();
    ranges.dedup();
    assert_eq!(ranges.len(), all, "a piece was fetched twice");
}

#[test]
fn ids_of_four_bytes_held_out_text_and_files_through_the_client_are_the_same() {
    let files = index_with_vocabulary(70_000);
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let local = Task::new(files.path().to_str().unwrap(), files.path());
    let want = local.run().unwrap();
    let local = local.open().unwrap();
    for place in [server.url(""), format!("file://{}", files.path().display())] {
        let cache = tempfile::tempdir().unwrap();
        let task = Task::new(&place, cache.path());
        assert!(task.run().unwrap() == want, "{place}");
        let remote = task.open().unwrap();
        assert_eq!(remote.fingerprint(), local.fingerprint());
        assert_eq!(remote.path().to_str().unwrap(), place.trim_end_matches('/'));
        for domain in local.domains().ids() {
            let held_out = |index| {
                let sequences = EvaluationSequences::new(index, domain, Split::Valid, 20, 30);
                let sequences = sequences.unwrap().map(Result::unwrap);
                sequences.collect::<Vec<_>>()
            };
            assert_eq!(held_out(&remote), held_out(&local));
            let (far, near) = (
                remote.split(domain, Split::Train),
                local.split(domain, Split::Train),
            );
            let mut ids = [vec![0i64; near.tokens() as usize], vec![]];
            ids[1] = ids[0].clone();
            far.read(0, TokensMut::I64(&mut ids[0])).unwrap();
            near.read(0, TokensMut::I64(&mut ids[1])).unwrap();
            assert!(ids[0] == ids[1]);
        }
    }
}

/// The pieces of a cache: name, bytes and when last used, so that one removed and fetched again is another.
fn listing(cache: &Path) -> HashSet<(PathBuf, u64, Option<SystemTime>)> {
    let used = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let pieces = pieces(cache).into_iter();
    pieces
        .map(|(path, bytes)| (path.clone(), bytes, used(&path)))
        .collect()
}

#[test]
fn a_cache_with_room_for_little_gives_the_same_stream_and_keeps_its_limit() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let local = Task::new(files.path().to_str().unwrap(), files.path());
    let want = local.run().unwrap();
    let limit = 24 * (4096 + 40);
    for fetch in [Fetch::Pieces, Fetch::Files] {
        let cache = tempfile::tempdir().unwrap();
        let task = Task {
            cache_limit: limit,
            fetch,
            ..Task::new(server.url(""), cache.path())
        };
        let done = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !done.load(Ordering::Relaxed) {
                    // What is in both of two listings was there at one time, between them.
                    let (first, second) = (listing(cache.path()), listing(cache.path()));
                    most = most.max(first.intersection(&second).map(|piece| piece.1).sum());
                }
                most
            });
            let got = task.run();
            done.store(true, Ordering::Relaxed);
            assert!(got.unwrap() == want, "{fetch:?}");
            watch.join().unwrap()
        });
        assert!(most <= limit, "{most} of {limit}");
        assert!(most > limit / 2, "{most} of {limit}");
        let left: u64 = pieces(cache.path()).iter().map(|(_, bytes)| bytes).sum();
        assert!(left <= limit, "{left} of {limit}");
    }
}

#[test]
fn a_limit_below_what_a_batch_needs_is_refused_with_the_number() {
    let files = small_index();
    let place = format!("file://{}", files.path().display());
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        cache_limit: 10 * 4096,
        ..Task::new(place, cache.path())
    };
    let text = task.run().unwrap_err().to_string();
    assert!(text.contains("cache_limit: is 40KiB"), "{text}");
    assert!(text.contains("6 sequences may touch 74448 bytes"), "{text}");
    let task = Task {
        cache_limit: 74_448,
        batches: 5,
        ..task
    };
    task.run().unwrap();
}

#[test]
fn what_was_damaged_in_the_cache_is_fetched_again() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let want = task.run().unwrap();
    let kept = pieces(cache.path());
    for (number, (path, _)) in kept.iter().enumerate() {
        let mut content = fs::read(path).unwrap();
        let middle = content.len() / 2;
        match number % 4 {
            0 => content[middle] ^= 1,
            1 => content.truncate(middle),
            2 => content[20] ^= 1,
            _ => content.clear(),
        }
        fs::write(path, content).unwrap();
    }
    let before = server.pieces().len();
    assert!(task.run().unwrap() == want);
    assert!(server.pieces().len() >= before + kept.len() / 2);

    // Cut short while a reader has seen it already, and open or not.
    let (mut loader, live) = task.loader().unwrap();
    for (step, want) in want.iter().enumerate() {
        if step % 20 == 10 {
            for (path, _) in pieces(cache.path()) {
                // The reader may have found the damage already, and removed the piece.
                if let Ok(file) = fs::File::options().write(true).open(path) {
                    file.set_len(50).unwrap();
                }
            }
        }
        let got = crate::reader::next(&mut loader, &live).unwrap();
        assert!(got == *want, "batch {step}");
    }
    // The whole folder vanishes.
    let (mut loader, live) = task.loader().unwrap();
    for (step, want) in want.iter().enumerate() {
        if step == 100 {
            let elsewhere = cache.path().join("elsewhere");
            fs::rename(cache.path().join("files"), elsewhere).unwrap();
            fs::remove_file(cache.path().join("usage")).unwrap();
        }
        let got = crate::reader::next(&mut loader, &live).unwrap();
        assert!(got == *want, "batch {step}");
    }
}
