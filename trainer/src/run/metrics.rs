//! The metrics log of a run, `metrics.jsonl`: one JSON object a line, described in ARCHITECTURE.md.
//!
//! In: records. Out: lines, each written whole. Always holds: after [`MetricsLog::position`] and a
//! resume at it, the file has exactly the lines before it; numbers that are not finite are `null`;
//! only the `timing` object of a record depends on the clock.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hds::durable::FileError;
use serde::{Deserialize, Serialize};

use super::tensorboard::EventLog;
use crate::signals::Rewards;

/// What helps where the log is shorter than a checkpoint says.
const PUT_BACK: &str = "put the whole file back, or remove the checkpoints that are newer than it (to start anew: another --out)";

/// First record of a run.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename = "run")]
pub struct RunRecord<'a> {
    /// Names of the K domains.
    pub domains: &'a [String],
    /// Name of the policy.
    pub policy: &'a str,
    /// Its preset.
    pub preset: &'a str,
    /// Parameters of the language model.
    pub parameters: u64,
    /// Parameters of the policy's networks.
    pub agent_parameters: u64,
    /// L, in tokens.
    pub sequence_length: usize,
    /// B, in sequences.
    pub batch_size: usize,
    /// T.
    pub total_steps: u64,
    /// Steps before the policy takes over.
    pub warmup_steps: u64,
    /// Weights of the corpus; length K.
    pub base_weights: &'a [f64],
    /// The target; length K.
    pub target_weights: &'a [f64],
    /// Fingerprint of the index.
    pub index: String,
    /// Seed of the run.
    pub seed: u64,
}

/// Clock readings of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepTiming {
    /// The whole step, without evaluation and checkpoints.
    pub step_seconds: f64,
    /// Of it: signals, rewards and policy.
    pub scheduler_seconds: f64,
    /// Training tokens per second of the step.
    pub tokens_per_second: f64,
}

/// One optimizer step.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename = "step")]
pub struct StepRecord<'a> {
    /// The step, from 0.
    pub step: u64,
    /// Training tokens seen, this step's counted.
    pub tokens: u64,
    /// Mean loss of the batch, nats per token.
    pub loss: f64,
    /// Learning rate of the update.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Whether the update was left out because loss or gradient was not finite.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Factor of the loss in the passes, in the precision that needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Version of the weights that governed the batch.
    pub weights_version: u64,
    /// Those weights; length K.
    pub weights: &'a [f64],
    /// Sequences drawn; length K.
    pub samples: &'a [u64],
    /// Mean loss per domain; length K.
    pub losses: &'a [Option<f64>],
    /// Mean MTLD per domain; length K.
    pub mtld: &'a [Option<f64>],
    /// Rewards, where the policy uses them.
    pub rewards: Option<&'a Rewards>,
    /// What the policy tells of itself.
    pub policy: &'a BTreeMap<String, f64>,
    /// Clock readings.
    pub timing: StepTiming,
}

/// Clock readings of an evaluation.
#[derive(Debug, Serialize, Deserialize)]
pub struct EvaluationTiming {
    /// Its duration.
    pub seconds: f64,
}

/// One evaluation on the held-out splits.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename = "eval")]
pub struct EvaluationRecord<'a> {
    /// Steps done before it.
    pub step: u64,
    /// Training tokens seen before it.
    pub tokens: u64,
    /// Mean held-out loss per domain, nats per token; length K.
    pub losses: &'a [Option<f64>],
    /// exp of the mean of the domains' losses.
    pub macro_perplexity: f64,
    /// exp of the mean weighted by the base weights.
    pub base_perplexity: f64,
    /// exp of the mean weighted by the target.
    pub target_perplexity: f64,
    /// Clock readings.
    pub timing: EvaluationTiming,
}

/// A run that gave up: its loss, gradient or weights did not become finite again.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename = "gave_up")]
pub struct GaveUpRecord {
    /// Steps done.
    pub step: u64,
    /// Steps in a row that were not finite.
    pub bad_steps: u64,
}

/// Appends records to the log.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
    events: Option<EventLog>,
}

impl MetricsLog {
    /// Writes every record to TensorBoard's event files in `folder` too; `steps` are done, `domains` are their names.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn also_to_tensorboard(
        &mut self,
        folder: &Path,
        steps: u64,
        domains: &[String],
    ) -> Result<(), FileError> {
        self.events = Some(EventLog::start(folder, steps, domains)?);
        Ok(())
    }

    /// Starts a log; an existing file is replaced.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let file = File::create(path).map_err(|e| FileError::new("create", path, e))?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::new(file),
            bytes: 0,
            events: None,
        })
    }

    /// Checks that a log can go on at a position noted before; changes nothing.
    ///
    /// # Errors
    /// If there is none, or it is shorter than that.
    pub fn check(path: &Path, position: u64) -> Result<(), FileError> {
        let fail = |e| FileError::new("continue", path, e);
        let metadata = std::fs::metadata(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => fail(std::io::Error::other(format!("it is gone; {PUT_BACK}"))),
            _ => fail(e),
        })?;
        let length = metadata.len();
        if length < position {
            let reason = format!(
                "it has {length} bytes, the checkpoint was written at {position}; {PUT_BACK}"
            );
            return Err(fail(std::io::Error::other(reason)));
        }
        Ok(())
    }

    /// Goes on at a position noted before; what stands after it is cut off.
    ///
    /// # Errors
    /// If the file cannot be opened or is shorter than that.
    pub fn resume(path: &Path, position: u64) -> Result<Self, FileError> {
        Self::check(path, position)?;
        let fail = |e| FileError::new("continue", path, e);
        let mut file = OpenOptions::new().write(true).open(path).map_err(fail)?;
        file.set_len(position)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::new(file),
            bytes: position,
            events: None,
        })
    }

    /// Appends a record as one line and hands it to the system, so that others can follow the run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write<T: Serialize>(&mut self, record: &T) -> Result<(), FileError> {
        let fail = |e| FileError::new("write", &self.path, e);
        let mut line = serde_json::to_vec(record).map_err(|e| fail(e.into()))?;
        line.push(b'\n');
        self.out
            .write_all(&line)
            .and_then(|()| self.out.flush())
            .map_err(fail)?;
        self.bytes += line.len() as u64;
        if let Some(events) = &mut self.events {
            let value = serde_json::to_value(record).map_err(|e| fail(e.into()))?;
            events.write(&value)?;
        }
        Ok(())
    }

    /// Makes all lines durable and returns the position to resume at.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn position(&mut self) -> Result<u64, FileError> {
        self.out
            .flush()
            .and_then(|()| self.out.get_ref().sync_data())
            .map_err(|e| FileError::new("sync", &self.path, e))?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_log_drops_what_came_after_the_position() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut log = MetricsLog::create(&path).unwrap();
        log.write(&serde_json::json!({"kind": "a", "loss": f64::NAN}))
            .unwrap();
        let position = log.position().unwrap();
        log.write(&serde_json::json!({"kind": "b"})).unwrap();
        drop(log);
        let mut log = MetricsLog::resume(&path, position).unwrap();
        log.write(&serde_json::json!({"kind": "c"})).unwrap();
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"kind\":\"a\",\"loss\":null}\n{\"kind\":\"c\"}\n");
        let error = MetricsLog::resume(&path, 10_000).unwrap_err().to_string();
        assert!(error.contains("10000"), "{error}");
    }
}
