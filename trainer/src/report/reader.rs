//! Streams the records of a metrics log.
//!
//! In: the log's path and what to do with each record. Out: what else was seen. Always holds: one
//! line in memory at a time, of bounded length; an error names file and line. A last line without its
//! newline that is no record was cut by a crash and is left out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::ReportError;
use super::record::Record;

/// The longest line read, in bytes; a thousand domains need about a tenth of a megabyte.
const LINE_BYTES: u64 = 64 << 20;

/// What a log held besides its records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Records of kinds that this reader does not know.
    pub unknown: u64,
    /// Whether the last line was cut short.
    pub cut: bool,
}

/// Calls `take` with every known record and its line number (from 1).
///
/// # Errors
/// If the file cannot be read, or a line is no record; what `take` answers with `Err` becomes the
/// error of that line.
pub fn for_each_record(
    path: &Path,
    mut take: impl FnMut(Record, u64) -> Result<(), String>,
) -> Result<Seen, ReportError> {
    let failed = |source: io::Error| ReportError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let mut seen = Seen::default();
    let mut bytes = Vec::new();
    let mut line = 0;
    loop {
        bytes.clear();
        let mut limited = file.by_ref().take(LINE_BYTES);
        if limited.read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            return Ok(seen);
        }
        line += 1;
        let whole = bytes.ends_with(b"\n");
        if !whole && bytes.len() as u64 == LINE_BYTES {
            let reason = format!("the line is longer than {LINE_BYTES} bytes");
            return Err(at_line(path, line, reason));
        }
        match Record::parse(&bytes) {
            Ok(Record::Other) if line > 1 => seen.unknown += 1,
            Ok(record) => take(record, line).map_err(|reason| at_line(path, line, reason))?,
            Err(_) if !whole && line > 1 => seen.cut = true,
            Err(reason) => return Err(at_line(path, line, reason)),
        }
    }
}

fn at_line(path: &Path, line: u64, reason: String) -> ReportError {
    let path = path.to_owned();
    if line == 1 {
        ReportError::NotMetrics { path, reason }
    } else {
        ReportError::Line { path, line, reason }
    }
}
