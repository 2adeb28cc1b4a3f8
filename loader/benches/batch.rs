//! `next_batch` against a plain copy of the same windows, warm cache: ten domains, 50 M tokens of u16,
//! L = 1024, B = 32.
//!
//! Criterion gives each side's throughput in tokens; the last lines compare the two batch by batch, in
//! turn, and print the ratio of the medians and the tail, beside that of as much arithmetic, which touches no memory.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

#[path = "../tests/loader/builder.rs"]
mod builder;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{Batch, Index, Loader, LoaderConfig, Split, TokensMut};

const LENGTH: usize = 1024;
const BATCH: usize = 32;
const DOMAINS: u32 = 10;
const TOKENS_PER_DOMAIN: u32 = 5_000_000;

fn index() -> builder::TestIndex {
    let domains: Vec<builder::Domain> = (0..DOMAINS)
        .map(|d| builder::Domain {
            name: format!("domain-{d}"),
            // Documents of 50 to 2,000 tokens, two shards.
            train: (0..2)
                .map(|_| {
                    let count = TOKENS_PER_DOMAIN / 2 / 1025;
                    builder::documents(d, count, |i| 50 + i.wrapping_mul(2_654_435_761) % 1951)
                })
                .collect(),
            valid: vec![],
        })
        .collect();
    builder::write(&domains, 50_277)
}

/// What a loader cannot do without: the same windows copied from memory, places known beforehand.
struct PlainCopy {
    domains: Vec<Vec<u16>>,
    out: Vec<u16>,
}

impl PlainCopy {
    fn new(index: &Index) -> Self {
        let domains = index
            .domains()
            .ids()
            .map(|id| {
                let stream = index.split(id, Split::Train);
                let mut tokens = vec![0; stream.tokens() as usize];
                stream
                    .read(0, TokensMut::U16(&mut tokens))
                    .expect("a good index");
                tokens
            })
            .collect();
        Self {
            domains,
            out: vec![0; BATCH * (LENGTH + 1)],
        }
    }

    fn copy(&mut self, places: &[(DomainId, usize)]) {
        for (row, &(domain, from)) in self.out.chunks_mut(LENGTH + 1).zip(places) {
            row.copy_from_slice(&self.domains[domain.index()][from..from + LENGTH + 1]);
        }
        black_box(&mut self.out);
    }
}

fn places(batch: &Batch) -> Vec<(DomainId, usize)> {
    let place = |s: &hds_loader::SampleId| (s.domain, s.window as usize * LENGTH);
    batch.samples.iter().map(place).collect()
}

fn main() {
    let files = index();
    let index = Index::open(files.path()).expect("a good index");
    let mut plain = PlainCopy::new(&index);
    let mixtures = [
        Mixture::uniform(index.domains()),
        Mixture::normalized((1..=DOMAINS).map(f64::from).collect(), index.domains())
            .expect("positive"),
    ];
    let live = LiveWeights::new(mixtures[0].clone());
    let config = LoaderConfig::new(LENGTH, BATCH, 1);
    let mut loader = Loader::new(index.clone(), live.clone(), config).expect("fits");
    let mut batch = loader.next_batch().expect("a good index");
    // Every window once, so that both sides find the cache warm.
    for _ in 0..2000 {
        loader.next_batch_into(&mut batch).expect("a good index");
    }

    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements((BATCH * LENGTH) as u64));
    group.bench_function("next_batch_into", |b| {
        b.iter(|| loader.next_batch_into(&mut batch).expect("a good index"));
    });
    group.bench_function("next_batch", |b| {
        b.iter(|| loader.next_batch().expect("a good index"));
    });
    group.bench_function("next_batch_into, weights changed every step", |b| {
        b.iter(|| {
            live.publish(mixtures[loader.step() as usize % 2].clone());
            loader.next_batch_into(&mut batch).expect("a good index");
        });
    });
    let at = places(&batch);
    group.bench_function("plain copy, one batch again and again", |b| {
        b.iter(|| plain.copy(&at))
    });
    group.finish();
    criterion.final_summary();

    in_turns("read-ahead as by default", &mut loader, &live, &mut plain);
    let still = LoaderConfig {
        read_ahead_batches: 0,
        ..loader.config().clone()
    };
    let mut loader = Loader::new(index, live.clone(), still).expect("fits");
    in_turns("no read-ahead", &mut loader, &live, &mut plain);
}

/// Both sides in turn, batch by batch: the same windows in the same order, but never soon after each other.
fn in_turns(name: &str, loader: &mut Loader, live: &LiveWeights, plain: &mut PlainCopy) {
    let rounds = 4000;
    let (index, state) = (loader.index().clone(), loader.state());
    let mut twin =
        Loader::resume(index, live.clone(), loader.config().clone(), &state).expect("fits");
    let at: Vec<_> = (0..rounds)
        .map(|_| places(&twin.next_batch().expect("a good index")))
        .collect();
    drop(twin);
    let mut batch = loader.next_batch().expect("a good index");
    let (mut ours, mut theirs, mut nothing) = (vec![], vec![], vec![]);
    let turns = turns_of(Duration::from_micros(16));
    for round in 0..rounds {
        let start = Instant::now();
        loader.next_batch_into(&mut batch).expect("a good index");
        ours.push(start.elapsed());
        let start = Instant::now();
        plain.copy(&at[(round + rounds / 2) % rounds]);
        theirs.push(start.elapsed());
        let start = Instant::now();
        black_box(spin(turns));
        nothing.push(start.elapsed());
    }
    println!("{name}:");
    let ours = summary("next_batch_into", ours);
    let theirs = summary("plain copy", theirs);
    println!("  ratio            {:.2} of the plain copy", theirs / ours);
    summary("arithmetic alone", nothing);
}

/// Arithmetic in registers: what of the tail is the machine's own.
fn spin(turns: u64) -> u64 {
    (0..turns).fold(1, |x: u64, i| {
        black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ i)
    })
}

/// How often [`spin`] turns in such a time.
fn turns_of(time: Duration) -> u64 {
    let best = (0..100).map(|_| {
        let start = Instant::now();
        black_box(spin(10_000));
        start.elapsed()
    });
    let best = best.min().unwrap_or(time).as_secs_f64();
    (10_000.0 * time.as_secs_f64() / best) as u64
}

/// Prints the median and the tail; returns the median in seconds.
fn summary(name: &str, mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let (median, tail) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let seconds = median.as_secs_f64();
    println!(
        "  {name:<16} median {:.1} us = {:.0} M tokens/s, p99 {:.2} x the median",
        seconds * 1e6,
        (BATCH * LENGTH) as f64 / seconds / 1e6,
        tail.as_secs_f64() / seconds
    );
    seconds
}
