//! `cargo xtask setup` in a checkout of its own, with a stand-in for Python whose pip needs no network.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Answers as python3 with pip does; `pip install` makes what the pinned packages would leave, or fails as told.
const PYTHON: &str = r#"#!/bin/sh
case "$*" in
  "-c import platform"*) echo 3.11.2; exit 0 ;;
  "-m pip --version") [ "$PIP" = none ] && exit 1; echo "pip 23.0 from somewhere"; exit 0 ;;
  "-m venv"*) echo "ensurepip is not available"; exit 1 ;;
esac
while [ $# -gt 0 ]; do [ "$1" = --target ] && target=$2; shift; done
echo x >> "$COUNT"
case "$PIP" in
  hash) echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE." >&2; exit 1 ;;
  network) echo "ERROR: No matching distribution found for torch==2.11.0" >&2; exit 1 ;;
esac
mkdir -p "$target/torch/lib"
printf 12345 > "$target/torch/lib/libc10.so"
[ "$PIP" = killed ] && kill -9 $$
for info in torch-2.11.0 nvidia_cuda_runtime-13.0.96 nvidia_cuda_cupti-13.0.85; do
  mkdir -p "$target/$info.dist-info"; : > "$target/$info.dist-info/RECORD"
done
echo "torch/lib/libc10.so,sha256=abc,5" > "$target/torch-2.11.0.dist-info/RECORD"
[ "$PIP" = partial ] && rm "$target/torch/lib/libc10.so"
exit 0
"#;

/// A checkout with nothing but the package lists, and a `PATH` with nothing but what set-up runs.
struct Checkout {
    folder: tempfile::TempDir,
}

impl Checkout {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (tools, programs) = (folder.path().join("tools"), folder.path().join("programs"));
        fs::create_dir_all(&tools).expect("a folder");
        fs::create_dir_all(&programs).expect("a folder");
        for list in ["libtorch-cpu.txt", "libtorch-cuda.txt"] {
            fs::copy(
                Path::new(env!("CARGO_MANIFEST_DIR")).join(list),
                tools.join(list),
            )
            .expect("copied");
        }
        for program in ["sh", "mkdir", "rm", "df", "getconf"] {
            let found = ["/bin", "/usr/bin"]
                .iter()
                .map(|bin| Path::new(bin).join(program))
                .find(|path| path.exists());
            symlink(found.expect("a usual program"), programs.join(program)).expect("linked");
        }
        let checkout = Self { folder };
        checkout.program("python3", PYTHON);
        checkout.program("c++", "#!/bin/sh\nexit 0\n");
        checkout
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.folder.path().join("programs").join(name);
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// Runs set-up with `PIP` telling the stand-in how to behave; whether it succeeded, and what it said.
    fn setup(&self, pip: &str) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("setup")
            .env("CARGO_MANIFEST_DIR", self.folder.path().join("tools"))
            .env("PATH", self.folder.path().join("programs"))
            .env("PIP", pip)
            .env("COUNT", self.folder.path().join("count"))
            .env_remove("LIBTORCH")
            .env_remove("CXX")
            .output()
            .expect("xtask runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join(".libtorch/torch/lib/libc10.so")
    }

    /// How often packages were installed.
    fn installs(&self) -> usize {
        fs::read_to_string(self.folder.path().join("count"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// Names beginning with `.libtorch`.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path())
            .expect("a folder")
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".libtorch")).collect()
    }
}

/// Set-up covers Linux only; elsewhere it says so, which other tests see.
fn is_covered() -> bool {
    let covered = cfg!(all(target_os = "linux", target_env = "gnu"));
    if !covered {
        println!("skipped: set-up installs libtorch on Linux with glibc only");
    }
    covered
}

#[test]
fn libtorch_is_installed_once() {
    if !is_covered() {
        return;
    }
    let checkout = Checkout::new();
    let (done, said) = checkout.setup("");
    assert!(done, "{said}");
    assert_eq!(fs::read(checkout.library()).expect("the library"), b"12345");
    let (done, said) = checkout.setup("");
    assert!(done && said.contains("already there"), "{said}");
    assert_eq!(
        (checkout.installs(), checkout.left()),
        (1, vec![".libtorch".to_owned()])
    );
}

#[test]
fn a_damaged_library_is_installed_again() {
    if !is_covered() {
        return;
    }
    let checkout = Checkout::new();
    assert!(checkout.setup("").0);
    fs::write(checkout.library(), "123").expect("written");
    let (done, said) = checkout.setup("");
    assert!(
        done && said.contains("holds 3 bytes, its package says 5"),
        "{said}"
    );
    assert_eq!(fs::read(checkout.library()).expect("the library"), b"12345");
    assert_eq!(
        (checkout.installs(), checkout.left()),
        (2, vec![".libtorch".to_owned()])
    );
}

#[test]
fn a_failed_install_leaves_nothing_and_says_why() {
    if !is_covered() {
        return;
    }
    let cases = [
        ("hash", "whose SHA-256 is not the one in"),
        ("network", "could not get the packages"),
        ("killed", "SIGKILL"),
        ("partial", "torch/lib/libc10.so is missing"),
        ("none", "sudo apt install python3-venv"),
    ];
    for (pip, want) in cases {
        let checkout = Checkout::new();
        let (done, said) = checkout.setup(pip);
        assert!(!done && said.contains(want), "{pip}: {said}");
        assert_eq!(checkout.left(), Vec::<String>::new(), "{pip}");
    }
}

#[test]
fn a_failed_install_keeps_what_was_there() {
    if !is_covered() {
        return;
    }
    let checkout = Checkout::new();
    assert!(checkout.setup("").0);
    fs::write(checkout.library(), "123").expect("written");
    assert!(!checkout.setup("network").0);
    assert_eq!(fs::read(checkout.library()).expect("still there"), b"123");
}

#[test]
fn leftovers_of_dead_runs_are_removed() {
    if !is_covered() {
        return;
    }
    let checkout = Checkout::new();
    // No process has this id: the kernel's largest is 4,194,304.
    fs::create_dir_all(
        checkout
            .folder
            .path()
            .join(".libtorch.partial-99999999/packages"),
    )
    .expect("a folder");
    fs::create_dir_all(checkout.folder.path().join(".libtorch.partial-mine")).expect("a folder");
    assert!(checkout.setup("").0);
    let mut left = checkout.left();
    left.sort();
    assert_eq!(left, [".libtorch", ".libtorch.partial-mine"]);
}

#[test]
fn a_missing_compiler_is_named_before_anything_is_downloaded() {
    let checkout = Checkout::new();
    checkout.program("c++", "#!/bin/sh\necho 'unrecognized option' >&2\nexit 1\n");
    let (done, said) = checkout.setup("");
    assert!(
        !done && said.contains("no C++ compiler") && said.contains("unrecognized option"),
        "{said}"
    );
    assert_eq!(checkout.installs(), 0);
}

#[test]
fn a_missing_python_is_named() {
    if !is_covered() {
        return;
    }
    let checkout = Checkout::new();
    fs::remove_file(checkout.folder.path().join("programs/python3")).expect("removed");
    let (done, said) = checkout.setup("");
    assert!(!done && said.contains("no python3 on PATH"), "{said}");
}

#[test]
fn a_libtorch_of_ones_own_is_used() {
    let checkout = Checkout::new();
    let own = checkout.folder.path().join("own");
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("setup")
            .env("CARGO_MANIFEST_DIR", checkout.folder.path().join("tools"))
            .env("PATH", checkout.folder.path().join("programs"))
            .env("LIBTORCH", &own)
            .env_remove("CXX")
            .output()
            .expect("xtask runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (done, said) = run();
    assert!(
        !done && said.contains("has no include/ATen/ATen.h"),
        "{said}"
    );
    fs::create_dir_all(own.join("include/ATen")).expect("a folder");
    fs::create_dir_all(own.join("lib")).expect("a folder");
    fs::write(own.join("include/ATen/ATen.h"), "").expect("written");
    fs::write(own.join("build-version"), "2.10.0+cpu\n").expect("written");
    let (done, said) = run();
    assert!(
        done && said.contains("(2.10.0+cpu)") && said.contains("warning"),
        "{said}"
    );
    assert_eq!(checkout.installs(), 0);
}
