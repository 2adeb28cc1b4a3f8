//! The whole of HDS once, on this machine: corpus, index, training under live weights, report.
//!
//! In: a checkout. Out: `out/demo/` with `corpus/`, `index/` and `run/` (`run/report.html` is what to look at), and a
//! table of what happened. A step whose inputs have not changed is not repeated; a training run that was stopped
//! goes on from its last checkpoint. The programs are run as a user would run them.

mod error;
mod interrupt;
mod ledger;
mod training;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub use error::DemoError;

use crate::corpus;
use crate::process::quiet_stdout;
use crate::project::{Project, cargo};
use crate::setup::{self, Flavour};
use ledger::Ledger;
use training::Length;

/// Raised when [`corpus::run`] makes another corpus of the same inputs.
const CORPUS_REVISION: u32 = 1;

/// Part of each domain that is held out: the smallest domain has some 40 documents, of which a few must be.
const VALID_FRACTION: &str = "0.08";

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Minutes to train; the configuration's own length where `None`.
    pub minutes: Option<f64>,
    /// A smaller corpus and a short training, in a folder of its own.
    pub quick: bool,
    /// Remove what earlier runs have made.
    pub fresh: bool,
}

/// A finished step, for the table.
#[derive(Debug)]
struct Row {
    step: &'static str,
    result: String,
    took: Option<Duration>,
}

/// The demo in progress.
struct Demo<'project> {
    project: &'project Project,
    folder: PathBuf,
    ledger: Ledger,
    rows: Vec<Row>,
}

/// Runs the demo and prints its table on stdout.
///
/// # Errors
/// Where a step fails or is interrupted; what is done so far is kept.
pub fn run(project: &Project, options: &Options) -> Result<(), DemoError> {
    let folder = project
        .root()
        .join("out")
        .join(if options.quick { "demo-quick" } else { "demo" });
    if options.fresh {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DemoError::io(&folder, "remove it")(error));
            }
            _ => eprintln!("demo: starting afresh"),
        }
    }
    fs::create_dir_all(&folder).map_err(DemoError::io(&folder, "create it"))?;
    let ledger = Ledger::open(&folder.join("steps.json"));
    let mut demo = Demo {
        project,
        folder,
        ledger,
        rows: Vec::new(),
    };
    let started = Instant::now();
    demo.set_up()?;
    let programs = demo.build()?;
    demo.make_corpus(if options.quick {
        12
    } else {
        corpus::DEFAULT_MEGABYTES
    })?;
    demo.index(&programs)?;
    let length = match options.minutes {
        Some(minutes) => Length::Minutes(minutes),
        None if options.quick => Length::Quick,
        None => Length::Configured,
    };
    training::train(&mut demo, &programs, length)?;
    training::report(&mut demo, &programs)?;
    demo.finish(started.elapsed());
    Ok(())
}

impl Demo<'_> {
    fn set_up(&mut self) -> Result<(), DemoError> {
        let started = self.begin("setup", "libtorch");
        let result = match setup::run(self.project, Flavour::Cpu)? {
            setup::Outcome::AlreadyThere => "libtorch was there".to_owned(),
            setup::Outcome::Installed => "libtorch installed in .libtorch/".to_owned(),
            setup::Outcome::Own(path) => format!("your LIBTORCH={}", path.display()),
        };
        self.end("setup", result, started);
        Ok(())
    }

    /// Builds the programs and gives the folder that they are in.
    fn build(&mut self) -> Result<PathBuf, DemoError> {
        let started = self.begin(
            "build",
            "cargo build --release --workspace --bins (the first time takes minutes)",
        );
        let mut command = Command::new(cargo());
        command.current_dir(self.project.root()).args([
            "build",
            "--release",
            "--workspace",
            "--bins",
        ]);
        self.run_program(&mut command, "cargo build")?;
        self.end("build", "hds-index, hds-train".into(), started);
        Ok(self.target_folder().join("release"))
    }

    fn target_folder(&self) -> PathBuf {
        let mut command = Command::new(cargo());
        command.current_dir(self.project.root()).args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
        ]);
        quiet_stdout(&mut command)
            .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
            .and_then(|metadata| Some(PathBuf::from(metadata["target_directory"].as_str()?)))
            .unwrap_or_else(|| self.project.root().join("target"))
    }

    fn make_corpus(&mut self, megabytes: u32) -> Result<(), DemoError> {
        let lock = read(&self.project.root().join("Cargo.lock"))?;
        let key = ledger::key(&[
            &lock,
            &megabytes.to_le_bytes(),
            &CORPUS_REVISION.to_le_bytes(),
        ]);
        let out = self.folder.join("corpus");
        if self.is_done("corpus", &key, &out) {
            return Ok(());
        }
        let started = self.begin(
            "corpus",
            "real text from the sources and manuals of this machine",
        );
        self.ledger.start("corpus", &key)?;
        let tallies = corpus::run(self.project, &out, megabytes)?;
        eprint!("{}", corpus::table(&tallies));
        let documents: u64 = tallies.iter().map(|tally| tally.documents).sum();
        let bytes: u64 = tallies.iter().map(|tally| tally.text_bytes).sum();
        let result = format!(
            "{} domains, {documents} documents, {} MB of text",
            tallies.len(),
            bytes / 1_000_000
        );
        self.ledger.finish("corpus", &key, &result)?;
        self.end("corpus", result, started);
        Ok(())
    }

    fn index(&mut self, programs: &Path) -> Result<(), DemoError> {
        let (corpus, out) = (self.folder.join("corpus"), self.folder.join("index"));
        let program = programs.join("hds-index");
        let also = format!("{} {VALID_FRACTION}", version(&program));
        let key =
            ledger::key_of_folder(&corpus, &also).map_err(DemoError::io(&corpus, "read it"))?;
        if self.is_done("index", &key, &out) {
            return Ok(());
        }
        let started = self.begin(
            "index",
            "hds-index build (bytes as tokens, MTLD of every document)",
        );
        self.ledger.start("index", &key)?;
        remove(&out)?;
        let mut command = Command::new(&program);
        command.arg("build").arg(&corpus).arg("-o").arg(&out);
        command.args(["--valid-fraction", VALID_FRACTION]);
        self.run_program(&mut command, "hds-index build")?;
        let result = format!(
            "{}, {} MB",
            self.project.shown(&out),
            folder_bytes(&out) / 1_000_000
        );
        self.ledger.finish("index", &key, &result)?;
        self.end("index", result, started);
        Ok(())
    }

    /// Whether the step has nothing to do; says so.
    fn is_done(&mut self, step: &'static str, key: &str, output: &Path) -> bool {
        let Some(result) = self.ledger.finished(step, key).filter(|_| output.exists()) else {
            return false;
        };
        eprintln!("\n== {step}: already done ({result})");
        self.rows.push(Row {
            step,
            result,
            took: None,
        });
        true
    }

    fn begin(&self, step: &str, what: &str) -> Instant {
        eprintln!("\n== {step}: {what}");
        Instant::now()
    }

    fn end(&mut self, step: &'static str, result: String, started: Instant) {
        self.rows.push(Row {
            step,
            result,
            took: Some(started.elapsed()),
        });
    }

    /// Runs a program with its output on stderr, so that stdout holds the table only.
    fn run_program(&self, command: &mut Command, name: &'static str) -> Result<(), DemoError> {
        let status = command
            .current_dir(self.project.root())
            .stdin(std::process::Stdio::null())
            .stdout(io::stderr())
            .status()
            .map_err(|source| DemoError::Start {
                program: name,
                source,
            })?;
        if status.success() {
            Ok(())
        } else {
            Err(DemoError::Failed {
                program: name,
                status: status.to_string(),
            })
        }
    }

    fn finish(&self, took: Duration) {
        println!("\n{:<8} {:>9}  result", "step", "seconds");
        for Row { step, result, took } in &self.rows {
            let seconds =
                took.map_or_else(|| "-".into(), |took| format!("{:.1}", took.as_secs_f64()));
            println!("{step:<8} {seconds:>9}  {result}");
        }
        println!(
            "{:<8} {:>9.1}  {}",
            "all",
            took.as_secs_f64(),
            self.project.shown(&self.folder)
        );
        println!(
            "\nThe report of the run: file://{}",
            self.folder.join("run").join("report.html").display()
        );
        println!(
            "Open it in a browser. Run `cargo xtask demo` again at any time; --fresh starts over."
        );
    }
}

/// What a program says of its version; part of what its output depends on.
fn version(program: &Path) -> String {
    quiet_stdout(Command::new(program).arg("--version")).unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>, DemoError> {
    fs::read(path).map_err(DemoError::io(path, "read it"))
}

fn remove(folder: &Path) -> Result<(), DemoError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DemoError::io(folder, "remove it")(error))
        }
        _ => Ok(()),
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
