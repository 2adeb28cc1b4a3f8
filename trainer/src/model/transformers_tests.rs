//! The real `transformers` reads what we write, and we read what it writes.
//!
//! Needs a Python with the packages torch and transformers: `HDS_EVALUATION_PYTHON` names it.

#![allow(clippy::print_stdout)] // what a test tells with --show-output

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tch::{Device, Kind, Tensor};

use super::{Model, ModelConfig, ModelSettings};

/// Logits by `transformers` of the model in `folder`, which it also writes to `again`.
fn transformers(folder: &Path, again: &Path, ids: &[Vec<i64>]) -> Option<serde_json::Value> {
    let Some(python) = std::env::var_os("HDS_EVALUATION_PYTHON") else {
        println!("skipped: HDS_EVALUATION_PYTHON names no Python with torch and transformers");
        return None;
    };
    let there = Command::new(&python)
        .args(["-c", "import torch, transformers"])
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        println!("skipped: the Python of HDS_EVALUATION_PYTHON cannot import torch, transformers");
        return None;
    }
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python/transformers_logits.py");
    let mut child = Command::new(python)
        .arg(script)
        .args([folder, again])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::json!({ "ids": ids }).to_string();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input.as_bytes()).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn config(parallel: bool) -> ModelConfig {
    let settings = ModelSettings {
        hidden_size: Some(64),
        num_hidden_layers: Some(3),
        num_attention_heads: Some(4),
        max_position_embeddings: Some(64),
        use_parallel_residual: Some(parallel),
        ..ModelSettings::default()
    };
    settings.resolve(300, 64).unwrap()
}

#[test]
fn transformers_gives_the_same_logits_for_our_files_and_we_for_its() {
    let ids: Vec<Vec<i64>> = (0..2)
        .map(|row| (0..48).map(|i| (i * 37 + row * 11) % 300).collect())
        .collect();
    let flat: Vec<i64> = ids.iter().flatten().copied().collect();
    let tokens_bl = Tensor::from_slice(&flat).view([2, 48]);
    for (parallel, shards) in [(true, u64::MAX), (false, 200_000)] {
        let model = Model::new(&config(parallel), Device::Cpu, Kind::Float, 3).unwrap();
        // Biases and gains away from 0 and 1, so that each must be in its place.
        tch::no_grad(|| {
            for parameter in model.parameters() {
                let mut tensor = parameter.tensor;
                let noise = Tensor::arange(tensor.numel() as i64, (Kind::Float, Device::Cpu));
                let _ = tensor.g_add_(&((noise.sin() * 0.05).view_as(&tensor)));
            }
        });
        let root = tempfile::tempdir().unwrap();
        let (ours, theirs) = (root.path().join("ours"), root.path().join("theirs"));
        std::fs::create_dir(&ours).unwrap();
        model.save_sharded(&ours, shards).unwrap();
        let Some(read) = transformers(&ours, &theirs, &ids) else {
            return;
        };
        assert_eq!(read["missing"], serde_json::json!([]));
        assert_eq!(read["unexpected"], serde_json::json!([]));
        let want: Vec<Vec<Vec<f64>>> = serde_json::from_value(read["logits"].clone()).unwrap();
        let want: Vec<f64> = want.into_iter().flatten().flatten().collect();
        let again = Model::load_huggingface(&theirs, Device::Cpu, Kind::Float).unwrap();
        assert_eq!(again.config(), model.config());
        for (name, model) in [("ours", &model), ("theirs", &again)] {
            let logits = tch::no_grad(|| model.forward(&tokens_bl, None));
            let logits: Vec<f64> =
                Vec::try_from(logits.to_kind(Kind::Double).contiguous().view(-1)).unwrap();
            assert_eq!(logits.len(), want.len());
            let largest = want.iter().fold(0f64, |most, v| most.max(v.abs()));
            let off = logits.iter().zip(&want).map(|(a, b)| (a - b).abs());
            let off = off.fold(0f64, f64::max);
            println!("{name}, parallel {parallel}: logits up to {largest} differ by {off}");
            assert!(off < 1e-5 * largest.max(1.0), "{name}: {off}");
        }
    }
}
