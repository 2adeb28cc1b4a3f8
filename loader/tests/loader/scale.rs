//! Indexes of many documents and of many shards.

use std::fs::{self, File};
use std::time::Instant;

use hds::index::{Manifest, ShardEntry};
use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{Access, Index, Loader, LoaderConfig, Split};

use crate::builder::{Domain, documents, save, write};

fn domain(train: Vec<Vec<crate::builder::Document>>) -> Domain {
    Domain {
        name: "web".into(),
        train,
        valid: vec![],
    }
}

#[test]
fn opening_takes_no_look_into_the_files() {
    // Two hundred million documents and a trillion tokens, by a manifest over files that are holes.
    let files = write(&[domain(vec![documents(1, 3, |_| 4)])], 50_000);
    let (mut manifest, _) = Manifest::load(files.path()).unwrap();
    let train = &mut manifest.domains[0].train;
    let template: ShardEntry = train.shards[0].clone();
    (train.tokens, train.documents) = (0, 0);
    train.shards.clear();
    for number in 0..200 {
        let mut shard = template.clone();
        (shard.first_token, shard.first_document) = (train.tokens, train.documents);
        (shard.tokens, shard.documents) = (5_000_000_000, 1_000_000);
        for (file, bytes) in [
            (&mut shard.tokens_file, 10_000_000_000),
            (&mut shard.documents_file, 12_100_000),
        ] {
            file.path = format!("{}-{number}", file.path);
            file.bytes = bytes;
            let hole = File::create(files.path().join(&file.path)).unwrap();
            if let Err(error) = hole.set_len(bytes) {
                println!("skipped: no files with holes here: {error}");
                return;
            }
        }
        train.tokens += shard.tokens;
        train.documents += shard.documents;
        train.shards.push(shard);
    }
    save(&manifest, files.path());
    let start = Instant::now();
    let index = Index::open(files.path()).unwrap();
    let elapsed = start.elapsed();
    assert_eq!(
        index.split(DomainId(0), Split::Train).documents(),
        200_000_000
    );
    // Takes some 5 ms; the bound leaves room for a busy machine and none for reading gigabytes.
    assert!(elapsed.as_secs_f64() < 2.0, "{elapsed:?}");
    // Zeros are no document table: found when it is used.
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let mut loader = Loader::new(index, live, LoaderConfig::new(64, 4, 0)).unwrap();
    let text = loader.next_batch().unwrap_err().to_string();
    assert!(text.contains("ARROW1"), "{text}");
}

#[test]
fn thousands_of_shards_are_read_mapped_and_within_the_limit_of_open_files() {
    let shards = 1500;
    let train = (0..shards).map(|s| documents(s, 2, |d| 3 + d)).collect();
    let files = write(&[domain(train)], 50_000);
    let run = |access| {
        let index = Index::open_with(files.path(), access).unwrap();
        let live = LiveWeights::new(Mixture::uniform(index.domains()));
        // Every shard is used: 32 of 10,499 / 10 windows at a time, for more than an epoch.
        let mut loader = Loader::new(index, live, LoaderConfig::new(10, 32, 0)).unwrap();
        let batches = (0..40).map(|_| loader.next_batch().unwrap());
        let rows = batches.map(|batch| (batch.tokens, batch.samples, batch.mtld));
        let rows: Vec<_> = rows.collect();
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        assert!(open < 700, "{open} files are open");
        rows
    };
    assert!(run(Access::Map) == run(Access::Read));
}
