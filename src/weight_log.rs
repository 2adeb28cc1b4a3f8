//! The weight log: which mixture governed which batch, enough to replay a run without its agent.
//!
//! In: (step, version, weights) whenever the mixture in force changes. Out: a JSON Lines file, and a
//! reader of it. One header line, then one line per change:
//!
//! ```json
//! {"format":"hds-weight-log","version":1,"domains":["code","law"],"index":"<fingerprint>","seed":7,"stream":{"batch size":"32"}}
//! {"step":0,"version":1,"after":0,"weights":[0.5,0.5],"sum":"<16 digits>"}
//! ```
//!
//! `after` is the version of the line before (0 in the first), and `sum` the digest of the line and all before it, so that lines that went missing
//! or were changed are noticed (logs made by hand may do without sums); `stream` holds what else the batches depend on. Always holds: steps and versions grow; weights come back bit for bit. A last line cut short by a
//! crash is dropped when the log is continued; a log has one writer at a time, who notices when the file is moved or removed. Reading
//! holds one mixture at a time.

mod error;
mod file;
mod line;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

pub use error::WeightLogError;
use serde::{Deserialize, Serialize};

use file::{OwnPlace, claim};
use line::{Line, sum_of};

use crate::domain::DomainSet;
use crate::durable::{is_same_file, open_regular};
use crate::live::VersionedMixture;
use crate::mixture::Mixture;

/// Version of the file format that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_NAME: &str = "hds-weight-log";
/// More than a line of the most domains there may be, so that a line waits in memory whole.
const BUFFER_BYTES: usize = 1 << 17;

/// First line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    format: String,
    version: u32,
    /// The domains, in the order of every `weights` vector.
    pub domains: DomainSet,
    /// Fingerprint of the index the run sampled from.
    pub index: String,
    /// Seed of the draws.
    pub seed: u64,
    /// What else the batches depend on, by its name in words; empty where whoever wrote the log did not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stream: BTreeMap<String, String>,
}

impl Header {
    /// The header of a run's log; `hds_loader::LoaderConfig::log_header` makes one that also says what else the batches depend on.
    pub fn new(domains: DomainSet, index: String, seed: u64) -> Self {
        Self {
            format: FORMAT_NAME.into(),
            version: FORMAT_VERSION,
            domains,
            index,
            seed,
            stream: BTreeMap::new(),
        }
    }
}

/// From this step on, this mixture was in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// First batch the mixture governed.
    pub step: u64,
    /// The mixture with its version.
    pub weights: VersionedMixture,
}

/// Appends to a log.
#[derive(Debug)]
pub struct WeightLogWriter {
    path: PathBuf,
    out: BufWriter<File>,
    last_version: u64,
    /// Digest of the last line's weights, and the sum of all lines.
    last_weights: String,
    sum: String,
}

impl WeightLogWriter {
    /// Starts a new log; an existing file is replaced.
    ///
    /// # Errors
    /// If the file cannot be written, or is being written by another.
    pub fn create(path: &Path, header: &Header) -> Result<Self, WeightLogError> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| io_error(path, e))?;
        claim(&file, path)?;
        file.set_len(0).map_err(|e| io_error(path, e))?;
        let mut writer = Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            last_version: 0,
            last_weights: String::new(),
            sum: String::new(),
        };
        let text = serde_json::to_vec(header).map_err(|e| io_error(path, e.into()))?;
        writer.sum = sum_of("", &text);
        writer.line(header)?;
        Ok(writer)
    }

    /// Goes on with a log from `next_step`: whatever it says of that step and later is cut off, as is
    /// a last line that a crash left incomplete.
    ///
    /// # Errors
    /// If the file cannot be read or written, is damaged before that step, is of another run, or is being written by another.
    pub fn resume(path: &Path, header: &Header, next_step: u64) -> Result<Self, WeightLogError> {
        let mut reader = WeightLogReader::open(path)?;
        reader.expect(header)?;
        let mut file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(|e| io_error(path, e))?;
        claim(&file, path)?;
        let mut keep = reader.consumed;
        let (mut last_version, mut last_weights) = (0, String::new());
        let mut sum = reader.sum.clone();
        while let Some(entry) = reader.next_entry()? {
            if entry.step >= next_step {
                break;
            }
            keep = reader.consumed;
            last_version = entry.weights.version;
            last_weights = entry.weights.digest();
            sum.clone_from(&reader.sum);
        }
        file.set_len(keep)
            .and_then(|()| file.seek(io::SeekFrom::End(0)))
            .map_err(|e| io_error(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            last_version,
            last_weights,
            sum,
        })
    }

    /// Refuses a log that cannot lead to `version` governing batch `step`, where every step publishes once at most and is noted.
    ///
    /// # Errors
    /// If its last version is neither that one nor the one before.
    pub fn expect_version(&self, step: u64, version: u64) -> Result<(), WeightLogError> {
        if self.last_version + 1 == version {
            return Ok(());
        }
        self.expect_last(step, version, None)
    }

    /// Refuses a log whose last entry before batch `step` is not `version`, which governed the batch before, or has other weights than those of
    /// this [digest](VersionedMixture::digest).
    ///
    /// # Errors
    /// [`WeightLogError::Lost`], [`WeightLogError::OtherRun`].
    pub fn expect_last(
        &self,
        step: u64,
        version: u64,
        digest: Option<&str>,
    ) -> Result<(), WeightLogError> {
        if self.last_version == version {
            return match digest.is_none_or(|digest| digest == self.last_weights) {
                true => Ok(()),
                false => Err(WeightLogError::OtherRun {
                    path: self.path.clone(),
                    step,
                    version,
                }),
            };
        }
        Err(WeightLogError::Lost {
            path: self.path.clone(),
            step,
            got: self.last_version,
            want: version,
        })
    }

    /// Notes the mixture that governs batch `step`; nothing is written if it is the one already noted.
    ///
    /// # Errors
    /// If the file cannot be written, or is no longer under its name: what is written then would be lost with this process.
    pub fn record(&mut self, step: u64, weights: &VersionedMixture) -> Result<(), WeightLogError> {
        if weights.version == self.last_version {
            return Ok(());
        }
        self.expect_in_place()?;
        let mut line = Line {
            step,
            version: weights.version,
            after: self.last_version,
            weights: weights.mixture.weights().to_vec(),
            sum: None,
        };
        let sum = line.sum_behind(&self.sum);
        let sum = sum.map_err(|e| io_error(&self.path, e.into()))?;
        line.sum = Some(sum.clone());
        self.line(&line)?;
        self.last_version = weights.version;
        self.last_weights = weights.digest();
        self.sum = sum;
        Ok(())
    }

    /// Hands everything to the system, which keeps it if this process dies.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), WeightLogError> {
        self.out.flush().map_err(|e| io_error(&self.path, e))
    }

    /// Hands everything to the system and makes it durable.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn sync(&mut self) -> Result<(), WeightLogError> {
        self.out
            .flush()
            .and_then(|()| self.out.get_ref().sync_data())
            .map_err(|e| io_error(&self.path, e))
    }

    fn expect_in_place(&self) -> Result<(), WeightLogError> {
        let here = self.out.get_ref().metadata();
        let here = here.map_err(|e| io_error(&self.path, e))?;
        let written = self.out.get_ref().stream_position();
        let written = written.map_err(|e| io_error(&self.path, e))?;
        match self.path.metadata() {
            Ok(there) if is_same_file(&here, &there) && here.len() >= written => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error(&self.path, e)),
            _ => Err(WeightLogError::Moved {
                path: self.path.clone(),
            }),
        }
    }

    /// Takes a line whole or, where an error says so, not at all: it may be given again.
    fn line<T: Serialize>(&mut self, value: &T) -> Result<(), WeightLogError> {
        let mut text = serde_json::to_vec(value).map_err(|e| io_error(&self.path, e.into()))?;
        text.push(b'\n');
        let written = self.out.write_all(&text);
        written.map_err(|e| io_error(&self.path, e))
    }
}

/// Reads a log entry by entry.
#[derive(Debug)]
pub struct WeightLogReader {
    path: PathBuf,
    input: BufReader<OwnPlace>,
    header: Header,
    line: u64,
    consumed: u64,
    last: Option<(u64, u64)>,
    /// Of all lines so far; and whether they have sums, once the first was read.
    sum: String,
    has_sums: Option<bool>,
    /// Whether the last line was found to be cut short.
    torn: bool,
}

impl WeightLogReader {
    /// Opens a log and reads its header.
    ///
    /// # Errors
    /// If there is no such file, or its first line is no header of a known version.
    pub fn open(path: &Path) -> Result<Self, WeightLogError> {
        let file = open_regular(path).map_err(|e| io_error(path, e))?;
        let mut input = BufReader::new(OwnPlace { file, at: 0 });
        let mut text = String::new();
        let read = input.read_line(&mut text).map_err(|e| io_error(path, e))?;
        let bad = |reason: String| WeightLogError::Line {
            path: path.to_owned(),
            line: 1,
            reason,
        };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| bad(format!("no header: {e}")))?;
        if value.get("format").and_then(|v| v.as_str()) != Some(FORMAT_NAME) {
            return Err(bad(format!("no header with \"format\":\"{FORMAT_NAME}\"")));
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(FORMAT_VERSION)) {
            return Err(WeightLogError::Mismatch {
                path: path.to_owned(),
                what: "format version",
                got: version.map_or("none".into(), |v| v.to_string()),
                want: FORMAT_VERSION.to_string(),
            });
        }
        let header = serde_json::from_value(value).map_err(|e| bad(e.to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            input,
            header,
            line: 1,
            consumed: read as u64,
            last: None,
            sum: sum_of("", text.trim_end_matches('\n').as_bytes()),
            has_sums: None,
            torn: false,
        })
    }

    /// What the log is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Checks that the log is of the run that `want` describes.
    ///
    /// # Errors
    /// If domains, index, seed, or what both say of the stream differ; says which.
    pub fn expect(&self, want: &Header) -> Result<(), WeightLogError> {
        let mismatch = |what, got: String, want: String| {
            Err(WeightLogError::Mismatch {
                path: self.path.clone(),
                what,
                got,
                want,
            })
        };
        let got = &self.header;
        if got.domains != want.domains {
            return mismatch(
                "set of domains",
                got.domains.names().join(", "),
                want.domains.names().join(", "),
            );
        }
        if got.index != want.index {
            return mismatch("index", got.index.clone(), want.index.clone());
        }
        if got.seed != want.seed {
            return mismatch("seed", got.seed.to_string(), want.seed.to_string());
        }
        for (what, want) in &want.stream {
            match got.stream.get(what) {
                Some(got) if got != want => {
                    return Err(WeightLogError::OtherStream {
                        path: self.path.clone(),
                        what: what.clone(),
                        got: got.clone(),
                        want: want.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses what the log cannot tell: the weights of a batch behind the last whole entry, where a line cut short follows it.
    /// To be asked once [`Self::next_entry`] gave `None`.
    ///
    /// # Errors
    /// [`WeightLogError::Torn`].
    pub fn expect_known(&self, step: u64) -> Result<(), WeightLogError> {
        match self.last {
            Some((last, _)) if self.torn && step > last => Err(WeightLogError::Torn {
                path: self.path.clone(),
                line: self.line + 1,
                last,
                step,
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a log that somebody writes, and keeps writers away from it for as long as this reader is there.
    ///
    /// # Errors
    /// [`WeightLogError::InUse`].
    pub fn expect_unused(&self) -> Result<(), WeightLogError> {
        claim(&self.input.get_ref().file, &self.path)
    }

    /// The next entry; `None` at the end, or at a last line without its newline.
    ///
    /// # Errors
    /// If the file cannot be read, a line is damaged, or steps or versions go back.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, WeightLogError> {
        let mut text = String::new();
        let read = self
            .input
            .read_line(&mut text)
            .map_err(|e| io_error(&self.path, e))?;
        if read == 0 || !text.ends_with('\n') {
            self.torn |= read > 0;
            return Ok(None);
        }
        self.line += 1;
        self.consumed += read as u64;
        let bad = |reason: String| WeightLogError::Line {
            path: self.path.clone(),
            line: self.line,
            reason,
        };
        let mut line: Line = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if let Some((step, version)) = self.last
            && (line.step <= step || line.version <= version)
        {
            return Err(bad(format!(
                "step {} version {} after step {step} version {version}; both must grow",
                line.step, line.version
            )));
        }
        let before = self.last.map_or(0, |(_, version)| version);
        if line.after != before {
            return Err(bad(format!(
                "comes after version {}, and before it is version {before}: lines are missing; put the whole file back",
                line.after
            )));
        }
        let sum = line.sum_behind(&self.sum).map_err(|e| bad(e.to_string()))?;
        if *self.has_sums.get_or_insert(line.sum.is_some()) && line.sum.as_ref() != Some(&sum) {
            return Err(bad(
                "its sum does not fit: it, or a line before it, is not as it was written; put the whole file back".into(),
            ));
        }
        let mixture = Mixture::new(line.weights, &self.header.domains).map_err(|source| {
            WeightLogError::Weights {
                path: self.path.clone(),
                line: self.line,
                source,
            }
        })?;
        self.sum = sum;
        self.last = Some((line.step, line.version));
        let weights = VersionedMixture {
            version: line.version,
            mixture,
        };
        Ok(Some(Entry {
            step: line.step,
            weights,
        }))
    }
}

fn io_error(path: &Path, source: io::Error) -> WeightLogError {
    WeightLogError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
