//! A line of a weight log, and the sums that chain lines.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) step: u64,
    pub(super) version: u64,
    /// Version of the line before, 0 in the first.
    pub(super) after: u64,
    pub(super) weights: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// Absent in logs made by hand.
    pub(super) sum: Option<String>,
}

/// Digest of a line and, by the sum before it, of all before: 16 hexadecimal digits of BLAKE3.
pub(super) fn sum_of(before: &str, line: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before.as_bytes()).update(line);
    hasher.finalize().to_hex()[..16].to_owned()
}

impl Line {
    /// The sum of a line behind another sum; its own plays no part.
    pub(super) fn sum_behind(&mut self, before: &str) -> Result<String, serde_json::Error> {
        let own = self.sum.take();
        let text = serde_json::to_vec(self)?;
        self.sum = own;
        Ok(sum_of(before, &text))
    }
}
