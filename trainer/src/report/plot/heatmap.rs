//! A value per domain over steps, as shades.

use maud::{Markup, html};
use serde::Serialize;

use super::WIDTH;
use super::frame::{Frame, Layers, no_data};
use super::labels::shorten;
use super::line::quantile;
use super::path::short;
use super::readout::{Short, shortened};
use crate::report::number::Format;
use crate::report::palette::LEVELS;

/// The most columns; each is the mean of neighbouring buckets.
const COLUMNS: usize = 160;

/// What the shades mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shading {
    /// Two colours around 0.
    Diverging,
    /// One colour, from the least to the greatest.
    Sequential,
    /// Two colours around 1 on a logarithmic axis: a half and a double are equally strong.
    Ratio,
}

/// A plot of shades. The frame's height is set by [`Heatmap::height`].
pub struct Heatmap<'a> {
    pub frame: Frame<'a>,
    /// Middles of the buckets, equally far apart.
    pub steps: &'a [f64],
    /// Name and values of each row.
    pub rows: Vec<(&'a str, Vec<Option<f64>>)>,
    pub shading: Shading,
    pub format: Format,
    pub empty: &'a str,
}

#[derive(Serialize)]
struct Readout<'a> {
    x: &'static str,
    f: &'static str,
    /// Buckets a column.
    g: usize,
    h: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    n: &'a str,
    v: Vec<Option<Short>>,
}

/// The values that the first and the last shade stand for, on the shading's own axis.
#[derive(Clone, Copy)]
struct Range {
    lo: f64,
    hi: f64,
}

impl Heatmap<'_> {
    /// Height of a plot of so many rows, in pixels.
    pub fn height(rows: usize) -> f64 {
        let rows = rows as f64;
        match rows {
            _ if rows > 40.0 => rows * 11.0,
            _ => rows * (300.0 / rows).clamp(15.0, 26.0),
        }
    }

    /// The figure, or a sentence that says why there is none.
    pub fn render(&self) -> Markup {
        let group = self.steps.len().div_ceil(COLUMNS).max(1);
        let cells: Vec<Vec<Option<f64>>> = self.rows.iter().map(|(_, v)| join(v, group)).collect();
        let Some(range) = self.range(&cells) else {
            return no_data(self.frame.title, self.empty);
        };
        let height = self.frame.height / self.rows.len().max(1) as f64;
        let curves = html! {
            @for (row, values) in cells.iter().enumerate() {
                g data-d=(row) { (self.row(values, group, range, row as f64 * height, height)) }
            }
        };
        let over = html! {
            g.names {
                @for (row, (name, _)) in self.rows.iter().enumerate() {
                    text x="-7" y=(short((row as f64 + 0.5) * height)) dy="4" data-d=(row) {
                        title { (name) }
                        (shorten(name, 19))
                    }
                }
            }
        };
        let below = self.key(range);
        let readout = self.readout(&cells, group);
        self.frame.render(
            &[],
            Layers {
                curves,
                over,
                below,
                readout,
            },
        )
    }

    /// A value on the shading's own axis.
    fn on_axis(&self, value: f64) -> Option<f64> {
        match self.shading {
            Shading::Ratio => (value > 0.0).then(|| value.log2()),
            _ => Some(value),
        }
    }

    fn range(&self, cells: &[Vec<Option<f64>>]) -> Option<Range> {
        let values = cells.iter().flatten().flatten();
        let mut values: Vec<f64> = values.filter_map(|v| self.on_axis(*v)).collect();
        // A few extremes must not make everything else one shade.
        let (lo, hi) = (quantile(&mut values, 0.01)?, quantile(&mut values, 0.99)?);
        Some(match self.shading {
            Shading::Sequential => Range { lo, hi },
            _ => {
                let least = if self.shading == Shading::Ratio {
                    1.0
                } else {
                    1e-12
                };
                let reach = lo.abs().max(hi.abs()).max(least);
                Range {
                    lo: -reach,
                    hi: reach,
                }
            }
        })
    }

    fn level(&self, value: Option<f64>, range: Range) -> Option<usize> {
        let at = match self.on_axis(value?) {
            Some(_) if range.hi <= range.lo => 0.5,
            Some(value) => (value - range.lo) / (range.hi - range.lo),
            // A ratio of 0.
            None => 0.0,
        };
        Some((at.clamp(0.0, 1.0) * (LEVELS - 1) as f64).round() as usize)
    }

    /// One path a shade; cells of one shade side by side are one rectangle.
    fn row(
        &self,
        values: &[Option<f64>],
        group: usize,
        range: Range,
        y: f64,
        height: f64,
    ) -> Markup {
        let levels: Vec<_> = values.iter().map(|v| self.level(*v, range)).collect();
        let mut paths = vec![String::new(); LEVELS];
        let mut start = 0;
        for run in levels.chunk_by(|a, b| a == b) {
            let end = start + run.len();
            if let Some(level) = run[0] {
                let (x, to) = (self.edge(start * group), self.edge(end * group));
                let (x, y, width) = (short(x), short(y + 0.5), short(to - x + 0.1));
                paths[level] += &format!("M{x} {y}h{width}v{h}h-{width}z", h = short(height - 1.0));
            }
            start = end;
        }
        html! {
            @for (level, path) in paths.iter().enumerate() {
                @if !path.is_empty() { path class=(self.class(level)) d=(path) {} }
            }
        }
    }

    /// The left edge of a bucket, in units across; of one past the last, its right edge.
    fn edge(&self, bucket: usize) -> f64 {
        let half = match self.steps {
            [first, second, ..] => (second - first) / 2.0,
            _ => 0.5,
        };
        let step = match self.steps.get(bucket) {
            Some(step) => step - half,
            None => self.steps.last().map_or(0.0, |step| step + half),
        };
        self.frame.axis.unit(step).clamp(0.0, WIDTH)
    }

    fn class(&self, level: usize) -> String {
        let kind = if self.shading == Shading::Sequential {
            'q'
        } else {
            'v'
        };
        format!("{kind}{level}")
    }

    /// The bar that says what the shades mean.
    fn key(&self, range: Range) -> Markup {
        let value = |at: f64| {
            let value = range.lo + at * (range.hi - range.lo);
            self.format.write(if self.shading == Shading::Ratio {
                value.exp2()
            } else {
                value
            })
        };
        html! {
            div.key {
                span { "≤ " (value(0.0)) }
                span.shades { @for level in 0..LEVELS { i class=(self.class(level)) {} } }
                span { "≥ " (value(1.0)) }
                @if self.shading != Shading::Sequential { span.note { "middle: " (value(0.5)) } }
            }
        }
    }

    fn readout(&self, cells: &[Vec<Option<f64>>], group: usize) -> String {
        let rows = self.rows.iter().zip(cells).map(|((name, _), values)| Row {
            n: name,
            v: shortened(values),
        });
        let h = rows.collect();
        let readout = Readout {
            x: "steps",
            f: self.format.name(),
            g: group,
            h,
        };
        serde_json::to_string(&readout).unwrap_or_default()
    }
}

/// Means of groups of neighbours; a group of gaps is a gap.
fn join(values: &[Option<f64>], group: usize) -> Vec<Option<f64>> {
    let mean = |cells: &[Option<f64>]| {
        let count = cells.iter().flatten().count();
        (count > 0).then(|| cells.iter().flatten().sum::<f64>() / count as f64)
    };
    values.chunks(group).map(mean).collect()
}
