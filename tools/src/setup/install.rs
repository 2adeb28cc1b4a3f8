//! Unpacks the pinned packages beside `.libtorch/` and renames them into place.
//!
//! In: a package list, pip. Out: `.libtorch/`, whole, or untouched. Everything temporary is in one sibling
//! folder named by this process's id; those of processes that have died are removed by the next run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::contents::{self, Flavour};
use super::python::Pip;
use super::{SetupError, machine};
use crate::process::run_shown;
use crate::project::Project;

/// Python whose wheel is unpacked; only the C++ library in it is used, so any would do.
const WHEEL_PYTHON: &str = "3.12";
const WHEEL_ABI: &str = "cp312";

/// Where a link leads, so that the rename replaces what it leads to.
pub(super) fn resolve(packages: &Path) -> Result<PathBuf, SetupError> {
    if packages.is_symlink() {
        return fs::canonicalize(packages).map_err(|source| SetupError::Io {
            path: packages.to_path_buf(),
            doing: "follow the link",
            source,
        });
    }
    Ok(packages.to_path_buf())
}

/// Removes what killed runs have left.
pub(super) fn remove_leftovers(packages: &Path) {
    let (Some(parent), Some(prefix)) = (packages.parent(), partial_prefix(packages)) else {
        return;
    };
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
            continue;
        };
        let is_id = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        if is_id && !Path::new("/proc").join(process).exists() && Path::new("/proc/self").exists() {
            eprintln!(
                "setup: removing what an interrupted run left ({})",
                entry.path().display()
            );
            // What cannot be removed does no harm but take space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn partial_prefix(packages: &Path) -> Option<String> {
    Some(format!("{}.partial-", packages.file_name()?.to_str()?))
}

/// Downloads, unpacks, checks and puts in place.
pub(super) fn install(
    project: &Project,
    packages: &Path,
    flavour: Flavour,
) -> Result<(), SetupError> {
    let prefix = partial_prefix(packages).unwrap_or_else(|| ".libtorch.partial-".into());
    let partial = packages.with_file_name(format!("{prefix}{}", std::process::id()));
    // A folder of this name can only be a dead process's whose id has come round again.
    let _ = fs::remove_dir_all(&partial);
    let result =
        fill(project, &partial, flavour).and_then(|()| publish(&partial, packages, flavour));
    let _ = fs::remove_dir_all(&partial);
    result
}

/// Makes `partial/packages` whole.
fn fill(project: &Project, partial: &Path, flavour: Flavour) -> Result<(), SetupError> {
    let scratch = partial.join("tmp");
    fs::create_dir_all(&scratch).map_err(io_error(&scratch, "create it"))?;
    machine::check_disk(partial, flavour.room_mb())?;
    let pip = Pip::find(partial)?;
    let unpacked = partial.join("packages");
    eprintln!(
        "setup: getting libtorch {} (about {} MB to download, once)",
        contents::torch_version(),
        flavour.download_mb()
    );
    run_pip(&pip, project, flavour, &unpacked, &scratch)?;
    contents::check(&unpacked, flavour).map_err(|reason| SetupError::Incomplete {
        path: unpacked.clone(),
        reason: reason.to_string(),
    })
}

fn run_pip(
    pip: &Pip,
    project: &Project,
    flavour: Flavour,
    target: &Path,
    scratch: &Path,
) -> Result<(), SetupError> {
    let mut command = pip.install();
    command
        .args([
            "--no-deps",
            "--ignore-installed",
            "--only-binary=:all:",
            "--no-compile",
            "--require-hashes",
        ])
        .args(["--python-version", WHEEL_PYTHON, "--implementation", "cp"])
        .args(["--abi", WHEEL_ABI, "--abi", "abi3", "--abi", "none"]);
    let tags = (5..=28)
        .rev()
        .map(|minor| format!("manylinux_2_{minor}"))
        .chain(["2014", "2010", "1"].map(|old| format!("manylinux{old}")));
    for tag in tags {
        command
            .arg("--platform")
            .arg(format!("{tag}_{}", std::env::consts::ARCH));
    }
    // pip unpacks into its temporary folder first; beside the target that ends in a rename, and a small /tmp
    // does not matter.
    command.arg("--target").arg(target).env("TMPDIR", scratch);
    // One call for all lists: packages share the folder nvidia/, and pip does not add to a folder that exists.
    for (name, _) in flavour.lists() {
        command
            .arg("-r")
            .arg(project.root().join("tools").join(name));
    }
    let ended = run_shown(&mut command).map_err(io_error(target, "run pip for it"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = |what: &str| ended.stderr_tail.contains(what);
    if said("DO NOT MATCH THE HASHES") || said("do not match the hashes") {
        return Err(SetupError::Hash);
    }
    let network = [
        "NewConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ProxyError",
        "SSLError",
        "Temporary failure in name resolution",
        "No matching distribution found",
        "IncompleteRead",
        "ConnectionError",
    ];
    if network.iter().any(|what| said(what)) {
        return Err(SetupError::Network);
    }
    Err(SetupError::PipFailed {
        status: ended.status.to_string(),
    })
}

/// Renames `partial/packages` to its final name.
fn publish(partial: &Path, packages: &Path, flavour: Flavour) -> Result<(), SetupError> {
    if contents::check(packages, flavour).is_ok() {
        // Another run finished first; its copy may be in use already.
        return Ok(());
    }
    let old = partial.join("replaced");
    match fs::rename(packages, &old) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(packages, "move the old one away")(error)),
    }
    fs::rename(partial.join("packages"), packages)
        .map_err(io_error(packages, "put the new one in its place"))
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> SetupError {
    let path = path.to_path_buf();
    move |source| SetupError::Io {
        path,
        doing,
        source,
    }
}
