//! Caches that were damaged, or hold what is none of theirs: one run mends them, or says what is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use blake3::hazmat::HasherExt;
use hds::index::Checksum;
use hds_loader::{CacheTroubles, Fetch};

use crate::changes::read_all;
use crate::reader::{Task, next, outcome, outcome_and_notes, pieces, small_index};
use crate::servers::Nginx;

/// The files of that name, one for each file of the index.
fn named(cache: &Path, name: &str) -> Vec<PathBuf> {
    let folders = fs::read_dir(cache.join("files")).unwrap();
    let files = folders.map(|folder| folder.unwrap().path().join(name));
    files.filter(|file| file.exists()).collect()
}

/// Flips a bit of each piece's checksum that is known.
fn flip_checksums(path: &Path) {
    let mut content = fs::read(path).unwrap_or_default();
    for value in content
        .chunks_exact_mut(32)
        .filter(|value| value.iter().any(|b| *b != 0))
    {
        value[7] ^= 16;
    }
    fs::write(path, content).unwrap();
}

fn flip_content(path: &Path) {
    let mut content = fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).unwrap();
}

/// Damages everything in a cache.
fn damage(cache: &Path, how: usize) {
    for (number, (path, _)) in pieces(cache).into_iter().enumerate() {
        if (number + how).is_multiple_of(2) {
            flip_content(&path);
        }
    }
    damage_checksums(cache, how);
}

fn damage_checksums(cache: &Path, how: usize) {
    for name in ["values", "proven"] {
        for (number, path) in named(cache, name).into_iter().enumerate() {
            match (number + how) % 3 {
                0 => flip_checksums(&path),
                1 => {
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    let bytes = file.metadata().unwrap().len();
                    file.set_len(bytes.saturating_sub(5)).unwrap();
                }
                _ => fs::write(path, "damaged").unwrap(),
            }
        }
    }
}

#[test]
fn one_run_mends_a_cache_in_which_everything_is_damaged() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    for (fetch, batches) in [
        (Fetch::Pieces, 20),
        (Fetch::Pieces, 300),
        (Fetch::Files, 20),
    ] {
        for how in 0..3 {
            let cache = tempfile::tempdir().unwrap();
            let task = Task {
                fetch,
                batches,
                // What is fetched ahead differs, and so would what is found.
                read_ahead: 0,
                ..Task::new(server.url(""), cache.path())
            };
            let want = task.run().unwrap();
            assert!(named(cache.path(), "values").len() > 4);
            damage(cache.path(), how);
            let (got, notes) = outcome_and_notes(task.spawn(&[]));
            assert!(got.unwrap() == want, "{fetch:?} {batches} {how}");
            let said = "is not what was written there, and is fetched again";
            assert_eq!(notes.matches(said).count(), 1, "{notes}");
            // Nothing is left of it.
            let (mut loader, live) = task.loader().unwrap();
            for want in &want {
                assert!(next(&mut loader, &live).unwrap() == *want);
            }
            assert_eq!(loader.index().cache_troubles(), CacheTroubles::default());
        }
    }
}

#[test]
fn processes_that_find_a_damaged_cache_together_mend_it_together() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    for how in 0..3 {
        let cache = tempfile::tempdir().unwrap();
        let task = Task::new(server.url(""), cache.path());
        let want = task.run().unwrap();
        damage(cache.path(), how);
        let readers: Vec<_> = (0..4).map(|_| task.spawn(&[])).collect();
        for reader in readers {
            assert!(outcome(reader).unwrap() == want);
        }
    }
}

#[test]
fn checksums_damaged_while_they_are_used_are_mended_and_counted() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        read_ahead: 0,
        ..Task::new(server.url(""), cache.path())
    };
    let want = task.run().unwrap();
    let (mut loader, live) = task.loader().unwrap();
    for (step, want) in want.iter().enumerate() {
        if step % 60 == 20 {
            // Pieces are checked when a process first uses them, so they are not changed but removed.
            for (path, _) in pieces(cache.path()) {
                let _ = fs::remove_file(path);
            }
            damage_checksums(cache.path(), step / 60);
        }
        assert!(next(&mut loader, &live).unwrap() == *want, "batch {step}");
    }
    let troubles = loader.index().cache_troubles();
    assert!(troubles.damaged > 0, "{troubles:?}");
    assert_eq!((troubles.disk_full, troubles.not_kept), (0, 0));
}

/// The piece's checksum as a part of its file, which has others.
fn checksum(content: &[u8], number: u64, piece: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(number * piece);
    hasher.update(content).finalize_non_root()
}

#[test]
fn a_forged_piece_that_was_used_is_an_error_once_it_shows_and_the_cache_is_mended() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    read_all(&task, "web").unwrap();
    let tokens = fs::read(files.train_file("web", 0, "tokens")).unwrap();
    let name = Checksum::of(&tokens).to_string();
    let mut folders = fs::read_dir(cache.path().join("files")).unwrap();
    let folder = folders.find_map(|folder| {
        let path = folder.unwrap().path();
        path.to_str().unwrap().contains(&name).then_some(path)
    });
    let folder = folder.unwrap();
    // As by somebody who may write there: a piece with its own checksum, and nothing that speaks against it.
    let mut piece = fs::read(folder.join("2")).unwrap();
    assert_eq!(piece[8..40], checksum(&piece[40..], 2, 4096));
    piece[40 + 100] ^= 1;
    let forged = checksum(&piece[40..], 2, 4096);
    piece[8..40].copy_from_slice(&forged);
    fs::write(folder.join("2"), piece).unwrap();
    for name in ["values", "proven"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let text = read_all(&task, "web").unwrap_err();
    assert!(
        text.contains("its piece 2 was damaged in the cache"),
        "{text}"
    );
    assert!(text.contains("web/train/00000.tokens"), "{text}");
    read_all(&task, "web").unwrap();
    // Where nothing of a file is used before all of it is known, nothing wrong is used.
    piece = fs::read(folder.join("2")).unwrap();
    piece[40 + 100] ^= 1;
    piece[8..40].copy_from_slice(&forged);
    fs::write(folder.join("2"), piece).unwrap();
    for name in ["values", "proven"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let task = Task {
        fetch: Fetch::Files,
        ..task
    };
    read_all(&task, "web").unwrap();
}

#[test]
fn what_is_no_file_in_the_cache_is_an_error_and_is_not_waited_for() {
    let files = small_index();
    let place = format!("file://{}", files.path().display());
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    let folder = |path: &Path| fs::create_dir(path).unwrap();
    let makers: [&dyn Fn(&Path); 2] = [&pipe, &folder];
    for make in makers {
        for name in ["usage", "0", "values"] {
            let cache = tempfile::tempdir().unwrap();
            let task = Task {
                batches: 40,
                read_ahead: 0,
                ..Task::new(&place, cache.path())
            };
            task.run().unwrap();
            let mut targets = named(cache.path(), name);
            if name == "usage" {
                targets.push(cache.path().join(name));
            }
            assert!(!targets.is_empty());
            for path in &targets {
                fs::remove_file(path).unwrap();
                let _ = fs::remove_file(path.with_file_name("proven"));
                make(path);
            }
            let start = Instant::now();
            let text = outcome(task.spawn(&[])).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(20), "{name}");
            assert!(text.contains("it is no regular file"), "{text}");
            assert!(text.contains(&format!("/{name}, in the cache")), "{text}");
        }
    }
}
