//! Whether the agent was right: what its weights earned, and what became of the domains it favoured.

use maud::{Markup, html};

use super::View;
use crate::report::bucket::smooth;
use crate::report::domains::DomainFigures;
use crate::report::number::{Format, plain};
use crate::report::plot::{Line, LinePlot, Look, ScatterPlot, ScatterPoint, Vertical, no_data};
use crate::report::rank::spearman;
use crate::report::record::Maybe;

/// The section.
pub fn render(view: &View) -> Markup {
    html! {
        section id="judgement" {
            h2 { "Was it right?" }
            div.grid { (expected_reward(view)) }
            div.grid { (favoured_and_paid(view)) (favoured_and_learnt(view)) }
        }
    }
}

/// Mean over the steps after the warm-up of the reward expected of a draw: under the weights in force,
/// the base weights, uniform weights. `None` where there were no rewards after it.
pub fn mean_expected_rewards(view: &View) -> Option<[f64; 3]> {
    let from = view.axis.warm_up_end.unwrap_or(f64::MIN);
    let mean = |column| {
        let points = view.steps.iter().zip(view.run.means(column));
        let after: Vec<f64> = points
            .filter(|(x, _)| **x >= from)
            .filter_map(|(_, v)| v)
            .collect();
        (!after.is_empty()).then(|| after.iter().sum::<f64>() / after.len() as f64)
    };
    let [acting, base, uniform] = view.run.columns.expected_reward.map(mean);
    Some([acting?, base?, uniform?])
}

fn expected_reward(view: &View) -> Markup {
    let names = ["the agent's weights", "base weights", "uniform weights"];
    let looks = [Look::Main(0), Look::Main(1), Look::Main(2)];
    let line = |((column, name), look)| {
        let means = view.run.means(column);
        let smoothed = smooth(&means, (means.len() as f64 * 0.01).max(0.5));
        Line::new(name, look, smoothed)
    };
    let columns = view.run.columns.expected_reward;
    let lines = columns
        .into_iter()
        .zip(names)
        .zip(looks)
        .map(line)
        .collect();
    let note = "Σ aᵢ rᵢ of the step's total rewards, smoothed: above the base weights, the agent's choice paid";
    LinePlot {
        frame: view.frame("expected", "Reward expected of a draw", note),
        steps: &view.steps,
        steps_name: "steps",
        lines,
        vertical: Vertical::Linear,
        span_from: 0,
        format: Format::Plain,
        empty: &view.no_rewards(),
    }
    .render()
}

fn favoured_and_paid(view: &View) -> Markup {
    scatter(
        view,
        "Favoured, and paid?",
        "mean total reward",
        |d| d.reward.get(),
        "up and to the right: the agent draws more of what is rewarded",
        &view.no_rewards(),
    )
}

fn favoured_and_learnt(view: &View) -> Markup {
    scatter(
        view,
        "Favoured, and learnt?",
        "held-out nats gained",
        DomainFigures::gain,
        "fall of the held-out loss since the warm-up ended, or since the first evaluation of a trained model; domains differ in how much there is to learn",
        "it takes two evaluations of a trained model",
    )
}

fn scatter(
    view: &View,
    title: &str,
    up: &str,
    value: impl Fn(&DomainFigures) -> Maybe,
    note: &str,
    empty: &str,
) -> Markup {
    let point = |(rank, d): (usize, &'_ DomainFigures)| Some((rank, d.weight_ratio()?, value(d)?));
    let found: Vec<_> = view.domains().enumerate().filter_map(point).collect();
    let (across, ups): (Vec<f64>, Vec<f64>) = found.iter().map(|(_, x, y)| (*x, *y)).unzip();
    if !found.is_empty() && across.iter().all(|ratio| *ratio == 1.0) {
        return no_data(title, "the weights stayed at the base weights");
    }
    let note = match spearman(&across, &ups) {
        Some(rho) => format!("{note}; rank correlation {}", plain(rho, 2)),
        None => note.to_owned(),
    };
    let point = |(rank, across, up): (usize, f64, f64)| ScatterPoint {
        name: &view.run.domains[view.order[rank]].name,
        domain: rank,
        across,
        up,
    };
    ScatterPlot {
        title,
        note: &note,
        points: found.into_iter().map(point).collect(),
        across: "mean weight after the warm-up over base weight",
        up,
        height: 300.0,
        empty,
    }
    .render()
}
