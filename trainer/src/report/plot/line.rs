//! Lines over steps, with one vertical axis or a linear and a logarithmic one behind a switch.

use maud::{Markup, html};
use serde::Serialize;

use super::frame::{Frame, Grid, Layers, no_data, percent};
use super::labels::{shorten, spread_out};
use super::path;
use super::scale::Scale;
use crate::report::number::Format;
use crate::report::palette;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The page's first, second or third colour.
    Main(u8),
    /// Behind the others, pale.
    Pale,
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
    pub format: Format,
    /// Why there may be nothing to show.
    pub empty: &'a str,
}

/// What the page's script needs for the readout.
#[derive(Serialize)]
struct Readout<'a> {
    x: &'static str,
    f: &'static str,
    y: Vec<(bool, f64, f64)>,
    s: Vec<Series<'a>>,
}

#[derive(Serialize)]
struct Series<'a> {
    n: &'a str,
    c: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<usize>,
    v: Vec<Option<Short>>,
}

/// A number with four significant digits, so that the page stays small.
pub struct Short(pub f64);

impl Serialize for Short {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rounded: f64 = format!("{:.3e}", self.0).parse().unwrap_or(self.0);
        match rounded.fract() == 0.0 && rounded.abs() < 1e9 {
            true => to.serialize_i64(rounded as i64),
            false => to.serialize_f64(rounded),
        }
    }
}

impl Line {
    /// A line without a spread.
    pub fn new(name: impl Into<String>, look: Look, values: Vec<Option<f64>>) -> Self {
        let name = name.into();
        Self {
            name,
            look,
            values,
            spread: None,
        }
    }

    fn class(&self) -> String {
        match self.look {
            Look::Main(n) => format!("ln m{n}"),
            Look::Pale => "ln pale".to_owned(),
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
        let means = || {
            self.lines
                .iter()
                .flat_map(|l| l.values.iter().flatten().copied())
        };
        let edges = || {
            let spread = self.lines.iter().filter_map(|l| l.spread.as_ref());
            spread.flat_map(|s| {
                let (mut lows, mut highs): (Vec<f64>, Vec<f64>) =
                    s.iter().flatten().copied().unzip();
                // A single spike must not flatten everything else.
                [quantile(&mut lows, 0.02), quantile(&mut highs, 0.98)]
                    .into_iter()
                    .flatten()
            })
        };
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
            @if let Some(band) = band { path class={ "band " (line.class()) } d=(band) {} }
            path class=(line.class()) data-d=[line.domain()] d=(curve) {}
        }
    }

    fn end_labels(&self, scale: Scale) -> Markup {
        let height = self.frame.height;
        let ends: Vec<(&Line, f64)> = self
            .lines
            .iter()
            .filter_map(|line| {
                let last = line.values.iter().rev().flatten().next()?;
                Some((line, height * (1.0 - scale.place(*last)?)))
            })
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        let placed = spread_out(&wanted, height);
        html! {
            @for ((line, from), y) in ends.iter().zip(placed) {
                @let (from, y) = (path::short(*from), path::short(y));
                g class=(line.class()) data-d=[line.domain()] {
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
        let series = |line: &'_ Line| -> Vec<Option<Short>> {
            line.values.iter().map(|v| v.map(Short)).collect()
        };
        let readout = Readout {
            x: self.steps_name,
            f: self.format.name(),
            y: scales.iter().map(|s| (s.log, s.lo, s.hi)).collect(),
            s: self
                .lines
                .iter()
                .map(|line| Series {
                    n: &line.name,
                    c: line.class(),
                    d: line.domain(),
                    v: series(line),
                })
                .collect(),
        };
        serde_json::to_string(&readout).unwrap_or_default()
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
