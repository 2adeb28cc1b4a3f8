//! What the model's preset says of a run, for the keys that its configuration leaves out.
//!
//! In: the configuration's table, overrides applied. Out: the same with length, batch and learning rate filled in. Always
//! holds: a key that is given is never changed; a table that cannot be read is left to its reader's error.

use toml::{Table, Value};

use crate::model::{ModelSettings, Preset, preset};

/// Floor of the learning rate as a part of its peak.
///
/// # Source
/// `min_lr` of every Pythia's training configuration; the paper of HDS has the same for Pythia-1B.
const FLOOR: f64 = 10.0;

/// Steps, tokens a sequence and sequences a step of a preset's own training.
///
/// # Source
/// `train-iters`, `seq-length` and batch of Pythia's training configurations (`models/*/*.yml`), the same for every size:
/// 143,000 steps of 1,024 sequences of 2,048 tokens, 300 B tokens. `cpu` is our choice: minutes on two cores.
fn length_and_batch(preset: &Preset) -> (i64, i64, i64) {
    match preset.name {
        "cpu" => (1_000, 256, 16),
        _ => (143_000, 2048, 1024),
    }
}

/// Fills in the keys that are not given.
pub(super) fn fill(table: &mut Table) {
    let named = table.get("model").and_then(|model| model.get("preset"));
    let name = match named {
        Some(Value::String(name)) => name.clone(),
        Some(_) => return,
        None => ModelSettings::default().preset,
    };
    // An unknown name is told of where the model is made.
    let Ok(preset) = preset(&name) else { return };
    let (steps, sequence_length, batch_size) = length_and_batch(&preset);
    fill_key(table, "run", "steps", steps.into());
    fill_key(table, "data", "sequence_length", sequence_length.into());
    fill_key(table, "data", "batch_size", batch_size.into());
    fill_key(
        table,
        "optimizer",
        "learning_rate",
        preset.learning_rate.into(),
    );
    let peak = match table
        .get("optimizer")
        .and_then(|section| section.get("learning_rate"))
    {
        Some(Value::Float(rate)) => *rate,
        Some(Value::Integer(rate)) => *rate as f64,
        _ => return,
    };
    fill_key(
        table,
        "optimizer",
        "minimum_learning_rate",
        (peak / FLOOR).into(),
    );
}

fn fill_key(table: &mut Table, section: &str, key: &str, value: Value) {
    let section = table
        .entry(section.to_owned())
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.entry(key.to_owned()).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::RunConfig;

    fn parse(text: &str) -> RunConfig {
        let text = format!("[data]\nindex = \"i\"\n{text}");
        RunConfig::parse(&text, Path::new("x.toml"), &[]).unwrap()
    }

    #[test]
    fn a_preset_gives_what_the_file_leaves_out() {
        // Learning rates and floors of the training configurations in EleutherAI/pythia.
        for (name, peak, floor) in [
            ("14m", 0.001, 0.0001),
            ("31m", 0.001, 0.0001),
            ("70m", 0.001, 0.0001),
            ("160m", 0.0006, 0.00006),
            ("410m", 0.0003, 0.00003),
            ("pythia-1b", 0.00025, 0.000025),
            ("1.4b", 0.0002, 0.00002),
            ("2.8b", 0.00016, 0.000016),
            ("6.9b", 0.00012, 0.000012),
            ("12b", 0.00012, 0.000012),
        ] {
            let config = parse(&format!("[model]\npreset = {name:?}"));
            let optimizer = &config.optimizer;
            assert_eq!(optimizer.learning_rate, peak, "{name}");
            let off = optimizer.minimum_learning_rate / floor - 1.0;
            assert!(off.abs() < 1e-12, "{name}");
            assert_eq!(optimizer.weight_decay, 0.1);
            assert_eq!(config.run.steps, 143_000);
            let tokens = config.data.batch_size * config.data.sequence_length;
            assert_eq!(tokens, 2_097_152, "{name}");
        }
        let config = parse("");
        assert_eq!(config.optimizer.learning_rate, 1e-3);
        assert_eq!(
            (config.data.batch_size, config.data.sequence_length),
            (16, 256)
        );
    }

    #[test]
    fn what_is_given_stays_and_the_floor_follows_it() {
        let config = parse(
            "sequence_length = 512\n[model]\npreset = \"1b\"\n[optimizer]\nlearning_rate = 1e-5\n[run]\nsteps = 3",
        );
        assert_eq!((config.run.steps, config.data.sequence_length), (3, 512));
        assert_eq!(config.data.batch_size, 1024);
        assert_eq!(config.optimizer.learning_rate, 1e-5);
        assert!((config.optimizer.minimum_learning_rate / 1e-6 - 1.0).abs() < 1e-12);
        let config = parse("[optimizer]\nminimum_learning_rate = 0");
        assert_eq!(config.optimizer.minimum_learning_rate, 0.0);
        let set = ["model.preset=410m".to_owned()];
        let text = "[data]\nindex = \"i\"";
        let config = RunConfig::parse(text, Path::new("x.toml"), &set).unwrap();
        assert_eq!(config.optimizer.learning_rate, 3e-4);
    }
}
