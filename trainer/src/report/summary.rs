//! The run as a table for a terminal.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};

use super::collect::Run;
use super::number::{Format, grouped};

/// One row a domain: held-out perplexity first and last, weights, share of the samples; then the
/// run's macro and base-weighted perplexity, and that under the target where one is set.
pub fn render(run: &Run) -> String {
    let all: u64 = run
        .domains
        .iter()
        .fold(0, |sum, d| d.samples.saturating_add(sum));
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let mut header = Vec::from([
        "domain",
        "ppl first",
        "ppl last",
        "base weight",
        "first",
        "last",
        "samples",
        "share",
    ]);
    let target = run.header.target();
    if target.is_some() {
        header.push("target");
    }
    table.set_header(header);
    let exp = |point: Option<(u64, f64)>| point.map(|(_, loss)| loss.exp());
    for domain in &run.domains {
        let share = (all > 0).then(|| domain.samples as f64 / all as f64);
        let row = [
            printable(&domain.name),
            Format::Plain.write_maybe(exp(domain.held_out.first)),
            Format::Plain.write_maybe(exp(domain.held_out.last)),
            Format::Percent.write_maybe(domain.base),
            Format::Percent.write_maybe(domain.first_weight),
            Format::Percent.write_maybe(domain.last_weight),
            grouped(domain.samples),
            Format::Percent.write_maybe(share),
        ];
        let weight = domain.target.map(|weight| Format::Percent.write(weight));
        table.add_row(row.into_iter().chain(weight));
    }
    let (first, last) = (run.evaluations.first(), run.evaluations.last());
    for (name, first, last) in [
        (
            "macro",
            first.map(|e| e.macro_perplexity),
            last.map(|e| e.macro_perplexity),
        ),
        (
            "base-weighted",
            first.map(|e| e.base_perplexity),
            last.map(|e| e.base_perplexity),
        ),
        (
            "target-weighted",
            first.map(|e| e.target_perplexity),
            last.map(|e| e.target_perplexity),
        ),
    ]
    .into_iter()
    .take(if target.is_some() { 3 } else { 2 })
    {
        let row = [first, last].map(|v| Cell::new(Format::Plain.write_maybe(v.flatten())));
        table.add_row([Cell::new(name)].into_iter().chain(row));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// A name without control characters, which could drive a terminal.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).collect()
}
