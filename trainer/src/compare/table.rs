//! A comparison as tables for a terminal.

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};

use super::figures::{Comparison, Mean, PolicyFigures};
use super::paper::PAPER;

/// What each policy reached, and its steps to what each other one reached, under the target too where there is one; then the paper's figures.
pub fn render(comparison: &Comparison) -> String {
    let mut steps = vec![("mean over domains", Mean::Macro)];
    if comparison.target_weights.is_some() {
        steps.push(("target", Mean::Target));
    }
    let steps: String = steps
        .into_iter()
        .map(|(name, mean)| {
            format!(
                "steps to the final perplexity ({name}) of another policy, as a part of its steps\n{}\n\n",
                steps_to(comparison, mean)
            )
        })
        .collect();
    format!(
        "{}\n{}\n\n{steps}{}\n",
        heading(comparison),
        results(comparison),
        paper()
    )
}

fn heading(comparison: &Comparison) -> String {
    let setting = &comparison.setting;
    let show = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    let target = target(comparison).map_or(String::new(), |target| format!("\ntarget: {target}"));
    format!(
        "{} parameters, {} steps of {} × {} tokens, {} domains; held-out perplexity, mean ± deviation over seeds; against {}{target}",
        show(setting.parameters),
        show(setting.total_steps),
        show(setting.batch_size),
        show(setting.sequence_length),
        comparison.domains.len(),
        comparison.baseline
    )
}

/// The target in words, where there is one, and who followed another.
pub fn target(comparison: &Comparison) -> Option<String> {
    let weights = comparison.target_weights.as_ref()?;
    let mut named: Vec<_> = comparison.domains.iter().zip(weights).collect();
    named.retain(|(_, weight)| **weight > 0.0);
    named.sort_by(|a, b| b.1.total_cmp(a.1));
    let printable = |name: &str| -> String { name.chars().filter(|c| !c.is_control()).collect() };
    let parts: Vec<_> = named
        .into_iter()
        .map(|(name, &weight)| format!("{} {}", printable(name), percent(Some(weight))))
        .collect();
    let mut text = parts.join(", ");
    if !comparison.other_targets.is_empty() {
        let others = comparison.other_targets.join(", ");
        text += &format!(" (policies with another target of their own: {others})");
    }
    Some(text)
}

/// Headings of the columns of [`cells`].
pub fn headings(comparison: &Comparison) -> Vec<&'static str> {
    let mut headings = vec!["policy", "seeds", "mean over domains", "against", "p"];
    if comparison.target_weights.is_some() {
        headings.extend(["target", "against", "p"]);
    }
    headings.extend(["base weights", "against", "s/step", "scheduler"]);
    headings
}

/// What a policy reached.
pub fn cells(comparison: &Comparison, policy: &PolicyFigures) -> Vec<String> {
    let three = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.3}"));
    let mut cells = vec![
        policy.name.clone(),
        seeds(policy),
        spread(policy.macro_perplexity, policy.macro_deviation),
        signed_percent(policy.macro_gain),
        three(policy.macro_p),
    ];
    if comparison.target_weights.is_some() {
        cells.extend([
            spread(policy.target_perplexity, policy.target_deviation),
            signed_percent(policy.target_gain),
            three(policy.target_p),
        ]);
    }
    cells.extend([
        spread(policy.base_perplexity, policy.base_deviation),
        signed_percent(policy.base_gain),
        three(policy.step_seconds),
        percent(policy.scheduler_share),
    ]);
    cells
}

fn results(comparison: &Comparison) -> Table {
    let mut table = new(headings(comparison));
    for policy in &comparison.policies {
        table.add_row(cells(comparison, policy));
    }
    aligned(table)
}

fn steps_to(comparison: &Comparison, mean: Mean) -> Table {
    let names = comparison
        .policies
        .iter()
        .map(|policy| policy.name.as_str());
    let mut table = new(["policy"].into_iter().chain(names));
    for policy in &comparison.policies {
        let others = comparison.policies.iter().zip(policy.steps_to(mean));
        let cells = others.map(|(other, &part)| steps_cell(policy, other, part));
        table.add_row([policy.name.clone()].into_iter().chain(cells));
    }
    aligned(table)
}

fn paper() -> String {
    let figures = PAPER.map(|figure| {
        let steps = figure.steps_to.map_or(String::new(), |part| {
            format!(
                ", its final perplexity after {:.0} % of the steps",
                100.0 * part
            )
        });
        format!("{}: {:+.1} %{steps}", figure.against, 100.0 * figure.gain)
    });
    format!(
        "the paper's HDS (Pythia-1B, The Pile) against {}",
        figures.join("; against ")
    )
}

fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table
}

fn aligned(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Finished runs, and how many there should be where some are not.
fn seeds(policy: &PolicyFigures) -> String {
    let done = policy.runs.len();
    match policy.unfinished {
        0 => done.to_string(),
        left => format!("{done} of {}", done + left),
    }
}

/// Mean and deviation.
fn spread(mean: Option<f64>, deviation: Option<f64>) -> String {
    match (mean, deviation) {
        (Some(mean), _) if mean.is_infinite() => "∞".to_owned(),
        (Some(mean), Some(deviation)) => format!("{mean:.2} ± {deviation:.2}"),
        (Some(mean), None) => format!("{mean:.2}"),
        (None, _) => "–".to_owned(),
    }
}

/// A relative difference.
pub fn signed_percent(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{:+.1} %", 100.0 * value),
        Some(value) if value.is_infinite() => "∞".to_owned(),
        // Both are infinite, or nothing is there.
        _ => "–".to_owned(),
    }
}

/// A part.
pub fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{:.1} %", 100.0 * v))
}

/// Steps to another policy's final perplexity, or why there are none.
pub fn steps_cell(policy: &PolicyFigures, other: &PolicyFigures, part: Option<f64>) -> String {
    let seeds = |policy: &PolicyFigures| policy.runs.iter().map(|run| run.seed).collect::<Vec<_>>();
    let others = seeds(other);
    let gave_up = |run: &super::RunFigures| run.gave_up.is_some();
    if other.runs.iter().all(gave_up) {
        return "–".to_owned();
    }
    match seeds(policy).iter().any(|seed| others.contains(seed)) {
        true => percent_or_never(part),
        false => "–".to_owned(),
    }
}

/// A part of another run's steps.
pub fn percent_or_never(value: Option<f64>) -> String {
    value.map_or("not reached".to_owned(), |v| format!("{:.0} %", 100.0 * v))
}
