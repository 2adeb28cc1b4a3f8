//! Builds the Python package's wheel and runs its tests, in a virtual environment inside the target folder.
//!
//! In: a checkout with `hds-index` built, a Python 3.10 or newer with venv, the network once. Out: counts of tests;
//! where the machine cannot do it, one skipped test with the reason. Nothing outside the target folder is changed.
//! Packages named in `HDS_PYTHON_PACKAGES` (such as `torch lightning`) are installed too; tests of what is missing
//! skip themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::results::Counts;
use crate::process::{quiet_stdout, run_shown};
use crate::project::Project;

/// What building and testing need.
const PACKAGES: [&str; 3] = ["maturin>=1.9.4,<2", "numpy", "pytest"];
/// More packages, separated by spaces.
const MORE_PACKAGES: &str = "HDS_PYTHON_PACKAGES";

/// Builds, installs and tests; an error says in a few words what failed.
pub(super) fn run(project: &Project, counts: &mut Counts) -> Result<(), String> {
    let target = target_folder(project);
    let home = target.join("python");
    let python = match environment(&home) {
        Ok(python) => python,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            counts.skipped += 1;
            counts
                .skipped_tests
                .push(format!("the Python package: {reason}"));
            return Ok(());
        }
    };
    let wheels = home.join("wheels");
    // An old wheel must not be taken for the new one.
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))?;
    }
    let mut build = Command::new(&python);
    build
        .args([
            "-m",
            "maturin",
            "build",
            "--release",
            "--quiet",
            "--manifest-path",
        ])
        .arg(project.root().join("python").join("Cargo.toml"))
        .arg("--out")
        .arg(&wheels)
        .arg("--interpreter")
        .arg(&python)
        .current_dir(project.root());
    succeed(&mut build, "maturin build")?;
    let wheel = std::fs::read_dir(&wheels)
        .ok()
        .and_then(|mut files| files.next())
        .and_then(Result::ok)
        .ok_or("maturin has written no wheel")?;
    let mut install = pip(&python);
    install
        .args(["--force-reinstall", "--no-deps", "--no-index"])
        .arg(wheel.path());
    succeed(&mut install, "pip install of the wheel")?;
    let mut pytest = Command::new(&python);
    pytest
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
        .arg(project.root().join("python").join("tests"))
        .env(
            "HDS_INDEX_PROGRAM",
            target.join("release").join("hds-index"),
        )
        .env("HDS_AGENT", target.join("release").join("hds-agent"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Not beside the sources: what is tested is the wheel.
        .current_dir(&home);
    let (shown, success) = super::results::output_of(&mut pytest).map_err(|e| e.to_string())?;
    let failed = count(&shown, counts);
    match (success, failed) {
        (true, 0) => Ok(()),
        (_, 0) => Err("pytest did not end as it should".into()),
        (_, failed) => Err(format!("{failed} tests failed")),
    }
}

/// cargo's target folder.
fn target_folder(project: &Project) -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty());
    own.map_or_else(
        || project.root().join("target"),
        |own| project.root().join(own),
    )
}

/// A Python with the packages, or why there is none.
fn environment(home: &Path) -> Result<PathBuf, String> {
    let venv = home.join("venv");
    let python = venv.join("bin").join("python");
    if quiet_stdout(Command::new(&python).arg("--version")).is_none() {
        let new = "import sys; print(sys.version_info >= (3, 10))";
        let found = quiet_stdout(Command::new("python3").args(["-c", new]));
        match found.as_deref().map(str::trim) {
            Some("True") => {}
            Some(_) => return Err("python3 is older than 3.10".into()),
            None => return Err("no python3; install python3 and python3-venv".into()),
        }
        std::fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&venv);
        succeed(&mut make, "python3 -m venv")
            .map_err(|_| "python3 has no venv; install python3-venv".to_owned())?;
    }
    let more = std::env::var(MORE_PACKAGES).unwrap_or_default();
    let mut install = pip(&python);
    install.args(PACKAGES).args(more.split_whitespace());
    // Instant where they are there, also without a network.
    succeed(&mut install, "pip").map_err(|_| {
        "pip cannot install maturin, numpy and pytest; is there a network?".to_owned()
    })?;
    Ok(python)
}

fn pip(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--no-input"]);
    command.args(["--disable-pip-version-check"]);
    command
}

fn succeed(command: &mut Command, what: &str) -> Result<(), String> {
    let ended = run_shown(command).map_err(|error| format!("{what}: {error}"))?;
    if ended.status.success() {
        Ok(())
    } else {
        Err(format!("{what} failed"))
    }
}

/// Adds up what pytest says at its end, "1 failed, 30 passed, 2 skipped in 4.2s"; how many failed.
fn count(output: &str, counts: &mut Counts) -> u64 {
    for line in output.lines() {
        if let Some(reason) = line.strip_prefix("SKIPPED ") {
            let reason = reason
                .trim_start_matches(|letter: char| letter != ' ')
                .trim();
            counts.skipped_tests.push(reason.to_owned());
        }
    }
    let last = output.lines().rev().find(|line| line.contains(" in "));
    let mut failed = 0;
    for part in last.unwrap_or_default().split([',', '=']) {
        let mut words = part.split_whitespace();
        let number = words.next().and_then(|word| word.parse::<u64>().ok());
        match (number, words.next()) {
            (Some(number), Some("passed")) => counts.passed += number,
            (Some(number), Some("skipped")) => counts.skipped += number,
            (Some(number), Some("failed" | "error" | "errors")) => failed += number,
            _ => {}
        }
    }
    counts.failed += failed;
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytest_says_is_added_up() {
        let mut counts = Counts::default();
        let output = "....s\nSKIPPED [1] tests/test_examples.py:9: torch is not installed\n\
                      FAILED tests/test_stream.py::test_x\n1 failed, 30 passed, 1 skipped in 4.20s\n";
        assert_eq!(count(output, &mut counts), 1);
        let want = Counts {
            passed: 30,
            failed: 1,
            skipped: 1,
            skipped_tests: vec!["tests/test_examples.py:9: torch is not installed".into()],
        };
        assert_eq!(counts, want);
        assert_eq!(count("5 passed, 2 errors in 1.00s", &mut counts), 2);
    }
}
