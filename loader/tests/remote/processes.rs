//! Several processes at one cache, and processes that die at it.

use std::time::{Duration, Instant};

use crate::reader::{Task, outcome, pieces, small_index};
use crate::servers::Nginx;

#[test]
fn processes_share_a_cache_and_fetch_every_piece_once() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let readers: Vec<_> = (0..3).map(|_| task.spawn(&[])).collect();
    for reader in readers {
        assert!(outcome(reader).unwrap() == want);
    }
    let mut ranges = server.pieces();
    let all = ranges.len();
    ranges.sort();
    ranges.dedup();
    assert_eq!(ranges.len(), all, "a piece was fetched twice");
    // The same with room for little: they remove each other's pieces.
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        cache_limit: 40 * 4136,
        ..Task::new(server.url(""), cache.path())
    };
    let readers: Vec<_> = (0..3).map(|_| task.spawn(&[])).collect();
    for reader in readers {
        assert!(outcome(reader).unwrap() == want);
    }
    let left: u64 = pieces(cache.path()).iter().map(|(_, bytes)| bytes).sum();
    assert!(left <= 40 * 4136, "{left}");
}

#[test]
fn a_reader_killed_while_it_fetches_blocks_nobody_and_what_it_had_is_kept() {
    let files = small_index();
    // Slow enough that a kill comes in the middle of pieces.
    let Some(mut server) = Nginx::start(files.path(), "limit_rate 150k;") else {
        return;
    };
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        piece: 32_768,
        ..Task::new(server.url(""), cache.path())
    };
    let mut kept = 0;
    for _ in 0..3 {
        let mut reader = task.spawn(&[]);
        let start = Instant::now();
        while pieces(cache.path()).len() < kept + 3 {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "nothing is fetched"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        reader.kill().unwrap(); // SIGKILL
        reader.wait().unwrap();
        kept = pieces(cache.path()).len();
    }
    let partial = |path: &std::path::Path| {
        let folders = std::fs::read_dir(path.join("files")).unwrap();
        let files = folders.flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap());
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".partial")).count()
    };
    assert!(
        partial(cache.path()) > 0,
        "no reader died in the middle of a piece"
    );
    server.stop();
    server.configure(files.path(), "");
    server.go();
    let before = server.pieces().len();
    let start = Instant::now();
    assert!(task.run().unwrap() == want);
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    std::thread::sleep(Duration::from_millis(300)); // for what was asked for ahead
    let fetched = server.pieces().len() - before;
    assert_eq!(fetched, pieces(cache.path()).len() - kept);
}
