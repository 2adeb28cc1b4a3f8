//! How the agent's own learning went.

use maud::{Markup, html};

use super::View;
use crate::report::number::Format;
use crate::report::plot::{Frame, Line, LinePlot, Look, Vertical, no_data};

/// The section: every diagnostic that the policy logged, the usual ones first.
pub fn render(view: &View) -> Markup {
    let policy = &view.run.columns.policy;
    let usual = ["critic_loss", "actor_loss", "alpha", "entropy"];
    let known = usual.into_iter().filter(|name| policy.contains_key(*name));
    let others = policy
        .keys()
        .map(String::as_str)
        .filter(|name| !usual.contains(name));
    let names: Vec<&str> = known.chain(others).collect();
    html! {
        section id="agent" {
            h2 { "How the agent learnt" }
            div.grid.small {
                @if names.is_empty() {
                    (no_data("Diagnostics", &format!("policy {} logs none", view.run.header.policy)))
                }
                @for (index, name) in names.into_iter().enumerate() { (diagnostic(view, index, name)) }
            }
        }
    }
}

fn diagnostic(view: &View, index: usize, name: &str) -> Markup {
    let (title, note, vertical) = match name {
        "critic_loss" => (
            "Critic loss",
            "mean squared error of the value estimates",
            Vertical::LogFirst,
        ),
        "actor_loss" => ("Actor loss", "", Vertical::Linear),
        "alpha" => (
            "Temperature α",
            "weight of the entropy; it should settle",
            Vertical::LogFirst,
        ),
        "entropy" => (
            "Policy entropy",
            "of the distribution the weights are drawn from, in nats",
            Vertical::Linear,
        ),
        "updates" => (
            "Gradient updates",
            "since the run began",
            Vertical::FromZero,
        ),
        other => (other, "", Vertical::LinearFirst),
    };
    let column = view.run.columns.policy[name];
    let mut line = Line::new(title, Look::Main(0), view.run.means(column));
    line.spread = view.run.timeline.spread(column);
    // Names come from the log, so they make no ids.
    let id = format!("policy-{index}");
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame(&id, title, note)
        },
        steps: &view.steps,
        steps_name: "steps",
        lines: vec![line],
        vertical,
        format: match name {
            "updates" => Format::Count,
            _ => Format::Plain,
        },
        empty: "no finite value was logged (the agent may not have been updated yet)",
    }
    .render()
}
