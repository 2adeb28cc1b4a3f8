//! Models are repeatable, read and write Hugging Face files, and refuse what does not fit.

use std::fs;

use tch::{Device, Kind, Tensor, no_grad};

use super::*;
use crate::optimizer::{AdamW, AdamWConfig, clip_gradient_norm};

pub(super) fn tiny(parallel: bool) -> ModelConfig {
    ModelConfig {
        vocab_size: 61,
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        intermediate_size: 96,
        max_position_embeddings: 24,
        rotary_pct: 0.25,
        rotary_emb_base: 10_000.0,
        layer_norm_eps: 1e-5,
        use_parallel_residual: parallel,
        initialization: Initialization::SmallWang,
    }
}

pub(super) fn batch(
    config: &ModelConfig,
    sequences: i64,
    length: i64,
    salt: i64,
) -> (Tensor, Tensor) {
    let count = sequences * (length + 1);
    let ids = (Tensor::arange(count, (Kind::Int64, Device::Cpu)) * 7919 + salt * 104_729)
        .remainder(config.vocab_size)
        .view([sequences, length + 1]);
    (ids.narrow(1, 0, length), ids.narrow(1, 1, length))
}

#[test]
fn gradients_agree_with_finite_differences() {
    for parallel in [true, false] {
        let config = tiny(parallel);
        let model = Model::new(&config, Device::Cpu, Kind::Double, 5).unwrap();
        let (tokens, targets) = batch(&config, 2, 9, 1);
        let loss = || {
            let losses = no_grad(|| sequence_losses(&model.forward(&tokens, None), &targets));
            losses.mean(Kind::Double).double_value(&[])
        };
        let _ = model.accumulate_gradients(&tokens, &targets, 0.5, None);
        for parameter in model.parameters() {
            let flat = parameter.tensor.detach().view(-1);
            let gradient = parameter.tensor.grad().view(-1);
            // The entry with the largest gradient of each parameter.
            let at = gradient.abs().argmax(0, false).int64_value(&[]);
            let entry = flat.narrow(0, at, 1);
            let move_by = |h: f64| {
                let _ = no_grad(|| entry.shallow_clone().g_add_scalar_(h));
            };
            let h = 1e-5;
            move_by(h);
            let up = loss();
            move_by(-2.0 * h);
            let down = loss();
            move_by(h);
            let numeric = (up - down) / (2.0 * h);
            let got = gradient.double_value(&[at]);
            assert!(
                (got - numeric).abs() < 1e-7 + 1e-5 * numeric.abs(),
                "{}: {got} {numeric}",
                parameter.name
            );
        }
    }
}

#[test]
fn a_token_does_not_see_those_after_it() {
    let config = tiny(true);
    let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    let (tokens, _) = batch(&config, 1, 12, 1);
    let changed = tokens.copy();
    let _ = changed.narrow(1, 8, 1).fill_(3);
    let [a, b] = [&tokens, &changed].map(|t| no_grad(|| model.forward(t, None)));
    let difference = (a - b).abs().amax([0, 2].as_slice(), false);
    assert!(difference.narrow(0, 0, 8).max().double_value(&[]) < 1e-6);
    assert!(difference.double_value(&[8]) > 1e-4);
}

#[test]
fn two_runs_are_the_same_bit_for_bit() {
    let run = || {
        let config = tiny(true);
        let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
        let parameters = model.parameters();
        let mut optimizer = AdamW::new(model.parameters(), AdamWConfig::default());
        let mut losses = Vec::new();
        for step in 0..5 {
            optimizer.zero_gradients();
            for part in 0..2 {
                let (tokens, targets) = batch(&config, 3, 20, 10 * step + part);
                let loss = model.accumulate_gradients(&tokens, &targets, 1.0 / 6.0, None);
                losses.push(loss.mean(Kind::Float).double_value(&[]));
            }
            losses.push(clip_gradient_norm(&parameters, 1.0));
            optimizer.step(1e-2);
        }
        (losses, model.weights())
    };
    let (first_losses, first) = run();
    let (second_losses, second) = run();
    assert_eq!(first_losses, second_losses);
    assert!(first_losses[12] < first_losses[0], "{first_losses:?}");
    for ((name, a), (_, b)) in first.iter().zip(&second) {
        assert!(a.equal(b), "{name}");
    }
}

#[test]
fn half_precision_stays_near_single() {
    let config = tiny(true);
    let (tokens, targets) = batch(&config, 2, 16, 3);
    let gradients = |kind| {
        let model = Model::new(&config, Device::Cpu, kind, 5).unwrap();
        let losses = model.accumulate_gradients(&tokens, &targets, 0.5, None);
        assert_eq!(losses.kind(), Kind::Float);
        let parameters = model.parameters();
        assert_eq!(parameters[0].tensor.kind(), Kind::Float);
        let all: Vec<Tensor> = parameters
            .iter()
            .map(|p| p.tensor.grad().view(-1))
            .collect();
        (losses, Tensor::cat(&all, 0))
    };
    let (loss, exact) = gradients(Kind::Float);
    let (half_loss, half) = gradients(Kind::BFloat16);
    assert!((loss - half_loss).abs().max().double_value(&[]) < 0.02);
    let error = (&half - &exact).norm().double_value(&[]) / exact.norm().double_value(&[]);
    assert!(error < 0.05, "{error}");
}

#[test]
fn a_saved_model_is_the_same_model_whole_or_in_shards() {
    let config = tiny(false);
    let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    let (tokens, _) = batch(&config, 1, 8, 1);
    let want = no_grad(|| model.forward(&tokens, None));
    for shard_bytes in [u64::MAX, 10_000] {
        let dir = tempfile::tempdir().unwrap();
        model.save_sharded(dir.path(), shard_bytes).unwrap();
        let sharded = dir.path().join("model.safetensors.index.json").exists();
        assert_eq!(sharded, shard_bytes == 10_000);
        let back = Model::load_huggingface(dir.path(), Device::Cpu, Kind::Float).unwrap();
        assert_eq!(back.config(), &config);
        assert!(no_grad(|| back.forward(&tokens, None)).equal(&want));
    }
}

#[test]
fn damaged_checkpoints_are_refused_with_file_and_field() {
    let config = tiny(true);
    let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    let refuse = |change: &dyn Fn(&std::path::Path)| {
        let dir = tempfile::tempdir().unwrap();
        model.save_sharded(dir.path(), 10_000).unwrap();
        change(dir.path());
        Model::load_huggingface(dir.path(), Device::Cpu, Kind::Float)
            .unwrap_err()
            .to_string()
    };
    let edit = |file: &'static str, from: &'static str, to: &'static str| {
        refuse(&|folder| {
            let path = folder.join(file);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{text}");
            fs::write(&path, text.replace(from, to)).unwrap();
        })
    };
    let configs = [
        ("\"gpt_neox\"", "\"llama\"", "model_type"),
        (
            "\"hidden_size\": 32",
            "\"hidden_size\": 33",
            "num_attention_heads",
        ),
        ("\"hidden_size\": 32", "\"hidden_size\": -4", "hidden_size"),
        (
            "\"hidden_size\": 32",
            "\"hidden_size\": 9e99",
            "config.json",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1048576",
            "layers.2.",
        ),
        ("\"vocab_size\": 61", "\"vocab_size\": 62", "embed_in"),
        (
            "\"hidden_act\": \"gelu\"",
            "\"hidden_act\": \"relu\"",
            "hidden_act",
        ),
        ("\"rotary_pct\": 0.25", "\"rotary_pct\": 0.4", "rotary_pct"),
        ("{", "", "config.json"),
    ];
    for (from, to, want) in configs {
        let error = edit("config.json", from, to);
        assert!(error.contains(want), "{error} lacks {want}");
    }
    let index = "model.safetensors.index.json";
    assert!(edit(index, "\"model-00001-of", "\"../model-00001-of").contains("plain file name"));
    assert!(edit(index, "\"weight_map\"", "\"weights\"").contains(index));
    let error = refuse(&|folder| {
        fs::remove_file(folder.join("model-00002-of-00013.safetensors")).unwrap();
    });
    assert!(error.contains("model-00002"), "{error}");
    let smaller = ModelConfig {
        num_hidden_layers: 1,
        ..config.clone()
    };
    let error = refuse(&|folder| {
        let other = Model::new(&smaller, Device::Cpu, Kind::Float, 5).unwrap();
        let temporary = tempfile::tempdir().unwrap();
        other.save_huggingface(temporary.path()).unwrap();
        fs::copy(
            temporary.path().join("config.json"),
            folder.join("config.json"),
        )
        .unwrap();
    });
    assert!(
        error.contains("layers.1.") && error.contains("no parameter"),
        "{error}"
    );
}

#[test]
fn weights_that_no_training_can_start_from_are_refused() {
    let config = tiny(true);
    let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    let refuse = |change: &dyn Fn(&std::path::Path)| {
        let dir = tempfile::tempdir().unwrap();
        model.save_huggingface(dir.path()).unwrap();
        change(dir.path());
        Model::load_huggingface(dir.path(), Device::Cpu, Kind::Float)
            .unwrap_err()
            .to_string()
    };
    const EMBEDDING: &str = "gpt_neox.embed_in.weight";
    let with = |change: &dyn Fn(Tensor) -> Tensor| {
        refuse(&|folder| {
            let path = folder.join("model.safetensors");
            let mut all: Vec<(String, Tensor)> = crate::tensors::read(&path, Device::Cpu)
                .unwrap()
                .into_iter()
                .collect();
            for (name, tensor) in &mut all {
                if name == EMBEDDING {
                    *tensor = change(tensor.shallow_clone());
                }
            }
            crate::tensors::write(&path, &all, &Default::default()).unwrap();
        })
    };
    let changes: [(&dyn Fn(Tensor) -> Tensor, &str); 4] = [
        (&|t| t.to_kind(Kind::Int), "not of floating point"),
        (&|t| t.to_kind(Kind::Bool), "not of floating point"),
        (
            &|t| t.index_fill(0, &Tensor::from_slice(&[3i64]), f64::NAN),
            "not finite",
        ),
        (
            &|t| t.index_fill(0, &Tensor::from_slice(&[3i64]), f64::INFINITY),
            "not finite",
        ),
    ];
    for (change, want) in changes {
        let error = with(change);
        assert!(error.contains(want) && error.contains(EMBEDDING), "{error}");
    }

    let error = refuse(&|folder| {
        let (old, new) = (
            folder.join("model.safetensors"),
            folder.join("pytorch_model.bin"),
        );
        fs::rename(old, new).unwrap();
    });
    assert!(error.contains("safe_serialization"), "{error}");
    #[cfg(unix)]
    for file in ["config.json", "model.safetensors"] {
        let error = refuse(&|folder| {
            fs::remove_file(folder.join(file)).unwrap();
            std::os::unix::fs::symlink("/dev/zero", folder.join(file)).unwrap();
        });
        assert!(error.contains("no regular file"), "{error}");
    }
}

#[test]
fn a_fresh_model_predicts_almost_uniformly() {
    let config = tiny(true);
    let model = Model::new(&config, Device::Cpu, Kind::Float, 5).unwrap();
    let (tokens, targets) = batch(&config, 4, 16, 2);
    let loss = model
        .evaluate_losses(&tokens, &targets)
        .mean(Kind::Float)
        .double_value(&[]);
    assert!((loss - 61f64.ln()).abs() < 0.4, "{loss}");
}
