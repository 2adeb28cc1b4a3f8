//! All domains in numbers.

use maud::{Markup, html};

use super::View;
use crate::report::number::{Format, grouped};
use crate::report::palette::domain_class;
use crate::report::plot::sparkline;

const HEADINGS: [(&str, &str); 14] = [
    ("Domain", ""),
    ("Base weight", ""),
    (
        "Target",
        "weight in data.target, where one other than \"uniform\" is set",
    ),
    ("First", "weight at the first step"),
    ("Last", "weight at the last step"),
    (
        "Mean ÷ base",
        "mean weight after the warm-up over the base weight",
    ),
    ("Sequences", "drawn over the whole run"),
    ("Share", "of all sequences drawn"),
    ("Reward", "mean total reward after the warm-up"),
    ("MTLD", "mean lexical diversity of the sequences drawn"),
    (
        "Start",
        "held-out perplexity as the warm-up ended, or at the first evaluation of a trained model",
    ),
    ("Last", "held-out perplexity at the last evaluation"),
    ("Best", "least held-out perplexity, and its step"),
    ("Change", "of the held-out perplexity from start to last"),
];

/// The section.
pub fn render(view: &View) -> Markup {
    let all: u64 = view
        .domains()
        .fold(0, |sum, d| d.samples.saturating_add(sum));
    html! {
        section id="domains" {
            h2 { "Domain by domain" }
            div.scroll {
                table {
                    thead {
                        tr.groups {
                            th {} th colspan="6" { "Weight" } th colspan="4" { "Drawn" }
                            th colspan="5" { "Held-out perplexity" }
                        }
                        tr {
                            @for (index, (name, about)) in HEADINGS.into_iter().enumerate() {
                                th title=(about) data-sort=(index) { (name) }
                                @if index == 5 || index == 13 { th.over { "Over time" } }
                            }
                        }
                    }
                    tbody {
                        @for rank in 0..view.order.len() { (row(view, rank, all)) }
                    }
                }
            }
        }
    }
}

fn row(view: &View, rank: usize, all: u64) -> Markup {
    let domain = view.order[rank];
    let figures = &view.run.domains[domain];
    let held_out = figures.held_out;
    let exp = |point: Option<(u64, f64)>| point.map(|(_, loss)| loss.exp());
    let change = exp(held_out.start)
        .zip(exp(held_out.last))
        .map(|(start, last)| last / start - 1.0);
    let share = (all > 0).then(|| figures.samples as f64 / all as f64);
    let losses = view.run.evaluated(|e| e.losses[domain]);
    html! {
        tr data-d=(rank) {
            th class=(domain_class(rank)) { i.swatch {} (figures.name) }
            (cell(figures.base, Format::Percent))
            (cell(figures.target, Format::Percent))
            (cell(figures.first_weight, Format::Percent))
            (cell(figures.last_weight, Format::Percent))
            (cell(figures.weight_ratio(), Format::Times))
            td.over { (sparkline(view.axis, &view.steps, &view.weights[rank], rank)) }
            td data-v=(figures.samples) { (grouped(figures.samples)) }
            (cell(share, Format::Percent))
            (cell(figures.reward.get(), Format::Plain))
            (cell(figures.mtld.get(), Format::Plain))
            (cell(exp(held_out.start), Format::Plain))
            (cell(exp(held_out.last), Format::Plain))
            td data-v=[exp(held_out.best).filter(|v| v.is_finite())] {
                (Format::Plain.write_maybe(exp(held_out.best)))
                @if let Some((step, _)) = held_out.best { small { " @" (grouped(step)) } }
            }
            (cell(change, Format::Percent))
            td.over { (sparkline(view.axis, &view.evaluated_at, &losses, rank)) }
        }
    }
}

fn cell(value: Option<f64>, format: Format) -> Markup {
    html! { td data-v=[value.filter(|v| v.is_finite())] { (format.write_maybe(value)) } }
}
