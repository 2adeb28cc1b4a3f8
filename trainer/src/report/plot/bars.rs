//! One bar a domain: the share of the samples drawn, against marks for base and last weight.

use maud::{Markup, html};

use super::frame::{no_data, percent};
use super::labels::shorten;
use super::path::short;
use super::scale::Scale;
use crate::report::number::Format;
use crate::report::palette::domain_class;

/// One domain's shares, 0 to 1.
pub struct ShareBar<'a> {
    pub name: &'a str,
    pub share: Option<f64>,
    pub base: Option<f64>,
    pub last: Option<f64>,
}

/// The figure, or a sentence that says why there is none.
pub fn share_bars(title: &str, note: &str, bars: &[ShareBar], empty: &str) -> Markup {
    let values = || {
        bars.iter()
            .flat_map(|b| [b.share, b.base, b.last])
            .flatten()
    };
    let scale = Scale::linear(values(), true).filter(|_| bars.iter().any(|b| b.share.is_some()));
    let Some(scale) = scale else {
        return no_data(title, empty);
    };
    let place = |value: Option<f64>| value.and_then(|v| scale.place(v)).map(percent);
    // Few domains get more room each.
    let row = (300.0 / bars.len() as f64).clamp(18.0, 26.0);
    let height = row * bars.len() as f64;
    html! {
        figure.plot.rows {
            figcaption { b { (title) } @if !note.is_empty() { span.note { (note) } } }
            div.box {
                svg.canvas height=(height) role="img" aria-label=(title) {
                    g.y {
                        @for tick in scale.ticks(5, |v| Format::Percent.write(v)) {
                            line x1=(percent(tick.at)) x2=(percent(tick.at)) y1="0" y2=(height) {}
                            text.under x=(percent(tick.at)) y=(height + 17.0) { (tick.label) }
                        }
                    }
                    @for (domain, bar) in bars.iter().enumerate() {
                        @let top = row * domain as f64;
                        g class=(domain_class(domain)) data-d=(domain) {
                            title {
                                (bar.name) ": drawn " (Format::Percent.write_maybe(bar.share))
                                ", base " (Format::Percent.write_maybe(bar.base))
                                ", last weight " (Format::Percent.write_maybe(bar.last))
                            }
                            text.name x="-7" y=(short(top + row / 2.0)) dy="4" { (shorten(bar.name, 19)) }
                            @if let Some(width) = place(bar.share) {
                                rect.bar x="0" width=(width) y=(short(top + 3.0)) height=(row - 6.0) rx="2" {}
                            }
                            @if let Some(x) = place(bar.base) {
                                line.base x1=(x) x2=(x) y1=(short(top + 1.0)) y2=(short(top + row - 1.0)) {}
                            }
                            @if let Some(x) = place(bar.last) {
                                circle.last cx=(x) cy=(short(top + row / 2.0)) r="3.5" {}
                            }
                        }
                    }
                }
            }
            ul.legend {
                li { svg width="22" height="10" { rect.bar width="22" height="10" rx="2" {} } "share of the sequences drawn" }
                li { svg width="8" height="12" { line.base x1="4" x2="4" y1="0" y2="12" {} } "base weight" }
                li { svg width="10" height="10" { circle.last cx="5" cy="5" r="3.5" {} } "weight at the last step" }
            }
        }
    }
}
