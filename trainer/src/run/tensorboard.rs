//! The metrics of a run as TensorBoard event files, beside `metrics.jsonl`.
//!
//! In: the same records. Out: `tensorboard/events.out.tfevents.*`, scalars over steps done. Always holds: no step is there twice: when
//! a run goes on from a checkpoint, what stands after it in older files is cut off, and a new file begins with TensorBoard's own
//! restart mark, for one that is watching. Values that are missing or not finite are left out.
//!
//! # Source
//! Record frame: TensorFlow's TFRecord: length (u64), masked CRC-32C of it, data, masked CRC-32C of the data, little-endian. Data:
//! protocol buffer `Event` of `event.proto`, of which four fields are used; by hand, as that is less than a dependency.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hds::durable::FileError;
use serde_json::Value;

/// TensorBoard looks for it in the names of files.
const PREFIX: &str = "events.out.tfevents.";

/// What it looks for in the first event.
const VERSION: &str = "brain.Event:2";

/// Appends events to the newest file.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    out: BufWriter<File>,
    domains: Vec<String>,
}

impl EventLog {
    /// Begins a new file for a run that has done `steps`; `domains` are the names of the K domains.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn start(folder: &Path, steps: u64, domains: &[String]) -> Result<Self, FileError> {
        fs::create_dir_all(folder).map_err(|e| FileError::new("create", folder, e))?;
        let files = files(folder)?;
        let last = files.last().and_then(|path| seconds_of(path)).unwrap_or(0);
        let seconds = (now() as u64).max(last);
        let path = folder.join(format!("{PREFIX}{seconds:010}.hds.{:04}", files.len()));
        let out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| FileError::new("create", &path, e))?;
        let mut log = Self {
            path,
            out: BufWriter::new(out),
            domains: domains.to_vec(),
        };
        let mut first = event(0);
        put_bytes(&mut first, 3, VERSION.as_bytes());
        log.put(&first)?;
        if !files.is_empty() {
            // Session log, status START: readers forget steps from this one on.
            let mut restart = event(steps + 1);
            put_bytes(&mut restart, 7, &[0x08, 1]);
            log.put(&restart)?;
        }
        Ok(log)
    }

    /// Cuts off all that files in `folder` have of later steps than `steps`, or that is not whole; without `steps`, for a run
    /// that begins anew, the files are removed.
    ///
    /// # Errors
    /// If a file cannot be read, cut or removed.
    pub fn cut(folder: &Path, steps: Option<u64>) -> Result<(), FileError> {
        for path in files(folder)? {
            let Some(steps) = steps else {
                fs::remove_file(&path).map_err(|e| FileError::new("remove", &path, e))?;
                continue;
            };
            let bytes = fs::read(&path).map_err(|e| FileError::new("read", &path, e))?;
            let keep = whole_until(&bytes, steps);
            if keep < bytes.len() {
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.set_len(keep as u64))
                    .map_err(|e| FileError::new("cut", &path, e))?;
            }
        }
        Ok(())
    }

    /// Appends what a record of the metrics log says, and hands it to the system.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, record: &Value) -> Result<(), FileError> {
        let Some((steps, scalars)) = scalars(record, &self.domains) else {
            return Ok(());
        };
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, tag.as_bytes());
            entry.push(2 << 3 | 5);
            entry.extend((value as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &entry);
        }
        let mut event = event(steps);
        put_bytes(&mut event, 5, &summary);
        self.put(&event)
    }

    fn put(&mut self, data: &[u8]) -> Result<(), FileError> {
        self.out
            .write_all(&frame(data))
            .and_then(|()| self.out.flush())
            .map_err(|e| FileError::new("write", &self.path, e))
    }
}

/// Our event files of a folder, in the order they were begun; none where there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| FileError::new("read", folder, e))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| FileError::new("read", folder, e))?.path();
        if seconds_of(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn seconds_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let (seconds, number) = name.split_once(".hds.")?;
    number.parse::<u64>().ok()?;
    seconds.parse().ok()
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// Steps done and the scalars of a record; `None` for one that has none.
fn scalars(record: &Value, domains: &[String]) -> Option<(u64, Vec<(String, f64)>)> {
    let mut found = Vec::new();
    let mut take = |tag: String, value: &Value| {
        if let Some(value) = value.as_f64() {
            found.push((tag, value));
        }
    };
    let steps = record["step"].as_u64()?;
    let steps = match record["kind"].as_str()? {
        "step" => {
            for name in ["loss", "learning_rate", "gradient_norm", "tokens"] {
                take(format!("train/{name}"), &record[name]);
            }
            for name in ["tokens_per_second", "scheduler_seconds"] {
                take(format!("speed/{name}"), &record["timing"][name]);
            }
            let weights = record["weights"].as_array();
            let entropy = weights.into_iter().flatten().filter_map(Value::as_f64);
            let entropy: f64 = entropy.filter(|w| *w > 0.0).map(|w| -w * w.ln()).sum();
            take("train/weights_entropy".to_owned(), &entropy.into());
            for (i, domain) in domains.iter().enumerate() {
                take(format!("weights/{domain}"), &record["weights"][i]);
                take(format!("loss/{domain}"), &record["losses"][i]);
                take(format!("reward/{domain}"), &record["rewards"]["total"][i]);
            }
            for (name, value) in record["policy"].as_object().into_iter().flatten() {
                take(format!("policy/{name}"), value);
            }
            steps + 1
        }
        "eval" => {
            for name in ["macro_perplexity", "base_perplexity", "target_perplexity"] {
                take(format!("held_out/{name}"), &record[name]);
            }
            for (i, domain) in domains.iter().enumerate() {
                take(format!("held_out_loss/{domain}"), &record["losses"][i]);
            }
            steps
        }
        _ => return None,
    };
    Some((steps, found))
}

/// An event with its time and step.
fn event(step: u64) -> Vec<u8> {
    let mut data = vec![1 << 3 | 1];
    data.extend(now().to_le_bytes());
    data.push(2 << 3);
    put_varint(&mut data, step);
    data
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut framed = length.to_vec();
    framed.extend(masked_crc(&length).to_le_bytes());
    framed.extend_from_slice(data);
    framed.extend(masked_crc(data).to_le_bytes());
    framed
}

/// Length of the part that is whole records of steps up to `steps`.
fn whole_until(bytes: &[u8], steps: u64) -> usize {
    let mut kept = 0;
    while let Some((data, end)) = next_record(bytes, kept) {
        if step_of(data).is_none_or(|step| step > steps) {
            break;
        }
        kept = end;
    }
    kept
}

/// The data of the record at `start` and where the next one begins; `None` for one that is not whole.
fn next_record(bytes: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let word = |at: usize| {
        let word = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };
    let length = bytes.get(start..start.checked_add(8)?)?;
    if word(start + 8)? != masked_crc(length) {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let end = (start + 12).checked_add(length)?;
    let data = bytes.get(start + 12..end)?;
    (word(end)? == masked_crc(data)).then_some((data, end + 4))
}

/// The step of an event that this module wrote: after the time, which is 9 bytes. A restart mark names the first step that is to
/// come, so it is one more than what is there.
fn step_of(data: &[u8]) -> Option<u64> {
    let rest = data.get(9..)?;
    let (&key, rest) = rest.split_first()?;
    if key != 2 << 3 {
        return None;
    }
    let mut step = 0u64;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        step |= u64::from(byte & 0x7f).checked_shl(7 * i as u32)?;
        if byte < 0x80 {
            let restart = rest.get(i + 1) == Some(&(7 << 3 | 2));
            return Some(step - u64::from(restart && step > 0));
        }
    }
    None
}

/// # Source
/// TensorFlow, `tensorflow/core/lib/hash/crc32c.h`: rotated right by 15 bits, plus a constant.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), reflected polynomial 0x82f63b78.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut value = i as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    value >> 1 ^ 0x82f6_3b78
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[i] = value;
            i += 1;
        }
        table
    };
    !data.iter().fold(u32::MAX, |crc, &byte| {
        crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checksums_are_the_published_ones() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    fn step(step: u64, loss: f64) -> Value {
        json!({"kind": "step", "step": step, "loss": loss, "weights": [0.5, 0.5], "losses": [1.0, null],
               "policy": {"alpha": 0.2}, "timing": {"tokens_per_second": 10.0}})
    }

    fn steps_in(folder: &Path) -> Vec<u64> {
        let mut found = Vec::new();
        for path in files(folder).unwrap() {
            let bytes = fs::read(path).unwrap();
            let mut at = 0;
            while let Some((data, end)) = next_record(&bytes, at) {
                // Summaries only: field 5 after time and a step of one byte.
                if data.get(11) == Some(&(5 << 3 | 2)) {
                    found.push(step_of(data).unwrap());
                }
                at = end;
            }
            assert_eq!(at, bytes.len());
        }
        found
    }

    #[test]
    fn a_resume_leaves_no_step_twice() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tensorboard");
        let domains = ["a".to_owned(), "b".to_owned()];
        let mut log = EventLog::start(&folder, 0, &domains).unwrap();
        log.write(&json!({"kind": "eval", "step": 0, "losses": [2.0, 3.0]}))
            .unwrap();
        for i in 0..5 {
            log.write(&step(i, 1.0)).unwrap();
        }
        drop(log);
        // Killed within a record; the checkpoint is of 3 steps.
        let path = files(&folder).unwrap().remove(0);
        let length = fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length - 3).unwrap();
        EventLog::cut(&folder, Some(3)).unwrap();
        assert_eq!(steps_in(&folder), [0, 1, 2, 3]);
        let mut log = EventLog::start(&folder, 3, &domains).unwrap();
        for i in 3..6 {
            log.write(&step(i, 2.0)).unwrap();
        }
        drop(log);
        assert_eq!(files(&folder).unwrap().len(), 2);
        assert_eq!(steps_in(&folder), [0, 1, 2, 3, 4, 5, 6]);
        // Back to before the second file: all of it goes.
        EventLog::cut(&folder, Some(2)).unwrap();
        assert_eq!(steps_in(&folder), [0, 1, 2]);
        EventLog::cut(&dir.path().join("none"), Some(2)).unwrap();
        // A run that was killed before its first checkpoint begins anew.
        EventLog::cut(&folder, None).unwrap();
        assert!(files(&folder).unwrap().is_empty());
    }

    #[test]
    fn records_become_scalars_without_what_is_missing() {
        let domains = ["a".to_owned(), "b".to_owned()];
        let (steps, found) = scalars(&step(7, f64::NAN), &domains).unwrap();
        assert_eq!(steps, 8);
        let value = |tag: &str| found.iter().find(|(t, _)| t == tag).map(|(_, v)| *v);
        assert_eq!(value("train/loss"), None);
        assert_eq!(value("weights/b"), Some(0.5));
        assert_eq!(value("loss/a"), Some(1.0));
        assert_eq!(value("loss/b"), None);
        assert_eq!(value("policy/alpha"), Some(0.2));
        assert!((value("train/weights_entropy").unwrap() - 2f64.ln()).abs() < 1e-12);
        assert!(scalars(&json!({"kind": "run", "seed": 1}), &domains).is_none());
    }
}
