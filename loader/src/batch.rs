//! One rank's part of a global batch.
//!
//! Shapes: R sequences on this rank (rows), L + 1 tokens each, row-major; K domains. Row r is slot
//! `slots.start + r` of the global batch.

use std::ops::Range;
use std::sync::Arc;

use hds::{DomainId, VersionedMixture};

use crate::tokens::{Tokens, widen};

/// Part of a document inside a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DocumentSpan {
    /// First token, counted from the sequence's first.
    pub start: u32,
    /// Number of tokens, at least 1.
    pub length: u32,
    /// MTLD of the whole document; 0 if it has no words.
    pub mtld: f32,
    /// Number of the document in its split.
    pub document: u64,
}

/// Which sample a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleId {
    /// Its domain.
    pub domain: DomainId,
    /// How many times the domain's windows were gone through before.
    pub epoch: u64,
    /// Number of the window in the domain's training split; it begins at token `window` · L.
    pub window: u64,
    /// Samples taken of the domain before this one.
    pub count: u64,
}

/// What a step trains on.
///
/// Where sequences are documents ([`crate::Packing::Documents`]), a row's spans end where its document
/// does, and the tokens behind are padding.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Number of the batch, from 0.
    pub step: u64,
    /// The weights that governed it, with their version.
    pub weights: Arc<VersionedMixture>,
    /// L.
    pub sequence_length: usize,
    /// The slots of the global batch that are here, one a row.
    pub slots: Range<usize>,
    /// Domain of each row, length R.
    pub domains: Vec<DomainId>,
    /// Samples of each domain in the whole global batch, length K; sums to B.
    pub global_samples: Vec<u64>,
    /// Token ids [R, L + 1]: inputs are the first L of a row, targets the last L.
    pub tokens: Tokens,
    /// Mean MTLD of each row over its documents with words, by the tokens they have among its L + 1, length R; 0 if none has.
    pub mtld: Vec<f32>,
    /// Which sample each row is, length R.
    pub samples: Vec<SampleId>,
    /// Domains that have been gone through as often as they may after this batch, in order; their
    /// weight goes to the others ([`crate::DomainEnd::Cap`]).
    pub ended: Vec<DomainId>,
    /// All rows' spans one after another.
    pub(crate) spans: Vec<DocumentSpan>,
    /// End of each row's spans, length R.
    pub(crate) span_ends: Vec<usize>,
}

impl Batch {
    /// Number of sequences here, R.
    pub fn rows(&self) -> usize {
        self.domains.len()
    }

    /// The documents of a row, in order; together they fill its L + 1 tokens, but for padding.
    ///
    /// # Panics
    /// If `row` is not below R.
    pub fn spans(&self, row: usize) -> &[DocumentSpan] {
        let start = if row == 0 { 0 } else { self.span_ends[row - 1] };
        &self.spans[start..self.span_ends[row]]
    }

    /// Number of a row's tokens that are not padding: L + 1 for a window.
    ///
    /// # Panics
    /// If `row` is not below R.
    pub fn filled(&self, row: usize) -> usize {
        let last = self.spans(row).last();
        last.map_or(0, |span| (span.start + span.length) as usize)
    }

    /// Copies the inputs of rows, the first L tokens of each, as i64 into `out` [rows, L].
    ///
    /// # Panics
    /// If a row is not below R, or `out` has another length.
    pub fn inputs_i64(&self, rows: Range<usize>, out: &mut [i64]) {
        self.shifted_i64(rows, 0, out);
    }

    /// Copies the targets of rows, the last L tokens of each, as i64 into `out` [rows, L].
    ///
    /// # Panics
    /// If a row is not below R, or `out` has another length.
    pub fn targets_i64(&self, rows: Range<usize>, out: &mut [i64]) {
        self.shifted_i64(rows, 1, out);
    }

    fn shifted_i64(&self, rows: Range<usize>, shift: usize, out: &mut [i64]) {
        let length = self.sequence_length;
        assert_eq!(
            out.len(),
            rows.len() * length,
            "the target of a copy of tokens"
        );
        for (row, out) in rows.zip(out.chunks_exact_mut(length)) {
            let start = row * (length + 1) + shift;
            widen(&self.tokens, start..start + length, out);
        }
    }

    /// Copies rows as i64, the type of tensor libraries, into `out` [rows, L + 1].
    ///
    /// # Panics
    /// If a row is not below R, or `out` has another length.
    pub fn copy_tokens_i64(&self, rows: Range<usize>, out: &mut [i64]) {
        let width = self.sequence_length + 1;
        widen(&self.tokens, rows.start * width..rows.end * width, out);
    }

    /// Puts the document boundaries of the rows' inputs, laid end to end, into `out`.
    ///
    /// Starts with 0, is strictly increasing, and ends with rows · L; every row begins a document, as
    /// attention does not cross rows, and padding is a stretch of its own. What variable-length attention kernels take.
    ///
    /// # Panics
    /// If a row is not below R.
    pub fn cu_seqlens(&self, rows: Range<usize>, out: &mut Vec<i32>) {
        out.clear();
        out.push(0);
        let first_row = rows.start;
        for row in rows {
            let base = (row - first_row) * self.sequence_length;
            for span in self.spans(row) {
                let end = (span.start + span.length) as usize;
                // LoaderConfig::check keeps B · (L + 1) below 2^31.
                let end = (base + end.min(self.sequence_length)) as i32;
                if out.last().is_none_or(|&last| last < end) {
                    out.push(end);
                }
            }
            let end = (base + self.sequence_length) as i32;
            if out.last().is_none_or(|&last| last < end) {
                out.push(end);
            }
        }
    }

    /// Puts the position of each input token in its document, as far as it is in the row, into `out`
    /// [rows, L]; 0 for padding.
    ///
    /// # Panics
    /// If a row is not below R, or `out` has another length.
    pub fn position_ids(&self, rows: Range<usize>, out: &mut [i64]) {
        assert_eq!(out.len(), rows.len() * self.sequence_length, "position ids");
        for (row, positions) in rows.zip(out.chunks_mut(self.sequence_length)) {
            for span in self.spans(row) {
                let inputs = positions.iter_mut().skip(span.start as usize);
                for (position, place) in (0..i64::from(span.length)).zip(inputs) {
                    *place = position;
                }
            }
            if let Some(padding) = positions.get_mut(self.filled(row)..) {
                padding.fill(0);
            }
        }
    }

    /// Puts into `out` [rows, L] whether each target is in the same document as its input.
    ///
    /// Where it is false, the target is the first token of a document that the input knows nothing
    /// of, or padding. By position, so that no id has a meaning of its own.
    ///
    /// # Panics
    /// If a row is not below R, or `out` has another length.
    pub fn loss_mask(&self, rows: Range<usize>, out: &mut [bool]) {
        assert_eq!(out.len(), rows.len() * self.sequence_length, "loss mask");
        out.fill(true);
        for (row, mask) in rows.zip(out.chunks_mut(self.sequence_length)) {
            for span in self.spans(row).iter().skip(1) {
                if let Some(place) = mask.get_mut(span.start as usize - 1) {
                    *place = false;
                }
            }
            if let Some(padding) = mask.get_mut(self.filled(row).saturating_sub(1)..) {
                padding.fill(false);
            }
        }
    }
}

/// Mean MTLD of the documents with words, weighted by their tokens in the sequence; 0 if none has.
pub(crate) fn token_weighted_mtld(spans: &[DocumentSpan]) -> f32 {
    let (mut sum, mut tokens) = (0.0f64, 0.0f64);
    for span in spans.iter().filter(|s| s.mtld > 0.0) {
        sum += f64::from(span.mtld) * f64::from(span.length);
        tokens += f64::from(span.length);
    }
    if tokens > 0.0 {
        (sum / tokens) as f32
    } else {
        0.0
    }
}
