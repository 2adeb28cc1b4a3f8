//! A plan as tables for a terminal.
//!
//! In: a plan. Out: text: what is exact first, then each estimate with its formula.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::{Plan, Rate};
use crate::report::number::{Format, grouped};
use crate::run::Precision;

pub(super) fn render(plan: &Plan) -> String {
    let mut text = format!("{}\n{}\n", heading(plan), parameters(plan));
    for (title, table) in [
        (memory_title(plan), memory(plan)),
        ("text, operations and time".to_owned(), compute(plan)),
        ("disk".to_owned(), disk(plan)),
    ] {
        text.push_str(&format!("\n{title}\n{table}\n"));
    }
    for assumption in &plan.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    text.push_str(
        "Parameters, tokens and a checkpoint's tensors are exact; memory, operations, time and logs are estimates.\n",
    );
    text
}

fn heading(plan: &Plan) -> String {
    let shape = &plan.models.shape;
    format!(
        "{}: {} blocks of width {}, {} heads, vocabulary {}, {} tokens a sequence",
        plan.models.preset,
        shape.num_hidden_layers,
        shape.hidden_size,
        shape.num_attention_heads,
        shape.vocab_size,
        plan.tokens.sequence_length
    )
}

fn parameters(plan: &Plan) -> Table {
    let parts = &plan.models.parameters;
    let mut table = new(["parameters", "number", "share"]);
    let embeddings = parts.input_embedding + parts.output_embedding;
    for (name, count) in [
        ("embeddings, input and output", embeddings),
        ("attention", parts.attention),
        ("feed-forward", parts.feed_forward),
        ("layer norms", parts.norms),
        ("without embeddings", parts.non_embedding),
        ("all", parts.total),
    ] {
        table.add_row([name.to_owned(), grouped(count), percent(count, parts.total)]);
    }
    let agent = plan.models.agent_parameters;
    if agent > 0 {
        table.add_row([
            format!("agent, all networks ({} domains)", plan.models.domains),
            grouped(agent),
            percent(agent, parts.total),
        ]);
    }
    aligned(table)
}

fn memory_title(plan: &Plan) -> String {
    let numbers = match plan.memory.precision {
        Precision::Fp32 => "32-bit passes",
        Precision::Bf16 => "bfloat16 passes",
        Precision::Fp16 => "16-bit passes",
    };
    let count = plan.memory.gpus;
    let processes = if count == 1 { "one GPU" } else { "GPUs" };
    let shared = if count == 1 {
        processes.to_owned()
    } else {
        format!("each of {count} {processes}, optimizer states shared (ZeRO-1)")
    };
    format!(
        "memory of {shared}, {numbers}, {} sequences a pass",
        plan.tokens.micro_batch_size
    )
}

fn memory(plan: &Plan) -> Table {
    let memory = &plan.memory;
    let mut table = new(["part", "memory", "how"]);
    let rows = [
        ("weights", memory.weights, "4 bytes each"),
        (
            "weights in 16 bits",
            memory.weight_copies,
            "while a pass runs",
        ),
        ("gradients", memory.gradients, "4 bytes each"),
        (
            "optimizer states",
            memory.optimizer,
            "8 bytes a parameter / GPUs",
        ),
        (
            "agent",
            memory.agent,
            "networks, gradients, moments; first GPU",
        ),
        (
            "per-domain signals",
            memory.signals,
            "sums and the watched layers' gradients",
        ),
        (
            "activations",
            memory.activations,
            "kept for the backward pass",
        ),
        (
            "activations, checkpointed",
            memory.activations_checkpointed,
            "each block's input only",
        ),
        ("backward pass", memory.backward, "one block's gradients"),
        ("logits", memory.logits, "a chunk at a time"),
        (
            "embedding's gradient",
            memory.embedding_gradient,
            "when the activations are freed",
        ),
        (
            "most at once",
            memory.total,
            "without libraries and the allocator's loss",
        ),
        (
            "most at once, checkpointed",
            memory.total_checkpointed,
            "with activation checkpointing",
        ),
        (
            "replay, in main memory",
            memory.replay_in_main_memory,
            "when it is full",
        ),
    ];
    for (name, bytes, how) in rows {
        if bytes > 0 {
            table.add_row([name.to_owned(), size(bytes), how.to_owned()]);
        }
    }
    aligned(table)
}

fn compute(plan: &Plan) -> Table {
    let (tokens, compute) = (&plan.tokens, &plan.compute);
    let mut table = new(["what", "amount", "how"]);
    let mut row = |name: &str, amount: String, how: String| {
        table.add_row([name.to_owned(), amount, how]);
    };
    row(
        "tokens",
        grouped(tokens.total),
        format!(
            "{} steps × {} × {}",
            grouped(tokens.steps),
            tokens.batch_size,
            tokens.sequence_length
        ),
    );
    if let (Some(index), Some(epochs)) = (tokens.in_index, tokens.epochs) {
        let text = format!("the index has {}", grouped(index));
        row("epochs", format!("{epochs:.2}"), text);
    }
    let operations = |value: f64| format!("{value:.3e}");
    row(
        "operations a token",
        operations(compute.per_token),
        format!(
            "6 N + 12 · blocks · H · L, N = {} weights multiplied",
            grouped(compute.multiplied_weights)
        ),
    );
    row(
        "training",
        operations(compute.training_total),
        format!("of it attention {}", operations(compute.attention_total)),
    );
    row(
        "recomputation",
        operations(compute.checkpointing_total),
        "more with activation checkpointing".to_owned(),
    );
    if compute.signals_total > 0.0 {
        row(
            "per-domain gradients",
            operations(compute.signals_total),
            share(compute.signals_total, compute.training_total),
        );
    }
    if compute.agent_total > 0.0 {
        row(
            "agent",
            operations(compute.agent_total),
            share(compute.agent_total, compute.training_total),
        );
    }
    row(
        "evaluation",
        operations(compute.evaluation_total),
        format!(
            "{} times {} tokens at most",
            compute.evaluations,
            grouped(compute.evaluation_tokens)
        ),
    );
    if let Some(time) = &plan.time {
        let how = match time.rate {
            Rate::TokensPerSecond { .. } => "as given".to_owned(),
            Rate::Peak { tflops, mfu } => {
                format!("{} GPUs × {tflops} TFLOP/s × {mfu}", plan.memory.gpus)
            }
        };
        row(
            "tokens a second",
            grouped(time.tokens_per_second.round() as u64),
            how,
        );
        let seconds = |value: f64| Format::Seconds.write(value);
        row("a step", seconds(time.step_seconds), String::new());
        row(
            "training time",
            seconds(time.training_seconds),
            format!("{:.1} GPU hours with evaluation", time.gpu_hours),
        );
        row(
            "evaluation time",
            seconds(time.evaluation_seconds),
            "at three times the rate".to_owned(),
        );
    }
    aligned(table)
}

fn disk(plan: &Plan) -> Table {
    let disk = &plan.disk;
    let mut table = new(["files", "size", "how"]);
    for (name, bytes, how) in [
        (
            "a checkpoint",
            disk.checkpoint,
            format!(
                "model {}, optimizer {}, agent {}",
                size(disk.checkpoint_model),
                size(disk.checkpoint_optimizer),
                size(disk.checkpoint_agent)
            ),
        ),
        (
            "written in all",
            disk.checkpoint.saturating_mul(disk.written),
            format!("{} checkpoints, {} are kept", disk.written, disk.kept),
        ),
        (
            "logs",
            disk.logs,
            "metrics, weights, TensorBoard events".to_owned(),
        ),
        (
            "most at once",
            disk.most,
            "a new checkpoint is whole before an old one goes".to_owned(),
        ),
    ] {
        table.add_row([name.to_owned(), size(bytes), how]);
    }
    aligned(table)
}

fn new<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// Amounts stand to the right.
fn aligned(mut table: Table) -> Table {
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Bytes in binary units with three digits.
pub(super) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = match value {
        _ if unit == "B" => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

fn percent(part: u64, whole: u64) -> String {
    Format::Percent.write(part as f64 / whole.max(1) as f64)
}

fn share(part: f64, whole: f64) -> String {
    format!("{} of training", Format::Percent.write(part / whole))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (15 * 1024 * 1024 / 10 * 10, "15.0 MiB"),
            (3 << 40, "3.00 TiB"),
        ] {
            assert_eq!(size(bytes), want);
        }
    }
}
