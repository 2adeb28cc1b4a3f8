//! Small plots: a line in a table cell, and a panel of its own for every domain.

use maud::{Markup, html};

use super::frame::{StepAxis, percent};
use super::line::quantile;
use super::path::{curve, short};
use super::scale::Scale;
use super::{WIDTH, path};
use crate::report::number::Format;
use crate::report::palette::domain_class;

/// A line without axes, between its own extremes; nothing if there is no value.
pub fn sparkline(axis: StepAxis, steps: &[f64], values: &[Option<f64>], domain: usize) -> Markup {
    let height = 24.0;
    let finite = values.iter().flatten().copied();
    let Some(scale) = Scale::linear(finite, false) else {
        return html! {};
    };
    let up = |v: f64| scale.place(v).map(|at| height * (1.0 - at));
    let point = |(x, v): (&f64, &Option<f64>)| Some((axis.unit(*x), up((*v)?)?));
    // A cell has no room for more points.
    let every = steps.len().div_ceil(120).max(1);
    let points = steps.iter().zip(values).step_by(every).map(point);
    html! {
        svg.spark width="96" height=(height) preserveAspectRatio="none" viewBox={ "0 0 " (WIDTH) " " (height) } aria-hidden="true" {
            path class={ "ln " (domain_class(domain)) } d=(curve(points)) {}
        }
    }
}

/// A domain's weight in a panel of its own, from 0, against its base weight.
pub struct SmallMultiple<'a> {
    pub name: &'a str,
    /// The domain's place in the page's order.
    pub domain: usize,
    pub axis: StepAxis,
    pub steps: &'a [f64],
    /// Smoothed.
    pub values: &'a [Option<f64>],
    /// What they were smoothed from.
    pub raw: &'a [Option<f64>],
    pub reference: Option<f64>,
    /// Written beside the reference.
    pub mean: Option<f64>,
    pub format: Format,
}

impl<'a> SmallMultiple<'a> {
    /// The panel.
    pub fn render(&self) -> Markup {
        let height = 64.0;
        // A single spike must not flatten everything else.
        let high = quantile(
            &mut self.raw.iter().flatten().copied().collect::<Vec<_>>(),
            0.95,
        );
        let all = self
            .values
            .iter()
            .copied()
            .chain([self.reference, high])
            .flatten();
        let Some(scale) = Scale::linear(all, true) else {
            return html! {};
        };
        let up = |v: f64| scale.place(v).map(|at| height * (1.0 - at));
        let level = self.reference.and_then(up);
        let every = self.steps.len().div_ceil(260).max(1);
        let of = |values: &'a [Option<f64>]| self.steps.iter().zip(values).step_by(every);
        let points = || of(self.values);
        let point = |(x, v): (&f64, &Option<f64>)| Some((self.axis.unit(*x), up((*v)?)?));
        let fill = |(x, v): (&f64, &Option<f64>)| Some((self.axis.unit(*x), up((*v)?)?, level?));
        let fill: Vec<_> = points().map(fill).collect();
        let warm_up_end = self
            .axis
            .warm_up_end
            .map(|step| percent(self.axis.place(step)));
        html! {
            div.panel data-d=(self.domain) {
                div.head { b { (self.name) } span { (self.format.write_maybe(self.reference)) " → " (self.format.write_maybe(self.mean)) } }
                svg width="100%" height=(height) role="img" aria-label={ "weight of " (self.name) } {
                    @if let Some(x) = warm_up_end { line.mark x1=(x) x2=(x) y1="0" y2=(height) {} }
                    svg width="100%" height=(height) preserveAspectRatio="none" viewBox={ "0 0 " (WIDTH) " " (height) } {
                        path class={ "between " (domain_class(self.domain)) } d=(path::band(&fill)) {}
                        path class={ "faint ln " (domain_class(self.domain)) } d=(curve(of(self.raw).map(point))) {}
                        path class={ "ln " (domain_class(self.domain)) } d=(curve(points().map(point))) {}
                    }
                    @if let Some(y) = level { line.base x1="0" x2="100%" y1=(short(y)) y2=(short(y)) {} }
                }
            }
        }
    }
}
