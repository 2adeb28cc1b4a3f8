//! Servers that fail, and caches that are of no use.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use hds_loader::{Split, TokensMut};

use crate::reader::{Task, next, outcome_and_notes, small_index};
use crate::servers::{Nginx, free_port};

#[test]
fn a_server_that_is_away_for_a_while_delays_the_stream_and_changes_nothing() {
    let files = small_index();
    let Some(mut server) = Nginx::start(files.path(), "") else {
        return;
    };
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let (mut loader, live) = task.loader().unwrap();
    for (step, want) in want.iter().enumerate() {
        if step == 3 || step == 6 {
            server.stop();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1200));
                    server.go();
                });
                assert!(next(&mut loader, &live).unwrap() == *want, "batch {step}");
            });
        } else {
            assert!(next(&mut loader, &live).unwrap() == *want, "batch {step}");
        }
    }
}

#[test]
fn a_server_that_stays_away_is_an_error_after_which_the_stream_goes_on() {
    let files = small_index();
    let Some(mut server) = Nginx::start(files.path(), "") else {
        return;
    };
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        patience_millis: 300,
        read_ahead: 0,
        ..Task::new(server.url(""), cache.path())
    };
    let (mut loader, live) = task.loader().unwrap();
    assert_eq!(next(&mut loader, &live).unwrap(), want[0]);
    server.stop();
    let start = Instant::now();
    let text = (0..50)
        .find_map(|_| next(&mut loader, &live).err())
        .unwrap()
        .to_string();
    assert!(text.contains(&server.url("")), "{text}");
    assert!(text.to_lowercase().contains("refused"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(30));
    let step = loader.step() as usize;
    // Nobody there from the beginning, too.
    let text = task.run().unwrap_err().to_string();
    assert!(text.contains("/manifest.json"), "{text}");
    // A server that answers, but not with what is wanted.
    server.configure(files.path(), "location /domains { return 503; }");
    server.go();
    let text = (0..50)
        .find_map(|_| next(&mut loader, &live).err())
        .unwrap()
        .to_string();
    assert!(text.contains("503") && text.contains("retries"), "{text}");
    assert_eq!(loader.step() as usize, step);
    server.stop();
    server.configure(files.path(), "");
    server.go();
    for (step, want) in want.iter().enumerate().skip(step) {
        assert!(next(&mut loader, &live).unwrap() == *want, "batch {step}");
    }
}

#[test]
fn a_server_without_ranges_or_without_leave_says_so() {
    let files = small_index();
    let Some(mut server) = Nginx::start(files.path(), "max_ranges 0;") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let text = task.run().unwrap_err().to_string();
    assert!(text.contains("ignores byte ranges"), "{text}");
    server.stop();
    server.configure(files.path(), "deny all;");
    server.go();
    let text = task.run().unwrap_err().to_string();
    assert!(
        text.contains("manifest.json: the server refuses it"),
        "{text}"
    );
}

/// Answers every request with this head and body, then closes.
pub fn answer_with(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).unwrap();
            let _ = stream.write_all(&answer(&String::from_utf8_lossy(&request[..read])));
        }
    });
    format!("http://127.0.0.1:{port}")
}

#[test]
fn answers_cut_short_or_of_other_ranges_are_errors() {
    let files = small_index();
    let manifest = std::fs::read(files.path().join("manifest.json")).unwrap();
    let size = files
        .train_file("web", 0, "tokens")
        .metadata()
        .unwrap()
        .len();
    let length = manifest.len();
    let cases: [(String, &str); 4] = [
        (
            format!(
                "HTTP/1.1 206 X\r\nContent-Length: 4096\r\nContent-Range: bytes 0-4095/{size}\r\n\r\nab"
            ),
            "the answer broke off",
        ),
        (
            format!(
                "HTTP/1.1 206 X\r\nContent-Length: 2\r\nContent-Range: bytes 0-4095/{size}\r\n\r\nab"
            ),
            "the answer broke off after 2 of 4096 bytes, 6 times",
        ),
        (
            format!(
                "HTTP/1.1 206 X\r\nContent-Length: 2\r\nContent-Range: bytes 7-8/{size}\r\n\r\nab"
            ),
            "Requested 0..4096, got 7..9",
        ),
        (
            "HTTP/1.1 206 X\r\nContent-Length: 2\r\n\r\nab".into(),
            "Content-Range header not present",
        ),
    ];
    // Each waits for the pauses between its tries.
    std::thread::scope(|scope| {
        for (head, want) in cases {
            let manifest = manifest.clone();
            scope.spawn(move || {
                let url = answer_with(move |request| {
                    if request.contains("manifest.json") {
                        let head = format!("HTTP/1.1 200 X\r\nContent-Length: {length}\r\n\r\n");
                        [head.as_bytes(), &manifest].concat()
                    } else {
                        head.clone().into_bytes()
                    }
                });
                let cache = tempfile::tempdir().unwrap();
                let index = Task::new(url, cache.path()).open().unwrap();
                let web = index.split(index.domains().find("web").unwrap(), Split::Train);
                let error = web.read(0, TokensMut::I64(&mut [0; 4])).unwrap_err();
                assert!(error.to_string().contains(want), "{error}");
            });
        }
    });
}

#[test]
fn a_cache_that_cannot_be_written_is_named_when_the_index_is_opened() {
    let files = small_index();
    let place = format!("file://{}", files.path().display());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let text = Task::new(&place, &file.join("cache"))
        .run()
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("file/cache/files, in the cache of a remote index"),
        "{text}"
    );
    // A superuser may write anywhere.
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let mut permissions = locked.metadata().unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&locked, permissions).unwrap();
    if std::fs::write(locked.join("probe"), "").is_err() {
        let text = Task::new(&place, &locked).run().unwrap_err().to_string();
        assert!(text.contains("ermission denied"), "{text}");
        assert!(text.contains("give a cache folder"), "{text}");
    }
}

#[test]
#[allow(clippy::print_stdout)] // what the checks read
fn a_disk_smaller_than_the_limit_is_used_as_far_as_it_goes() {
    let files = small_index();
    let folder = tempfile::tempdir().unwrap();
    // In a name space of its own, which ends with the reader.
    let on_disk_of = |size: &str| {
        let mount = format!("mount -t tmpfs -o size={size} hds-test \"$0\" && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &mount]).arg(folder.path());
        command
    };
    let may = on_disk_of("64k").arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: no right to mount a small file system here");
        return;
    }
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let place = format!("file://{}", files.path().display());
    let task = Task::new(&place, folder.path());
    // Less than the index: old pieces make room.
    let (got, notes) = outcome_and_notes(task.spawn_by(on_disk_of("400k"), &[]));
    assert!(got.unwrap() == want);
    assert_eq!(notes.matches("warning: ").count(), 1, "{notes}");
    assert!(notes.contains("is full before the limit"), "{notes}");
    assert!(notes.contains(folder.path().to_str().unwrap()), "{notes}");
    // Not even one piece beside what is kept of them: slow, which is said. Nothing at all: refused.
    for (size, may_be_refused) in [("128k", false), ("4k", true)] {
        let task = Task {
            batches: 40,
            piece: 65_536,
            ..task.clone()
        };
        let (got, notes) = outcome_and_notes(task.spawn_by(on_disk_of(size), &[]));
        let refused = got.as_ref().err();
        if let Some(text) = refused {
            assert!(text.contains("No space left on device"), "{text}");
            assert!(text.contains("in the cache of a remote index"), "{text}");
            assert!(may_be_refused, "{text}");
            continue;
        }
        assert!(got.unwrap() == want[..40]);
        let said = "cannot be written, as there is no room for a piece";
        assert_eq!(notes.matches(said).count(), 1, "{notes}");
        assert_eq!(notes.matches("warning: ").count(), 2, "{notes}");
    }
}
