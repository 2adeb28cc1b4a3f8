//! How the agent's own learning went.

use maud::{Markup, html};

use super::{View, constant};
use crate::report::number::Format;
use crate::report::plot::{Frame, Line, LinePlot, Look, Vertical, no_data, remark};

/// Diagnostics that a plot explains, in the page's order: name, title, note, axis.
const KNOWN: [(&str, &str, &str, Vertical); 8] = [
    (
        "critic_loss",
        "Critic loss",
        "error of the value estimates",
        Vertical::LogFirst,
    ),
    ("actor_loss", "Actor loss", "", Vertical::Linear),
    (
        "alpha",
        "Temperature α",
        "weight of the entropy; it should settle",
        Vertical::LogFirst,
    ),
    (
        "entropy",
        "Policy entropy",
        "of the distribution that weights are drawn from, in nats",
        Vertical::Linear,
    ),
    ("q_mean", "Mean value estimate", "", Vertical::Linear),
    (
        "reward_mean",
        "Mean reward",
        "as the agent learns from it",
        Vertical::Linear,
    ),
    (
        "updates",
        "Gradient updates",
        "since the run began",
        Vertical::FromZero,
    ),
    ("replay", "Transitions in replay", "", Vertical::FromZero),
];
/// Shown in the plot of the entropy.
const ENTROPY_TARGET: &str = "entropy_target";

/// The section: every diagnostic that the policy logged, the known ones first.
pub fn render(view: &View) -> Markup {
    let policy = &view.run.columns.policy;
    let known = KNOWN.iter().filter(|(name, ..)| policy.contains_key(*name));
    let known = known.map(|(name, title, note, vertical)| (*name, *title, *note, *vertical));
    let is_known = |name: &str| KNOWN.iter().any(|(known, ..)| *known == name);
    let entropy = policy.contains_key("entropy");
    let others = policy.keys().map(String::as_str);
    let others = others.filter(|name| !(is_known(name) || entropy && *name == ENTROPY_TARGET));
    let others = others.map(|name| (name, name, "", Vertical::LinearFirst));
    // A counter of mishaps that never happened needs no plot.
    let (flat, moving): (Vec<_>, Vec<_>) = known
        .chain(others)
        .map(|of| (of, constant(&view.run.means(policy[of.0]))))
        .partition(|((name, ..), value)| value.is_some() && !is_known(name));
    let flat: Vec<String> = flat
        .into_iter()
        .filter_map(|((name, ..), value)| Some(format!("{name} {}", Format::Plain.write(value?))))
        .collect();
    html! {
        section id="agent" {
            h2 { "How the agent learnt" }
            div.grid.small {
                @if moving.is_empty() && flat.is_empty() {
                    (no_data("Diagnostics", &format!("policy {} logs none", view.run.header.policy)))
                }
                @for (index, (of, _)) in moving.into_iter().enumerate() { (diagnostic(view, index, of)) }
                @if !flat.is_empty() { (remark("The same at every step", &flat.join(" · "))) }
            }
        }
    }
}

fn diagnostic(view: &View, index: usize, of: (&str, &str, &str, Vertical)) -> Markup {
    let (name, title, note, vertical) = of;
    let policy = &view.run.columns.policy;
    let mut lines = vec![view.smoothed(title, Look::Main(0), policy[name])];
    if let Some(target) = policy.get(ENTROPY_TARGET).filter(|_| name == "entropy") {
        lines.push(Line::new(
            "target",
            Look::Reference,
            view.run.means(*target),
        ));
    }
    // Names come from the log, so they make no ids.
    let id = format!("policy-{index}");
    LinePlot {
        frame: Frame {
            height: 150.0,
            ..view.frame(&id, title, note)
        },
        steps: &view.steps,
        steps_name: "steps",
        lines,
        vertical,
        span_from: 0,
        format: match name {
            "updates" | "replay" => Format::Count,
            _ => Format::Plain,
        },
        empty: "no finite value was logged (the agent may not have been updated yet)",
    }
    .render()
}
