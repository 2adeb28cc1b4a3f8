//! `hds-train plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use hds_trainer::plan::{Plan, PlanOptions, Rate};
use hds_trainer::run::{Precision, RunConfig};

/// Say what a run will take: parameters, memory of a GPU, operations, time and disk.
///
/// Reads the configuration and, where it is there, the manifest of the index it names; trains and
/// writes nothing. Parameters, tokens and a checkpoint's tensors are exact. Memory, operations,
/// time and logs are estimates: memory is counted from the tensors that the trainer keeps,
/// without libraries, a CUDA context, communication buffers and what the allocator loses;
/// operations are 6 N D for the weights plus attention over all positions; time is tokens or
/// operations divided by the rate that you give. --gpus, --precision and checkpointed activations
/// show what such a run would need, also where this version cannot make it yet. Formulas:
/// docs/planning.md.
///
/// Examples:
///   hds-train plan trainer/recipes/pythia-1b.toml --gpus 8 --precision bf16 --tflops 990 --mfu 0.4
///   hds-train plan run.toml --set data.micro_batch_size=4 --tokens-per-second 1500 --json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct PlanArguments {
    /// TOML file with the run's configuration
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Change a value of the configuration by its dotted key, for example run.steps=500
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// GPUs that share each batch and the optimizer's states (ZeRO-1)
    #[arg(long, value_name = "N", default_value_t = 1)]
    gpus: u64,
    /// Numbers of the forward and backward pass [default: the configuration's run.precision]
    #[arg(long, value_enum)]
    precision: Option<Numbers>,
    /// Number of domains, where there is no index to read it from [default: The Pile's 22]
    #[arg(long, value_name = "K")]
    domains: Option<usize>,
    /// Ids of the tokenizer, where there is no index to read them from [default: Pythia's 50277]
    #[arg(long, value_name = "IDS")]
    vocabulary: Option<u64>,
    /// Training tokens per second of all GPUs together, as measured
    #[arg(long, value_name = "RATE", conflicts_with_all = ["tflops", "mfu"])]
    tokens_per_second: Option<f64>,
    /// Peak of one GPU in 10^12 operations per second
    #[arg(long, value_name = "TFLOPS", requires = "mfu")]
    tflops: Option<f64>,
    /// Share of that peak that training reaches (model FLOPs utilisation), in (0, 1]
    #[arg(long, value_name = "SHARE", requires = "tflops")]
    mfu: Option<f64>,
    /// Print JSON, bytes and seconds as plain numbers
    #[arg(long)]
    json: bool,
}

/// Numbers of the passes.
#[derive(Clone, Copy, ValueEnum)]
enum Numbers {
    /// 32 bits
    #[value(alias = "f32")]
    Fp32,
    /// bfloat16
    Bf16,
    /// IEEE half precision
    #[value(alias = "f16")]
    Fp16,
}

/// Prints the plan.
pub fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let config = RunConfig::load(&arguments.config, &arguments.set)?;
    let rate = match (arguments.tokens_per_second, arguments.tflops, arguments.mfu) {
        (Some(tokens_per_second), ..) => Some(Rate::TokensPerSecond { tokens_per_second }),
        (None, Some(tflops), Some(mfu)) => Some(Rate::Peak { tflops, mfu }),
        _ => None,
    };
    let options = PlanOptions {
        gpus: arguments.gpus,
        precision: match arguments.precision {
            None => config.run.precision,
            Some(Numbers::Fp32) => Precision::Fp32,
            Some(Numbers::Bf16) => Precision::Bf16,
            Some(Numbers::Fp16) => Precision::Fp16,
        },
        domains: arguments.domains,
        vocabulary: arguments.vocabulary,
        rate,
    };
    let plan = Plan::new(&config, &options)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&plan)? + "\n"
    } else {
        plan.table()
    };
    hds::message::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
