//! What `config.json` of others says of rotations and quantization, and weights that narrow numbers do not hold.

use std::fs;

use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::{Model, ModelConfig, ModelError, read_config};

/// A `config.json` with further fields.
fn read(fields: Value) -> Result<ModelConfig, ModelError> {
    let mut config = json!({
        "model_type": "gpt_neox", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16,
    });
    let all = config.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    read_config(folder.path())
}

#[test]
fn every_name_of_the_rotations_base_and_share_is_read() {
    for fields in [
        json!({"rotary_emb_base": 500.0, "rotary_pct": 0.5}),
        json!({"rope_theta": 500, "partial_rotary_factor": 0.5}),
        json!({"rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5, "rope_type": "default"}}),
        json!({"rope_parameters": {"rope_theta": 500.0, "type": "default"}, "rotary_emb_base": 500, "rotary_pct": 0.5}),
        json!({"rope_theta": 500.0, "rotary_pct": 0.5, "rope_scaling": null, "quantization_config": null}),
        json!({"rope_theta": 500.0, "rotary_pct": 0.5, "rope_scaling": {"type": "default"}}),
    ] {
        let config = read(fields.clone()).unwrap();
        let got = (config.rotary_emb_base, config.rotary_pct);
        assert_eq!(got, (500.0, 0.5), "{fields}");
    }
    let config = read(json!({})).unwrap();
    assert_eq!(
        (config.rotary_emb_base, config.rotary_pct),
        (10_000.0, 0.25)
    );
}

#[test]
fn what_would_make_another_model_of_it_is_refused_by_name() {
    for (fields, want) in [
        (
            json!({"rope_theta": 500.0, "rotary_emb_base": 10000}),
            "rope_theta is 500, must be 10000",
        ),
        (
            json!({"rope_parameters": {"partial_rotary_factor": 0.5}, "rotary_pct": 0.25}),
            "rotary_pct is 0.25",
        ),
        (
            json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
            "\"yarn\"",
        ),
        (json!({"rope_parameters": {"type": "linear"}}), "\"linear\""),
        (
            json!({"rope_parameters": {"rope_type": "default", "factor": 4.0}}),
            "factor: 4.0",
        ),
        (
            json!({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}),
            "full_attention",
        ),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 2.0}}),
            "rope_scaling",
        ),
        (
            json!({"rope_scaling": {"rope_type": "default", "factor": 2.0}}),
            "rope_scaling",
        ),
        (
            json!({"quantization_config": {"quant_method": "bitsandbytes"}}),
            "quantization_config",
        ),
    ] {
        let error = read(fields.clone()).unwrap_err().to_string();
        assert!(error.contains(want), "{fields}: {error}");
    }
}

#[test]
fn weights_that_narrow_numbers_do_not_hold_are_counted_and_clamped_if_asked() {
    const NORM: &str = "gpt_neox.final_layer_norm.weight";
    let config = read(json!({})).unwrap();
    let mut model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    assert!(model.is_finite());
    let change = |model: &Model, values: [f32; 3]| {
        let weights = model.weights();
        let (_, norm) = weights.iter().find(|(name, _)| name == NORM).unwrap();
        norm.narrow(0, 0, 3).copy_(&Tensor::from_slice(&values));
    };
    change(&model, [1e5, -7e4, 65_504.0]);
    let folder = tempfile::tempdir().unwrap();
    let write = |model: &Model, kind| model.export_huggingface(folder.path(), kind, 0);
    write(&model, Kind::Float).unwrap();
    write(&model, Kind::BFloat16).unwrap();
    let error = write(&model, Kind::Half).unwrap_err().to_string();
    assert!(
        error.contains(NORM) && error.contains("2 values") && error.contains("float16"),
        "{error}"
    );
    assert_eq!(model.clamp_to(Kind::Float), 0);
    assert_eq!(model.clamp_to(Kind::Half), 2);
    write(&model, Kind::Half).unwrap();
    let back = Model::load_huggingface(folder.path(), Device::Cpu, Kind::Float).unwrap();
    let weights = back.weights();
    let (_, norm) = weights.iter().find(|(name, _)| name == NORM).unwrap();
    let first = Vec::<f32>::try_from(norm.narrow(0, 0, 3)).unwrap();
    assert_eq!(first, [65_504.0, -65_504.0, 65_504.0]);

    change(&model, [f32::MAX, 1.0, 1.0]);
    assert!(write(&model, Kind::BFloat16).is_err() && model.is_finite());
    assert_eq!(model.clamp_to(Kind::BFloat16), 1);
    write(&model, Kind::BFloat16).unwrap();
    change(&model, [f32::NAN, 1.0, 1.0]);
    assert!(!model.is_finite());
    let error = write(&model, Kind::Float).unwrap_err().to_string();
    assert!(
        error.contains(NORM) && error.contains("1 values"),
        "{error}"
    );
}
