//! Runs everything that must pass before a change is merged.
//!
//! In: a checkout. Out: each step's output as it comes, a table with times, and a last line
//! `N passed, N failed, N skipped` that counts tests; a step other than the tests counts as one when it fails.
//! Later steps run even where an earlier one fails, so that one run shows everything.

mod python;
mod results;
mod servers;
mod steps;

use std::time::{Duration, Instant};

pub use results::Counts;
pub use steps::Step;

use crate::project::Project;

/// How a step ended.
#[derive(Debug)]
struct Ended {
    step: Step,
    verdict: Verdict,
    took: Duration,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    NotRun(&'static str),
}

/// Runs `only` these steps (all where empty) without those to `skip`; whether everything passed.
#[must_use]
pub fn run(project: &Project, only: &[Step], skip: &[Step]) -> bool {
    let mut counts = Counts::default();
    let mut ended: Vec<Ended> = Vec::new();
    for step in Step::ALL {
        // What a step cannot do without comes along: set-up is instant when done.
        let asked = only.is_empty()
            || only.contains(&step)
            || step == Step::Setup && only.iter().any(|other| other.needs(step));
        let wanted = asked && !skip.contains(&step);
        if !wanted {
            continue;
        }
        let missing = ended
            .iter()
            .find(|earlier| step.needs(earlier.step) && earlier.verdict != Verdict::Passed);
        if missing.is_some() {
            ended.push(Ended {
                step,
                verdict: Verdict::NotRun("what it needs failed"),
                took: Duration::ZERO,
            });
            continue;
        }
        eprintln!("\n== {}: {}", step.name(), step.shown());
        let started = Instant::now();
        let verdict = match step.run(project, &mut counts) {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        };
        ended.push(Ended {
            step,
            verdict,
            took: started.elapsed(),
        });
    }
    println!("\n{}", table(&ended));
    for unit in &counts.skipped_tests {
        println!("skipped {unit}");
    }
    let failed_steps = ended
        .iter()
        .filter(|ended| ended.verdict != Verdict::Passed);
    // Failing tests are counted one by one; what failed without a count counts once.
    let uncounted = failed_steps
        .clone()
        .filter(|ended| !matches!(ended.step, Step::Test | Step::Python) || counts.failed == 0)
        .count() as u64;
    let failed = counts.failed + uncounted;
    println!(
        "{} passed, {failed} failed, {} skipped",
        counts.passed, counts.skipped
    );
    failed == 0
}

fn table(ended: &[Ended]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for Ended {
        step,
        verdict,
        took,
    } in ended
    {
        let seconds = took.as_secs_f64();
        let _ = match verdict {
            Verdict::Passed => writeln!(text, "{:<8} passed  {seconds:>7.1} s", step.name()),
            Verdict::Failed(reason) => writeln!(
                text,
                "{:<8} FAILED  {seconds:>7.1} s  {reason}; again: cargo xtask test --only {}",
                step.name(),
                step.name()
            ),
            Verdict::NotRun(reason) => {
                writeln!(text, "{:<8} not run            {reason}", step.name())
            }
        };
    }
    text
}
