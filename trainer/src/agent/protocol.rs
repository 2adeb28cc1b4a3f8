//! What goes over the wire: one JSON object a line, UTF-8, each request answered by one reply.
//!
//! In and out: plain data. Always holds: an unknown field or type is an error, never ignored, so that
//! a misspelt option does not pass for the default; numbers are finite (JSON has no others).
//!
//! Legend: K domains, S watched layers.

use serde::{Deserialize, Serialize};

use crate::reward::RewardConfig;
use crate::scheduler::SchedulerConfig;
use crate::signals::{Gram, Rewards};

/// Version of the protocol; a client of another one is refused.
pub const PROTOCOL: u32 = 1;

/// What a client sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// Shows the token; the first line of a TCP connection.
    Hello(Hello),
    /// Starts a run or goes on with one; a connection has at most one open.
    Open(Box<Open>),
    /// Sends what a step showed; answered by the weights of the next.
    Step(Box<Step>),
    /// Saves the run as it is now.
    Save(Save),
    /// Ends the run's session; it can be resumed from what was saved.
    Close(Close),
}

/// Why a line is no request, with the place of what is wrong: [`Request`] is told apart by a field, which loses the place.
pub(super) fn explain(line: &[u8], error: &serde_json::Error) -> String {
    fn of<T: serde::de::DeserializeOwned>(fields: serde_json::Value) -> Option<String> {
        let error = serde_path_to_error::deserialize::<_, T>(fields).err()?;
        let place = error.path().to_string();
        match place.as_str() {
            "." => Some(error.into_inner().to_string()),
            _ => Some(format!("{place}: {}", error.into_inner())),
        }
    }
    let placed = match serde_json::from_slice(line) {
        Ok(serde_json::Value::Object(mut fields)) => {
            let kind = fields.remove("type");
            let fields = serde_json::Value::Object(fields);
            match kind.as_ref().and_then(serde_json::Value::as_str) {
                Some("hello") => of::<Hello>(fields),
                Some("open") => of::<Open>(fields),
                Some("step") => of::<Step>(fields),
                Some("save") => of::<Save>(fields),
                Some("close") => of::<Close>(fields),
                _ => None,
            }
        }
        _ => None,
    };
    placed.unwrap_or_else(|| error.to_string())
}

/// The token of a TCP connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// What the server's token file holds.
    pub token: String,
}

/// Whether a run begins or goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// From step 0; refused if the run has checkpoints.
    #[default]
    New,
    /// From a checkpoint; refused if there is none.
    Resume,
    /// From the newest checkpoint, or from step 0 if there is none.
    Any,
}

/// Opens a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its name: letters, digits, `.`, `_`, `-`, at most 64; names a folder below the state folder.
    pub run: String,
    /// Whether it begins or goes on.
    #[serde(default)]
    pub start: Start,
    /// With a resume: the steps done at the checkpoint to go on from; the newest if not given.
    #[serde(default)]
    pub at_step: Option<u64>,
    /// Steps between checkpoints that the agent writes unasked; 0 for none.
    #[serde(default)]
    pub checkpoint_interval_steps: u64,
    /// What the run is; a resumed run's must be the same.
    pub facts: Facts,
}

/// What the agent must know of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Names of the K domains.
    pub domains: Vec<String>,
    /// Weights that the policy starts from, length K; normalised. Uniform if not given.
    #[serde(default)]
    pub base_weights: Option<Vec<f64>>,
    /// Training tokens of each domain, length K; equal if not given.
    #[serde(default)]
    pub natural_tokens: Option<Vec<u64>>,
    /// Steps of the whole run, T.
    pub total_steps: u64,
    /// Sequence length L in tokens.
    pub sequence_length: u64,
    /// Number of layers whose norms each step sends, S.
    pub layers: usize,
    /// Parameters of the model that is trained; sets the size of the agent's networks.
    pub model_parameters: u64,
    /// Seed of the agent.
    #[serde(default)]
    pub seed: u64,
    /// As `[scheduler]` of a run of `hds-train`.
    #[serde(default)]
    pub scheduler: SchedulerConfig,
    /// As `[reward]` of a run of `hds-train`.
    #[serde(default)]
    pub reward: RewardConfig,
    /// Which domains the run should get good at, length K; uniform if not given.
    #[serde(default)]
    pub target: Option<Vec<f64>>,
}

/// What one optimizer step showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The step, from 0.
    pub step: u64,
    /// Sequences drawn per domain; length K.
    pub samples: Vec<u64>,
    /// Mean training loss per domain, nats per token; length K, null where none was drawn or the loss
    /// is not finite.
    pub losses: Vec<Option<f64>>,
    /// Mean MTLD of each domain's sequences; length K. May be left out where no reward is made of it.
    #[serde(default)]
    pub mtld: Option<Vec<Option<f64>>>,
    /// Inner products of the domains' mean gradients; this or `sketches`, or neither where no reward is
    /// made of them.
    #[serde(default)]
    pub gram: Option<Gram>,
    /// Sketches of the domains' mean gradients; this or `gram`, or neither where no reward is made of
    /// them.
    #[serde(default)]
    pub sketches: Option<Sketches>,
    /// ‖ω‖₂ of each watched layer before the update; length S.
    pub weight_norms: Vec<f64>,
    /// ‖Δω‖₂ of each watched layer since the step before; length S.
    pub weight_change_norms: Vec<f64>,
    /// Weights that governed the step, where they were not the agent's last; length K.
    #[serde(default)]
    pub weights: Option<Vec<f64>>,
}

/// Vectors whose inner products are those of the gradients, in expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sketches {
    /// One of each domain, all of the same length; empty for a domain absent from the step.
    pub means: Vec<Vec<f64>>,
    /// As [`Gram::sequence_squares`].
    #[serde(default)]
    pub sequence_squares: Vec<f64>,
}

/// Saves the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Save {}

/// Ends the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {}

/// What the agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// The token was right.
    Welcome {
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// The run is open.
    Opened {
        /// Name of the policy.
        policy: String,
        /// Parameters of its networks together.
        parameters: u64,
        /// Steps done; the next `step` to send.
        step: u64,
        /// Weights of the batch of that step; length K, sum 1.
        weights: Vec<f64>,
        /// Their version.
        version: u64,
        /// Checkpoints that were passed over, and why.
        notes: Vec<String>,
    },
    /// The weights of the next batch.
    Weights {
        /// The step they govern.
        step: u64,
        /// Length K, sum 1.
        weights: Vec<f64>,
        /// Their version; larger by one at every change.
        version: u64,
        /// What the step was worth.
        rewards: Rewards,
        /// What the policy shows of itself.
        diagnostics: std::collections::BTreeMap<String, f64>,
        /// What the client should know: a checkpoint by interval that could not be written, numbers that were not finite.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// The run is on disk.
    Saved {
        /// Steps done.
        step: u64,
        /// The checkpoint's folder.
        folder: String,
    },
    /// The session has ended.
    Closed {
        /// Steps done.
        step: u64,
    },
    /// The request was not carried out; nothing has changed.
    Error {
        /// What kind: `protocol`, `token`, `invalid`, `busy`, `step`, `state` or `internal`.
        code: String,
        /// What is wrong and what to do.
        message: String,
        /// Whether the connection is closed now.
        closed: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_is_told_with_its_place() {
        let facts = r#""domains":["a"],"total_steps":9,"sequence_length":9,"layers":1,"model_parameters":9"#;
        let open = |more: &str| {
            format!(r#"{{"type":"open","protocol":1,"run":"a","facts":{{{facts}{more}}}}}"#)
        };
        let cases = [
            (
                open(r#","scheduler":{"policy":"sac"}"#),
                "facts.scheduler.policy: unknown variant `sac`",
            ),
            (
                open(r#","scheduler":{"hds":{"minibatch":"a"}}"#),
                "facts.scheduler.hds: invalid type",
            ),
            (open(r#","rewards":{}"#), "unknown field `rewards`"),
            (
                r#"{"type":"open","protocol":1,"run":null,"facts":{}}"#.into(),
                "facts: missing field `domains`",
            ),
            (
                r#"{"type":"step","step":0,"samples":[1,-1]}"#.into(),
                "samples[1]: invalid value",
            ),
            (
                r#"{"type":"step","step":0}"#.into(),
                "missing field `samples`",
            ),
            (r#"{"type":"launch"}"#.into(), "unknown variant `launch`"),
            (r#"{"step":0}"#.into(), "missing field `type`"),
        ];
        for (line, want) in cases {
            let error = serde_json::from_str::<Request>(&line).unwrap_err();
            let text = explain(line.as_bytes(), &error);
            assert!(text.contains(want), "{line}: {text}");
        }
    }
}
