//! Starts the runs of a comparison, some at a time, and waits for them.
//!
//! In: a [`CompareConfig`] and the program to start. Out: how each run ended. Always holds: a run that is asked to end saves
//! first, and so does a run whose comparison is gone, however it ended; a run's own output goes to `seed-N.log` beside its folder; seeds come before policies, so that a comparison cut off early has whole seeds.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hds::durable::FileError;
use rustix::process::{Pid, Signal, kill_process};

use super::figures::{End, end_of};
use super::{CompareConfig, CompareError};
use crate::run::Interrupt;

/// Held while runs are started.
const LOCK_FILE: &str = "compare.lock";
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
    /// Runs that had been finished before, or had given up.
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
    /// If another comparison is at work in the folder, or it cannot be made.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Outcome, CompareError> {
        fs::create_dir_all(self.out).map_err(|e| FileError::new("create", self.out, e))?;
        let lock_path = self.out.join(LOCK_FILE);
        let lock = File::create(&lock_path).map_err(|e| FileError::new("create", &lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(CompareError::Busy {
                    path: self.out.to_owned(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(FileError::new("lock", &lock_path, e).into()),
        }
        let mut outcome = Outcome::default();
        let mut jobs = Vec::new();
        for &seed in &self.config.seeds {
            for policy in &self.config.policy {
                let folder = CompareConfig::folder(self.out, policy, seed);
                if end_of(&folder).is_some() {
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
        let mut running: Vec<(Job, Child, Instant, u64)> = Vec::new();
        let mut said = Instant::now();
        let mut told_to_end = false;
        loop {
            while running.len() < self.config.at_once && !interrupt.is_asked() {
                let Some(job) = waiting.next() else { break };
                match self.start(&job) {
                    Ok((child, log_from)) => {
                        hds::note!("{}: started", job.name);
                        running.push((job, child, Instant::now(), log_from));
                    }
                    Err(error) => {
                        hds::note!("warning: {} failed: {error}", job.name);
                        outcome.failed.push((job.name, error.to_string()));
                    }
                }
            }
            if running.is_empty() {
                break;
            }
            if interrupt.is_asked() && !std::mem::replace(&mut told_to_end, true) {
                hds::note!("ending {} runs, each saves first", running.len());
                for (_, child, ..) in &running {
                    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                        let _ = kill_process(pid, Signal::TERM);
                    }
                }
            }
            std::thread::sleep(POLL);
            let mut left = Vec::new();
            for (job, mut child, since, log_from) in running {
                let status = match child.try_wait() {
                    Ok(None) => {
                        left.push((job, child, since, log_from));
                        continue;
                    }
                    Ok(Some(status)) => status.to_string(),
                    Err(error) => format!("cannot wait for it: {error}"),
                };
                // A run that was asked to end counts neither as finished nor as failed.
                if end_of(&job.folder) == Some(End::Finished) {
                    outcome.finished += 1;
                    let minutes = since.elapsed().as_secs_f64() / 60.0;
                    hds::note!(
                        "{}: finished after {minutes:.1} min, {} of {all}",
                        job.name,
                        outcome.finished
                    );
                } else if !interrupt.is_asked() {
                    let said = said_since(&job.folder, log_from);
                    let error = said.lines().rev().find(|line| line.starts_with("error"));
                    let reason =
                        error.map_or_else(|| status.clone(), |line| format!("{status}: {line}"));
                    hds::note!("warning: {} failed: {reason}", job.name);
                    outcome.failed.push((job.name, reason));
                }
            }
            running = left;
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                for (job, _, _, log_from) in &running {
                    let said = said_since(&job.folder, *log_from);
                    let last = said.lines().rev().find(|line| !line.trim().is_empty());
                    hds::note!("{}: {}", job.name, last.unwrap_or_default());
                }
            }
        }
        outcome.interrupted = interrupt.is_asked();
        Ok(outcome)
    }

    /// The program, and the length that its log had before.
    fn start(&self, job: &Job) -> Result<(Child, u64), CompareError> {
        fs::create_dir_all(&job.folder).map_err(|e| FileError::new("create", &job.folder, e))?;
        let path = log_path(&job.folder);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| FileError::new("open", &path, e))?;
        let log_from = log.metadata().map_or(0, |metadata| metadata.len());
        let option = |name: &str, path: &Path| {
            let mut text = std::ffi::OsString::from(name);
            text.push(path);
            text
        };
        let mut command = Command::new(self.program);
        command.arg("run").arg("--resume");
        command.arg(format!("--end-with={}", std::process::id()));
        // One argument each: a folder may begin with a dash.
        command.arg(option("--config=", &self.config.run));
        command.arg(option("--out=", &job.folder));
        for text in &job.overrides {
            command.arg(format!("--set={text}"));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().map_err(|source| CompareError::Process {
            action: "start a run",
            source,
        })?;
        Ok((child, log_from))
    }
}

/// Beside the run's folder, which is the run's own.
fn log_path(folder: &Path) -> PathBuf {
    folder.with_extension("log")
}

/// What a run printed since its log had so many bytes.
fn said_since(folder: &Path, from: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log_path(folder))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
