//! The published Pythia models, and a small one for CPUs.

use super::{Initialization, ModelConfig, ModelError};

/// A named model with the learning rate it was trained at.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its shape.
    pub config: ModelConfig,
    /// Peak learning rate; Pythia's schedule falls to a tenth of it along a cosine.
    pub learning_rate: f64,
}

/// Names of all presets, small to large.
pub const PRESET_NAMES: [&str; 11] = [
    "cpu", "14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b",
];

struct Row(
    &'static str,
    i64, // layers
    i64, // hidden
    i64, // heads
    i64, // vocabulary, padded to a multiple of 128 times the tensor-parallel ranks of its training
    f64, // learning rate
    Initialization,
);

const SMALL: Initialization = Initialization::SmallWang;
const NORMAL: Initialization = Initialization::ScaledNormal;

/// # Source
/// Biderman et al., "Pythia", 2023, table 1 and the training configurations of its release (`models/*/*.yml`);
/// vocabularies from the released checkpoints. Pythia 1b: the configuration's 2.5e-4, which the
/// paper of HDS also uses, not the 3e-4 of the release's table. `cpu` is our choice: large enough that
/// layers differ, small enough for thousands of steps an hour on two cores.
const ROWS: [Row; 11] = [
    Row("cpu", 4, 192, 6, 512, 1e-3, SMALL),
    Row("14m", 6, 128, 4, 50_304, 1e-3, SMALL),
    Row("31m", 6, 256, 8, 50_304, 1e-3, SMALL),
    Row("70m", 6, 512, 8, 50_304, 1e-3, SMALL),
    Row("160m", 12, 768, 12, 50_304, 6e-4, SMALL),
    Row("410m", 24, 1024, 16, 50_304, 3e-4, SMALL),
    Row("1b", 16, 2048, 8, 50_304, 2.5e-4, SMALL),
    Row("1.4b", 24, 2048, 16, 50_304, 2e-4, SMALL),
    Row("2.8b", 32, 2560, 32, 50_304, 1.6e-4, SMALL),
    Row("6.9b", 32, 4096, 32, 50_432, 1.2e-4, NORMAL),
    Row("12b", 36, 5120, 40, 50_688, 1.2e-4, NORMAL),
];

/// The preset of a name; a leading `pythia-` is accepted.
///
/// # Errors
/// An unknown name; the error lists those there are.
pub fn preset(name: &str) -> Result<Preset, ModelError> {
    let short = name.strip_prefix("pythia-").unwrap_or(name);
    let Some(&Row(name, layers, hidden, heads, vocabulary, learning_rate, initialization)) =
        ROWS.iter().find(|row| row.0 == short)
    else {
        return Err(ModelError::Preset {
            got: name.to_owned(),
            known: PRESET_NAMES.join(", "),
        });
    };
    let config = ModelConfig {
        vocab_size: vocabulary,
        hidden_size: hidden,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        intermediate_size: 4 * hidden,
        max_position_embeddings: 2048,
        rotary_pct: 0.25,
        rotary_emb_base: 10_000.0,
        layer_norm_eps: 1e-5,
        use_parallel_residual: true,
        initialization,
    };
    Ok(Preset {
        name,
        config,
        learning_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        // Totals and non-embedding counts of the model cards.
        for (name, total, non_embedding) in [
            ("14m", 14_067_712, 1_189_888),
            ("31m", 30_494_720, 4_739_072),
            ("70m", 70_426_624, 18_915_328),
            ("160m", 162_322_944, 85_056_000),
            ("410m", 405_334_016, 302_311_424),
            ("1b", 1_011_781_632, 805_736_448),
            ("1.4b", 1_414_647_808, 1_208_602_624),
            ("2.8b", 2_775_208_960, 2_517_652_480),
            ("6.9b", 6_857_302_016, 6_444_163_072),
            ("12b", 11_846_072_320, 11_327_027_200),
        ] {
            let config = preset(name).unwrap().config;
            assert_eq!(config.parameter_count(), total, "{name}");
            assert_eq!(config.non_embedding_count(), non_embedding, "{name}");
        }
    }

    #[test]
    fn every_preset_is_valid_and_found_by_its_long_name() {
        for name in PRESET_NAMES {
            let found = preset(&format!("pythia-{name}")).unwrap();
            assert_eq!(found.name, name);
            found.config.validate().unwrap();
        }
        let error = preset("3b").unwrap_err().to_string();
        assert!(
            error.contains("\"3b\"") && error.contains("2.8b"),
            "{error}"
        );
    }
}
