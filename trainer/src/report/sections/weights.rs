//! What the policy did: the weights over time, against the base weights, and what was drawn.

use maud::{Markup, html};

use super::View;
use crate::report::columns;
use crate::report::domains::DomainFigures;
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
            h3 { "Weight of each domain" span.note { "from 0, smoothed; pale: each step; dashed: base weight → mean after the warm-up" } }
            (panels(view))
        }
    }
}

fn stacked(view: &View) -> Markup {
    let names = view.domains().map(|d| d.name.as_str());
    let frame = Frame {
        height: view.labelled_height(),
        end_labels: view.labels_fit(),
        ..view.frame(
            "stack",
            "Weights, stacked",
            "smoothed; heaviest base weight on top",
        )
    };
    StackedArea {
        frame,
        steps: &view.steps,
        shares: names.zip(view.weights.iter().map(Vec::as_slice)).collect(),
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
    let series = view.series(&view.run.columns.weights).into_iter();
    let lines = series.zip(&view.weights).enumerate();
    let line = |(rank, ((name, raw), smoothed)): (usize, ((&str, _), &Vec<Maybe>))| Line {
        raw: Some(raw),
        ..Line::new(name, Look::Domain(rank), smoothed.clone())
    };
    let frame = Frame {
        height: view.labelled_height(),
        end_labels: view.labels_fit(),
        wide: true,
        ..view.frame(
            "weights-lines",
            "Weights",
            "smoothed; single a domain out to see each step's",
        )
    };
    LinePlot {
        frame,
        steps: &view.steps,
        steps_name: "steps",
        lines: lines.map(line).collect(),
        vertical: Vertical::LogFirst,
        span_from: 0,
        format: Format::Percent,
        empty: view.no_steps(),
    }
    .render()
}

/// A figure of the smoothed weights at every step.
fn of_smoothed(view: &View, figure: impl Fn(&[Maybe]) -> Maybe) -> Vec<Maybe> {
    let at = |i: usize| -> Vec<Maybe> { view.weights.iter().map(|values| values[i]).collect() };
    (0..view.steps.len()).map(|i| figure(&at(i))).collect()
}

fn departure(view: &View) -> Markup {
    let base: Vec<Maybe> = view.domains().map(|d| d.base).collect();
    let values = of_smoothed(view, |weights| columns::departure(weights, &base));
    let line = Line {
        raw: Some(view.run.means(view.run.columns.departure)),
        ..Line::new("departure", Look::Main(0), values)
    };
    let note = "share of the weight that sits elsewhere, ½ Σ|a − base|, of smoothed weights; pale: of each step's";
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame("departure", "Departure from the base weights", note)
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line],
        vertical: Vertical::FromZero,
        span_from: 0,
        format: Format::Percent,
        empty: view.no_steps(),
    }
    .render()
}

fn effective_domains(view: &View) -> Markup {
    let values = of_smoothed(view, columns::effective_domains);
    let base: Vec<Maybe> = view.domains().map(|d| d.base).collect();
    let of_base = columns::effective_domains(&base);
    let reference = values.iter().map(|v| v.and(of_base)).collect();
    let line = Line {
        raw: Some(view.run.means(view.run.columns.effective_domains)),
        ..Line::new("weights", Look::Main(0), values)
    };
    let note = "exp of the entropy of the smoothed weights; pale: of each step's";
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame("effective", "Effective number of domains", note)
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line, Line::new("base weights", Look::Reference, reference)],
        vertical: Vertical::Linear,
        span_from: 0,
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
    let panel = |(rank, ((name, raw), figures)): (usize, ((&str, Vec<Maybe>), &DomainFigures))| {
        SmallMultiple {
            name,
            domain: rank,
            axis: view.axis,
            steps: &view.steps,
            values: &view.weights[rank],
            raw: &raw,
            reference: figures.base,
            mean: figures.weight.get(),
            format: Format::Percent,
        }
        .render()
    };
    html! {
        div.panels {
            @for domain in series.into_iter().zip(view.domains()).enumerate() { (panel(domain)) }
        }
    }
}
