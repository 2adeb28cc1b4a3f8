//! What a build did, for people and for `--json`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hds::index::{Manifest, Skipped, Split};
use serde::Serialize;

/// What a build did.
#[derive(Clone, Debug, Serialize)]
pub struct BuildSummary {
    /// The index made.
    pub index: PathBuf,
    /// BLAKE3 of its manifest, by which checkpoints and loaders know it.
    pub fingerprint: String,
    /// Number of domains.
    pub domains: usize,
    /// Documents in both splits.
    pub documents: u64,
    /// Tokens in both splits.
    pub tokens: u64,
    /// Bytes of text in both splits.
    pub text_bytes: u64,
    /// Documents indexed whose text is that of an earlier one.
    pub duplicates: u64,
    /// What was left out of all sources, one entry a reason.
    pub skipped: Vec<SkippedTotal>,
    /// What a user should look at.
    pub warnings: Vec<String>,
    /// Threads used.
    pub threads: usize,
    /// What tokenised: `byte`, `fastokens` or `tokenizers`.
    pub engine: &'static str,
    /// Seconds of this run of the program.
    pub seconds: f64,
    /// Bytes of text indexed in this run; less than `text_bytes` after an interruption.
    pub text_bytes_this_run: u64,
    /// 10^6 bytes of text a second in this run.
    pub megabytes_per_second: f64,
    /// The most memory the process held, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Whether an interrupted build was continued.
    pub resumed: bool,
}

/// What was left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedTotal {
    /// The reason.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The first place, with its source.
    pub first: String,
}

/// The most memory that this process held so far, in bytes; `None` where the system does not tell.
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Adds up what the sources of a manifest left out.
pub fn skipped_of(manifest: &Manifest) -> Vec<SkippedTotal> {
    let mut totals: Vec<SkippedTotal> = Vec::new();
    for source in &manifest.sources {
        for Skipped {
            reason,
            count,
            first,
        } in &source.skipped
        {
            match totals.iter_mut().find(|t| t.reason == *reason) {
                Some(total) => total.count += count,
                None => totals.push(SkippedTotal {
                    reason: reason.clone(),
                    count: *count,
                    first: format!("{}, {first}", source.name),
                }),
            }
        }
    }
    totals
}

/// What a user should know about an index before training on it.
pub fn warnings_of(manifest: &Manifest) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |split: Split, what: &str| {
        let names: Vec<&str> = manifest
            .domains
            .iter()
            .filter(|d| d.split(split).documents == 0)
            .map(|d| d.name.as_str())
            .collect();
        if !names.is_empty() && (split == Split::Train || names.len() < manifest.domains.len()) {
            warnings.push(format!("{what}: {}", names.join(", ")));
        }
    };
    warn(
        Split::Train,
        "no document to train on (all are held out) in",
    );
    warn(
        Split::Valid,
        "no held-out document, so no evaluation, in (--valid-fraction holds out more)",
    );
    if manifest.domains.iter().all(|d| d.valid.documents == 0) {
        warnings.push("nothing is held out, so nothing can be evaluated".into());
    }
    let empty: BTreeSet<&str> = manifest
        .sources
        .iter()
        .flat_map(|source| source.empty_domains.iter().map(String::as_str))
        .collect();
    if !empty.is_empty() {
        let names: Vec<&str> = empty.into_iter().collect();
        warnings.push(format!(
            "not in the index, as all their texts are empty: {}",
            names.join(", ")
        ));
    }
    let splits = manifest.domains.iter().flat_map(|d| [&d.train, &d.valid]);
    let (copies, documents) = splits.fold((0, 0), |sum, split| {
        (sum.0 + split.duplicates, sum.1 + split.documents)
    });
    if copies > 0 {
        warnings.push(format!(
            "{copies} of {documents} documents are exact copies of earlier ones (--duplicates drop leaves them out)"
        ));
    }
    warnings
}
