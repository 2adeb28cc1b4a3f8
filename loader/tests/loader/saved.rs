//! What is saved of a run, its state and its weight log: what goes on from them, and what is refused.

use hds::weight_log::{WeightLogReader, WeightLogWriter};
use hds::{LiveWeights, VersionedMixture};
use hds_loader::{Index, Loader, LoaderState, Order};

use crate::stream::{config, ranks, read_global, small_index, weights_of};

#[test]
fn a_weight_log_alone_replays_the_same_batches() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let steps = 25;
    let path = files.path().join("weights.jsonl");
    let header = config(9).log_header(&index);
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut log = WeightLogWriter::create(&path, &header).unwrap();
    let mut loaders = ranks(&index, &live, &config(9), 1);
    let mut original = vec![];
    for step in 0..steps {
        log.record(step, &live.read()).unwrap();
        original.push(read_global(&mut loaders));
        // Not every step changes the weights.
        if step % 4 != 2 {
            live.publish(weights_of(&index, step + 1));
        }
    }
    log.sync().unwrap();

    let mut reader = WeightLogReader::open(&path).unwrap();
    reader.expect(&header).unwrap();
    let mut entry = reader.next_entry().unwrap();
    let first = entry.as_ref().unwrap().weights.clone();
    let live = LiveWeights::resumed(VersionedMixture {
        version: first.version,
        mixture: first.mixture,
    });
    let mut loaders = ranks(&index, &live, &config(9), 3);
    for step in 0..steps {
        if entry.as_ref().is_some_and(|e| e.step == step) {
            let weights = entry.unwrap().weights;
            if weights.version != live.read().version {
                assert_eq!(live.publish(weights.mixture), weights.version);
            }
            entry = reader.next_entry().unwrap();
        }
        assert_eq!(
            read_global(&mut loaders),
            original[step as usize],
            "step {step}"
        );
    }
}

#[test]
fn a_state_with_any_value_changed_is_refused() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut loader = Loader::new(index.clone(), live.clone(), config(8)).unwrap();
    for _ in 0..3 {
        live.publish(weights_of(&index, 1));
        loader.next_batch().unwrap();
    }
    let state = loader.state();
    assert_eq!((state.weights_version, state.last_version), (4, 4));
    let good = serde_json::to_value(&state).unwrap();
    let load = |value: serde_json::Value| {
        let state: LoaderState = serde_json::from_value(value).map_err(|e| e.to_string())?;
        let loader = Loader::resume(index.clone(), live.clone(), config(8), &state);
        loader.map(|l| l.state()).map_err(|e| e.to_string())
    };
    assert_eq!(load(good.clone()).unwrap(), state);
    for (name, value) in good.as_object().unwrap() {
        let mut changed = good.clone();
        changed.as_object_mut().unwrap().remove(name);
        assert!(load(changed).is_err(), "without {name}");
        let mut changed = good.clone();
        match &mut changed[name] {
            serde_json::Value::String(text) => {
                *text = match name.as_str() {
                    "packing" => "documents".into(),
                    "order" => "independent".into(),
                    _ => text.replace(['a', '0'], "b"),
                }
            }
            serde_json::Value::Array(list) => list.swap(0, 1),
            number => *number = (number.as_u64().unwrap() + 1).into(),
        }
        assert_ne!(changed[name], *value, "{name}");
        assert!(load(changed).is_err(), "{name} changed");
    }
}

#[test]
fn a_log_that_lost_its_end_is_told_by_the_state() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let path = files.path().join("weights.jsonl");
    let header = config(8).log_header(&index);
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut loader = Loader::new(index.clone(), live.clone(), config(8)).unwrap();
    let mut log = WeightLogWriter::create(&path, &header).unwrap();
    for step in 0..4 {
        log.record(step, &loader.next_batch().unwrap().weights)
            .unwrap();
        live.publish(weights_of(&index, step + 1));
        // Twice, so that versions are passed over.
        live.publish(weights_of(&index, step + 2));
    }
    log.sync().unwrap();
    drop(log);
    let state = loader.state();
    assert_eq!((state.last_version, state.weights_version), (7, 9));
    let resume = || WeightLogWriter::resume(&path, &header, state.step).unwrap();
    let expect = || resume().expect_last(state.step, state.last_version, Some(&state.last_weights));
    expect().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let cut: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&path, cut.join("\n") + "\n").unwrap();
    let error = expect().unwrap_err();
    assert!(error.to_string().contains("lost entries"), "{error}");
}

#[test]
fn a_state_of_another_run_is_refused_with_the_reason() {
    let files = small_index();
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(weights_of(&index, 0));
    let mut loader = Loader::new(index.clone(), live.clone(), config(8)).unwrap();
    loader.next_batch().unwrap();
    let state = loader.state();
    type Edit = fn(&mut LoaderState);
    let cases: [(Edit, &str); 15] = [
        (|s| s.index = "00".repeat(32), "another index"),
        (|s| s.seed = 1, "another seed: it has 1, this loader has 42"),
        (|s| s.sequence_length = 8, "another sequence length"),
        (|s| s.order = Order::Independent, "another order of windows"),
        (|s| s.samples.push(0), "another number of domains"),
        (|s| s.version = 2, "hds-loader-state version 2"),
        (|s| s.format = "x".into(), "another format"),
        (|s| s.samples[0] = u64::MAX, "samples: their sum is beyond"),
        (
            |s| s.step = u64::MAX - 1,
            "step: 18446744073709551614 is beyond",
        ),
        (|s| s.samples.fill(0), "samples: their sum is 0 after"),
        (|s| s.step = 0, "samples: their sum is"),
        (|s| s.samples[3] = 1, "samples: 1 of domain \"tiny\""),
        (|s| s.step = u64::MAX, "step"),
        (|s| s.weights[0] = f64::NAN, "weight of domain \"books\""),
        (|s| _ = s.weights.pop(), "3 weights for 4 domains"),
    ];
    for (edit, reason) in cases {
        let mut other = state.clone();
        edit(&mut other);
        let error = Loader::resume(index.clone(), live.clone(), config(8), &other).unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
    assert!(serde_json::from_str::<LoaderState>("{\"format\":\"hds-loader-state\"}").is_err());
    Loader::resume(index, live, config(8), &state).unwrap();
}
