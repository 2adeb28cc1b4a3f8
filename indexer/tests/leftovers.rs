//! What an interrupted build left is used only as it was written: whatever is done to it, the build that goes on says so or comes to the
//! same bytes.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corpora::{Scratch, files, line};
use hds_indexer::build::{
    Advance, BuildError, BuildOptions, BuildSummary, Duplicates, OnError, Progress, Silent, build,
};
use hds_indexer::tokenize::ByteTokenizer;

/// Ends a build once it has so many documents.
struct EndAt<'a>(u64, &'a AtomicBool);

impl Progress for EndAt<'_> {
    fn advances(&self, advance: Advance) {
        if advance.documents >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn options(scratch: &Scratch) -> BuildOptions {
    let text = "some words of a document ".repeat(40);
    let mut lines: String = (0..9000)
        .map(|i| line(&format!("{i} {text}"), ["web", "code"][i % 2]))
        .collect();
    // Away from where the build is interrupted.
    lines = format!("not JSON\n{lines}");
    BuildOptions {
        threads: 1,
        on_error: OnError::Skip,
        shard_tokens: 1_000_000,
        valid_fraction: 0.1,
        checkpoint_every: Duration::ZERO,
        inputs: vec![scratch.write("x.jsonl", lines)],
        ..scratch.options(&[])
    }
}

fn go_on(options: &BuildOptions) -> Result<BuildSummary, BuildError> {
    build(options, &ByteTokenizer, &Silent, &AtomicBool::new(false))
}

/// Interrupts a build and gives its staging folder.
fn interrupted(options: &BuildOptions) -> PathBuf {
    let flag = AtomicBool::new(false);
    let error = build(options, &ByteTokenizer, &EndAt(5000, &flag), &flag).unwrap_err();
    assert!(matches!(error, BuildError::Interrupted { .. }), "{error}");
    let staging = options.target.with_file_name("index.building");
    assert!(staging.join("journal.json").exists());
    staging
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for (name, content) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Damages each file of an interrupted build in each way and goes on with it.
fn damage_each(duplicates: Duplicates) {
    let scratch = Scratch::new();
    let options = BuildOptions {
        duplicates,
        ..options(&scratch)
    };
    go_on(&options).unwrap();
    let want = files(&options.target);
    fs::remove_dir_all(&options.target).unwrap();
    let staging = interrupted(&options);
    let kept = scratch.path("kept");
    copy(&staging, &kept);
    let names: Vec<String> = files(&kept)
        .into_iter()
        .filter(|(name, content)| {
            !content.is_empty() && (name.ends_with(".tokens") || name.ends_with(".records"))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(names.len() > 10, "{names:?}");
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("flipped", |path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("cut", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("emptied", |path| fs::write(path, "").unwrap()),
    ];
    let mut published = 0;
    for name in &names {
        for (how, damage) in damages {
            copy(&kept, &staging);
            damage(&staging.join(name));
            match go_on(&options) {
                Err(error) => {
                    let text = error.to_string();
                    let file = name.rsplit('/').next().unwrap();
                    assert!(text.contains(file), "{name} {how}: {text}");
                    assert!(text.contains("--restart"), "{name} {how}: {text}");
                    assert!(!options.target.exists(), "{name} {how}");
                }
                // Tokens of a closed shard are not read again, but their checksum is in the manifest.
                Ok(_) => {
                    let closed = how == "flipped" && name.ends_with(".tokens");
                    assert!(closed && duplicates == Duplicates::Keep, "{name} {how}");
                    let read = std::sync::atomic::AtomicU64::new(0);
                    let report = hds_indexer::verify::verify(&options.target, 2, &read).unwrap();
                    assert!(!report.is_good(), "{name} {how}");
                    fs::remove_dir_all(&options.target).unwrap();
                    published += 1;
                }
            }
        }
    }
    assert!(published < names.len() / 2);
    copy(&kept, &staging);
    go_on(&options).unwrap();
    assert!(files(&options.target) == want);
}

#[test]
fn damage_to_what_an_interrupted_build_left_is_told() {
    damage_each(Duplicates::Keep);
}

#[test]
fn so_is_damage_where_copies_are_left_out() {
    damage_each(Duplicates::Drop);
}

#[test]
fn a_build_that_left_records_out_does_not_go_on_as_one_that_leaves_none() {
    let scratch = Scratch::new();
    let skip = options(&scratch);
    interrupted(&skip);
    let stop = BuildOptions {
        on_error: OnError::Stop,
        ..skip.clone()
    };
    let error = go_on(&stop).unwrap_err().to_string();
    assert!(
        error.contains("--on-error skip, by which 1 records were left out"),
        "{error}"
    );
    assert!(error.contains("--restart"), "{error}");
    go_on(&skip).unwrap();
}
