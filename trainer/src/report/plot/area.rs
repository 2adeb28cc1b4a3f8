//! Shares that sum to one, stacked over steps.

use maud::{Markup, html};

use super::frame::{Frame, Grid, Layers, no_data, percent};
use super::labels::{shorten, spread_out};
use super::path;
use super::readout::{Readout, Series, shortened};
use super::scale::Scale;
use crate::report::number::Format;
use crate::report::palette::domain_class;

/// A plot of stacked shares.
pub struct StackedArea<'a> {
    pub frame: Frame<'a>,
    pub steps: &'a [f64],
    /// Name and values of each share, from the top down; `None` in any of them is a gap in all.
    pub shares: Vec<(&'a str, &'a [Option<f64>])>,
    pub empty: &'a str,
}

impl StackedArea<'_> {
    /// The figure, or a sentence that says why there is none.
    pub fn render(&self) -> Markup {
        let edges = self.edges();
        if edges.iter().all(Option::is_none) {
            return no_data(self.frame.title, self.empty);
        }
        let scale = Scale {
            lo: 0.0,
            hi: 1.0,
            log: false,
        };
        let grid = Grid {
            log: false,
            ticks: scale.ticks(4, |v| Format::Percent.write(v)),
            switched: false,
        };
        let curves = html! {
            @for domain in 0..self.shares.len() {
                path class={ "area " (domain_class(domain)) } data-d=(domain) d=(self.area(&edges, domain)) {}
            }
        };
        let over = html! { @if self.frame.end_labels { g.end { (self.end_labels(&edges)) } } };
        let below = html! {};
        let readout = self.readout();
        self.frame.render(
            &[grid],
            Layers {
                curves,
                over,
                below,
                readout,
            },
        )
    }

    /// Per step the K+1 edges of the stack, from 0 at the top to 1, or a gap.
    fn edges(&self) -> Vec<Option<Vec<f64>>> {
        let at = |i: usize| {
            let values: Option<Vec<f64>> = self.shares.iter().map(|(_, v)| v[i]).collect();
            let values = values?;
            let sum: f64 = values.iter().sum();
            let mut edge = 0.0;
            let edges = values.iter().map(|v| {
                edge += v / sum;
                edge
            });
            (sum > 0.0).then(|| std::iter::once(0.0).chain(edges).collect())
        };
        (0..self.steps.len()).map(at).collect()
    }

    fn area(&self, edges: &[Option<Vec<f64>>], domain: usize) -> String {
        let (axis, height) = (self.frame.axis, self.frame.height);
        let point = |(x, edges): (&f64, &Option<Vec<f64>>)| {
            let edges = edges.as_ref()?;
            Some((
                axis.unit(*x),
                height * edges[domain],
                height * edges[domain + 1],
            ))
        };
        path::band(&self.steps.iter().zip(edges).map(point).collect::<Vec<_>>())
    }

    fn end_labels(&self, edges: &[Option<Vec<f64>>]) -> Markup {
        let Some(last) = edges.iter().rev().flatten().next() else {
            return html! {};
        };
        let height = self.frame.height;
        let middles: Vec<f64> = last
            .windows(2)
            .map(|e| height * (e[0] + e[1]) / 2.0)
            .collect();
        let placed = spread_out(&middles, height);
        html! {
            @for (domain, (from, y)) in middles.iter().zip(placed).enumerate() {
                @let (from, y) = (path::short(*from), path::short(y));
                @let name = self.shares[domain].0;
                g class={ "ln " (domain_class(domain)) } data-d=(domain) {
                    svg x="100%" overflow="visible" { path.lead d={ "M1 " (from) "L9 " (y) } {} }
                    text x=(percent(1.0)) dx="12" y=(y) dy="4" { title { (name) } (shorten(name, 17)) }
                }
            }
        }
    }

    fn readout(&self) -> String {
        let shares = self.shares.iter().enumerate();
        let series = shares.map(|(domain, (name, values))| Series {
            n: name,
            c: format!("ln {}", domain_class(domain)),
            d: Some(domain),
            v: shortened(values),
            r: None,
        });
        Readout {
            x: "steps",
            f: Format::Percent.name(),
            stack: true,
            y: vec![(false, 0.0, 1.0)],
            s: series.collect(),
        }
        .text()
    }
}
