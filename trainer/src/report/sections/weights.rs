//! What the policy did: the weights over time, against the base weights, and what was drawn.

use maud::{Markup, html};

use super::View;
use crate::report::number::Format;
use crate::report::plot::{
    Frame, Heatmap, Line, LinePlot, Look, Shading, ShareBar, SmallMultiple, StackedArea, Vertical,
    no_data, share_bars,
};
use crate::report::record::Maybe;

/// The section.
pub fn render(view: &View) -> Markup {
    html! {
        section id="weights" {
            h2 { "What the policy did" }
            div.grid { (stacked(view)) (ratio(view)) }
            div.grid { (lines(view)) }
            div.grid {
                (drawn(view))
                div.column { (departure(view)) (effective_domains(view)) }
            }
            h3 { "Weight of each domain" span.note { "from 0; dashed: base weight → last weight" } }
            (panels(view))
        }
    }
}

fn stacked(view: &View) -> Markup {
    let frame = Frame {
        height: view.labelled_height(),
        end_labels: view.labels_fit(),
        ..view.frame("stack", "Weights, stacked", "heaviest base weight on top")
    };
    StackedArea {
        frame,
        steps: &view.steps,
        shares: view.series(&view.run.columns.weights),
        empty: view.no_steps(),
    }
    .render()
}

fn ratio(view: &View) -> Markup {
    let over_base = |(domain, (name, values)): (&usize, (_, Vec<Maybe>))| {
        let base = view.run.domains[*domain].base.filter(|base| *base > 0.0);
        let over = |value: Maybe| Some(value? / base?);
        (name, values.into_iter().map(over).collect())
    };
    let series = view.series(&view.run.columns.weights);
    let frame = Frame {
        height: Heatmap::height(view.order.len()),
        row_labels: true,
        ..view.frame(
            "ratio",
            "Weights over base weights",
            "orange: drawn more than the base weights would, blue: less",
        )
    };
    Heatmap {
        frame,
        steps: &view.steps,
        rows: view.order.iter().zip(series).map(over_base).collect(),
        shading: Shading::Ratio,
        format: Format::Times,
        empty: view.no_steps(),
    }
    .render()
}

fn lines(view: &View) -> Markup {
    let series = view
        .series(&view.run.columns.weights)
        .into_iter()
        .enumerate();
    let line =
        |(rank, (name, values)): (usize, (&str, _))| Line::new(name, Look::Domain(rank), values);
    let frame = Frame {
        height: view.labelled_height(),
        end_labels: view.labels_fit(),
        wide: true,
        ..view.frame("weights-lines", "Weights", "in force at each step")
    };
    LinePlot {
        frame,
        steps: &view.steps,
        steps_name: "steps",
        lines: series.map(line).collect(),
        vertical: Vertical::LogFirst,
        format: Format::Percent,
        empty: view.no_steps(),
    }
    .render()
}

fn departure(view: &View) -> Markup {
    let values = view.run.means(view.run.columns.departure);
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame(
                "departure",
                "Departure from the base weights",
                "share of the weight that sits elsewhere: ½ Σ|a − base|",
            )
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![Line::new("departure", Look::Main(0), values)],
        vertical: Vertical::FromZero,
        format: Format::Percent,
        empty: view.no_steps(),
    }
    .render()
}

fn effective_domains(view: &View) -> Markup {
    let values = view.run.means(view.run.columns.effective_domains);
    let entropy: f64 = view
        .domains()
        .filter_map(|d| d.base)
        .filter(|b| *b > 0.0)
        .map(|b| -b * b.ln())
        .sum();
    let base = values.iter().map(|v| v.map(|_| entropy.exp())).collect();
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame(
                "effective",
                "Effective number of domains",
                "exp of the weights' entropy; all equal gives the number of domains",
            )
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![
            Line::new("weights", Look::Main(0), values),
            Line::new("base weights", Look::Reference, base),
        ],
        vertical: Vertical::Linear,
        format: Format::Plain,
        empty: view.no_steps(),
    }
    .render()
}

fn drawn(view: &View) -> Markup {
    let all: u64 = view
        .domains()
        .fold(0, |sum, d| d.samples.saturating_add(sum));
    let bars: Vec<ShareBar> = view
        .domains()
        .map(|d| ShareBar {
            name: &d.name,
            share: (all > 0).then(|| d.samples as f64 / all as f64),
            base: d.base,
            last: d.last_weight,
        })
        .collect();
    let note = "over the whole run";
    share_bars("Sequences drawn", note, &bars, view.no_steps())
}

fn panels(view: &View) -> Markup {
    let series = view.series(&view.run.columns.weights);
    if series
        .iter()
        .all(|(_, values)| values.iter().all(Option::is_none))
    {
        return no_data("Weight of each domain", view.no_steps());
    }
    html! {
        div.panels {
            @for ((rank, (name, values)), figures) in series.iter().enumerate().zip(view.domains()) {
                (SmallMultiple {
                    name,
                    domain: rank,
                    axis: view.axis,
                    steps: &view.steps,
                    values,
                    reference: figures.base,
                    format: Format::Percent,
                }.render())
            }
        }
    }
}
