//! What the end-to-end tests share: the real binaries, a corpus any checkout has, and shared data.
//!
//! Always holds: binaries are those of the profile the tests were built with; a test whose data is
//! absent says "skipped: reason".

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

/// A binary of the workspace, built with the same profile as the tests.
///
/// # Panics
/// If it was not built.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("tests lie in target/PROFILE/deps");
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{name} is not built; run the tests with `cargo xtask test`, or first \
         `cargo build --release --workspace --bins`"
    );
    path
}

/// Runs a binary of the workspace to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run(name: &str, arguments: &[&str]) -> Output {
    Command::new(binary(name))
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("cannot start {name}: {e}"))
}

/// Runs a binary that must succeed; gives its standard output.
///
/// # Panics
/// If it fails.
pub fn succeed(name: &str, arguments: &[&str]) -> String {
    let output = run(name, arguments);
    assert!(
        output.status.success(),
        "{name} {arguments:?} failed with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a binary that must fail with a message rather than a panic; gives its standard error.
///
/// # Panics
/// If it succeeds or panics.
pub fn fail(name: &str, arguments: &[&str]) -> String {
    let output = run(name, arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{name} {arguments:?} succeeded");
    assert!(
        output.status.code().is_some_and(|c| c != 101),
        "{name} {arguments:?} died:\n{text}"
    );
    assert!(
        !text.contains("panicked"),
        "{name} {arguments:?} panicked:\n{text}"
    );
    text
}

/// Sends SIGTERM to a program and waits for its end.
///
/// # Panics
/// If it cannot be told or waited for.
pub fn terminate(child: &mut Child) -> ExitStatus {
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(
        kill.is_ok_and(|status| status.success()),
        "cannot send SIGTERM"
    );
    child.wait().unwrap_or_else(|e| panic!("cannot wait: {e}"))
}

/// A path as text.
///
/// # Panics
/// If it is no UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Where the shared test data should be.
fn shared_folder() -> PathBuf {
    std::env::var_os("HDS_SHARED")
        .map_or_else(|| workspace().join("../shared"), PathBuf::from)
        .join("data")
}

/// A Python that has all these packages, named by `HDS_EVALUATION_PYTHON`; `None` (with the reason on standard output) where there
/// is none.
pub fn python_with(packages: &[&str]) -> Option<std::ffi::OsString> {
    let names = packages.join(", ");
    let Some(python) = std::env::var_os("HDS_EVALUATION_PYTHON") else {
        println!("skipped: HDS_EVALUATION_PYTHON names no Python with {names}");
        return None;
    };
    let status = Command::new(&python)
        .args(["-c", &format!("import {names}")])
        .stderr(std::process::Stdio::null())
        .status();
    if status.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    println!("skipped: the Python of HDS_EVALUATION_PYTHON cannot import {names}");
    None
}

/// Runs a script of `tests/python` to its end; gives the last line of its standard output as JSON.
///
/// # Panics
/// If it fails or says something else.
pub fn run_python(python: &std::ffi::OsStr, script: &str, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(python)
        .arg(workspace().join("tests/python").join(script))
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("cannot start {script}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{script} failed:\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{script} said {said}: {e}"))
}

/// The folder of the minipile, or `None` where it is not there and a test has something else to take.
pub fn minipile() -> Option<PathBuf> {
    let folder = shared_folder().join("minipile");
    folder.is_dir().then_some(folder)
}

/// The shared test data, or `None` (with the reason on standard output) where there is none.
pub fn shared_data() -> Option<PathBuf> {
    let root = shared_folder();
    if minipile().is_some() {
        return Some(root);
    }
    println!(
        "skipped: no shared test data in {} (set HDS_SHARED)",
        root.display()
    );
    None
}

/// Writes a corpus of three domains, made of this project's own files, in The Pile's format.
///
/// # Panics
/// If it cannot be written.
pub fn own_corpus(folder: &Path) {
    let mut kinds = [
        ("code", "rs", String::new()),
        ("prose", "md", String::new()),
        ("config", "toml", String::new()),
    ];
    collect(&workspace(), &mut kinds);
    fs::create_dir_all(folder).expect("a corpus folder can be made");
    for (domain, _, lines) in kinds {
        assert!(!lines.is_empty(), "no files for domain {domain}");
        fs::write(folder.join(format!("{domain}.jsonl")), lines).expect("a corpus can be written");
    }
}

fn collect(folder: &Path, kinds: &mut [(&'static str, &'static str, String); 3]) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("readable")
        .map(|e| e.expect("readable").path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('.') || name == "target" || name == "out" {
            continue;
        }
        if path.is_dir() {
            collect(&path, kinds);
            continue;
        }
        let extension = path.extension().unwrap_or_default();
        if let Some((domain, _, lines)) = kinds.iter_mut().find(|(_, e, _)| extension == *e) {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let line = serde_json::json!({"text": text, "meta": {"pile_set_name": *domain}});
            lines.push_str(&format!("{line}\n"));
        }
    }
}
