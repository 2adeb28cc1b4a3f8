//! What it cost: throughput, time per step, the scheduler's part of it.

use maud::{Markup, html};

use super::View;
use crate::report::bucket::ColumnId;
use crate::report::number::Format;
use crate::report::plot::{Frame, LinePlot, Look, Vertical};

/// The section.
pub fn render(view: &View) -> Markup {
    let columns = &view.run.columns;
    let tokens = [("tokens per second", columns.tokens_per_second)];
    let seconds = [
        ("whole step", columns.step_seconds),
        (
            "scheduler: signals, rewards, policy",
            columns.scheduler_seconds,
        ),
    ];
    html! {
        section id="cost" {
            h2 { "What it cost" }
            div.grid {
                (plot(view, "throughput", "Throughput", "tokens per second", &tokens, (Vertical::FromZero, Format::Count)))
                (plot(view, "seconds", "Time per step", "", &seconds, (Vertical::LogFirst, Format::Seconds)))
            }
        }
    }
}

fn plot(
    view: &View,
    id: &str,
    title: &str,
    note: &str,
    series: &[(&str, ColumnId)],
    (vertical, format): (Vertical, Format),
) -> Markup {
    let line = |(index, (name, column)): (usize, &(&str, ColumnId))| {
        view.smoothed(name, Look::Main(index as u8), *column)
    };
    LinePlot {
        frame: Frame {
            height: 170.0,
            ..view.frame(id, title, note)
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: series.iter().enumerate().map(line).collect(),
        vertical,
        span_from: 0,
        format,
        empty: match view.run.totals.steps {
            0 => "no step was logged yet",
            _ => "the run logged no timing",
        },
    }
    .render()
}
