//! Trains under HDS and writes the report.
//!
//! In: the index, `trainer/recipes/demo.toml`. Out: `run/` with its report. A run that was started with the same
//! inputs and not finished is resumed; one with other inputs is replaced.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Demo, DemoError, interrupt, ledger, read, remove, version};

/// The run's configuration, from the checkout.
const CONFIG: &str = "trainer/recipes/demo.toml";
/// Exit status of a run that was told to stop and has saved its state (EX_TEMPFAIL of sysexits.h).
const STOPPED_STATUS: i32 = 75;
/// Steps that are timed to tell how many fit into the minutes asked for.
const TIMED_STEPS: u64 = 12;
/// Part of the time that steps get; evaluations and checkpoints take the rest.
const STEP_SHARE: f64 = 0.85;
/// Length of a quick run.
const QUICK_STEPS: u64 = 80;

/// How long to train.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    /// As the configuration says.
    Configured,
    /// A few steps, to see that everything works.
    Quick,
    /// About so many minutes on this machine.
    Minutes(f64),
}

/// Trains, or goes on with a run that was stopped.
pub(super) fn train(demo: &mut Demo<'_>, programs: &Path, length: Length) -> Result<(), DemoError> {
    let (index, run) = (demo.folder.join("index"), demo.folder.join("run"));
    let config = demo.project.root().join(CONFIG);
    let program = programs.join("hds-train");
    let manifest = read(&index.join("manifest.json"))?;
    let inputs = ledger::key(&[&read(&config)?, &manifest, version(&program).as_bytes()]);
    let mut settings = vec![format!("data.index={}", demo.project.shown(&index))];
    let steps = match length {
        Length::Configured => None,
        Length::Quick => Some(QUICK_STEPS),
        Length::Minutes(minutes) => {
            let seconds = seconds_per_step(demo, &program, &inputs, &settings)?;
            Some(((minutes * 60.0 * STEP_SHARE / seconds) as u64).max(TIMED_STEPS))
        }
    };
    if let Some(steps) = steps {
        let interval_steps = (steps / 12).max(1);
        settings.push(format!("run.steps={steps}"));
        settings.push(format!("evaluation.interval_steps={interval_steps}"));
        settings.push(format!("checkpoint.interval_steps={interval_steps}"));
    }
    let key = ledger::key(&[inputs.as_bytes(), settings.join("\n").as_bytes()]);
    if demo.is_done("train", &key, &run) {
        return Ok(());
    }
    let resume = demo.ledger.is_started("train", &key) && run.exists();
    let what = if resume {
        "hds-train run --resume (goes on from the last checkpoint)"
    } else {
        "hds-train run (a small Pythia under HDS; Ctrl-C saves and stops)"
    };
    let started = demo.begin("train", what);
    if !resume {
        remove(&run)?;
    }
    demo.ledger.start("train", &key)?;
    run_training(demo, &program, &run, &settings, resume)?;
    let result = summary(&run);
    demo.ledger.finish("train", &key, &result)?;
    demo.end("train", result, started);
    Ok(())
}

fn run_training(
    demo: &Demo<'_>,
    program: &Path,
    run: &Path,
    settings: &[String],
    resume: bool,
) -> Result<(), DemoError> {
    let mut command = Command::new(program);
    command
        .args(["run", "--config", CONFIG, "--out"])
        .arg(demo.project.shown(run));
    command.args(resume.then_some("--resume"));
    for setting in settings {
        command.args(["--set", setting]);
    }
    command
        .current_dir(demo.project.root())
        .stdin(Stdio::null())
        .stdout(io::stderr());
    let (status, stopped) = interrupt::run(&mut command).map_err(|source| DemoError::Start {
        program: "hds-train",
        source,
    })?;
    if stopped || status.code() == Some(STOPPED_STATUS) {
        return Err(DemoError::Stopped);
    }
    if !status.success() {
        return Err(DemoError::Failed {
            program: "hds-train run",
            status: status.to_string(),
        });
    }
    Ok(())
}

/// Seconds that a step takes here: the median of a short run, measured once for the same inputs.
fn seconds_per_step(
    demo: &mut Demo<'_>,
    program: &Path,
    inputs: &str,
    settings: &[String],
) -> Result<f64, DemoError> {
    if let Some(seconds) = demo
        .ledger
        .finished("pace", inputs)
        .and_then(|seconds| seconds.parse().ok())
    {
        return Ok(seconds);
    }
    let started = demo.begin("pace", "how long a step takes on this machine");
    let run = demo.folder.join("pace");
    remove(&run)?;
    let mut settings = settings.to_vec();
    settings.push(format!("run.steps={TIMED_STEPS}"));
    settings.push("evaluation.sequences_per_domain=1".into());
    run_training(demo, program, &run, &settings, false)?;
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let mut seconds: Vec<f64> = records(&text, "step")
        .filter_map(|step| step["timing"]["step_seconds"].as_f64())
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds
        .get(seconds.len() / 2)
        .copied()
        .filter(|median| *median > 0.0);
    let median = median.ok_or(DemoError::Failed {
        program: "hds-train run",
        status: "no timed step".into(),
    })?;
    remove(&run)?;
    demo.ledger.finish("pace", inputs, &median.to_string())?;
    demo.end("pace", format!("{median:.3} s a step"), started);
    Ok(median)
}

/// Writes the report; cheap, so always.
pub(super) fn report(demo: &mut Demo<'_>, programs: &Path) -> Result<(), DemoError> {
    let run = demo.folder.join("run");
    let started = demo.begin("report", "hds-train report");
    demo.run_program(
        Command::new(programs.join("hds-train"))
            .arg("report")
            .arg(&run),
        "hds-train report",
    )?;
    let page = run.join("report.html");
    let bytes = fs::metadata(&page)
        .map_err(DemoError::io(&page, "find the report"))?
        .len();
    let result = format!("{}, {} kB", demo.project.shown(&page), bytes / 1_000);
    demo.end("report", result, started);
    Ok(())
}

/// Steps, tokens, and the held-out perplexity at the first and the last evaluation.
fn summary(run: &Path) -> String {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let last_step = records(&text, "step").next_back();
    let number = |key: &str| last_step.as_ref().and_then(|step| step[key].as_u64());
    let steps = number("step").map_or(0, |step| step + 1);
    let tokens = number("tokens").unwrap_or(0);
    let mut perplexities =
        records(&text, "eval").filter_map(|eval| eval["macro_perplexity"].as_f64());
    let first = perplexities.next();
    let mut result = format!("{steps} steps, {:.1} M tokens", tokens as f64 / 1e6);
    if let (Some(first), Some(last)) = (first, perplexities.next_back().or(first)) {
        result.push_str(&format!(
            ", held-out perplexity (a byte, mean of domains) {first:.1} -> {last:.2}"
        ));
    }
    result
}

/// The records of one kind in `metrics.jsonl`; a last line that is still being written is passed over.
fn records<'text>(
    text: &'text str,
    kind: &'text str,
) -> impl DoubleEndedIterator<Item = Value> + 'text {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(move |record| record["kind"] == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_steps_tokens_and_perplexity() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let metrics = concat!(
            "{\"kind\": \"run\", \"domains\": [\"a\"]}\n",
            "{\"kind\": \"eval\", \"step\": 0, \"macro_perplexity\": 256.04}\n",
            "{\"kind\": \"step\", \"step\": 0, \"tokens\": 8192}\n",
            "{\"kind\": \"eval\", \"step\": 100, \"macro_perplexity\": null}\n",
            "{\"kind\": \"step\", \"step\": 199, \"tokens\": 1638400}\n",
            "{\"kind\": \"eval\", \"step\": 200, \"macro_perplexity\": 7.126}\n",
            "{\"kind\": \"step\", \"st",
        );
        fs::write(folder.path().join("metrics.jsonl"), metrics).expect("written");
        let want =
            "200 steps, 1.6 M tokens, held-out perplexity (a byte, mean of domains) 256.0 -> 7.13";
        assert_eq!(summary(folder.path()), want);
    }

    #[test]
    fn a_run_without_metrics_has_a_summary_too() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(summary(folder.path()), "0 steps, 0.0 M tokens");
    }
}
