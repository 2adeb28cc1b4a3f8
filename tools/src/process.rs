//! Runs other programs with their output shown as it comes.
//!
//! In: a command. Out: its exit status and the end of what it wrote to stderr, for telling failures apart.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

/// Lines of stderr that are kept.
const KEPT_LINES: usize = 200;

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The last lines it wrote to stderr.
    pub stderr_tail: String,
}

/// Runs `command` to its end; stdout goes where this program's stderr goes (stdout is kept for data), stderr
/// is shown and its tail kept.
///
/// # Errors
/// Where the program cannot be started or its output cannot be read.
pub fn run_shown(command: &mut Command) -> io::Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut tail = VecDeque::new();
    if let Some(pipe) = child.stderr.take() {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            io::stderr().write_all(&line)?;
            if tail.len() == KEPT_LINES {
                tail.pop_front();
            }
            tail.push_back(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    }
    let status = child.wait()?;
    Ok(Ended {
        status,
        stderr_tail: tail.into_iter().collect(),
    })
}

/// Runs `command` quietly and gives its stdout where it succeeds; `None` where it is missing or fails.
#[must_use]
pub fn quiet_stdout(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
