//! What goes wrong outside the corpus: files that vanish or change, a full disk, no permission, a line of 100 MB.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do
#![cfg(unix)]

mod corpora;

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;

use corpora::{Scratch, files, line, manifest, run, texts, tokens};
use hds_indexer::build::{BuildError, BuildOptions, BuildSummary, OnError, Progress, build};
use hds_indexer::tokenize::ByteTokenizer;

/// Does something once the plan is made, before the first file is opened.
struct Meanwhile<F>(F);

impl<F: Fn() + Sync> Progress for Meanwhile<F> {
    fn begins(&self, _: u64) {
        (self.0)();
    }
}

fn run_meanwhile(
    options: &BuildOptions,
    does: impl Fn() + Sync,
) -> Result<BuildSummary, BuildError> {
    build(
        options,
        &ByteTokenizer,
        &Meanwhile(does),
        &AtomicBool::new(false),
    )
}

#[test]
fn a_file_that_vanishes_while_the_build_runs_is_named_or_counted() {
    for name in ["b.jsonl", "b.jsonl.zst", "b.parquet", "b.txt"] {
        let scratch = Scratch::new();
        scratch.write("a.jsonl", line("a", "web"));
        scratch.write(name, "");
        let mut options = scratch.options(&["a.jsonl", name]);
        let vanish = || fs::remove_file(scratch.path(name)).unwrap();
        let error = run_meanwhile(&options, vanish).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("No such file"),
            "{error}"
        );
        assert!(!scratch.path("index").exists());
        assert!(!scratch.path("index.building").exists());

        scratch.write(name, "");
        options.on_error = OnError::Skip;
        let summary = run_meanwhile(&options, vanish).unwrap();
        let skipped = &summary.skipped[0];
        assert_eq!((skipped.reason.as_str(), skipped.count), ("unreadable", 1));
        assert!(skipped.first.starts_with(name), "{}", skipped.first);
        assert_eq!(texts(&scratch.path("index"), "web", "train"), ["a"]);
        let source = &manifest(&scratch.path("index"))["sources"][1];
        assert_eq!(source["skipped"][0]["reason"], "unreadable");
    }
}

#[test]
fn a_file_of_a_text_folder_that_vanishes_is_named_or_counted() {
    let scratch = Scratch::new();
    scratch.write("corpus/web/a.txt", "a");
    scratch.write("corpus/web/b.txt", "b");
    let gone = scratch.path("corpus/web/b.txt");
    let mut options = scratch.options(&["corpus"]);
    // Removed after the folder was listed: a link that leads nowhere is listed and cannot be read.
    let vanish = || {
        let _ = fs::remove_file(&gone);
        std::os::unix::fs::symlink("gone", &gone).unwrap();
    };
    let error = run_meanwhile(&options, vanish).unwrap_err().to_string();
    assert!(error.contains("b.txt"), "{error}");
    fs::remove_file(&gone).unwrap();
    fs::write(&gone, "b").unwrap();
    options.on_error = OnError::Skip;
    let summary = run_meanwhile(&options, vanish).unwrap();
    assert_eq!(summary.skipped[0].reason, "unreadable");
    assert_eq!(texts(&scratch.path("index"), "web", "train"), ["a"]);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    let scratch = Scratch::new();
    let path = scratch.write("a.jsonl", line("a", "web"));
    let grow = || {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(line("late", "web").as_bytes()).unwrap();
    };
    let mut options = scratch.options(&["a.jsonl"]);
    let error = run_meanwhile(&options, grow).unwrap_err().to_string();
    assert!(error.contains("a.jsonl: was changed"), "{error}");
    assert!(!scratch.path("index").exists());
    options.on_error = OnError::Skip;
    let summary = run_meanwhile(&options, grow).unwrap();
    assert_eq!(summary.skipped[0].reason, "changed while read");
}

#[test]
fn a_line_of_100_megabytes_is_a_document_like_any_other() {
    const LENGTH: usize = 100_000_000;
    let scratch = Scratch::new();
    let mut long = String::with_capacity(LENGTH + 100);
    while long.len() < LENGTH {
        long += "words of a long line, 10 at a time or so, ";
    }
    long.truncate(LENGTH);
    let content = line("before", "web") + &line(&long, "web") + &line("behind", "web");
    scratch.write(
        "a.jsonl.zst",
        zstd::encode_all(content.as_bytes(), 1).unwrap(),
    );
    run(&scratch.options(&["a.jsonl.zst"])).unwrap();
    let tokens = tokens(&scratch.path("index"), "web", "train");
    assert_eq!(tokens.len(), "before".len() + LENGTH + "behind".len() + 3);
    let middle = &tokens["before".len() + 1..][..LENGTH];
    assert!(
        middle
            .iter()
            .zip(long.bytes())
            .all(|(t, b)| *t == u32::from(b))
    );
}

#[test]
fn a_line_of_100_megabytes_of_rubbish_is_located() {
    let scratch = Scratch::new();
    let mut content = line("before", "web").into_bytes();
    let start = content.len();
    content.resize(start + 100_000_000, b'x');
    content.extend(b"\n");
    content.extend(line("behind", "web").bytes());
    scratch.write("a.jsonl", content);
    let mut options = scratch.options(&["a.jsonl"]);
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains(&format!("a.jsonl, line 2, byte {start}")),
        "{error}"
    );
    options.on_error = OnError::Skip;
    run(&options).unwrap();
    assert_eq!(
        texts(&scratch.path("index"), "web", "train"),
        ["before", "behind"]
    );
}

/// Some megabytes of words.
fn some_megabytes() -> String {
    (0..4000u64)
        .map(|i| {
            let words: Vec<String> = (0..i * 31 % 300 + 1)
                .map(|w| format!("word{}", (w * 31 + i) % 4001))
                .collect();
            line(&words.join(" "), ["web", "code", "law"][i as usize % 3])
        })
        .collect()
}

fn start(corpus: &Path, target: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hds-index"));
    command
        .arg("build")
        .arg(corpus)
        .arg("-o")
        .arg(target)
        .args(["--threads", "2", "--checkpoint-every", "0.02"])
        .args(["--shard-tokens", "500000", "--valid-fraction", "0.1"]);
    command
}

#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_is_an_error_that_names_the_file_and_the_build_goes_on_without_it() {
    let scratch = Scratch::new();
    scratch.write("x.jsonl", some_megabytes());
    let (corpus, target) = (scratch.path("x.jsonl"), scratch.path("index"));
    let build = start(&corpus, &target);
    // 64 blocks are 32 KiB or 64, by the shell.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(build.get_program())
        .args(build.get_args())
        .output()
        .unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("index.building"), "{error}");
    assert!(!target.exists());
    let again = start(&corpus, &target).output().unwrap();
    assert!(again.status.success(), "{}", said(&again));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A small file system in memory, unmounted with the value.
struct SmallDisk<'s>(&'s Path);

impl<'s> SmallDisk<'s> {
    fn mount(at: &'s Path, kibibytes: u64) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={kibibytes}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        mounted
            .is_ok_and(|m| m.status.success())
            .then_some(Self(at))
    }

    fn grow(&self, kibibytes: u64) {
        let size = format!("remount,size={kibibytes}k");
        let mut mount = Command::new("mount");
        assert!(
            mount
                .args(["-o", &size])
                .arg(self.0)
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_leaves_no_target_and_the_build_goes_on_when_there_is_room() {
    let scratch = Scratch::new();
    let corpus = scratch.write("corpus.jsonl", some_megabytes());
    let whole = scratch.path("whole");
    assert!(start(&corpus, &whole).output().unwrap().status.success());
    let want = files(&whole);
    let disk_path = scratch.path("disk");
    let Some(disk) = SmallDisk::mount(&disk_path, 16) else {
        println!("skipped: no small file system can be mounted here");
        return;
    };
    let target = disk_path.join("index");
    let (mut room, mut failures) = (16, 0);
    loop {
        let output = start(&corpus, &target).output().unwrap();
        if output.status.success() {
            break;
        }
        failures += 1;
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("No space left"), "{}", said(&output));
        assert!(!target.exists(), "published with {room} KiB");
        room += 256;
        assert!(room < 1 << 16, "never enough: {}", said(&output));
        disk.grow(room);
    }
    assert!(failures > 5, "the disk was full only {failures} times");
    assert!(
        files(&target) == want,
        "differs after {failures} full disks"
    );
    assert!(!disk_path.join("index.building").exists());
}

#[test]
fn a_limit_on_file_sizes_is_an_error_that_names_the_file() {
    let scratch = Scratch::new();
    let corpus = scratch.write("corpus.jsonl", some_megabytes());
    let target = scratch.path("index");
    let output = Command::new("sh")
        // Blocks of 512 or 1,024 bytes; without the signal the write itself fails.
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_hds-index"))
        .args(["build", "--valid-fraction", "0", "-o"])
        .args([&target, &corpus])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains(".tokens") && said(&output).contains("too large"),
        "{}",
        said(&output)
    );
    assert!(!target.exists());
}

#[test]
fn what_may_not_be_read_or_written_is_named() {
    let scratch = Scratch::new();
    let corpus = scratch.write("open/corpus.jsonl", line("x", "web"));
    let secret = scratch.write("open/secret.jsonl", line("x", "web"));
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set(&scratch.path(""), 0o755);
    set(&scratch.path("open"), 0o555);
    set(&secret, 0o000);
    // The superuser may do everything, so it becomes nobody.
    let superuser = fs::read(&secret).is_ok();
    let run = |corpus: &Path, target: &Path| {
        let mut command = start(corpus, target);
        if superuser {
            command.uid(65534).gid(65534);
        }
        command.output()
    };
    let Ok(output) = run(&corpus, &scratch.path("open/index")) else {
        println!("skipped: the program lies where another user may not start it");
        return;
    };
    for (output, name) in [
        (output, "open/index.building"),
        (
            run(&secret, &scratch.path("open/index")).unwrap(),
            "index.building",
        ),
    ] {
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let said = said(&output);
        assert!(
            said.contains("Permission denied") && said.contains(name),
            "{said}"
        );
    }
    fs::create_dir(scratch.path("free")).unwrap();
    set(&scratch.path("free"), 0o777);
    let output = run(&secret, &scratch.path("free/index")).unwrap();
    let said = said(&output);
    assert!(
        said.contains("secret.jsonl") && said.contains("Permission denied"),
        "{said}"
    );
    assert!(!scratch.path("free/index").exists() && !scratch.path("free/index.building").exists());
    set(&scratch.path("open"), 0o755);
}

#[test]
fn what_no_build_made_is_neither_removed_nor_written_through() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("some words", "web"));
    let options = scratch.options(&["a.jsonl"]);
    scratch.write("index.building/precious", "mine");
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("\"precious\"") && error.contains("move it away"),
        "{error}"
    );
    assert_eq!(
        fs::read(scratch.path("index.building/precious")).unwrap(),
        b"mine"
    );
    fs::remove_dir_all(scratch.path("index.building")).unwrap();
    fs::create_dir(scratch.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", scratch.path("index.building")).unwrap();
    assert!(run(&options).is_err());
    assert!(files(&scratch.path("elsewhere")).is_empty());
    fs::remove_file(scratch.path("index.building")).unwrap();
    run(&options).unwrap();
}

#[test]
fn a_domain_without_text_is_named() {
    let scratch = Scratch::new();
    scratch.write("texts/full/a.txt", "some words");
    scratch.write("texts/hollow/a.txt", "");
    scratch.write("texts/hollow/b.txt", "");
    fs::create_dir(scratch.path("texts/vacant")).unwrap();
    let summary = run(&scratch.options(&["texts"])).unwrap();
    let warned = summary.warnings.join("; ");
    assert!(warned.contains("texts are empty: hollow"), "{warned}");
    let folder = summary.skipped.iter().find(|s| s.reason == "empty folder");
    assert_eq!(folder.unwrap().first, "texts/, vacant");
    let named = &manifest(&scratch.path("index"))["sources"][0]["empty_domains"];
    assert_eq!(*named, serde_json::json!(["hollow"]));

    fs::remove_dir_all(scratch.path("index")).unwrap();
    // A domain that has text as well, before or after, is none of those.
    let text = [
        line("", "web"),
        line("words", "web"),
        line("", "void"),
        line("words", "law"),
        line("", "law"),
    ];
    scratch.write("a.jsonl", text.concat());
    let warned = run(&scratch.options(&["a.jsonl"]))
        .unwrap()
        .warnings
        .join("; ");
    assert!(warned.contains("texts are empty: void"), "{warned}");
}

#[test]
fn a_domain_field_of_no_use_is_an_error_not_a_domain_by_the_files_name() {
    let scratch = Scratch::new();
    for (meta, want) in [
        (r#"{"pile_set_name": 7}"#, "is a number"),
        (r#"{"pile_set_name": null}"#, "is null"),
        (
            r#"{"pile_set_name": "a", "pile_set_name": "b"}"#,
            "occurs twice",
        ),
    ] {
        let text = format!("{{\"text\": \"some words\", \"meta\": {meta}}}\n");
        scratch.write("a.jsonl", text);
        let error = run(&scratch.options(&["a.jsonl"])).unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains(want),
            "{want}: {error}"
        );
    }
    // A corpus whose records have no such field is of the file's domain.
    scratch.write(
        "a.jsonl",
        "{\"text\": \"some words\", \"meta\": \"none\"}\n",
    );
    run(&scratch.options(&["a.jsonl"])).unwrap();
    assert_eq!(corpora::domains(&scratch.path("index")), ["a"]);
}

#[test]
fn a_pipe_in_place_of_a_manifest_or_shard_is_refused_at_once() {
    let scratch = Scratch::new();
    scratch.write("a.jsonl", line("some words", "web"));
    run(&scratch.options(&["a.jsonl"])).unwrap();
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let index = scratch.path("index");
    let verified = || {
        let command = Command::new(env!("CARGO_BIN_EXE_hds-index"))
            .arg("verify")
            .arg(&index)
            .output()
            .unwrap();
        assert!(!command.status.success());
        let said = [command.stdout, command.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    pipe(&index.join("domains/web/train/00000.tokens"));
    let said = verified();
    assert!(said.contains("00000.tokens"), "{said}");
    pipe(&index.join("manifest.json"));
    let said = verified();
    assert!(said.contains("no regular file"), "{said}");
}
