//! Shows what an index holds.
//!
//! In: a manifest. Out: [`Overview`], its counts per domain and in all, as a table or JSON. Reads no file but the manifest; whether the
//! others are as it says is for `hds-index verify`.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use hds::index::{IndexError, Manifest, SplitEntry, TokenType, TokenizerEntry};
use serde::Serialize;

use crate::build::{SkippedTotal, skipped_of, warnings_of};

/// Counts of one split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Documents.
    pub documents: u64,
    /// Tokens, ends of documents counted.
    pub tokens: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Words.
    pub words: u64,
    /// Mean MTLD of the documents with words.
    pub mtld_mean: f64,
    /// Mean MTLD weighted by tokens.
    pub mtld_token_weighted_mean: f64,
    /// Shards.
    pub shards: usize,
}

impl Counts {
    fn of(split: &SplitEntry) -> Self {
        Self {
            documents: split.documents,
            tokens: split.tokens,
            bytes: split.bytes,
            words: split.words,
            mtld_mean: split.mtld.mean,
            mtld_token_weighted_mean: split.mtld.token_weighted_mean,
            shards: split.shards.len(),
        }
    }
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainOverview {
    /// Its name.
    pub name: String,
    /// Part of all tokens to train on, 0 to 1.
    pub train_share: f64,
    /// What is trained on.
    pub train: Counts,
    /// What is held out.
    pub valid: Counts,
}

/// An index at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// BLAKE3 of the manifest.
    pub fingerprint: String,
    /// The tokenizer.
    pub tokenizer: TokenizerEntry,
    /// How tokens are stored.
    pub token_type: TokenType,
    /// The domains in their order.
    pub domains: Vec<DomainOverview>,
    /// Sums of what is trained on; means are over all documents.
    pub train: Counts,
    /// Sums of what is held out.
    pub valid: Counts,
    /// Number of inputs.
    pub sources: usize,
    /// What was left out of them.
    pub skipped: Vec<SkippedTotal>,
    /// What a user should look at.
    pub warnings: Vec<String>,
    /// Options of the build.
    pub options: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Overview {
    /// Reads the manifest of an index.
    ///
    /// # Errors
    /// If there is none, or it is not whole.
    pub fn load(index: &Path) -> Result<Self, IndexError> {
        let (manifest, fingerprint) = Manifest::load(index)?;
        Ok(Self::new(&manifest, fingerprint.to_string()))
    }

    /// Adds up a manifest.
    pub fn new(manifest: &Manifest, fingerprint: String) -> Self {
        let all = |split: fn(&hds::index::DomainEntry) -> &SplitEntry| {
            let mut sum = Counts::default();
            let (mut documents, mut tokens) = (0, 0);
            for entry in manifest.domains.iter().map(split) {
                sum.documents += entry.documents;
                sum.tokens += entry.tokens;
                sum.bytes += entry.bytes;
                sum.words += entry.words;
                sum.shards += entry.shards.len();
                sum.mtld_mean += entry.mtld.mean * entry.mtld.documents as f64;
                sum.mtld_token_weighted_mean +=
                    entry.mtld.token_weighted_mean * entry.tokens as f64;
                documents += entry.mtld.documents;
                tokens += entry.tokens;
            }
            sum.mtld_mean /= documents.max(1) as f64;
            sum.mtld_token_weighted_mean /= tokens.max(1) as f64;
            sum
        };
        let (train, valid) = (all(|d| &d.train), all(|d| &d.valid));
        let domains = manifest.domains.iter().map(|domain| DomainOverview {
            name: domain.name.clone(),
            train_share: domain.train.tokens as f64 / train.tokens.max(1) as f64,
            train: Counts::of(&domain.train),
            valid: Counts::of(&domain.valid),
        });
        Self {
            fingerprint,
            tokenizer: manifest.tokenizer.clone(),
            token_type: manifest.token_type,
            domains: domains.collect(),
            train,
            valid,
            sources: manifest.sources.len(),
            skipped: skipped_of(manifest),
            warnings: warnings_of(manifest),
            options: manifest.options.clone(),
        }
    }

    /// The table of domains, the totals, and what was left out, as text of several lines.
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "domain",
            "documents",
            "tokens",
            "share",
            "bytes",
            "words",
            "MTLD",
            "held-out documents",
            "held-out tokens",
        ]);
        for domain in &self.domains {
            let (t, v) = (&domain.train, &domain.valid);
            table.add_row(row(&domain.name, domain.train_share, t, v));
        }
        table.add_row(row("all", 1.0, &self.train, &self.valid));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let token_type = match self.token_type {
            TokenType::U16 => "u16",
            TokenType::U32 => "u32",
        };
        let mut text = format!(
            "{table}\n\
             tokenizer    {} ({} ids, {} closes a document), tokens stored as {token_type}\n\
             sources      {}\n\
             shards       {} to train on, {} held out\n\
             fingerprint  {}\n",
            self.tokenizer.name,
            grouped(u64::from(self.tokenizer.vocabulary)),
            self.tokenizer.end_of_document,
            self.sources,
            self.train.shards,
            self.valid.shards,
            self.fingerprint,
        );
        for skipped in &self.skipped {
            let SkippedTotal {
                reason,
                count,
                first,
            } = skipped;
            text += &format!(
                "left out     {} × {reason}, first in {first}\n",
                grouped(*count)
            );
        }
        for warning in &self.warnings {
            text += &format!("warning      {warning}\n");
        }
        text
    }
}

fn row(name: &str, share: f64, train: &Counts, valid: &Counts) -> [String; 9] {
    [
        name.to_owned(),
        grouped(train.documents),
        grouped(train.tokens),
        format!("{:.2} %", share * 100.0),
        grouped(train.bytes),
        grouped(train.words),
        format!("{:.1}", train.mtld_mean),
        grouped(valid.documents),
        grouped(valid.tokens),
    ]
}

/// A number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
