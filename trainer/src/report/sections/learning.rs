//! What the model learnt: training loss, learning rate, gradient norm, held-out perplexity.

use maud::{Markup, html};

use super::View;
use crate::report::number::Format;
use crate::report::plot::{Frame, Line, LinePlot, Look, Vertical};

/// The section.
pub fn render(view: &View) -> Markup {
    html! {
        section id="learning" {
            h2 { "What the model learnt" }
            div.grid { (training_loss(view)) (held_out(view)) }
            div.grid { (held_out_domains(view)) }
            div.grid { (learning_rate(view)) (gradient_norm(view)) }
        }
    }
}

fn training_loss(view: &View) -> Markup {
    let note = match view.run.timeline.width() {
        1 => "nats per token; pale: each step".to_owned(),
        width => format!("nats per token; pale: mean and range of each {width} steps"),
    };
    let loss = view.smoothed("loss", Look::Main(0), view.run.columns.loss);
    LinePlot {
        frame: view.frame("loss", "Training loss", &note),
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![loss],
        vertical: Vertical::LinearFirst,
        span_from: 0,
        format: Format::Plain,
        empty: view.no_steps(),
    }
    .render()
}

fn learning_rate(view: &View) -> Markup {
    let values = view.run.means(view.run.columns.learning_rate);
    LinePlot {
        frame: Frame {
            height: 110.0,
            ..view.frame("learning-rate", "Learning rate", "")
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![Line::new("learning rate", Look::Main(0), values)],
        vertical: Vertical::FromZero,
        span_from: 0,
        format: Format::Plain,
        empty: view.no_steps(),
    }
    .render()
}

fn gradient_norm(view: &View) -> Markup {
    let column = view.run.columns.gradient_norm;
    let line = view.smoothed("gradient norm", Look::Main(0), column);
    LinePlot {
        frame: Frame {
            height: 110.0,
            ..view.frame("gradient-norm", "Gradient norm", "before clipping")
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line],
        vertical: Vertical::LogFirst,
        span_from: 0,
        format: Format::Plain,
        empty: view.no_steps(),
    }
    .render()
}

fn held_out(view: &View) -> Markup {
    let run = view.run;
    let mut lines = vec![
        Line::new(
            "macro",
            Look::Main(0),
            run.evaluated(|e| e.macro_perplexity),
        ),
        Line::new(
            "base-weighted",
            Look::Main(1),
            run.evaluated(|e| e.base_perplexity),
        ),
    ];
    let note = match run.header.target() {
        Some(_) => {
            let values = run.evaluated(|e| e.target_perplexity);
            lines.push(Line::new("target", Look::Main(2), values));
            "exp of the mean over domains, under the base weights, and under the target"
        }
        None => "exp of the mean over domains, and of the mean under the base weights",
    };
    let note = format!("{note}{}", untrained_note(view));
    LinePlot {
        frame: view.frame("held-out", "Held-out perplexity", &note),
        steps: &view.evaluated_at,
        steps_name: "evals",
        lines,
        vertical: Vertical::LogFirst,
        span_from: view.untrained(),
        format: Format::Plain,
        empty: view.no_evaluations(),
    }
    .render()
}

/// Says why lines may begin above the frame.
fn untrained_note(view: &View) -> &'static str {
    match view.untrained() {
        0 => "",
        _ => "; before the first step it lies above the frame",
    }
}

fn held_out_domains(view: &View) -> Markup {
    let line = |(rank, domain): (usize, &usize)| {
        let values = view.run.evaluated(|e| e.losses[*domain].map(f64::exp));
        Line::new(&view.run.domains[*domain].name, Look::Domain(rank), values)
    };
    let note = "click a name to single it out, here and everywhere on the page";
    let note = format!("{note}{}", untrained_note(view));
    let mut frame = view.frame("held-out-domains", "Held-out perplexity by domain", &note);
    frame.height = view.labelled_height();
    frame.end_labels = view.labels_fit();
    frame.wide = true;
    LinePlot {
        frame,
        steps: &view.evaluated_at,
        steps_name: "evals",
        lines: view.order.iter().enumerate().map(line).collect(),
        vertical: Vertical::LogFirst,
        span_from: view.untrained(),
        format: Format::Plain,
        empty: view.no_evaluations(),
    }
    .render()
}
