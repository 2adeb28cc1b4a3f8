//! The three rewards and their sum, by domain and step.

use maud::{Markup, html};

use super::View;
use crate::report::bucket::ColumnId;
use crate::report::number::Format;
use crate::report::plot::{Frame, Heatmap, Line, LinePlot, Look, Shading, Vertical};

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
    let mut line = Line::new("stability", Look::Main(0), view.run.means(column));
    line.spread = view.run.timeline.spread(column);
    LinePlot {
        frame: view.frame(
            "stability",
            "Stability",
            "the same for every domain; a flat line at its cap teaches nothing",
        ),
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line],
        vertical: Vertical::FromZero,
        format: Format::Plain,
        empty: &view.no_rewards(),
    }
    .render()
}
