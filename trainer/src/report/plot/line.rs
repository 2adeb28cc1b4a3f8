//! Lines over steps, with one vertical axis or a linear and a logarithmic one behind a switch.

use maud::{Markup, html};

use super::frame::{Frame, Grid, Layers, no_data, percent};
use super::labels::{shorten, spread_out};
use super::path;
use super::readout::{Readout, Series, shortened};
use super::scale::Scale;
use crate::report::bucket::{ColumnId, Timeline, smooth};
use crate::report::number::Format;
use crate::report::palette;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The page's first, second or third colour.
    Main(u8),
    /// Thin and dashed: a reference.
    Reference,
    /// A domain's own colour and dash.
    Domain(usize),
}

/// One series.
pub struct Line {
    pub name: String,
    pub look: Look,
    /// As long as the plot's steps; `None` is a gap.
    pub values: Vec<Option<f64>>,
    /// What `values` were smoothed from, drawn behind them; a domain's only when it is singled out.
    pub raw: Option<Vec<Option<f64>>>,
    /// Least and greatest values around it.
    pub spread: Option<Vec<Option<(f64, f64)>>>,
}

/// Which vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vertical {
    Linear,
    FromZero,
    /// Logarithmic first, linear behind the switch.
    LogFirst,
    /// Linear first, logarithmic behind the switch.
    LinearFirst,
}

/// A plot of lines.
pub struct LinePlot<'a> {
    pub frame: Frame<'a>,
    /// The place of each value, in steps.
    pub steps: &'a [f64],
    /// The name of `steps` in the page's shared data ("steps", "evals").
    pub steps_name: &'static str,
    pub lines: Vec<Line>,
    pub vertical: Vertical,
    /// The axis spans the values from this one on; earlier ones may leave the frame.
    pub span_from: usize,
    pub format: Format,
    /// Why there may be nothing to show.
    pub empty: &'a str,
}

impl Line {
    /// A line without a spread.
    pub fn new(name: impl Into<String>, look: Look, values: Vec<Option<f64>>) -> Self {
        let name = name.into();
        Self {
            name,
            look,
            values,
            raw: None,
            spread: None,
        }
    }

    /// A smooth line through a column of the run, with its values and their spread behind.
    pub fn smoothed(name: &str, look: Look, timeline: &Timeline, column: ColumnId) -> Self {
        let raw = timeline.means(column);
        Self {
            name: name.to_owned(),
            look,
            // A hundredth of the run: enough to see the trend, short enough to see a bend.
            values: smooth(&raw, (raw.len() as f64 * 0.01).max(1.0)),
            raw: Some(raw),
            spread: timeline.spread(column),
        }
    }

    fn class(&self) -> String {
        match self.look {
            Look::Main(n) => format!("ln m{n}"),
            Look::Reference => "ln ref".to_owned(),
            Look::Domain(d) => {
                format!("ln {} {}", palette::domain_class(d), palette::dash_class(d))
            }
        }
    }

    fn domain(&self) -> Option<usize> {
        match self.look {
            Look::Domain(d) => Some(d),
            _ => None,
        }
    }
}

impl LinePlot<'_> {
    /// The figure, or a sentence that says why there is none.
    pub fn render(&self) -> Markup {
        let scales = self.scales();
        if scales.is_empty() {
            return no_data(self.frame.title, self.empty);
        }
        let switched = scales.len() > 1;
        let grids: Vec<Grid> = scales
            .iter()
            .map(|scale| Grid {
                log: scale.log,
                ticks: scale.ticks(5, |v| self.format.write(v)),
                switched,
            })
            .collect();
        let curves = html! {
            @for scale in &scales {
                g class=(variant(switched, scale.log)) {
                    @for line in &self.lines { (self.curve(line, *scale)) }
                }
            }
        };
        let over = html! {
            @if self.frame.end_labels {
                @for scale in &scales {
                    g class={ "end " (variant(switched, scale.log)) } { (self.end_labels(*scale)) }
                }
            }
        };
        let below = html! {
            @if self.wants_legend() { (self.legend()) }
        };
        let readout = self.readout(&scales);
        self.frame.render(
            &grids,
            Layers {
                curves,
                over,
                below,
                readout,
            },
        )
    }

    fn scales(&self) -> Vec<Scale> {
        let tail = |values: &'_ [Option<f64>]| values.get(self.span_from..).unwrap_or(&[]).to_vec();
        let means: Vec<f64> = self
            .lines
            .iter()
            .flat_map(|l| tail(&l.values))
            .flatten()
            .collect();
        // A single spike must not flatten everything else.
        let edges = self.lines.iter().flat_map(|line| {
            let spread = line.spread.iter().flatten().flatten();
            let (mut lows, mut highs): (Vec<f64>, Vec<f64>) = spread.copied().unzip();
            let mut raw: Vec<f64> = line
                .raw
                .iter()
                .flat_map(|raw| tail(raw))
                .flatten()
                .collect();
            // The raw values of a domain are shown only when it is singled out.
            let share = if line.domain().is_some() { 0.1 } else { 0.02 };
            let raw = [quantile(&mut raw, share), quantile(&mut raw, 1.0 - share)];
            let spread = [quantile(&mut lows, 0.02), quantile(&mut highs, 0.98)];
            raw.into_iter().chain(spread).flatten()
        });
        let edges: Vec<f64> = edges.collect();
        let means = || means.iter().copied();
        let edges = || edges.iter().copied();
        let linear = Scale::linear(means().chain(edges()), self.vertical == Vertical::FromZero);
        let log = Scale::logarithmic(means().chain(edges()));
        let chosen = match self.vertical {
            Vertical::Linear | Vertical::FromZero => [linear, None],
            Vertical::LogFirst => [log, linear],
            Vertical::LinearFirst => [linear, log],
        };
        chosen.into_iter().flatten().collect()
    }

    fn curve(&self, line: &Line, scale: Scale) -> Markup {
        let (axis, height) = (self.frame.axis, self.frame.height);
        let up = |v: f64| scale.place(v).map(|at| height * (1.0 - at));
        let point = |(x, v): (&f64, &Option<f64>)| Some((axis.unit(*x), up((*v)?)?));
        let curve = path::curve(self.steps.iter().zip(&line.values).map(point));
        let band = line.spread.as_ref().map(|spread| {
            let edge = |(x, s): (&f64, &Option<(f64, f64)>)| {
                let (lo, hi) = (*s)?;
                Some((axis.unit(*x), up(hi)?, up(lo).unwrap_or(height)))
            };
            path::band(&self.steps.iter().zip(spread).map(edge).collect::<Vec<_>>())
        });
        html! {
            @if let Some(band) = band { path class={ "band " (line.class()) } data-d=[line.domain()] d=(band) {} }
            @if let Some(raw) = &line.raw {
                path class={ "raw " (line.class()) } data-d=[line.domain()] d=(path::curve(self.steps.iter().zip(raw).map(point))) {}
            }
            path class=(line.class()) data-d=[line.domain()] d=(curve) {}
        }
    }

    fn end_labels(&self, scale: Scale) -> Markup {
        let height = self.frame.height;
        let end = |line: &'_ Line| {
            let index = line.values.iter().rposition(Option::is_some)?;
            let y = height * (1.0 - scale.place(line.values[index]?)?);
            Some((self.frame.axis.place(self.steps[index]), y))
        };
        let ends = self
            .lines
            .iter()
            .filter_map(|line| Some((line, end(line)?)));
        let ends: Vec<(&Line, (f64, f64))> = ends.collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let placed = spread_out(&wanted, height);
        html! {
            @for ((line, (x, from)), y) in ends.iter().zip(placed) {
                @let (from, y) = (path::short(*from), path::short(y));
                g class=(line.class()) data-d=[line.domain()] {
                    @if *x < 0.995 { line.lead x1=(percent(*x)) x2="100%" y1=(from) y2=(from) {} }
                    svg x="100%" overflow="visible" { path.lead d={ "M1 " (from) "L9 " (y) } {} }
                    text x=(percent(1.0)) dx="12" y=(y) dy="4" {
                        title { (line.name) }
                        (shorten(&line.name, 17))
                    }
                }
            }
        }
    }

    /// Names at the lines' ends need none, and the domains have theirs at the top of the page.
    fn wants_legend(&self) -> bool {
        let domains = self.lines.iter().any(|line| line.domain().is_some());
        !self.frame.end_labels && !domains && self.lines.len() > 1
    }

    fn legend(&self) -> Markup {
        html! {
            ul.legend {
                @for line in &self.lines {
                    li { svg width="22" height="10" { path class=(line.class()) d="M1 5H21" {} } (line.name) }
                }
            }
        }
    }

    fn readout(&self, scales: &[Scale]) -> String {
        let lines = self.lines.iter().map(|line| Series {
            n: &line.name,
            c: line.class(),
            d: line.domain(),
            v: shortened(&line.values),
            r: line.raw.as_deref().map(shortened),
        });
        Readout {
            x: self.steps_name,
            f: self.format.name(),
            stack: false,
            y: scales.iter().map(|s| (s.log, s.lo, s.hi)).collect(),
            s: lines.collect(),
        }
        .text()
    }
}

fn variant(switched: bool, log: bool) -> &'static str {
    match (switched, log) {
        (false, _) => "",
        (true, true) => "in-log",
        (true, false) => "in-lin",
    }
}

/// The value below which a share of them lies.
pub fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(share * last as f64).round() as usize])
}
