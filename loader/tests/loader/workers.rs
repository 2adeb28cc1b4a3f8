//! Loaders that share one stream: workers that take turns, weights of another process, weights of a log.

use std::time::{Duration, Instant};

use hds::weight_log::WeightLogWriter;
use hds::{
    LiveWeights, Mixture, SharedWeights, SharedWeightsWriter, VersionedMixture, WeightReplay,
};
use hds_loader::{
    Index, Loader, LoaderConfig, LoaderError, LoaderState, Packing, SampleId, check_weights,
};

use crate::stream::small_index;

const STEPS: u64 = 30;

fn config() -> LoaderConfig {
    LoaderConfig::new(7, 9, 42)
}

fn mixture(index: &Index, step: u64) -> Mixture {
    let raw = [1.0 + (step % 5) as f64, (step % 3) as f64, 0.5, 0.0];
    Mixture::normalized(raw.to_vec(), index.domains()).unwrap()
}

/// The samples of each batch, with the weights changed after each, by one loader in one process.
fn one_loader(index: &Index) -> Vec<Vec<SampleId>> {
    let live = LiveWeights::new(mixture(index, 0));
    let mut loader = Loader::new(index.clone(), live.clone(), config()).unwrap();
    (0..STEPS)
        .map(|step| {
            let samples = loader.next_batch().unwrap().samples;
            live.publish(mixture(index, step + 1));
            samples
        })
        .collect()
}

#[test]
fn workers_that_take_turns_read_the_stream_of_one_under_shared_weights() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let want = one_loader(&index);
    let path = files.path().join("weights");
    for workers in [1, 2, 8] {
        let first = VersionedMixture {
            version: 1,
            mixture: mixture(&index, 0),
        };
        let writer = SharedWeightsWriter::create(&path, index.domains(), &first, 0).unwrap();
        let mut loaders: Vec<Loader> = (0..workers)
            .map(|_| {
                let shared = SharedWeights::open(&path, index.domains()).unwrap();
                Loader::new(index.clone(), shared, config()).unwrap()
            })
            .collect();
        for step in 0..STEPS {
            // The others are behind and catch up by passing over what is not theirs.
            let loader = &mut loaders[step as usize % workers];
            while loader.step() < step {
                loader.skip_batch().unwrap();
            }
            let batch = loader.next_batch().unwrap();
            assert_eq!(
                batch.samples, want[step as usize],
                "{workers} workers, {step}"
            );
            assert_eq!(batch.weights.version, step + 1);
            writer.publish(&mixture(&index, step + 1)).unwrap();
        }
    }
}

#[test]
fn a_log_as_the_source_replays_the_run_from_any_step() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let want = one_loader(&index);
    let path = files.path().join("weights.jsonl");
    let header = config().log_header(&index);
    let mut log = WeightLogWriter::create(&path, &header).unwrap();
    for step in 0..STEPS {
        let now = VersionedMixture {
            version: step + 1,
            mixture: mixture(&index, step),
        };
        log.record(step, &now).unwrap();
    }
    log.sync().unwrap();
    let replay = || WeightReplay::open(&path, &header).unwrap();
    let mut loader = Loader::new(index.clone(), replay(), config()).unwrap();
    let mut states: Vec<LoaderState> = vec![];
    for samples in &want {
        states.push(loader.state());
        assert_eq!(loader.next_batch().unwrap().samples, *samples);
    }
    for (step, state) in states.iter().enumerate() {
        assert_eq!(state.weights_version, step as u64 + 1);
        let mut loader = Loader::resume(index.clone(), replay(), config(), state).unwrap();
        assert_eq!(loader.next_batch().unwrap().samples, want[step]);
    }
}

#[test]
fn weights_are_checked_before_they_are_published() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let uniform = Mixture::uniform(index.domains());
    let text = |config: &LoaderConfig, mixture| {
        let error: LoaderError = check_weights(&index, config, mixture).unwrap_err();
        error.to_string()
    };
    assert!(text(&config(), &uniform).contains("\"tiny\""));
    let fewer = Mixture::uniform(&hds::DomainSet::new(["a"]).unwrap());
    assert!(text(&config(), &fewer).contains("1 weights for 4"));
    let many = LoaderConfig {
        minimum_per_domain: 4,
        ..config()
    };
    assert!(text(&many, &mixture(&index, 1)).contains("needs a batch of 12"));
    check_weights(&index, &config(), &mixture(&index, 1)).unwrap();
    // As documents, even three tokens make a sequence.
    let documents = LoaderConfig {
        packing: Packing::Documents,
        ..config()
    };
    check_weights(&index, &documents, &uniform).unwrap();
}

#[test]
fn a_change_of_weights_costs_less_than_ten_microseconds() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let path = files.path().join("weights");
    let first = VersionedMixture {
        version: 1,
        mixture: mixture(&index, 0),
    };
    let writer = SharedWeightsWriter::create(&path, index.domains(), &first, 0).unwrap();
    let live = LiveWeights::new(mixture(&index, 0));
    let other = mixture(&index, 1);
    // The best of many tries, as anything else on the machine only makes one slower.
    let best = |mut publish: Box<dyn FnMut() + '_>| {
        let tries = (0..200).map(|_| {
            let start = Instant::now();
            publish();
            start.elapsed()
        });
        tries.min().unwrap()
    };
    let limit = Duration::from_micros(10);
    let in_process = best(Box::new(|| _ = live.publish(other.clone())));
    let shared = best(Box::new(|| _ = writer.publish(&other).unwrap()));
    assert!(
        in_process < limit && shared < limit,
        "{in_process:?} {shared:?}"
    );
}
