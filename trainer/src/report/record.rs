//! The records of `metrics.jsonl`, as far as a report reads them.
//!
//! Legend: K domains, in the order of the header's `domains`. A non-finite number is logged as
//! `null` and read as `None`; fields that a report can do without may be absent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// A number that may have been non-finite.
pub type Maybe = Option<f64>;

/// The tag that every record has.
#[derive(Deserialize)]
pub struct Tag<'a> {
    /// `run`, `step`, `eval`, `gave_up` or something newer.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
}

/// The first line: what was run.
#[derive(Clone, Debug, Deserialize)]
pub struct RunRecord {
    /// Names; length K.
    pub domains: Vec<String>,
    /// The policy that chose the weights.
    pub policy: String,
    /// The model's preset.
    pub preset: Option<String>,
    /// Parameters of the model.
    pub parameters: Option<u64>,
    /// Parameters of the agent's networks together.
    pub agent_parameters: Option<u64>,
    /// Sequence length L in tokens.
    pub sequence_length: Option<u64>,
    /// Sequences a step.
    pub batch_size: Option<u64>,
    /// Steps planned.
    pub total_steps: Option<u64>,
    /// Steps before the policy takes over.
    #[serde(default)]
    pub warmup_steps: Option<u64>,
    /// Reference weights; length K.
    pub base_weights: Vec<Maybe>,
    /// What the run was to get good at; length K. Logs of older versions have none.
    pub target_weights: Option<Vec<Maybe>>,
    /// The index's fingerprint.
    pub index: Option<String>,
    /// The run's seed.
    pub seed: Option<u64>,
}

impl RunRecord {
    /// The target, where one was set: another than that every domain counts alike.
    pub fn target(&self) -> Option<Vec<f64>> {
        let weights: Vec<f64> = self
            .target_weights
            .iter()
            .flatten()
            .copied()
            .collect::<Option<_>>()?;
        let share = 1.0 / self.domains.len() as f64;
        let set = weights.iter().any(|w| (w - share).abs() >= 1e-9);
        set.then_some(weights)
    }
}

/// One optimizer step.
#[derive(Clone, Debug, Deserialize)]
pub struct StepRecord {
    /// From 0.
    pub step: u64,
    /// Tokens trained on so far.
    pub tokens: Option<u64>,
    /// Mean nats per token.
    pub loss: Maybe,
    /// In force at the step.
    pub learning_rate: Maybe,
    /// Global, before clipping.
    pub gradient_norm: Maybe,
    /// In force at the step; length K.
    pub weights: Vec<Maybe>,
    /// Sequences drawn; length K.
    pub samples: Vec<u64>,
    /// Mean MTLD of the sequences drawn; length K.
    pub mtld: Option<Vec<Maybe>>,
    /// The step's rewards, where the run measured them.
    pub rewards: Option<RewardRecord>,
    /// The policy's diagnostics by name.
    pub policy: Option<BTreeMap<String, Maybe>>,
    /// What depends on the clock.
    pub timing: Option<StepTiming>,
}

/// The rewards of a step.
#[derive(Clone, Debug, Deserialize)]
pub struct RewardRecord {
    /// As the formula gives it; length K.
    pub alignment_raw: Vec<Maybe>,
    /// As it enters the total; length K.
    pub alignment: Vec<Maybe>,
    /// As it enters the total; length K.
    pub diversity: Vec<Maybe>,
    /// As it enters the total, the same for all domains.
    pub stability: Maybe,
    /// The weighted sum; length K.
    pub total: Vec<Maybe>,
}

/// A step's clock.
#[derive(Clone, Debug, Deserialize)]
pub struct StepTiming {
    /// The whole step.
    pub step_seconds: Maybe,
    /// The part that signals, rewards and policy took.
    pub scheduler_seconds: Maybe,
    /// Of the step.
    pub tokens_per_second: Maybe,
}

/// One held-out evaluation.
#[derive(Clone, Debug, Deserialize)]
pub struct EvalRecord {
    /// Steps done.
    pub step: u64,
    /// Mean nats per token, `None` where nothing is held out; length K.
    pub losses: Vec<Maybe>,
    /// exp of the mean of the losses.
    pub macro_perplexity: Maybe,
    /// exp of the mean under base weights.
    pub base_perplexity: Maybe,
    /// exp of the mean under the target.
    pub target_perplexity: Maybe,
    /// What depends on the clock.
    pub timing: Option<EvalTiming>,
}

/// An evaluation's clock.
#[derive(Clone, Debug, Deserialize)]
pub struct EvalTiming {
    /// The whole evaluation.
    pub seconds: Maybe,
}

/// A run that gave up after this many steps.
#[derive(Clone, Debug, Deserialize)]
pub struct GaveUpRecord {
    /// Steps done.
    pub step: u64,
}

/// A line of the log.
pub enum Record {
    /// What was run.
    Run(Box<RunRecord>),
    /// A step.
    Step(Box<StepRecord>),
    /// An evaluation.
    Eval(Box<EvalRecord>),
    /// The end of a run that gave up; more may follow where it was gone on with all the same.
    GaveUp(GaveUpRecord),
    /// A kind this reader does not know.
    Other,
}

impl Record {
    /// Reads one line.
    ///
    /// # Errors
    /// With what is wrong with it, in words.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let tag: Tag = serde_json::from_slice(line).map_err(|e| reason(line, &e))?;
        Ok(match tag.kind.as_ref() {
            "run" => Self::Run(Box::new(parse_kind(line)?)),
            "step" => Self::Step(Box::new(parse_kind(line)?)),
            "eval" => Self::Eval(Box::new(parse_kind(line)?)),
            "gave_up" => Self::GaveUp(parse_kind(line)?),
            _ => Self::Other,
        })
    }
}

fn parse_kind<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|e| reason(line, &e))
}

/// serde_json counts lines within the one line it sees; keep its words and the column.
fn reason(line: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Data => what.to_owned(),
        _ if line.iter().all(u8::is_ascii_whitespace) => "the line is empty".to_owned(),
        _ => format!("not JSON at column {}: {what}", error.column()),
    }
}
