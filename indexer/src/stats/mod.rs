//! How long and how diverse the documents of an index are.
//!
//! In: an index from anyone and what is wanted of it. Out: [`IndexStats`], per domain the quantiles of tokens, bytes, words and MTLD, as a table,
//! JSON or a plot. Reads the document tables, each once for its checksum and once for its rows, not the tokens. Memory: one batch of rows and
//! eight sketches, whatever the number of documents.

mod plot;
mod sketch;

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use comfy_table::{CellAlignment, Table, presets};
use hds::index::{IndexError, Manifest};
use serde::Serialize;

pub use crate::selection::Selection;
pub use sketch::Sketch;

use crate::guard::guarded_table;
use crate::inspect::grouped;
use crate::verify::file::check_file;
use crate::verify::tables::TableBatches;

/// Quantiles of one number of the documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Documents that have the number: for MTLD those with words.
    pub documents: u64,
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: f64,
    /// 1 % are at most this.
    pub p1: f64,
    /// 5 % are at most this.
    pub p5: f64,
    /// 25 % are at most this.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// 75 % are at most this.
    pub p75: f64,
    /// 95 % are at most this.
    pub p95: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
}

impl Quantiles {
    fn of(sketch: &Sketch) -> Self {
        let at = |q| sketch.quantile(q);
        Self {
            documents: sketch.count(),
            mean: sketch.mean(),
            min: at(0.0),
            p1: at(0.01),
            p5: at(0.05),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// The documents of one domain, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainStats {
    /// The domain's name.
    pub domain: String,
    /// Its documents.
    pub documents: u64,
    /// Tokens of a document, the end-of-document id counted.
    pub tokens: Quantiles,
    /// Bytes of its text.
    pub bytes: Quantiles,
    /// Its words.
    pub words: Quantiles,
    /// Lexical diversity of the documents with words.
    pub mtld: Quantiles,
}

/// The documents of an index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexStats {
    /// BLAKE3 of the manifest.
    pub fingerprint: String,
    /// Most that a quantile may be off, as a part of itself; whole numbers below 2048 are exact.
    pub relative_error: f64,
    /// The domains in their order.
    pub domains: Vec<DomainStats>,
    /// All of them together.
    pub all: DomainStats,
}

/// The sketches of one domain.
struct Sketches {
    numbers: [Sketch; 3],
    mtld: Sketch,
}

impl Sketches {
    fn new() -> Self {
        Self {
            numbers: std::array::from_fn(|_| Sketch::new(true)),
            mtld: Sketch::new(false),
        }
    }

    fn each<'s>(
        &'s mut self,
        other: &'s Self,
    ) -> impl Iterator<Item = (&'s mut Sketch, &'s Sketch)> {
        let numbers = self.numbers.iter_mut().zip(&other.numbers);
        numbers.chain([(&mut self.mtld, &other.mtld)])
    }

    fn clear(&mut self) {
        self.numbers.iter_mut().for_each(Sketch::clear);
        self.mtld.clear();
    }

    fn stats(&self, domain: &str) -> DomainStats {
        DomainStats {
            domain: domain.to_owned(),
            documents: self.numbers[0].count(),
            tokens: Quantiles::of(&self.numbers[0]),
            bytes: Quantiles::of(&self.numbers[1]),
            words: Quantiles::of(&self.numbers[2]),
            mtld: Quantiles::of(&self.mtld),
        }
    }
}

/// Reads the document tables of what is chosen.
///
/// # Errors
/// If the index cannot be read, is damaged, or a domain is unknown.
pub fn stats(index: &Path, selection: &Selection) -> Result<IndexStats, IndexError> {
    let (manifest, fingerprint) = Manifest::load(index)?;
    let chosen = selection.of(index, &manifest)?;
    let (mut all, mut one) = (Sketches::new(), Sketches::new());
    let mut domains = Vec::new();
    for of_domain in chosen.chunk_by(|a, b| a.domain == b.domain) {
        one.clear();
        for shard in of_domain.iter().flat_map(|c| &c.entry.shards) {
            let path = index.join(&shard.table_file.path);
            guarded_table(&path, || -> Result<(), IndexError> {
                check_file(&path, &shard.table_file, |_| ())?;
                for batch in TableBatches::open(&path, shard.documents, 0)? {
                    let batch = batch?;
                    let number =
                        |column| batch.column(column).as_primitive::<UInt64Type>().values();
                    // Columns 2 to 5: tokens, bytes, words, MTLD.
                    for (sketch, column) in one.numbers.iter_mut().zip(2..) {
                        number(column).iter().for_each(|n| sketch.add(*n as f64));
                    }
                    let mtld = batch.column(5).as_primitive::<Float64Type>().values();
                    for (mtld, words) in mtld.iter().zip(number(4)) {
                        if *words > 0 {
                            one.mtld.add(*mtld);
                        }
                    }
                }
                Ok(())
            })?;
        }
        for (all, one) in all.each(&one) {
            all.merge(one);
        }
        domains.push(one.stats(of_domain[0].domain));
    }
    Ok(IndexStats {
        fingerprint: fingerprint.to_string(),
        relative_error: 0.0005,
        domains,
        all: all.stats("all"),
    })
}

impl IndexStats {
    /// The domains, and all together behind them where there are several.
    fn rows(&self) -> impl Iterator<Item = &DomainStats> {
        let all = (self.domains.len() > 1).then_some(&self.all);
        self.domains.iter().chain(all)
    }

    /// A table of tokens and one of MTLD, as text of several lines.
    pub fn to_text(&self) -> String {
        let whole = |n: f64| grouped(n.round() as u64);
        let tenths = |n: f64| format!("{n:.1}");
        format!(
            "tokens of a document\n{}\nMTLD of a document with words\n{}\n",
            self.table(|d| &d.tokens, whole),
            self.table(|d| &d.mtld, tenths)
        )
    }

    fn table(&self, of: fn(&DomainStats) -> &Quantiles, show: impl Fn(f64) -> String) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "domain",
            "documents",
            "mean",
            "least",
            "1 %",
            "5 %",
            "25 %",
            "median",
            "75 %",
            "95 %",
            "99 %",
            "greatest",
        ]);
        for row in self.rows() {
            let q = of(row);
            let numbers = [
                q.mean, q.min, q.p1, q.p5, q.p25, q.p50, q.p75, q.p95, q.p99, q.max,
            ];
            let mut cells = vec![row.domain.clone(), grouped(q.documents)];
            cells.extend(numbers.map(&show));
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// A plot of both, an SVG image.
    pub fn to_svg(&self) -> String {
        plot::svg(self)
    }

    /// The plot and the numbers behind it, an HTML page that needs nothing else.
    pub fn to_html(&self, title: &str) -> String {
        plot::page(self, title)
    }
}
