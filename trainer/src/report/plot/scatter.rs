//! One dot a domain: what the agent did across, what came of it up.

use maud::{Markup, html};

use super::frame::{no_data, percent};
use super::labels::shorten;
use super::path::short;
use super::scale::Scale;
use crate::report::number::Format;
use crate::report::palette::domain_class;

/// A label's width a character and height, in pixels, and the width the plot is laid out for.
const CHARACTER: f64 = 6.2;
const LINE: f64 = 12.0;
const NOMINAL_WIDTH: f64 = 480.0;

/// One domain.
pub struct ScatterPoint<'a> {
    pub name: &'a str,
    /// The domain's place in the page's order.
    pub domain: usize,
    /// Positive; the axis across is logarithmic around 1.
    pub across: f64,
    pub up: f64,
}

/// A plot of dots.
pub struct ScatterPlot<'a> {
    pub title: &'a str,
    pub note: &'a str,
    pub points: Vec<ScatterPoint<'a>>,
    pub across: &'a str,
    pub up: &'a str,
    pub height: f64,
    pub empty: &'a str,
}

/// A box in pixels: left, top, right, bottom.
type Rectangle = (f64, f64, f64, f64);

impl ScatterPlot<'_> {
    /// The figure, or a sentence that says why there is none.
    pub fn render(&self) -> Markup {
        let across = self.points.iter().flat_map(|p| [p.across, 1.0]);
        let across = Scale::logarithmic(across).map(Scale::with_margin);
        let up = Scale::linear(self.points.iter().map(|p| p.up), false).map(Scale::with_margin);
        let (Some(across), Some(up), false) = (across, up, self.points.is_empty()) else {
            return no_data(self.title, self.empty);
        };
        let height = self.height;
        let places: Vec<(f64, f64)> = self
            .points
            .iter()
            .map(|p| {
                (
                    across.place(p.across).unwrap_or(0.0),
                    1.0 - up.place(p.up).unwrap_or(0.0),
                )
            })
            .collect();
        let sides = self.label_sides(&places);
        html! {
            figure.plot.dots {
                figcaption { b { (self.title) } @if !self.note.is_empty() { span.note { (self.note) } } }
                div.box {
                    svg.canvas height=(height) role="img" aria-label=(self.title) {
                        g.y {
                            @for tick in up.ticks(5, |v| Format::Plain.write(v)) {
                                @let y = short(height * (1.0 - tick.at));
                                line x1="0" x2="100%" y1=(y) y2=(y) {}
                                text x="-7" y=(y) dy="4" { (tick.label) }
                            }
                        }
                        g.x {
                            @for tick in across.ticks(5, |v| Format::Times.write(v)) {
                                line x1=(percent(tick.at)) x2=(percent(tick.at)) y1=(height) y2=(height + 4.0) {}
                                text x=(percent(tick.at)) y=(height + 17.0) { (tick.label) }
                            }
                            text.axis x="50%" y=(height + 34.0) { (self.across) }
                        }
                        text.axis.up x="-44" y="-9" { (self.up) }
                        @if let Some(one) = across.place(1.0).map(percent) {
                            line.base x1=(one) x2=(one) y1="0" y2=(height) {}
                        }
                        @for ((point, (x, y)), side) in self.points.iter().zip(&places).zip(sides) {
                            @let (x, y) = (percent(*x), short(y * height));
                            g class=(domain_class(point.domain)) data-d=(point.domain) {
                                title {
                                    (point.name) ": " (Format::Times.write(point.across))
                                    ", " (Format::Plain.write(point.up))
                                }
                                circle.dot cx=(x) cy=(y) r="5" {}
                                @if let Some((dx, dy, anchor)) = side {
                                    text x=(x) y=(y) dx=(dx) dy=(dy) text-anchor=(anchor) { (shorten(point.name, 17)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Where each label goes, right, left, above or below its dot, or nowhere if all are taken.
    fn label_sides(&self, places: &[(f64, f64)]) -> Vec<Option<(i32, i32, &'static str)>> {
        let at = |(x, y): (f64, f64)| (x * NOMINAL_WIDTH, y * self.height);
        let mut taken: Vec<Rectangle> = places
            .iter()
            .map(|place| at(*place))
            .map(|(x, y)| (x - 5.0, y - 5.0, x + 5.0, y + 5.0))
            .collect();
        let candidates = [
            (9, 4, "start"),
            (-9, 4, "end"),
            (0, -9, "middle"),
            (0, 17, "middle"),
            (7, -6, "start"),
            (7, 14, "start"),
            (-7, -6, "end"),
            (-7, 14, "end"),
        ];
        let mut sides = Vec::new();
        for (point, place) in self.points.iter().zip(places) {
            let (x, y) = at(*place);
            let width = CHARACTER * shorten(point.name, 17).chars().count() as f64;
            let rectangle = |(dx, dy, anchor): (i32, i32, &str)| {
                let left = x + f64::from(dx)
                    - width
                        * match anchor {
                            "start" => 0.0,
                            "middle" => 0.5,
                            _ => 1.0,
                        };
                let base = y + f64::from(dy);
                (left, base - LINE + 3.0, left + width, base + 3.0)
            };
            let free = |r: &Rectangle| {
                r.0 > -4.0
                    && r.2 < NOMINAL_WIDTH + 20.0
                    && r.1 > -4.0
                    && r.3 < self.height
                    && taken
                        .iter()
                        .all(|t| r.2 < t.0 || t.2 < r.0 || r.3 < t.1 || t.3 < r.1)
            };
            let side = candidates.into_iter().find(|side| free(&rectangle(*side)));
            taken.extend(side.map(rectangle));
            sides.push(side);
        }
        sides
    }
}
