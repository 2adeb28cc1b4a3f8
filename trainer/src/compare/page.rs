//! A comparison as one page that needs nothing else.

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::config::CompareConfig;
use super::figures::{Comparison, Mean, PolicyFigures};
use super::paper::PAPER;
use super::statistics::mean;
use super::table::{
    cells, headings, percent, percent_or_never, signed_percent, steps_cell, target,
};
use crate::report::number::Format;
use crate::report::palette::{dash_class, domain_class};
use crate::report::plot::{Frame, Line, LinePlot, Look, StepAxis, Vertical};
use crate::report::{REPORT_FILE, SCRIPT, head};

/// Every mean with the id of its plot and its title.
const MEANS: [(Mean, &str, &str); 3] = [
    (Mean::Macro, "macro", "Mean over domains"),
    (Mean::Target, "target", "Under the target"),
    (Mean::Base, "base", "Under base weights"),
];

/// The whole page.
pub fn render(comparison: &Comparison, config: &CompareConfig, out: &Path) -> String {
    let steps = evaluated(comparison);
    let axis = StepAxis {
        lo: 0.0,
        hi: steps.last().copied().unwrap_or(1.0).max(1.0),
        warm_up_end: None,
    };
    let shared = serde_json::json!({
        "steps": steps, "evals": steps, "lo": axis.lo, "hi": axis.hi, "width": 1,
    });
    let means: Vec<_> = MEANS
        .into_iter()
        .filter(|(mean, ..)| *mean != Mean::Target || comparison.target_weights.is_some())
        .collect();
    let setting = &comparison.setting;
    let number = |n: Option<u64>| n.map_or("?".to_owned(), crate::report::number::grouped);
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("policies compared", comparison.policies.len()))
            body {
                main {
                    section {
                        h1 { "Policies compared" }
                        p {
                            (number(setting.parameters)) " parameters, " (number(setting.total_steps)) " steps of "
                            (number(setting.batch_size)) " × " (number(setting.sequence_length)) " tokens, "
                            (comparison.domains.len()) " domains. Held-out perplexity; \"against\" is relative to "
                            b { (comparison.baseline) } " of the same seed, p is Student's paired t-test on the final losses."
                        }
                        @if let Some(target) = target(comparison) {
                            p { "Target: " (target) "." }
                        }
                        (results(comparison))
                    }
                    (legend(comparison))
                    section {
                        h2 { "Held-out perplexity over steps" }
                        div.grid {
                            @for &mean in &means {
                                (curves(comparison, &steps, axis, mean))
                            }
                        }
                    }
                    section {
                        h2 { "Steps to another policy's final perplexity" }
                        p {
                            "A row's policy reaches the final perplexity of a column's after this part of its steps, seed by seed, \
                             mean over seeds; interpolated between evaluations."
                        }
                        @for (mean, _, title) in &means {
                            h3 { (title) }
                            (steps_to(comparison, *mean))
                        }
                        (paper())
                    }
                    section { h2 { "Domains" } (domains(comparison)) }
                    section { h2 { "Runs" } (runs(comparison, config, out)) }
                }
                div #tip hidden {}
                script type="application/json" id="shared" { (PreEscaped(shared.to_string())) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn results(comparison: &Comparison) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for heading in headings(comparison) { th { (heading) } } } }
            tbody { @for policy in &comparison.policies { tr {
                @for (i, cell) in cells(comparison, policy).into_iter().enumerate() {
                    @if i == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                }
            } } }
        } }
    }
}

fn legend(comparison: &Comparison) -> Markup {
    html! {
        nav.chips aria-label="policies" {
            @for (rank, policy) in comparison.policies.iter().enumerate() {
                button type="button" data-d=(rank) {
                    svg width="20" height="8" aria-hidden="true" {
                        path class={ "ln " (domain_class(rank)) " " (dash_class(rank)) } d="M1 4H19" {}
                    }
                    (policy.name)
                }
            }
            button.all type="button" hidden { "show all" }
        }
    }
}

/// The steps of all evaluations.
fn evaluated(comparison: &Comparison) -> Vec<f64> {
    let runs = comparison.policies.iter().flat_map(|policy| &policy.runs);
    let mut steps: Vec<f64> = runs
        .flat_map(|run| run.macro_curve.iter().map(|&(step, _)| step))
        .collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    steps
}

fn curves(
    comparison: &Comparison,
    steps: &[f64],
    axis: StepAxis,
    mean_of: (Mean, &str, &str),
) -> Markup {
    let (which, id, title) = mean_of;
    let lines = comparison.policies.iter().enumerate();
    let lines = lines.map(|(rank, policy)| {
        let at = |step: f64| {
            let values: Vec<f64> = policy
                .runs
                .iter()
                .filter_map(|run| {
                    let curve = run.curve(which);
                    let point = curve.iter().find(|(at, _)| *at == step);
                    point.map(|(_, loss)| loss.exp()).filter(|v| v.is_finite())
                })
                .collect();
            mean(&values)
        };
        let values = steps.iter().map(|&step| at(step)).collect();
        Line::new(policy.name.clone(), Look::Domain(rank), values)
    });
    LinePlot {
        frame: Frame {
            id,
            title,
            note: "held-out perplexity, mean over seeds",
            height: 300.0,
            axis,
            end_labels: true,
            row_labels: false,
            wide: false,
        },
        steps,
        steps_name: "steps",
        lines: lines.collect(),
        vertical: Vertical::LogFirst,
        span_from: 1,
        format: Format::Plain,
        empty: "no run has been evaluated",
    }
    .render()
}

fn steps_to(comparison: &Comparison, mean: Mean) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "policy" }
                @for policy in &comparison.policies { th { (policy.name) } }
            } }
            tbody { @for policy in &comparison.policies { tr {
                th scope="row" { (policy.name) }
                @for (other, &part) in comparison.policies.iter().zip(policy.steps_to(mean)) {
                    td { (steps_cell(policy, other, part)) }
                }
            } } }
        } }
    }
}

fn paper() -> Markup {
    html! {
        h3 { "The paper's own figures" }
        p { "HDS on Pythia-1B and The Pile, 41,667 steps (arXiv:2606.24133); another model, corpus and length than here." }
        div.scroll { table {
            thead { tr { th { "HDS against" } th { "final perplexity" } th { "steps to its final perplexity" } } }
            tbody { @for figure in &PAPER { tr {
                th scope="row" { (figure.against) }
                td { (signed_percent(Some(figure.gain))) }
                td { (figure.steps_to.map_or("–".to_owned(), |part| percent_or_never(Some(part)))) }
            } } }
        } }
    }
}

/// Final perplexity of each domain, and the share of the sequences that it got.
fn domains(comparison: &Comparison) -> Markup {
    let over_runs = |policy: &PolicyFigures, value: &dyn Fn(&super::RunFigures) -> Option<f64>| {
        let values: Vec<f64> = policy.runs.iter().filter_map(value).collect();
        mean(&values)
    };
    html! {
        div.scroll { table {
            thead { tr {
                th { "final perplexity (share of sequences)" }
                @for policy in &comparison.policies { th { (policy.name) } }
            } }
            tbody { @for (i, domain) in comparison.domains.iter().enumerate() { tr {
                th scope="row" { (domain) }
                @for policy in &comparison.policies {
                    td {
                        (over_runs(policy, &|run| run.domain_losses.get(i).copied().flatten().map(f64::exp))
                            .map_or("–".to_owned(), |v| format!("{v:.1}")))
                        " (" (percent(over_runs(policy, &|run| run.shares.get(i).copied()))) ")"
                    }
                }
            } } }
        } }
    }
}

/// Links to each run's own page, where there is one.
fn runs(comparison: &Comparison, config: &CompareConfig, out: &Path) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "policy" } th { "seed" } th { "perplexity" } th { "weights, rewards, agent" } } }
            tbody { @for (policy, entry) in comparison.policies.iter().zip(&config.policy) {
                @for run in &policy.runs {
                    @let folder = CompareConfig::folder(out, entry, run.seed);
                    @let page = folder.join(REPORT_FILE);
                    tr {
                        th scope="row" { (policy.name) }
                        td { (run.seed) }
                        td { (run.macro_curve.last().map_or("–".to_owned(), |(_, loss)| format!("{:.2}", loss.exp()))) }
                        td {
                            @if page.exists() && let Ok(link) = page.strip_prefix(out) {
                                a href=(link.display()) { "report" }
                            } @else { "–" }
                        }
                    }
                }
            } }
        } }
    }
}
