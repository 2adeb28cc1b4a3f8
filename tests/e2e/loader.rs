//! The loader over an index that `hds-index` built.

use std::fs;

use hds::{LiveWeights, Mixture};
use hds_loader::{Access, Index, Loader, LoaderConfig, Split, TokensMut};
use hds_tests::{own_corpus, succeed, text};

#[test]
fn the_loader_reads_back_every_document_of_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, out) = (dir.path().join("corpus"), dir.path().join("index"));
    own_corpus(&corpus);
    let options = [
        "build",
        text(&corpus),
        "-o",
        text(&out),
        "--valid-fraction",
        "0.1",
    ];
    succeed("hds-index", &options);
    for access in [Access::Map, Access::Read] {
        let index = Index::open_with(&out, access).unwrap();
        let end = i64::from(index.manifest().tokenizer.end_of_document);
        for domain in index.domains().ids() {
            let name = index.domains().name(domain);
            let lines = fs::read_to_string(corpus.join(format!("{name}.jsonl"))).unwrap();
            let mut want: Vec<String> = lines
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
                .map(|document| document["text"].as_str().unwrap().to_owned())
                .collect();
            let mut got = vec![];
            for split in Split::ALL {
                let stream = index.split(domain, split);
                let mut ids = vec![0i64; stream.tokens() as usize];
                stream.read(0, TokensMut::I64(&mut ids)).unwrap();
                let mut spans = vec![];
                stream.spans(0, ids.len() as u32, &mut spans).unwrap();
                assert_eq!(spans.len() as u64, stream.documents());
                for span in spans {
                    let document = &ids[span.start as usize..(span.start + span.length) as usize];
                    let (last, body) = document.split_last().unwrap();
                    assert_eq!(*last, end);
                    // The byte tokenizer: an id is a byte.
                    let bytes: Vec<u8> = body.iter().map(|&id| u8::try_from(id).unwrap()).collect();
                    let document = String::from_utf8(bytes).unwrap();
                    assert_eq!(
                        span.mtld > 0.0,
                        document.split_whitespace().next().is_some()
                    );
                    got.push(document);
                }
            }
            want.sort();
            got.sort();
            assert!(want == got, "domain {name} is not what the corpus has");
        }
    }
}

#[test]
fn a_run_over_a_built_index_is_the_same_with_and_without_maps_and_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, out) = (dir.path().join("corpus"), dir.path().join("index"));
    own_corpus(&corpus);
    succeed("hds-index", &["build", text(&corpus), "-o", text(&out)]);
    let run = |access, read_ahead_batches| {
        let index = Index::open_with(&out, access).unwrap();
        let live = LiveWeights::new(Mixture::uniform(index.domains()));
        let config = LoaderConfig {
            read_ahead_batches,
            ..LoaderConfig::new(100, 8, 3)
        };
        let mut loader = Loader::new(index, live, config).unwrap();
        let batches = (0..20).map(|_| loader.next_batch().unwrap());
        let rows = batches.map(|b| (b.tokens, b.samples, b.mtld));
        rows.collect::<Vec<_>>()
    };
    let first = run(Access::Map, 2);
    assert!(first == run(Access::Read, 2));
    assert!(first == run(Access::Map, 0));
}
