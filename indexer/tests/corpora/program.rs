//! Runs the program itself, and builds an index to run it on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Scratch, line, run};

/// `hds-index` in a folder.
pub fn hds_index(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hds-index"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

/// The standard output of a command that succeeds.
pub fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = hds_index(folder, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// `(code, stderr)` of a command that fails.
pub fn refused(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = hds_index(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// 120 documents of two domains in many small shards, some held out.
pub fn small_index(scratch: &Scratch) -> PathBuf {
    let lines: String = (0..120)
        .map(|i| {
            line(
                &format!("Number {i}. {}", "Words, more words. ".repeat(i % 11)),
                ["web", "law & <order>"][i % 2],
            )
        })
        .collect();
    scratch.write("x.jsonl", lines);
    let mut options = scratch.options(&["x.jsonl"]);
    (options.valid_fraction, options.shard_tokens) = (0.2, 700);
    run(&options).unwrap();
    options.target
}
