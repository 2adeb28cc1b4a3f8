//! The global stream: what is in it, and that ranks, pauses and logs do not change it.

use std::collections::HashMap;

use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{
    Batch, DomainEnd, Draws, Index, Loader, LoaderConfig, LoaderState, Order, SampleId, Split,
    Tokens,
};

use crate::builder::{Domain, TestIndex, documents, write};

const LENGTH: usize = 7;

/// Three domains with 36, 10 and 1 windows of 7 + 1 tokens, and one without any.
pub fn small_index() -> TestIndex {
    let domain = |name: &str, train| Domain {
        name: name.into(),
        train,
        valid: vec![documents(9, 12, |d| 5 + d)],
    };
    write(
        &[
            domain(
                "books",
                vec![
                    documents(1, 20, |d| 1 + d % 9),
                    documents(2, 1, |_| 30),
                    documents(3, 14, |d| 3 + d * 2 % 21),
                ],
            ),
            domain("code", vec![documents(4, 6, |d| 10 + d)]),
            domain("law", vec![documents(5, 2, |_| 4)]),
            domain("tiny", vec![documents(6, 1, |_| 3)]),
        ],
        50_000,
    )
}

fn mixture(index: &Index, weights: &[f64]) -> Mixture {
    Mixture::normalized(weights.to_vec(), index.domains()).unwrap()
}

pub fn config(batch: usize) -> LoaderConfig {
    LoaderConfig::new(LENGTH, batch, 42)
}

/// Weights of a step: another mixture each time, domain 3 never, domain 1 on and off.
pub fn weights_of(index: &Index, step: u64) -> Mixture {
    let code = if step % 3 == 1 { 0.0 } else { 0.4 };
    mixture(index, &[0.3 + (step % 5) as f64 / 10.0, code, 0.1, 0.0])
}

fn row_tokens(batch: &Batch, row: usize) -> Vec<u32> {
    let width = batch.sequence_length + 1;
    (row * width..(row + 1) * width)
        .map(|i| batch.tokens.get(i).unwrap())
        .collect()
}

/// What a global batch is, whoever read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Global {
    version: u64,
    samples: Vec<SampleId>,
    tokens: Vec<Vec<u32>>,
    counts: Vec<u64>,
}

/// Reads one global batch with all ranks and puts their parts together.
pub fn read_global(loaders: &mut [Loader]) -> Global {
    let mut global: Option<Global> = None;
    let mut next_slot = 0;
    for loader in loaders {
        let batch = loader.next_batch().unwrap();
        assert_eq!(batch.slots.start, next_slot);
        next_slot = batch.slots.end;
        let tokens = (0..batch.rows()).map(|r| row_tokens(&batch, r));
        let part = global.get_or_insert_with(|| Global {
            version: batch.weights.version,
            samples: vec![],
            tokens: vec![],
            counts: batch.global_samples.clone(),
        });
        assert_eq!(part.counts, batch.global_samples);
        assert_eq!(part.version, batch.weights.version);
        part.samples.extend(&batch.samples);
        part.tokens.extend(tokens);
    }
    global.unwrap()
}

pub fn ranks(index: &Index, live: &LiveWeights, base: &LoaderConfig, world: usize) -> Vec<Loader> {
    (0..world)
        .map(|rank| {
            let config = LoaderConfig {
                rank,
                world_size: world,
                ..base.clone()
            };
            Loader::new(index.clone(), live.clone(), config).unwrap()
        })
        .collect()
}

fn stream(index: &Index, base: &LoaderConfig, world: usize, steps: u64) -> Vec<Global> {
    let live = LiveWeights::new(weights_of(index, 0));
    let mut loaders = ranks(index, &live, base, world);
    (0..steps)
        .map(|step| {
            let global = read_global(&mut loaders);
            live.publish(weights_of(index, step + 1));
            global
        })
        .collect()
}

#[test]
fn every_epoch_has_each_window_of_each_domain_once() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let mut seen: HashMap<(DomainId, u64), Vec<u64>> = HashMap::new();
    let mut counts = [0u64; 4];
    for global in stream(&index, &config(11), 1, 60) {
        for sample in global.samples {
            let count = &mut counts[sample.domain.index()];
            assert_eq!(sample.count, *count, "samples are numbered in slot order");
            *count += 1;
            let windows = seen.entry((sample.domain, sample.epoch)).or_default();
            windows.push(sample.window);
        }
    }
    let mut whole_epochs = 0;
    for ((domain, epoch), mut windows) in seen {
        let n = index.split(domain, Split::Train).windows(LENGTH);
        let complete = (epoch + 1) * n <= counts[domain.index()];
        windows.sort_unstable();
        if complete {
            assert_eq!(windows, (0..n).collect::<Vec<_>>());
            whole_epochs += 1;
        } else {
            windows.dedup();
            assert_eq!(windows.len() as u64, counts[domain.index()] % n);
        }
    }
    assert!(whole_epochs > 20, "{whole_epochs}");
    assert_eq!(counts[3], 0);
}

#[test]
fn tokens_are_those_of_the_window() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    // The whole split, put together from the files without the loader.
    let whole: Vec<Vec<u32>> = ["books", "code", "law", "tiny"]
        .iter()
        .map(|name| {
            (0..3)
                .filter_map(|shard| std::fs::read(files.train_file(name, shard, "tokens")).ok())
                .flatten()
                .collect::<Vec<u8>>()
                .chunks(2)
                .map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))
                .collect()
        })
        .collect();
    for global in stream(&index, &config(11), 2, 12) {
        for (sample, tokens) in global.samples.iter().zip(&global.tokens) {
            let from = sample.window as usize * LENGTH;
            assert_eq!(
                tokens[..],
                whole[sample.domain.index()][from..=from + LENGTH]
            );
        }
    }
}

#[test]
fn the_stream_is_the_same_for_any_world_size() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    for base in [
        config(13),
        LoaderConfig {
            draws: Draws::Stratified,
            minimum_per_domain: 1,
            ..config(13)
        },
        LoaderConfig {
            order: Order::Independent,
            ..config(13)
        },
        LoaderConfig {
            domain_end: DomainEnd::Cap { epochs: 8 },
            draws: Draws::Stratified,
            ..config(13)
        },
    ] {
        let one = stream(&index, &base, 1, 20);
        let without_read_ahead = LoaderConfig {
            read_ahead_batches: 0,
            ..base.clone()
        };
        assert_eq!(stream(&index, &without_read_ahead, 1, 20), one);
        for world in [2, 3, 4, 8, 13] {
            assert_eq!(stream(&index, &base, world, 20), one, "world size {world}");
        }
    }
}

#[test]
fn resume_at_every_step_on_another_world_size_goes_on_exactly() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let steps = 14;
    let whole = stream(&index, &config(8), 1, steps);
    let worlds = [1, 2, 4, 8, 3];
    for stop in 0..steps {
        let world = worlds[stop as usize % worlds.len()];
        let live = LiveWeights::new(weights_of(&index, 0));
        let mut loaders = ranks(&index, &live, &config(8), world);
        for step in 0..stop {
            read_global(&mut loaders);
            live.publish(weights_of(&index, step + 1));
        }
        let text = serde_json::to_string(&loaders[world - 1].state()).unwrap();
        assert!(text.len() < 600, "{}: {text}", text.len());
        for loader in &loaders {
            assert_eq!(serde_json::to_string(&loader.state()).unwrap(), text);
        }
        let state: LoaderState = serde_json::from_str(&text).unwrap();
        for other in worlds {
            let live = LiveWeights::resumed(state.weights_in_force(index.domains()).unwrap());
            let mut loaders: Vec<Loader> = (0..other)
                .map(|rank| {
                    let config = LoaderConfig {
                        rank,
                        world_size: other,
                        ..config(8)
                    };
                    Loader::resume(index.clone(), live.clone(), config, &state).unwrap()
                })
                .collect();
            for step in stop..steps {
                assert_eq!(
                    read_global(&mut loaders),
                    whole[step as usize],
                    "{world}->{other}"
                );
                live.publish(weights_of(&index, step + 1));
            }
        }
    }
}

#[test]
fn weights_published_after_a_step_govern_the_next_batch() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(mixture(&index, &[1.0, 0.0, 0.0, 0.0]));
    let mut loader = Loader::new(index.clone(), live.clone(), config(6)).unwrap();
    for step in 0..30u64 {
        let target = (step % 3) as usize;
        let mut weights = [0.0; 4];
        weights[target] = 1.0;
        let version = live.publish(mixture(&index, &weights));
        let batch = loader.next_batch().unwrap();
        assert_eq!((batch.step, batch.weights.version), (step, version));
        assert!(batch.domains.iter().all(|d| d.index() == target));
        assert_eq!(batch.global_samples[target], 6);
    }
    // Weights that came back from zero went on where they had stopped.
    assert_eq!(loader.samples(), [60, 60, 60, 0]);
    assert_eq!(loader.epochs()[2], 60.0);
}

#[test]
fn a_domain_without_a_window_is_refused_by_name_and_the_loader_goes_on() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let bad = mixture(&index, &[1.0, 1.0, 1.0, 0.5]);
    let error = Loader::new(index.clone(), LiveWeights::new(bad.clone()), config(8)).unwrap_err();
    let text = error.to_string();
    for part in ["\"tiny\"", "3 training tokens", "7 + 1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut loader = Loader::new(index.clone(), live.clone(), config(8)).unwrap();
    live.publish(bad);
    assert!(loader.next_batch().is_err());
    assert!(loader.next_batch().is_err());
    live.publish(weights_of(&index, 0));
    let batch = loader.next_batch().unwrap();
    assert_eq!(batch.step, 0);
    let fresh = LiveWeights::new(weights_of(&index, 0));
    let same = Loader::new(index, fresh, config(8)).unwrap().next_batch();
    assert_eq!(same.unwrap().samples, batch.samples);
}

#[test]
fn weights_of_another_number_of_domains_are_refused() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let others = hds::DomainSet::new(["a", "b"]).unwrap();
    let error = Loader::new(
        index,
        LiveWeights::new(Mixture::uniform(&others)),
        config(8),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains("2 weights for 4 domains"), "{text}");
}

#[test]
fn memory_of_an_old_batch_is_reused_without_trace() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut fresh = Loader::new(index.clone(), live.clone(), config(9)).unwrap();
    let mut reused = Loader::new(index.clone(), live.clone(), config(9)).unwrap();
    let mut old = fresh.next_batch().unwrap();
    reused.next_batch().unwrap();
    for _ in 0..10 {
        let new = fresh.next_batch().unwrap();
        reused.next_batch_into(&mut old).unwrap();
        assert_eq!(format!("{new:?}"), format!("{old:?}"));
    }
    assert!(matches!(old.tokens, Tokens::U16(_)));
}

#[test]
fn a_capped_domain_gives_its_weight_to_the_others_and_says_so() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let windows: Vec<u64> = index
        .domains()
        .ids()
        .map(|id| index.split(id, Split::Train).windows(LENGTH))
        .collect();
    let live = LiveWeights::new(mixture(&index, &[0.2, 0.6, 0.2, 0.0]));
    let capped = LoaderConfig {
        domain_end: DomainEnd::Cap { epochs: 3 },
        ..config(10)
    };
    let mut loader = Loader::new(index.clone(), live.clone(), capped.clone()).unwrap();
    let total = 3 * windows.iter().sum::<u64>();
    let mut ended = vec![];
    for step in 0..total / 10 {
        // Resuming in the middle of it changes nothing.
        if step % 5 == 3 {
            let state = loader.state();
            loader = Loader::resume(index.clone(), live.clone(), capped.clone(), &state).unwrap();
        }
        let batch = loader.next_batch().unwrap();
        assert_eq!(batch.global_samples.iter().sum::<u64>(), 10);
        assert!(ended.iter().all(|d| batch.ended.contains(d)));
        for &DomainId(d) in &ended {
            assert_eq!(batch.global_samples[usize::from(d)], 0);
        }
        assert!(batch.samples.iter().all(|s| s.epoch < 3));
        ended = batch.ended;
    }
    assert!(ended.contains(&DomainId(1)), "{ended:?}");
    for (samples, windows) in loader.samples().iter().zip(&windows) {
        assert!(*samples <= 3 * windows);
    }
    let text = loader.next_batch().unwrap_err().to_string();
    assert!(text.contains("3 epochs"), "{text}");
}

#[test]
fn stop_ends_the_run_before_a_domain_repeats() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(mixture(&index, &[0.5, 0.5, 0.0, 0.0]));
    let stopping = LoaderConfig {
        domain_end: DomainEnd::Stop,
        ..config(4)
    };
    let mut loader = Loader::new(index.clone(), live.clone(), stopping).unwrap();
    let error = loop {
        match loader.next_batch() {
            Ok(batch) => assert!(batch.samples.iter().all(|s| s.epoch == 0)),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("\"code\""), "{error}");
    // The caller may go on without it.
    let step = loader.step();
    live.publish(mixture(&index, &[1.0, 0.0, 0.0, 0.0]));
    assert_eq!(loader.next_batch().unwrap().step, step);
}
