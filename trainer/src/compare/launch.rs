//! Starts the runs of a comparison, some at a time, and waits for them.
//!
//! In: a [`CompareConfig`] and the program to start. Out: how each run ended. Always holds: a run that is asked to end saves
//! first; a run's own output goes to `log.txt` in its folder's parent; seeds come before policies, so that a comparison cut off early has whole seeds.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hds::durable::FileError;
use rustix::process::{Pid, Signal, kill_process};

use super::figures::is_finished;
use super::{CompareConfig, CompareError};
use crate::run::Interrupt;

const POLL: Duration = Duration::from_millis(200);
/// Between two lines on how far the runs are.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// One run to do.
struct Job {
    name: String,
    overrides: Vec<String>,
    folder: PathBuf,
}

/// What starts runs.
pub struct Launch<'a> {
    /// `hds-train`.
    pub program: &'a Path,
    /// What to compare.
    pub config: &'a CompareConfig,
    /// The comparison's folder.
    pub out: &'a Path,
}

/// How the runs ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Runs that had been finished before.
    pub before: usize,
    /// Runs finished now.
    pub finished: usize,
    /// Runs that failed, and the last line of their output.
    pub failed: Vec<(String, String)>,
    /// Whether somebody asked to end.
    pub interrupted: bool,
}

impl Launch<'_> {
    /// Runs what is not finished.
    ///
    /// # Errors
    /// If a folder or a program cannot be made.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Outcome, CompareError> {
        let mut outcome = Outcome::default();
        let mut jobs = Vec::new();
        for &seed in &self.config.seeds {
            for policy in &self.config.policy {
                let folder = CompareConfig::folder(self.out, policy, seed);
                if is_finished(&folder) {
                    outcome.before += 1;
                    continue;
                }
                jobs.push(Job {
                    name: format!("{} seed {seed}", policy.name),
                    overrides: self.config.overrides(policy, seed),
                    folder,
                });
            }
        }
        let all = jobs.len();
        let mut waiting = jobs.into_iter();
        let mut running: Vec<(Job, Child, Instant)> = Vec::new();
        let mut said = Instant::now();
        let mut told_to_end = false;
        loop {
            while running.len() < self.config.at_once && !interrupt.is_asked() {
                let Some(job) = waiting.next() else { break };
                let child = self.start(&job)?;
                hds::note!("{}: started", job.name);
                running.push((job, child, Instant::now()));
            }
            if running.is_empty() {
                break;
            }
            if interrupt.is_asked() && !std::mem::replace(&mut told_to_end, true) {
                hds::note!("ending {} runs, each saves first", running.len());
                for (_, child, _) in &running {
                    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                        let _ = kill_process(pid, Signal::TERM);
                    }
                }
            }
            std::thread::sleep(POLL);
            let mut left = Vec::new();
            for (job, mut child, since) in running {
                let Some(status) = child.try_wait().map_err(|source| CompareError::Process {
                    action: "wait for a run",
                    source,
                })?
                else {
                    left.push((job, child, since));
                    continue;
                };
                // A run that was asked to end counts neither as finished nor as failed.
                if is_finished(&job.folder) {
                    outcome.finished += 1;
                    let minutes = since.elapsed().as_secs_f64() / 60.0;
                    hds::note!(
                        "{}: finished after {minutes:.1} min, {} of {all}",
                        job.name,
                        outcome.finished
                    );
                } else if !interrupt.is_asked() {
                    let reason = last_line(&job.folder).unwrap_or_else(|| status.to_string());
                    hds::note!("warning: {} failed: {reason}", job.name);
                    outcome.failed.push((job.name, reason));
                }
            }
            running = left;
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                for (job, ..) in &running {
                    hds::note!(
                        "{}: {}",
                        job.name,
                        last_line(&job.folder).unwrap_or_default()
                    );
                }
            }
        }
        outcome.interrupted = interrupt.is_asked();
        Ok(outcome)
    }

    fn start(&self, job: &Job) -> Result<Child, CompareError> {
        fs::create_dir_all(&job.folder).map_err(|e| FileError::new("create", &job.folder, e))?;
        let path = log_path(&job.folder);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| FileError::new("open", &path, e))?;
        let mut command = Command::new(self.program);
        command.arg("run").arg("--config").arg(&self.config.run);
        command.arg("--out").arg(&job.folder).arg("--resume");
        for text in &job.overrides {
            command.arg("--set").arg(text);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.spawn().map_err(|source| CompareError::Process {
            action: "start a run",
            source,
        })
    }
}

/// Beside the run's folder, which is the run's own.
fn log_path(folder: &Path) -> PathBuf {
    folder.with_extension("log")
}

/// The last line a run printed.
fn last_line(folder: &Path) -> Option<String> {
    let text = fs::read(log_path(folder)).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(str::to_owned)
}
