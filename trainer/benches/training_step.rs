//! Tokens per second of a training step on the CPU, and what its parts cost.
//!
//! `cargo bench -p hds-trainer --bench training_step`; threads by `OMP_NUM_THREADS`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hds::DomainId;
use hds_trainer::gradients::{DomainGradients, GradientMode};
use hds_trainer::model::{Model, ModelSettings, Taps};
use hds_trainer::optimizer::{AdamW, AdamWConfig, clip_gradient_norm};
use tch::{Device, Kind, Tensor};

struct Shape {
    name: &'static str,
    hidden: i64,
    vocabulary: i64,
    length: i64,
    batch: i64,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "hidden 256, L 256, B 16",
        hidden: 256,
        vocabulary: 4096,
        length: 256,
        batch: 16,
    },
    Shape {
        name: "hidden 512, L 512, B 4",
        hidden: 512,
        vocabulary: 8192,
        length: 512,
        batch: 4,
    },
];

fn model(shape: &Shape) -> Model {
    let settings = ModelSettings {
        vocab_size: Some(shape.vocabulary),
        hidden_size: Some(shape.hidden),
        num_hidden_layers: Some(6),
        num_attention_heads: Some(8),
        ..ModelSettings::default()
    };
    let config = settings
        .resolve(shape.vocabulary as u64, shape.length as u64)
        .expect("the benchmark's shapes are valid");
    Model::new(&config, Device::Cpu, Kind::Float, 1).expect("the configuration is valid")
}

fn steps(criterion: &mut Criterion) {
    for shape in &SHAPES {
        let model = model(shape);
        let parameters = model.parameters();
        let mut optimizer = AdamW::new(model.parameters(), AdamWConfig::default());
        let ids = Tensor::randint(
            shape.vocabulary,
            [shape.batch, shape.length + 1],
            (Kind::Int64, Device::Cpu),
        );
        let tokens = ids.narrow(1, 0, shape.length);
        let targets = ids.narrow(1, 1, shape.length);
        let scale = 1.0 / shape.batch as f64;
        let mut group = criterion.benchmark_group(shape.name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_secs(3))
            .measurement_time(Duration::from_secs(15))
            .throughput(Throughput::Elements((shape.batch * shape.length) as u64));
        group.bench_function("step", |bencher| {
            bencher.iter(|| {
                optimizer.zero_gradients();
                let losses = model.accumulate_gradients(&tokens, &targets, scale, None);
                clip_gradient_norm(&parameters, 1.0);
                optimizer.step(1e-4);
                let _ = black_box(losses);
            });
        });
        let mut taps = Taps::new(vec![3, 4, 5]);
        let mut gradients = DomainGradients::new(20, GradientMode::default());
        let domains: Vec<DomainId> = (0..shape.batch as u16).map(DomainId).collect();
        group.bench_function("step with sketched domain gradients", |bencher| {
            bencher.iter(|| {
                optimizer.zero_gradients();
                let losses = model.accumulate_gradients(&tokens, &targets, scale, Some(&mut taps));
                gradients
                    .accumulate(&mut taps, &domains, scale)
                    .expect("a backward pass has run");
                black_box(gradients.finish());
                clip_gradient_norm(&parameters, 1.0);
                optimizer.step(1e-4);
                let _ = black_box(losses);
            });
        });
        group.bench_function("optimizer alone", |bencher| {
            bencher.iter(|| {
                clip_gradient_norm(&parameters, 1.0);
                optimizer.step(1e-4);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
