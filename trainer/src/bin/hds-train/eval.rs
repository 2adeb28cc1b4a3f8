//! `hds-train eval`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use hds::durable;
use hds_trainer::mmlu::{self, MmluError, MmluOptions, MmluScores, Questions};
use hds_trainer::run::{
    DataSection, EvaluateOptions, LoadedModel, NamedWeights, Target, evaluate_held_out,
};
use hds_trainer::tokenizer::Tokenizer;
use serde::Deserialize;

/// Measure a trained model: held-out perplexity by domain, or MMLU.
///
/// MODEL is the folder of a run (its newest whole checkpoint, or that of --step), one of its
/// checkpoints, or a Hugging Face folder of a GPT-NeoX model (config.json and safetensors). A run
/// that goes on is not disturbed; nothing is written but --samples.
///
/// Without --mmlu: loss, perplexity and bits per byte of every domain on the held-out split,
/// their mean over domains, under base weights, and under the target where one is set. Index,
/// sequence length, number of sequences, weights, target, device and threads are those of the run,
/// and the figures then are what the run itself logged at that step. Bits per byte take the bytes
/// and tokens of the whole held-out split.
///
/// With --mmlu: accuracy by subject, group and over all, as the lm-evaluation-harness scores the
/// task `mmlu`. FOLDER holds test.jsonl and dev.jsonl (also .jsonl.zst; the layout of cais/mmlu),
/// or test/SUBJECT_test.csv and dev/SUBJECT_dev.csv (the original archive's). The tokenizer must
/// be the one that the model was trained with: bytes need none, any other its tokenizer.json by
/// --tokenizer, which is checked against the index.
///
/// Examples:
///   hds-train eval runs/a
///   hds-train eval runs/a --step 4000 --index other-index --tokens 100000 --json
///   hds-train eval runs/a --mmlu mmlu --shots 5 --tokenizer 20B_tokenizer.json
///   hds-train eval pythia-160m --index pile-index --sequence-length 1024
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct EvalArguments {
    /// Folder of a run, of a checkpoint, or of a Hugging Face model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Step of the run's checkpoint [default: the newest]
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,
    /// Index with the held-out text [default: the run's]
    #[arg(long, value_name = "DIR")]
    index: Option<PathBuf>,
    /// Predicted tokens of each domain at most [default: the run's evaluation.sequences_per_domain]
    #[arg(long, value_name = "N", conflicts_with = "mmlu")]
    tokens: Option<u64>,
    /// Tokens a sequence [default: the run's, or the model's positions]
    #[arg(long, value_name = "N", conflicts_with = "mmlu")]
    sequence_length: Option<usize>,
    /// Weights of the mean under base weights [default: the run's, or natural]
    #[arg(long, value_enum, conflicts_with = "mmlu")]
    base_weights: Option<Weights>,
    /// Weights of the mean under the target: uniform, base or as in TOML, '{ code = 3, law = 1 }'
    /// [default: the run's data.target, or uniform]
    #[arg(long, value_name = "TARGET", value_parser = target, conflicts_with = "mmlu")]
    target: Option<Target>,
    /// Folder of MMLU's questions
    #[arg(long, value_name = "FOLDER")]
    mmlu: Option<PathBuf>,
    /// Examples before each question, the first of the subject's dev split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mmlu")]
    shots: usize,
    /// Questions of each subject at most
    #[arg(long, value_name = "N", requires = "mmlu")]
    limit: Option<usize>,
    /// Subjects to ask, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "mmlu")]
    subjects: Vec<String>,
    /// The tokenizer.json that the index was built with
    #[arg(long, value_name = "FILE", requires = "mmlu")]
    tokenizer: Option<PathBuf>,
    /// Write every question's log-likelihoods as JSON Lines; a file of that name is replaced
    #[arg(long, value_name = "FILE", requires = "mmlu")]
    samples: Option<PathBuf>,
    /// Sequences of a forward pass [default: the run's, or 8]
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// cpu, cuda or cuda:N [default: the run's, or cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// CPU threads, 0 for all cores [default: the run's, or all]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Rules for weights.
#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    /// In proportion to the training tokens
    Natural,
    /// The same for every domain
    Uniform,
    /// The Pile's
    Pile,
}

/// The value of `data.target`, in TOML or as a bare word.
fn target(text: &str) -> Result<Target, String> {
    #[derive(Deserialize)]
    struct Value {
        target: Target,
    }
    let quoted = toml::Value::String(text.to_owned());
    let bare = text.trim().chars().all(char::is_alphanumeric);
    let value = if bare {
        quoted.to_string()
    } else {
        text.to_owned()
    };
    let not_toml = |e: toml::de::Error| {
        format!(
            "{}: give uniform, base or '{{ NAME = WEIGHT }}' in TOML",
            e.message()
        )
    };
    let table: toml::Table = toml::from_str(&format!("target = {value}")).map_err(not_toml)?;
    let parsed = table.try_into::<Value>();
    parsed.map(|v| v.target).map_err(|e| e.message().to_owned())
}

/// Evaluates and prints.
pub fn eval(arguments: &EvalArguments) -> Result<ExitCode> {
    let options = EvaluateOptions {
        step: arguments.step,
        index: arguments.index.clone(),
        tokens: arguments.tokens,
        sequence_length: arguments.sequence_length,
        batch_size: arguments.batch_size,
        base_weights: arguments.base_weights.map(|weights| match weights {
            Weights::Natural => NamedWeights::Natural,
            Weights::Uniform => NamedWeights::Uniform,
            Weights::Pile => NamedWeights::Pile,
        }),
        target: arguments.target.clone(),
        device: arguments.device.clone(),
        threads: arguments.threads,
    };
    if let Some(samples) = &arguments.samples {
        check_writable(samples, arguments.mmlu.as_deref())?;
    }
    if arguments.limit == Some(0) {
        return Err(MmluError::Limit.into());
    }
    // Questions are read first: a wrong folder should not wait for a large model.
    let questions = arguments.mmlu.as_deref().map(Questions::read).transpose()?;
    let loaded = LoadedModel::open(&arguments.model, &options)?;
    for damaged in &loaded.trained.damaged {
        hds::note!("warning: {damaged}; using the checkpoint before it");
    }
    let (json, table) = match &questions {
        Some(questions) => {
            let scores = ask(arguments, &options, &loaded, questions)?;
            (serde_json::to_value(&scores)?, scores.table())
        }
        None => {
            let evaluation = evaluate_held_out(&loaded, &options)?;
            (serde_json::to_value(&evaluation)?, evaluation.table())
        }
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&json)? + "\n"
    } else {
        table
    };
    hds::message::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what could not be written, or would replace a question, before hours of scoring.
fn check_writable(samples: &Path, questions: Option<&Path>) -> Result<()> {
    let shown = samples.display();
    if samples.metadata().is_ok_and(|there| !there.is_file()) {
        bail!("--samples {shown}: it is no regular file");
    }
    let folder = match samples.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder
        .canonicalize()
        .with_context(|| format!("--samples {shown}: its folder"))?;
    let questions = questions.and_then(|questions| questions.canonicalize().ok());
    if questions.is_some_and(|questions| folder.starts_with(questions)) {
        bail!("--samples {shown}: it would lie among the questions");
    }
    Ok(())
}

fn ask(
    arguments: &EvalArguments,
    options: &EvaluateOptions,
    loaded: &LoadedModel,
    questions: &Questions,
) -> Result<MmluScores> {
    let tokenizer = tokenizer(arguments, options, loaded)?;
    let asked = MmluOptions {
        shots: arguments.shots,
        limit: arguments.limit,
        subjects: arguments.subjects.clone(),
        batch_size: arguments.batch_size.unwrap_or(8).max(1),
    };
    let mut told = 0;
    let scores = mmlu::score(&loaded.model, &tokenizer, questions, &asked, |done, all| {
        // A line for every tenth is enough, on a terminal or in a log.
        if done * 10 / all > told {
            told = done * 10 / all;
            hds::note!("{done} of {all} sequences scored");
        }
    })?;
    if let Some(path) = &arguments.samples {
        durable::write_file(path, |w| {
            for answered in &scores.answered {
                serde_json::to_writer(&mut *w, answered)?;
                w.write_all(b"\n")?;
            }
            Ok(())
        })?;
    }
    Ok(scores)
}

/// The tokenizer of the run's index, or of the one given; without any index, the file that is given is trusted.
fn tokenizer(
    arguments: &EvalArguments,
    options: &EvaluateOptions,
    loaded: &LoadedModel,
) -> Result<Tokenizer> {
    let file = arguments.tokenizer.as_deref();
    let index = loaded.index_path(options).ok();
    let data = match &loaded.trained.config {
        Some(config) => config.data.clone(),
        None => DataSection::default(),
    };
    let manifest = match &index {
        Some(index) => data.manifest_of(index)?,
        None => None,
    };
    if let (Some(index), None) = (&options.index, &manifest) {
        bail!("no index in {}", index.display());
    }
    match (index.zip(manifest), file) {
        (Some((index, manifest)), file) => {
            loaded.check_tokenizer(&index, &manifest.tokenizer)?;
            Ok(Tokenizer::of_index(&manifest.tokenizer, file)?)
        }
        (None, Some(file)) => {
            hds::note!(
                "note: no index tells the model's tokenizer; {} is taken for it",
                file.display()
            );
            Ok(Tokenizer::from_file(file)?)
        }
        (None, None) => {
            let own = loaded.trained.model.join("tokenizer.json");
            own_tokenizer(&own)
        }
    }
}

fn own_tokenizer(file: &Path) -> Result<Tokenizer> {
    if !file.is_file() {
        bail!(
            "no index and no tokenizer.json beside the model: give the tokenizer by --tokenizer FILE or its index by --index"
        );
    }
    Tokenizer::from_file(file).context("the tokenizer beside the model")
}
