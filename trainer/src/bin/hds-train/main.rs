//! The command `hds-train`: trains Pythia models under live domain weights, and shows what came out.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod eval;
mod export;
mod plan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use hds_trainer::compare::{self, CompareConfig, CompareError, Launch};
use hds_trainer::distributed::{self, Group};
use hds_trainer::plan::check_memory;
use hds_trainer::report;
use hds_trainer::run::{Interrupt, Outcome, RunConfig, RunError, Start, Trainer};

/// Train Pythia models under domain weights that a policy sets at every step.
///
/// A run is one TOML file plus overrides. Its folder holds config.toml (resolved), metrics.jsonl, weights.jsonl (enough to replay the
/// run without its agent), events.jsonl and checkpoints/.
#[derive(Parser)]
#[command(name = "hds-train", version, long_version = LONG_VERSION.as_str(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(RunArguments),
    Report(ReportArguments),
    Compare(CompareArguments),
    Plan(plan::PlanArguments),
    Eval(eval::EvalArguments),
    Export(export::ExportArguments),
}

/// Start a run, or go on with one.
///
/// Reads the configuration and the index it names; writes into the folder OUT only. Nothing is
/// overwritten: a folder that holds a run is refused unless --resume is given. SIGINT, SIGTERM and
/// SIGHUP save a checkpoint and end the run; a second SIGINT ends it at once. Every key of the
/// configuration is in docs/configuration.md.
///
/// Started by torchrun, srun or mpirun, several processes train one model: see docs/distributed.md.
/// That needs a program built with Gloo's headers (Debian, Ubuntu: libgloo-dev); hds-train --version
/// says whether this one is.
///
/// Examples:
///   hds-train run --config run.toml --out runs/a
///   hds-train run --config run.toml --out runs/b --set run.seed=2 --set scheduler.policy=fixed
///   hds-train run --out runs/a --resume
///   torchrun --nproc-per-node 2 --no-python hds-train run --config run.toml --out runs/c
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct RunArguments {
    /// TOML file with the run's configuration; with --resume the folder's own config.toml if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the run; made if needed
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on from the newest whole checkpoint in OUT; from the first step if there is none
    #[arg(long)]
    resume: bool,
    /// Change a value of the configuration by its dotted key, for example run.steps=500
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Process that started this one: when it is gone, save and end as by SIGTERM
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<u32>,
}

/// Write the page that shows a run: report.html in its folder.
///
/// Reads metrics.jsonl and config.toml of the folder, also of a run that is still going on. An older
/// report.html is replaced. Prints a table of held-out perplexity and weights per domain.
///
/// Example:
///   hds-train report runs/a
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct ReportArguments {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Run policies beside each other and compare what they reach.
///
/// A comparison is one TOML file: a run's configuration, policies as overrides of it, and seeds. Every
/// policy is run with every seed, each run in a folder of its own, OUT/runs/POLICY/seed-N. Finished
/// runs are not run again and stopped ones go on, so the same command continues after any stop; SIGINT
/// and SIGTERM let the runs save first. Prints tables; writes OUT/compare.json and OUT/compare.html.
///
/// Exit status: 0 where all runs are finished, 1 where one failed or gave up, 75 where some are left
/// to run. A run that gave up (loss or gradient stayed infinite or NaN) is not run again and counts as
/// one of infinite perplexity.
///
/// Examples:
///   hds-train compare --config trainer/recipes/compare-minipile.toml --out runs/comparison
///   hds-train compare --config trainer/recipes/compare-minipile.toml --out runs/comparison --no-runs
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct CompareArguments {
    /// TOML file of the comparison
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Folder of the comparison; made if needed
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Start nothing; compare the runs there are
    #[arg(long)]
    no_runs: bool,
}

/// Version and what this program was built with.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\n{}", env!("CARGO_PKG_VERSION"), distributed::SUPPORT));

fn main() -> ExitCode {
    hds_trainer::memory::keep();
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Report(arguments) => write_report(&arguments),
        Command::Compare(arguments) => compare_policies(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Eval(arguments) => eval::eval(&arguments),
        Command::Export(arguments) => export::export(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            hds::note!("error: {}", hds::message::with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let start = if arguments.resume {
        Start::Resume
    } else {
        Start::New
    };
    let path = match &arguments.config {
        Some(path) => path.clone(),
        None if arguments.resume => {
            let saved = arguments.out.join("config.toml");
            if !saved.exists() {
                bail!(
                    "no run in {}: there is nothing to resume; start one with --config FILE",
                    arguments.out.display()
                );
            }
            saved
        }
        None => bail!(
            "no configuration: give --config FILE, or --resume to go on with {}",
            arguments.out.display()
        ),
    };
    let config = RunConfig::load(&path, &arguments.set)?;
    let group = Rc::new(match distributed::Launch::from_environment()? {
        Some(launch) => Group::join(&launch, &config.distributed)?,
        None => Group::alone(),
    });
    // After the ranks have met, so that a signal ends one that waits.
    let interrupt = Interrupt::listen().context("cannot listen to SIGINT and SIGTERM")?;
    if let Some(parent) = arguments.end_with {
        let told = interrupt.end_with_parent(parent);
        told.context("cannot ask to be told of the end of the process that started this one")?;
    }
    let outcome = train(config, &arguments.out, start, &group, &interrupt);
    let failure = outcome.as_ref().err();
    let failure = failure.map(|error| hds::message::with_causes(error.as_ref()));
    group.close(failure.as_deref());
    let outcome = match outcome {
        Err(error)
            if group.is_alone() && matches!(error.downcast_ref(), Some(RunError::Interrupted)) =>
        {
            hds::note!("{error}");
            return Ok(ExitCode::from(75));
        }
        Err(error) if !group.is_alone() => {
            let rank = format!("rank {} of {}", group.rank(), group.world());
            return Err(error.context(rank));
        }
        outcome => outcome?,
    };
    let checkpoint = outcome.checkpoint.display();
    if !group.leads() {
        return Ok(if outcome.interrupted {
            ExitCode::from(75)
        } else {
            ExitCode::SUCCESS
        });
    }
    if outcome.interrupted {
        hds::note!(
            "ended early after {} steps, saved in {checkpoint}; go on with\n  hds-train run --out {} --resume",
            outcome.steps,
            arguments.out.display()
        );
        // 75, EX_TEMPFAIL of sysexits.h: nothing failed, run again to finish.
        return Ok(ExitCode::from(75));
    }
    hds::note!("{} steps done, saved in {checkpoint}", outcome.steps);
    Ok(ExitCode::SUCCESS)
}

fn train(
    config: RunConfig,
    out: &Path,
    start: Start,
    group: &Rc<Group>,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    check_memory(&config, group.world(), group.local_world())?;
    let trainer = Trainer::in_group(config, out, start, Rc::clone(group), interrupt)?;
    Ok(trainer.run(interrupt)?)
}

fn write_report(arguments: &ReportArguments) -> Result<ExitCode> {
    let page = report::write_report(&arguments.folder)?;
    let table = report::summary_table(&arguments.folder)?;
    hds::message::print(&format!("{table}\nreport: {}\n", page.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn compare_policies(arguments: &CompareArguments) -> Result<ExitCode> {
    if let Some(launch) = distributed::Launch::from_environment()? {
        bail!(
            "compare starts its runs itself, each in one process; {} asks for {} (set RANK=0 WORLD_SIZE=1)",
            launch.variable,
            launch.world
        );
    }
    let config = CompareConfig::load(&arguments.config)?;
    config.check_runs(&arguments.out)?;
    let mut code = ExitCode::SUCCESS;
    if !arguments.no_runs {
        let interrupt = Interrupt::listen().context("cannot listen to SIGINT and SIGTERM")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let launch = Launch {
            program: &program,
            config: &config,
            out: &arguments.out,
        };
        let outcome = launch.run(&interrupt)?;
        hds::note!(
            "{} runs finished before, {} now, {} failed",
            outcome.before,
            outcome.finished,
            outcome.failed.len()
        );
        for policy in &config.policy {
            for &seed in &config.seeds {
                let folder = CompareConfig::folder(&arguments.out, policy, seed);
                if folder.join(report::METRICS_FILE).exists()
                    && let Err(error) = report::write_report(&folder)
                {
                    hds::note!("warning: no report: {error}");
                }
            }
        }
        if outcome.interrupted {
            hds::note!("ended early; the same command goes on");
            code = ExitCode::from(75);
        } else if !outcome.failed.is_empty() {
            code = ExitCode::FAILURE;
        }
    }
    let written = match compare::write_comparison(&config, &arguments.out) {
        Err(CompareError::Nothing { .. }) if code == ExitCode::from(75) => return Ok(code),
        written => written?,
    };
    hds::message::print(&written.table)?;
    if written.unfinished > 0 {
        let all = config.policy.len() * config.seeds.len();
        hds::note!(
            "warning: {} of {all} runs are not finished and not in these figures",
            written.unfinished
        );
        if code == ExitCode::SUCCESS {
            // 75, as of a run that ended early: nothing failed, the same command without --no-runs goes on.
            code = ExitCode::from(75);
        }
    }
    for (folder, steps) in &written.gave_up {
        hds::note!(
            "warning: {} gave up after {steps} steps, as loss or gradient was no longer finite: its perplexity counts as infinite \
             (remove it to run it again)",
            folder.display()
        );
        code = ExitCode::FAILURE;
    }
    let page = arguments.out.join(compare::PAGE_FILE);
    hds::note!("report in {}", page.display());
    Ok(code)
}
