//! Plans against published and hand-computed figures, and what is refused.

use std::path::Path;

use super::*;
use crate::model::{PRESET_NAMES, preset};

const OPTIONS: PlanOptions = PlanOptions {
    gpus: 1,
    precision: Precision::Fp32,
    domains: None,
    vocabulary: None,
    rate: None,
};

fn plan(text: &str, options: &PlanOptions) -> Plan {
    let text = format!("[data]\nindex = \"nowhere\"\n{text}");
    let config = RunConfig::parse(&text, Path::new("x.toml"), &[]).unwrap();
    Plan::new(&config, options).unwrap()
}

#[test]
fn parts_add_up_to_the_parameters_of_every_pythia() {
    // Those are held against the published ones where the presets are.
    for name in PRESET_NAMES.into_iter().filter(|name| *name != "cpu") {
        let config = preset(name).unwrap().config;
        let plan = plan(&format!("[model]\npreset = {name:?}"), &OPTIONS);
        let parts = &plan.models.parameters;
        let (total, non_embedding) = (config.parameter_count(), config.non_embedding_count());
        assert_eq!(
            (parts.total, parts.non_embedding),
            (total, non_embedding),
            "{name}"
        );
        let sum = parts.attention + parts.feed_forward + parts.norms;
        assert_eq!(sum, non_embedding, "{name}");
        let embeddings = parts.input_embedding + parts.output_embedding;
        assert_eq!(sum + embeddings, total, "{name}");
        // All of Pythia saw 143,000 · 1,024 · 2,048 tokens.
        assert_eq!(plan.tokens.total, 299_892_736_000);
    }
}

#[test]
fn optimizer_states_are_shared_and_the_rest_is_not() {
    let of = |gpus| {
        let options = PlanOptions { gpus, ..OPTIONS };
        let text = "batch_size = 64\n[run]\ndevice = \"cuda\"\n[model]\npreset = \"160m\"";
        plan(text, &options).memory
    };
    let (one, eight) = (of(1), of(8));
    assert_eq!(one.weights, 4 * 162_322_944);
    assert_eq!(one.optimizer, 8 * 162_322_944);
    assert_eq!(eight.optimizer, 162_322_944);
    assert_eq!(eight.gradients, one.gradients);
    assert!(eight.total < one.total + one.logits);
    assert!(one.activations_checkpointed < one.activations / 4);
}

#[test]
fn half_precision_halves_activations_and_adds_copies_of_the_weights() {
    let of = |precision| {
        let options = PlanOptions {
            precision,
            ..OPTIONS
        };
        plan(
            "[run]\ndevice = \"cuda\"\n[model]\npreset = \"410m\"",
            &options,
        )
        .memory
    };
    let (wide, narrow) = (of(Precision::Fp32), of(Precision::Bf16));
    let ratio = narrow.activations as f64 / wide.activations as f64;
    assert!((0.5..0.52).contains(&ratio), "{ratio}");
    assert_eq!(wide.weight_copies, 0);
    let copied = 405_334_016 - 50_304 * 1024;
    assert_eq!(narrow.weight_copies, 2 * copied);
}

#[test]
#[cfg(fused)]
fn on_a_processor_in_32_bits_rotated_heads_and_a_second_chunk_are_not_kept() {
    let of = |device: &str| {
        let text = format!("[run]\ndevice = {device:?}\n[model]\npreset = \"14m\"");
        plan(&text, &OPTIONS).memory
    };
    let (cpu, gpu) = (of("cpu"), of("cuda"));
    // 6 blocks of width 128, sequences of 2,048 tokens.
    let saved = gpu.activations - cpu.activations;
    assert_eq!(saved % (6 * 2048 * 4 * 2 * 128), 0);
    assert!(saved > 0);
    assert_eq!(cpu.logits, 16 << 20);
}

#[test]
fn operations_are_six_a_weight_and_attention() {
    // Pythia-1B at L = 2048 by hand: 16 blocks of 12 · 2048², 50,304 · 2048 for the output; 12 · 16 · 2048 · 2048 for attention.
    let plan = plan("[model]\npreset = \"1b\"", &OPTIONS);
    let weights = 16.0 * 12.0 * 2048.0 * 2048.0 + 50_304.0 * 2048.0;
    assert_eq!(plan.compute.multiplied_weights as f64, weights);
    let attention = 12.0 * 16.0 * 2048.0 * 2048.0;
    assert_eq!(plan.compute.per_token, 6.0 * weights + attention);
    assert!(plan.compute.agent_share > 0.0 && plan.compute.agent_share < 0.01);
}

#[test]
fn time_follows_the_rate_either_way() {
    let rate = |rate| PlanOptions {
        gpus: 4,
        rate: Some(rate),
        ..OPTIONS
    };
    let text =
        "sequence_length = 1024\nbatch_size = 1152\n[run]\nsteps = 41667\n[model]\npreset = \"1b\"";
    let options = rate(Rate::TokensPerSecond {
        tokens_per_second: 1_000_000.0,
    });
    let time = plan(text, &options).time.unwrap();
    assert_eq!(time.training_seconds, 41_667.0 * 1152.0 * 1024.0 / 1e6);
    let peak = rate(Rate::Peak {
        tflops: 500.0,
        mfu: 0.4,
    });
    let planned = plan(text, &peak);
    let time = planned.time.unwrap();
    let want = planned.compute.training_total / (4.0 * 500e12 * 0.4);
    assert!((time.training_seconds / want - 1.0).abs() < 1e-12);
}

#[test]
fn assumptions_are_told_and_nonsense_is_refused() {
    let told = plan("", &OPTIONS).assumptions.join("\n");
    assert!(
        told.contains("22 domains") && told.contains("50277 ids"),
        "{told}"
    );
    let given = PlanOptions {
        domains: Some(3),
        vocabulary: Some(257),
        ..OPTIONS
    };
    let given = plan("", &given);
    assert!(given.assumptions.is_empty(), "{:?}", given.assumptions);
    assert_eq!(given.models.shape.vocab_size, 384);

    let config = RunConfig::parse("[data]\nindex = \"nowhere\"", Path::new("x"), &[]).unwrap();
    for (options, word) in [
        (PlanOptions { gpus: 0, ..OPTIONS }, "--gpus"),
        (
            PlanOptions {
                rate: Some(Rate::Peak {
                    tflops: 1.0,
                    mfu: 1.5,
                }),
                ..OPTIONS
            },
            "--mfu",
        ),
        (
            PlanOptions {
                domains: Some(0),
                ..OPTIONS
            },
            "--domains",
        ),
        (
            PlanOptions {
                vocabulary: Some(1 << 40),
                ..OPTIONS
            },
            "vocab_size",
        ),
    ] {
        let error = Plan::new(&config, &options).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let table = plan("", &OPTIONS).table();
    for word in [
        "parameters",
        "most at once",
        "a checkpoint",
        "assumed: no index",
    ] {
        assert!(table.contains(word), "{word}: {table}");
    }
}
