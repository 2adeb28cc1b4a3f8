//! Draws quantiles per domain: a box from 25 % to 75 % with the median, a line from 5 % to 95 %, dots at 1 % and 99 %.
//!
//! In: [`IndexStats`]. Out: an SVG image, tokens on a logarithmic axis beside MTLD on a linear one, or a page with the image and its numbers.
//! Names are escaped. The same statistics give the same bytes.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{DomainStats, IndexStats, Quantiles};
use crate::inspect::grouped;

const NAME_WIDTH: f64 = 190.0;
const PANEL_WIDTH: f64 = 330.0;
const GAP: f64 = 40.0;
const ROW_HEIGHT: f64 = 22.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 16.0;

const STYLE: &str = "\
svg{font:12px system-ui,sans-serif;fill:#222}\
.grid{stroke:#ddd}.line{stroke:#4467a8;stroke-width:1.5}.box{fill:#b8c8e6;stroke:#4467a8}\
.median{stroke:#14305f;stroke-width:2.5}.dot{fill:#4467a8}.tick{fill:#666;font-size:11px}.title{font-weight:600}";

/// One axis from left to right.
struct Axis {
    left: f64,
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.is_log { v.max(self.low).ln() } else { v };
        let (low, high) = (scale(self.low), scale(self.high));
        let part = (scale(value) - low) / (high - low);
        // Two digits are enough, and the same on every machine.
        ((self.left + PANEL_WIDTH * part.clamp(0.0, 1.0)) * 100.0).round() / 100.0
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let (first, last) = (
                self.low.log10().ceil() as i32,
                self.high.log10().floor() as i32,
            );
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let (first, last) = (
            (self.low / step).ceil() as i64,
            (self.high / step).floor() as i64,
        );
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// The range that holds the 1 % and 99 % quantiles of all rows.
fn axis(
    rows: &[&DomainStats],
    of: fn(&DomainStats) -> &Quantiles,
    left: f64,
    is_log: bool,
) -> Axis {
    let known = || rows.iter().map(|r| of(r)).filter(|q| q.documents > 0);
    let low = known().map(|q| q.p1).fold(f64::INFINITY, f64::min);
    let high = known().map(|q| q.p99).fold(0.0, f64::max);
    let (low, high) = if is_log {
        let low = low.clamp(1.0, 1e18);
        (low, high.max(low * 10.0))
    } else {
        (0.0, high.max(1.0) * 1.02)
    };
    Axis {
        left,
        low,
        high,
        is_log,
    }
}

/// The image alone.
pub(super) fn svg(stats: &IndexStats) -> String {
    image(stats).into_string()
}

fn image(stats: &IndexStats) -> Markup {
    let rows: Vec<&DomainStats> = stats.rows().collect();
    let height = TOP + ROW_HEIGHT * rows.len() as f64 + BOTTOM;
    let width = NAME_WIDTH + 2.0 * PANEL_WIDTH + 2.0 * GAP;
    let tokens: fn(&DomainStats) -> &Quantiles = |d| &d.tokens;
    let mtld: fn(&DomainStats) -> &Quantiles = |d| &d.mtld;
    let panels = [
        (
            "tokens of a document",
            tokens,
            axis(&rows, tokens, NAME_WIDTH, true),
        ),
        (
            "MTLD of a document",
            mtld,
            axis(&rows, mtld, NAME_WIDTH + PANEL_WIDTH + GAP, false),
        ),
    ];
    let view = format!("0 0 {width} {height}");
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(width) height=(height) role="img" {
            title { "Length and lexical diversity of the documents, by domain" }
            style { (PreEscaped(STYLE)) }
            @for (title, of, axis) in &panels {
                text.title x=(axis.left) y="14" { (title) }
                @for tick in axis.ticks() {
                    @let x = axis.at(tick);
                    line.grid x1=(x) x2=(x) y1=(TOP - 8.0) y2=(height - BOTTOM) {}
                    text.tick x=(x) y=(TOP - 14.0) text-anchor="middle" { (grouped(tick as u64)) }
                }
                @for (number, row) in rows.iter().enumerate() {
                    @let middle = TOP + ROW_HEIGHT * (number as f64 + 0.5);
                    (quantiles(of(row), axis, middle))
                }
            }
            @for (number, row) in rows.iter().enumerate() {
                @let y = TOP + ROW_HEIGHT * (number as f64 + 0.5) + 4.0;
                text x=(NAME_WIDTH - 12.0) y=(y) text-anchor="end" { (short(&row.domain)) }
            }
        }
    }
}

/// One box of a row.
fn quantiles(q: &Quantiles, axis: &Axis, middle: f64) -> Markup {
    let at = |value| axis.at(value);
    let (top, bottom) = (middle - 6.0, middle + 6.0);
    html! {
        @if q.documents > 0 {
            g {
                title { (describe(q)) }
                line.line x1=(at(q.p5)) x2=(at(q.p95)) y1=(middle) y2=(middle) {}
                rect.box x=(at(q.p25)) y=(top) width=((at(q.p75) - at(q.p25)).max(1.0)) height="12" {}
                line.median x1=(at(q.p50)) x2=(at(q.p50)) y1=(top) y2=(bottom) {}
                circle.dot cx=(at(q.p1)) cy=(middle) r="2" {}
                circle.dot cx=(at(q.p99)) cy=(middle) r="2" {}
            }
        }
    }
}

fn describe(q: &Quantiles) -> String {
    format!(
        "{} documents; 1 % {:.1}, 5 % {:.1}, 25 % {:.1}, median {:.1}, 75 % {:.1}, 95 % {:.1}, 99 % {:.1}",
        grouped(q.documents),
        q.p1,
        q.p5,
        q.p25,
        q.p50,
        q.p75,
        q.p95,
        q.p99
    )
}

/// A name that fits beside its row.
fn short(name: &str) -> String {
    const MOST: usize = 26;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

/// A page with the image and its numbers.
pub(super) fn page(stats: &IndexStats, title: &str) -> String {
    let heads = [
        "mean", "least", "1 %", "5 %", "25 %", "median", "75 %", "95 %", "99 %", "greatest",
    ];
    type Of = fn(&DomainStats) -> &Quantiles;
    let tables: [(&str, Of, usize); 4] = [
        ("Tokens", |d| &d.tokens, 0),
        ("Bytes of text", |d| &d.bytes, 0),
        ("Words", |d| &d.words, 0),
        ("MTLD, documents with words", |d| &d.mtld, 1),
    ];
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                style {
                    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
                    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
                    "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}"
                    "td:first-child,th:first-child{text-align:left}"
                }
            }
            body {
                h1 { (title) }
                p {
                    "Box: the middle half of the documents with the median; line: 5 % to 95 %; dots: 1 % and 99 %. Index "
                    code { (stats.fingerprint) } "."
                }
                (image(stats))
                @for (name, of, digits) in tables {
                    h2 { (name) }
                    table {
                        tr { th { "domain" } th { "documents" } @for head in heads { th { (head) } } }
                        @for row in stats.rows() {
                            @let q = of(row);
                            tr {
                                td { (row.domain) }
                                td { (grouped(q.documents)) }
                                @for n in [q.mean, q.min, q.p1, q.p5, q.p25, q.p50, q.p75, q.p95, q.p99, q.max] {
                                    td { (format!("{n:.digits$}")) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    .into_string()
}
