//! Reads the results of `cargo test` while they come.
//!
//! In: the output of test programs run with `--show-output`. Out: counts, and on the terminal what a plain
//! `cargo test` would show. A test that prints a line `skipped: reason` counts as skipped, not as passed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Counts over all test programs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that could not run.
    pub skipped: u64,
    /// Name and reason of tests that could not run.
    pub skipped_tests: Vec<String>,
}

/// Runs `cargo test`; the inner result says whether all passed.
pub(super) fn run_tests(
    command: &mut Command,
    counts: &mut Counts,
) -> io::Result<Result<(), String>> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut reader = Reader::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if reader.line(&line, counts) {
                writeln!(io::stderr(), "{line}")?;
            }
        }
    }
    let status = child.wait()?;
    Ok(match (status.success(), counts.failed) {
        (true, 0) => Ok(()),
        (_, 0) => Err("a test program did not build or did not end".into()),
        (_, failed) => Err(format!("{failed} tests failed")),
    })
}

/// Runs a program, shows what it prints as it comes, and gives it; whether it succeeded.
pub(super) fn output_of(command: &mut Command) -> io::Result<(String, bool)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(io::stderr(), "{line}")?;
            text.push_str(&line);
            text.push('\n');
        }
    }
    Ok((text, child.wait()?.success()))
}

/// Where in the output of a test program a line is.
#[derive(Debug, Default)]
struct Reader {
    /// In the output of tests that passed, which nobody needs to see.
    in_successes: bool,
    /// The test whose output is being read.
    test: String,
    /// Tests of this program that said they could not run.
    skipped: Vec<String>,
}

impl Reader {
    /// Takes a line; whether it is to be shown.
    fn line(&mut self, line: &str, counts: &mut Counts) -> bool {
        if line == "successes:" {
            self.in_successes = true;
            return false;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.test.clear();
            self.count(result, counts);
            return true;
        }
        if line == "failures:" {
            self.in_successes = false;
            return true;
        }
        if !self.in_successes {
            return true;
        }
        if let Some(rest) = line.strip_prefix("---- ") {
            self.test = rest.split(' ').next().unwrap_or(rest).to_owned();
        } else if let Some(reason) = line
            .strip_prefix("skipped: ")
            .filter(|_| !self.test.is_empty())
        {
            let test = std::mem::take(&mut self.test);
            self.skipped.push(format!("{test}: {reason}"));
        }
        false
    }

    /// Counts "ok. 3 passed; 0 failed; 1 ignored; 0 measured; …".
    fn count(&mut self, result: &str, counts: &mut Counts) {
        let number = |what: &str| {
            let before = result
                .split(what)
                .next()
                .filter(|before| before.len() < result.len())?;
            before
                .trim_end()
                .rsplit([' ', ';'])
                .next()?
                .parse::<u64>()
                .ok()
        };
        let skipped = self.skipped.len() as u64;
        counts.passed += number("passed").unwrap_or(0).saturating_sub(skipped);
        counts.failed += number("failed").unwrap_or(0);
        counts.skipped += number("ignored").unwrap_or(0) + skipped;
        counts.skipped_tests.append(&mut self.skipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test a::one ... ok
test a::two ... ok
test a::three ... FAILED

successes:

---- a::one stdout ----
skipped: no shared data

---- a::two stdout ----
this line is not about being skipped: no


successes:
    a::one
    a::two

failures:

---- a::three stdout ----
skipped: said by a test that failed

failures:
    a::three

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 10 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn results_of_several_programs_are_added_up() {
        let mut counts = Counts::default();
        let mut reader = Reader::default();
        let shown: Vec<&str> = OUTPUT
            .lines()
            .filter(|line| reader.line(line, &mut counts))
            .collect();
        let want = Counts {
            passed: 11,
            failed: 1,
            skipped: 3,
            skipped_tests: vec!["a::one: no shared data".into()],
        };
        assert_eq!(counts, want);
        assert!(shown.contains(&"---- a::three stdout ----"));
        assert!(!shown.iter().any(|line| line.contains("a::one stdout")));
    }
}
