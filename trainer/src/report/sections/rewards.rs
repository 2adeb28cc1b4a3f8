//! The three rewards and their sum, by domain and step.

use maud::{Markup, html};

use super::{View, constant};
use crate::report::bucket::ColumnId;
use crate::report::number::Format;
use crate::report::plot::{Frame, Heatmap, LinePlot, Look, Shading, Vertical, remark};

/// The section.
pub fn render(view: &View) -> Markup {
    let columns = &view.run.columns;
    let map =
        |id, title, note, of: &[ColumnId], shading| heatmap(view, id, title, note, of, shading);
    html! {
        section id="rewards" {
            h2 { "Rewards" }
            div.grid {
                (map("total", "Total", "the weighted sum that the agent learns from", &columns.total, Shading::Diverging))
                (map("alignment", "Alignment", "as it enters the total: does a domain's gradient help the others?", &columns.alignment, Shading::Diverging))
                (map("alignment-raw", "Alignment, raw", "as the formula gives it", &columns.alignment_raw, Shading::Diverging))
                (map("diversity", "Lexical diversity", "as it enters the total", &columns.diversity, Shading::Sequential))
            }
            div.grid { (stability(view)) }
        }
    }
}

fn heatmap(
    view: &View,
    id: &str,
    title: &str,
    note: &str,
    columns: &[ColumnId],
    shading: Shading,
) -> Markup {
    let frame = Frame {
        height: Heatmap::height(view.order.len()),
        row_labels: true,
        ..view.frame(id, title, note)
    };
    Heatmap {
        frame,
        steps: &view.steps,
        rows: view.series(columns),
        shading,
        format: Format::Plain,
        empty: &view.no_rewards(),
    }
    .render()
}

fn stability(view: &View) -> Markup {
    let column = view.run.columns.stability;
    let line = view.smoothed("stability", Look::Main(0), column);
    if let Some(value) = constant(line.raw.as_deref().unwrap_or(&[])) {
        let value = Format::Plain.write(value);
        return remark(
            "Stability",
            &format!("{value} at every step: the same for every domain and every choice"),
        );
    }
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame(
                "stability",
                "Stability",
                "as it enters the total, the same for every domain",
            )
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line],
        vertical: Vertical::FromZero,
        span_from: 0,
        format: Format::Plain,
        empty: &view.no_rewards(),
    }
    .render()
}
