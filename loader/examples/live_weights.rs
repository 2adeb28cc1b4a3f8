//! A training loop in miniature: weights that change after every step, a state that is saved and
//! restored on two ranks, and the weight log that replays it all.
//!
//! ```text
//! hds-index build corpus.jsonl.zst -o INDEX
//! cargo run --release -p hds-loader --example live_weights -- INDEX
//! ```

use std::error::Error;
use std::path::PathBuf;

use hds::weight_log::WeightLogWriter;
use hds::{LiveWeights, Mixture};
use hds_loader::{Index, Loader, LoaderConfig, LoaderState};

const STEPS: u64 = 20;
const SEED: u64 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("name an index: live_weights INDEX".into());
    };
    let index = Index::open(&folder)?;
    let domains = index.domains().clone();

    // Weights live outside the loader. Whoever holds a clone of the handle may publish new ones.
    let weights = LiveWeights::new(Mixture::uniform(&domains));

    // Eight sequences a step, each of 128 tokens and the one after them.
    let config = LoaderConfig::new(128, 8, SEED);
    let mut loader = Loader::new(index.clone(), weights.clone(), config.clone())?;

    // This log is enough to replay the run; its header says of what.
    let log_path = std::env::temp_dir().join("live_weights.jsonl");
    let header = config.log_header(&index);
    let mut log = WeightLogWriter::create(&log_path, &header)?;

    for step in 0..STEPS {
        log.record(step, &weights.read())?;
        let batch = loader.next_batch()?;
        println!(
            "step {step:2}  weights version {:2}  samples per domain {:?}  MTLD of row 0 {:.1}",
            batch.weights.version, batch.global_samples, batch.mtld[0],
        );

        // Train on it: inputs are the first 128 ids of a row, targets the last 128.
        let mut ids = vec![0i64; batch.rows() * 129];
        batch.copy_tokens_i64(0..batch.rows(), &mut ids);
        // Boundaries for attention that stays inside documents.
        let mut boundaries = Vec::new();
        batch.cu_seqlens(0..batch.rows(), &mut boundaries);

        // What is published after step t governs batch t + 1. Here each domain in turn gets half.
        let favourite = step as usize % domains.len();
        let raw = (0..domains.len()).map(|i| {
            if i == favourite {
                domains.len() as f64
            } else {
                1.0
            }
        });
        weights.publish(Mixture::normalized(raw.collect(), &domains)?);
    }
    log.sync()?;

    // Save, as JSON beside the model; go on somewhere else, on two ranks.
    let saved = serde_json::to_string(&loader.state())?;
    println!("state: {saved}");
    let state: LoaderState = serde_json::from_str(&saved)?;
    let restored = LiveWeights::resumed(state.weights_in_force(&domains)?);
    let whole = loader.next_batch()?;
    let mut rows = Vec::new();
    for rank in 0..2 {
        let config = LoaderConfig {
            rank,
            world_size: 2,
            ..config.clone()
        };
        let mut loader = Loader::resume(index.clone(), restored.clone(), config, &state)?;
        rows.extend(loader.next_batch()?.samples);
    }
    assert_eq!(rows, whole.samples, "two ranks read what one would have");
    println!(
        "two ranks went on with the same batch; the weight log is {}",
        log_path.display()
    );
    Ok(())
}
