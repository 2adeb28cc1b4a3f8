//! `hds-train export`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use hds_trainer::run::{StoredAs, Trained, export as write_export};

/// Write a trained model as a Hugging Face folder: config.json and safetensors.
///
/// MODEL is the folder of a run (its newest whole checkpoint, or that of --step), one of its
/// checkpoints, or a Hugging Face folder. The new folder OUT is read by
/// `GPTNeoXForCausalLM.from_pretrained` and, with --tokenizer, by `AutoTokenizer` and by
/// lm-evaluation-harness. OUT is whole or absent; one that is there, or that would lie among a
/// run's checkpoints, is refused. (The folder `model` inside a checkpoint is such a folder too, in
/// 32 bits and without a tokenizer.)
///
/// Examples:
///   hds-train export runs/a --out exported --tokenizer 20B_tokenizer.json
///   hds-train export runs/a --step 4000 --stored-as f16 --out exported-4000
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ExportArguments {
    /// Folder of a run, of a checkpoint, or of a Hugging Face model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// New folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Step of the run's checkpoint [default: the newest]
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,
    /// Numbers to store weights in
    #[arg(long, value_enum, default_value_t = Numbers::F32)]
    stored_as: Numbers,
    /// Store weights beyond the range of f16 or bf16 as the ends of it; without this they are refused
    #[arg(long)]
    clamp: bool,
    /// The tokenizer.json that the index was built with; checked against it and copied
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
}

/// Numbers of weights.
#[derive(Clone, Copy, ValueEnum)]
enum Numbers {
    /// 32 bits, as trained
    F32,
    /// bfloat16
    Bf16,
    /// IEEE half precision, as published Pythia models are
    F16,
}

/// Exports.
pub fn export(arguments: &ExportArguments) -> Result<ExitCode> {
    let trained = Trained::find(&arguments.model, arguments.step)?;
    for damaged in &trained.damaged {
        hds::note!("warning: {damaged}; using the checkpoint before it");
    }
    let stored = match arguments.stored_as {
        Numbers::F32 => StoredAs::F32,
        Numbers::Bf16 => StoredAs::Bf16,
        Numbers::F16 => StoredAs::F16,
    };
    let clamped = write_export(
        &trained,
        &arguments.out,
        stored,
        arguments.tokenizer.as_deref(),
        arguments.clamp,
    )?;
    if clamped > 0 {
        hds::note!("warning: {clamped} weights were beyond the range and are stored as its ends");
    }
    hds::note!("written to {}", arguments.out.display());
    Ok(ExitCode::SUCCESS)
}
