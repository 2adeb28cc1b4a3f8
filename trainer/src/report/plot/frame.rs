//! What every plot over steps has around its curves: title, axes, grid, the mark of the warm-up.

use maud::{Markup, PreEscaped, html};

use super::WIDTH;
use super::path::short;
use super::scale::{Scale, Tick, write_step};

/// The step axis that all plots of a page share.
#[derive(Clone, Copy, Debug)]
pub struct StepAxis {
    pub lo: f64,
    pub hi: f64,
    /// The first step that the policy governed.
    pub warm_up_end: Option<f64>,
}

/// A plot without its curves.
pub struct Frame<'a> {
    /// Short; unique on the page.
    pub id: &'a str,
    pub title: &'a str,
    /// One sentence on how to read it.
    pub note: &'a str,
    /// Height of the plotting area, in pixels.
    pub height: f64,
    pub axis: StepAxis,
    /// Names stand at the right.
    pub end_labels: bool,
    /// Domain names stand at the left instead of numbers.
    pub row_labels: bool,
    /// Spans the page.
    pub wide: bool,
}

/// A sentence instead of an empty frame.
pub fn no_data(title: &str, reason: &str) -> Markup {
    remark(title, &format!("no data: {reason}"))
}

/// A sentence instead of a plot that would say no more.
pub fn remark(title: &str, sentence: &str) -> Markup {
    html! {
        figure.plot.empty {
            figcaption { b { (title) } }
            p { (sentence) }
        }
    }
}

impl StepAxis {
    /// A step's place across a plotting area, 0 to 1.
    pub fn place(self, step: f64) -> f64 {
        (step - self.lo) / (self.hi - self.lo)
    }

    /// The same in units of a stretched plotting area.
    pub fn unit(self, step: f64) -> f64 {
        self.place(step) * WIDTH
    }
}

impl Frame<'_> {
    /// The whole figure. `grids` are the vertical axes: the first is shown, a second one is behind a
    /// switch.
    pub fn render(&self, grids: &[Grid], layers: Layers) -> Markup {
        let class = format!(
            "plot{}{}{}{}",
            if self.wide { " wide" } else { "" },
            if self.end_labels { " ends" } else { "" },
            if self.row_labels { " rows" } else { "" },
            if grids.first().is_some_and(|g| g.log) {
                " log"
            } else {
                ""
            },
        );
        let height = self.height;
        html! {
            figure class=(class) id=(self.id) {
                figcaption {
                    b { (self.title) }
                    @if grids.len() > 1 { button.scale type="button" hidden { "log / linear" } }
                    @if !self.note.is_empty() { span.note { (self.note) } }
                }
                div.box {
                    svg.canvas height=(height) role="img" tabindex="0" aria-label=(self.title) {
                        @for grid in grids { (grid.render(height)) }
                        (self.step_ticks())
                        svg.stretch width="100%" height=(height) preserveAspectRatio="none" viewBox={ "0 0 " (WIDTH) " " (height) } {
                            (layers.curves)
                        }
                        (self.warm_up_mark())
                        (layers.over)
                        g.cursor {}
                    }
                }
                (layers.below)
                @if !layers.readout.is_empty() {
                    script type="application/json" { (PreEscaped(safe_json(&layers.readout))) }
                }
            }
        }
    }

    fn step_ticks(&self) -> Markup {
        let scale = Scale {
            lo: self.axis.lo,
            hi: self.axis.hi,
            log: false,
        };
        html! {
            g.x {
                @for tick in scale.ticks(5, write_step) {
                    line x1=(percent(tick.at)) x2=(percent(tick.at)) y1=(self.height) y2=(self.height + 4.0) {}
                    text x=(percent(tick.at)) y=(self.height + 17.0) { (tick.label) }
                }
            }
        }
    }

    fn warm_up_mark(&self) -> Markup {
        let place = self.axis.warm_up_end.map(|step| self.axis.place(step));
        let Some(place) = place.filter(|at| (0.0..=1.0).contains(at)) else {
            return html! {};
        };
        let (anchor, dx) = if place > 0.7 {
            ("end", 3)
        } else {
            ("start", -3)
        };
        html! {
            g.warm {
                line x1=(percent(place)) x2=(percent(place)) y1="0" y2=(self.height) {}
                text x=(percent(place)) dx=(dx) y="-3" text-anchor=(anchor) { "warm-up ends" }
            }
        }
    }
}

/// What a plot puts into its frame.
pub struct Layers {
    /// In the stretched area.
    pub curves: Markup,
    /// On top of it, at percentages across and pixels down.
    pub over: Markup,
    /// Under the axis: legends.
    pub below: Markup,
    /// JSON for the readout, or nothing.
    pub readout: String,
}

/// A vertical axis.
pub struct Grid {
    pub log: bool,
    pub ticks: Vec<Tick>,
    /// A second axis carries a class, so that the style sheet shows one of the two.
    pub switched: bool,
}

impl Grid {
    fn render(&self, height: f64) -> Markup {
        let class = match (self.switched, self.log) {
            (false, _) => "y",
            (true, true) => "y in-log",
            (true, false) => "y in-lin",
        };
        html! {
            g class=(class) {
                @for tick in &self.ticks {
                    @let y = short(height * (1.0 - tick.at));
                    line x1="0" x2="100%" y1=(y) y2=(y) {}
                    text x="-7" y=(y) dy="4" { (tick.label) }
                }
            }
        }
    }
}

/// A share as a percentage for an SVG coordinate.
pub fn percent(place: f64) -> String {
    let text = format!("{:.2}", place * 100.0);
    format!("{}%", text.strip_suffix(".00").unwrap_or(&text))
}

/// JSON that can stand in a script element: nothing in it can close the element.
pub fn safe_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_close_its_script_element() {
        let json = safe_json(r#"{"n":"</script><!--"}"#);
        assert_eq!(json, r#"{"n":"\u003c/script>\u003c!--"}"#);
    }
}
