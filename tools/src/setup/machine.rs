//! Checks of the machine that come before a long download or build.

use std::path::Path;
use std::process::Command;

use super::SetupError;
use crate::process::quiet_stdout;

/// Oldest glibc that the pinned wheels run on (their `manylinux_2_28` tag).
const OLDEST_GLIBC: (u32, u32) = (2, 28);

/// Refuses platforms that the pinned packages do not cover.
pub(super) fn check_platform() -> Result<(), SetupError> {
    let covered = cfg!(all(
        target_os = "linux",
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ));
    if !covered {
        let libc = if cfg!(target_env = "musl") {
            " (musl)"
        } else {
            ""
        };
        return Err(SetupError::Platform {
            os: format!("{}{libc}", std::env::consts::OS),
            arch: std::env::consts::ARCH,
        });
    }
    // "glibc 2.36"; a machine without getconf is given the benefit of the doubt.
    let text = quiet_stdout(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    let version = text.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    if let (Some(major), Some(minor)) = (parts.next(), parts.next())
        && (major, minor) < OLDEST_GLIBC
    {
        return Err(SetupError::Glibc {
            got: version.to_owned(),
        });
    }
    Ok(())
}

/// Compiles a C++17 line, with the compiler that the build of torch-sys will take.
pub(super) fn check_compiler() -> Result<(), SetupError> {
    if cfg!(windows) {
        // The build finds MSVC by itself; there is no command on PATH to try.
        return Ok(());
    }
    let tried = std::env::var("CXX")
        .ok()
        .filter(|cxx| !cxx.trim().is_empty())
        .unwrap_or_else(|| "c++".into());
    let failed = |detail: String| SetupError::Compiler {
        tried: tried.clone(),
        detail,
    };
    let mut words = tried.split_whitespace();
    let program = words.next().unwrap_or("c++");
    let mut child = Command::new(program)
        .args(words)
        .args(["-std=c++17", "-fsyntax-only", "-x", "c++", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!(": {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        use std::io::Write;
        // A compiler that ends early is reported below by its status.
        let _ =
            stdin.write_all(b"#include <cstddef>\nint main() { if (int x = 0; x) {} return 0; }\n");
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(format!(": {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(format!(
        "; it said:\n{}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    )))
}

/// Refuses to start where the file system of `path` has less than `need_mb` free.
pub(super) fn check_disk(path: &Path, need_mb: u64) -> Result<(), SetupError> {
    // `df` is asked, as the standard library cannot; an unknown answer is no reason to stop.
    let Some(text) = quiet_stdout(Command::new("df").arg("-Pk").arg(path)) else {
        return Ok(());
    };
    let free_kb = text
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    match free_kb {
        Some(free_kb) if free_kb / 1024 < need_mb => Err(SetupError::Disk {
            path: path.to_path_buf(),
            free_mb: free_kb / 1024,
            need_mb,
        }),
        _ => Ok(()),
    }
}
