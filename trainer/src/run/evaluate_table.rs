//! An evaluation as a table for a terminal.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::evaluate::Evaluation;
use crate::report::number::{Format, grouped};

pub(super) fn render(evaluation: &Evaluation) -> String {
    let mut table = Table::new();
    let mut header = Vec::from([
        "domain",
        "tokens",
        "loss",
        "perplexity",
        "bits/byte",
        "base weight",
    ]);
    let target = !evaluation.uniform_target;
    if target {
        header.push("target");
    }
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    for domain in &evaluation.domains {
        let row = [
            // Names from an index: without what could drive a terminal.
            domain.name.chars().filter(|c| !c.is_control()).collect(),
            grouped(domain.tokens),
            number(domain.loss),
            number(domain.perplexity),
            number(domain.bits_per_byte),
            Format::Percent.write(domain.base_weight),
        ];
        let weight = target.then(|| Format::Percent.write(domain.target_weight));
        table.add_row(row.into_iter().chain(weight));
    }
    let dash = "–".to_owned();
    for (name, perplexity, bits) in [
        (
            "mean over domains",
            evaluation.macro_perplexity,
            number(evaluation.macro_bits_per_byte),
        ),
        ("base weights", evaluation.base_perplexity, dash.clone()),
        ("target", evaluation.target_perplexity, dash),
    ]
    .into_iter()
    .take(if target { 3 } else { 2 })
    {
        table.add_row([
            name.to_owned(),
            String::new(),
            number(perplexity.map(f64::ln)),
            number(perplexity),
            bits,
            String::new(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let step = evaluation
        .step
        .map_or(String::new(), |step| format!(" after {step} steps"));
    format!(
        "{}{step}, {} tokens a sequence, held-out text of {}\n{table}\n",
        evaluation.model.display(),
        evaluation.sequence_length,
        evaluation.index.display()
    )
}

fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.4}"))
}
