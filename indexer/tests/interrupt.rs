//! A build that is killed at any moment leaves no target, and goes on to the same bytes.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do
#![cfg(unix)]

mod corpora;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corpora::{Scratch, files, line};

/// Some megabytes in several files, so that a build takes long enough to be hit.
fn corpus(scratch: &Scratch) {
    let mut state = 11u64;
    for file in 0..4 {
        let mut lines = String::new();
        for i in 0..2000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let words: Vec<String> = (0..(state >> 33) % 400 + 1)
                .map(|w| format!("word{}", (w * 31 + state) % 4001))
                .collect();
            let domain = ["web", "code", "law"][(state >> 40) as usize % 3];
            lines += &line(&format!("{file} {i} {}", words.join(" ")), domain);
            if i % 7 == 0 {
                // The same in every file.
                lines += &line(&format!("copied {i}"), domain);
            }
        }
        if file % 2 == 0 {
            scratch.write(
                &format!("corpus/{file}.jsonl.zst"),
                zstd::encode_all(lines.as_bytes(), 1).unwrap(),
            );
        } else {
            scratch.write(&format!("corpus/{file}.jsonl"), lines);
        }
    }
}

fn start(scratch: &Scratch, output: &str, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hds-index"))
        .arg("build")
        .arg(scratch.path("corpus"))
        .arg("-o")
        .arg(scratch.path(output))
        .args([
            "--threads",
            "2",
            "--shard-tokens",
            "500000",
            "--valid-fraction",
            "0.1",
        ])
        .args(["--checkpoint-every", "0.05"])
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn killed_builds_leave_no_target_and_go_on_to_the_same_bytes() {
    kill_at_moments(20, &[], 5);
}

#[test]
fn so_do_builds_that_leave_copies_out() {
    kill_at_moments(10, &["--duplicates", "drop"], 2);
}

/// Kills builds at so many moments of their run, up to three times each, and compares what they come to.
fn kill_at_moments(moments: u32, more: &[&str], least_resumed: u32) {
    let scratch = Scratch::new();
    corpus(&scratch);
    let begin = Instant::now();
    let (code, message) = finish(start(&scratch, "whole", more));
    assert_eq!(code, Some(0), "{message}");
    let whole = begin.elapsed();
    let want = files(&scratch.path("whole"));
    let mut resumed = 0;
    for moment in 0..moments {
        let target = format!("killed-{moment}");
        // Killed three times at most, each time further on, then left alone.
        for attempt in 0..4 {
            let mut child = start(&scratch, &target, more);
            if attempt < 3 {
                std::thread::sleep(whole * (moment + 1) / (moments + 1) + whole * attempt / 4);
                if child.try_wait().unwrap().is_none() {
                    child.kill().unwrap();
                }
            }
            let (code, message) = finish(child);
            resumed += u32::from(message.contains("going on"));
            if scratch.path(&target).exists() {
                break;
            }
            assert_eq!(code, None, "ended by itself without a target: {message}");
        }
        if scratch.path(&format!("{target}.building")).exists() {
            // Killed between the rename and the removal; the next command tidies up.
            let (code, _) = finish(start(&scratch, &target, more));
            assert_eq!(code, Some(1));
        }
        assert!(!scratch.path(&format!("{target}.building")).exists());
        assert!(
            files(&scratch.path(&target)) == want,
            "{target} differs from an uninterrupted build"
        );
        std::fs::remove_dir_all(scratch.path(&target)).unwrap();
    }
    assert!(
        resumed > least_resumed,
        "only {resumed} builds went on from a journal"
    );
}

#[test]
fn an_interrupted_build_says_how_to_go_on() {
    let scratch = Scratch::new();
    corpus(&scratch);
    let child = start(&scratch, "index", &[]);
    // Once a journal is there, the build is under way.
    let journal = scratch.path("index.building/journal.json");
    let begin = Instant::now();
    while !journal.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60) && !scratch.path("index").exists());
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let (code, message) = finish(child);
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("run the same command again"), "{message}");
    assert!(!scratch.path("index").exists());

    // Other options are another build, which is not mixed with this one.
    let (code, message) = finish(start(&scratch, "index", &["--text-extension", "foo"]));
    assert_eq!(code, Some(1));
    assert!(
        message.contains("text_extensions") && message.contains("--restart"),
        "{message}"
    );
    let (code, message) = finish(start(
        &scratch,
        "index",
        &["--text-extension", "foo", "--restart"],
    ));
    assert_eq!(code, Some(0), "{message}");
}

#[test]
fn two_builds_of_one_target_do_not_mix() {
    let scratch = Scratch::new();
    corpus(&scratch);
    let first = start(&scratch, "index", &[]);
    let lock = scratch.path("index.building/journal.json");
    let begin = Instant::now();
    while !lock.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, message) = finish(start(&scratch, "index", &[]));
    assert_eq!(code, Some(1));
    assert!(message.contains("another build is writing"), "{message}");
    let (code, message) = finish(first);
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = finish(start(&scratch, "index", &[]));
    assert_eq!(code, Some(1));
    assert!(message.contains("exists"), "{message}");
}
