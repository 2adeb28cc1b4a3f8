//! MMLU's scores as a table for a terminal.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::{Accuracy, MmluScores};

pub(super) fn render(scores: &MmluScores) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "subject",
        "questions",
        "accuracy",
        "± standard error",
    ]);
    for part in scores
        .subjects
        .iter()
        .chain(&scores.groups)
        .chain([&scores.overall])
    {
        table.add_row(row(part));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("MMLU, {} examples\n{table}\n", scores.shots);
    if scores.truncated > 0 {
        text.push_str(&format!(
            "{} prompts were longer than the model's positions and lost their beginning\n",
            scores.truncated
        ));
    }
    text
}

fn row(part: &Accuracy) -> [String; 4] {
    [
        // Names of files: without what could drive a terminal.
        part.name.chars().filter(|c| !c.is_control()).collect(),
        part.questions.to_string(),
        format!("{:.4}", part.accuracy),
        part.standard_error
            .map_or("–".to_owned(), |error| format!("{error:.4}")),
    ]
}
