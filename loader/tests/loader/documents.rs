//! Document spans, MTLD and held-out sequences, against what a plain walk over all documents gives.

use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{
    Access, Batch, DocumentSpan, EvaluationSequences, Index, Loader, LoaderConfig, LoaderError,
    Split, Tokens, TokensMut,
};
use proptest::prelude::*;

use crate::builder::{Document, Domain, TestIndex, documents, write};

fn one_domain(train: Vec<Vec<Document>>) -> TestIndex {
    let domain = Domain {
        name: "web".into(),
        train,
        valid: vec![],
    };
    write(&[domain], 50_000)
}

/// Of every token of the split, one after another: its id, its document and that document's MTLD.
fn walk(shards: &[Vec<Document>]) -> Vec<(u32, u64, f32)> {
    let all = shards.iter().flatten().zip(0u64..);
    all.flat_map(|(d, n)| d.tokens.iter().map(move |&id| (id, n, d.mtld)))
        .collect()
}

/// Runs of equal document numbers.
fn naive_spans(tokens: &[(u32, u64, f32)]) -> Vec<DocumentSpan> {
    let mut spans: Vec<DocumentSpan> = vec![];
    for (place, &(_, document, mtld)) in (0u32..).zip(tokens) {
        match spans.last_mut() {
            Some(last) if last.document == document => last.length += 1,
            _ => spans.push(DocumentSpan {
                start: place,
                length: 1,
                mtld,
                document,
            }),
        }
    }
    spans
}

fn shard_lists() -> Vec<Vec<Document>> {
    let mut shards = vec![
        documents(1, 30, |d| 1 + d * 5 % 23),
        documents(2, 1, |_| 57),
        documents(3, 9, |_| 1),
        documents(4, 12, |d| 2 + d),
    ];
    // A run of documents without words.
    shards[3][5..9].iter_mut().for_each(|d| d.mtld = 0.0);
    shards
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_range_has_the_tokens_and_spans_of_a_plain_walk(mapped: bool, ranges in prop::collection::vec((0.0f64..1.0, 0usize..90), 40)) {
        let shards = shard_lists();
        let files = one_domain(shards.clone());
        let access = if mapped { Access::Map } else { Access::Read };
        let index = Index::open_with(files.path(), access).unwrap();
        let stream = index.split(DomainId(0), Split::Train);
        let all = walk(&shards);
        prop_assert_eq!(stream.tokens(), all.len() as u64);
        prop_assert_eq!(stream.documents(), 52);
        for (place, count) in ranges {
            let from = (place * (all.len() + 1) as f64) as usize;
            let count = count.min(all.len() - from);
            let part = &all[from..from + count];
            let mut spans = vec![];
            stream.spans(from as u64, count as u32, &mut spans).unwrap();
            prop_assert_eq!(spans, naive_spans(part));
            let ids: Vec<u32> = part.iter().map(|t| t.0).collect();
            let (mut small, mut middle, mut wide) = (vec![0; count], vec![0; count], vec![0; count]);
            stream.read(from as u64, TokensMut::U16(&mut small)).unwrap();
            stream.read(from as u64, TokensMut::U32(&mut middle)).unwrap();
            stream.read(from as u64, TokensMut::I64(&mut wide)).unwrap();
            prop_assert!(small.iter().map(|&t| u32::from(t)).eq(ids.iter().copied()));
            prop_assert!(wide.iter().map(|&t| t as u32).eq(ids.iter().copied()));
            prop_assert_eq!(middle, ids);
        }
    }
}

#[test]
fn a_range_that_leaves_the_stream_is_an_error() {
    let files = one_domain(shard_lists());
    let index = Index::open(files.path()).unwrap();
    let stream = index.split(DomainId(0), Split::Train);
    let end = stream.tokens();
    for (from, count) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 7)] {
        let mut out = vec![0i64; count];
        let error = stream.read(from, TokensMut::I64(&mut out)).unwrap_err();
        assert!(matches!(error, LoaderError::Range { .. }), "{error}");
        assert!(stream.spans(from, count as u32, &mut vec![]).is_err());
    }
    assert_eq!(stream.windows(0), stream.tokens() - 1);
    let nothing = index.split(DomainId(0), Split::Valid);
    assert_eq!((nothing.tokens(), nothing.windows(8)), (0, 0));
    assert!(nothing.read(0, TokensMut::I64(&mut [0])).is_err());
    nothing.read(0, TokensMut::I64(&mut [])).unwrap();
}

#[test]
fn tables_of_many_record_batches_are_searched_right() {
    // More than two record batches of 65,536 rows; the ends of each are where mistakes would be.
    let count = 140_000u32;
    let shards = vec![documents(1, count, |d| 1 + d % 2), documents(2, 3, |_| 5)];
    let files = one_domain(shards.clone());
    let all = walk(&shards);
    let border = |row: u64| all.partition_point(|t| t.1 < row);
    for access in [Access::Map, Access::Read] {
        let index = Index::open_with(files.path(), access).unwrap();
        let stream = index.split(DomainId(0), Split::Train);
        let edges = [0, 65_536, 131_072, 139_999, 140_002];
        for row in edges
            .into_iter()
            .flat_map(|row: u64| row.saturating_sub(1)..row + 2)
        {
            for from in [border(row).saturating_sub(20), border(row), border(row) + 1] {
                let part = &all[from.min(all.len())..(from + 40).min(all.len())];
                let mut spans = vec![];
                stream
                    .spans(from.min(all.len()) as u64, part.len() as u32, &mut spans)
                    .unwrap();
                assert_eq!(spans, naive_spans(part), "row {row}, token {from}");
            }
        }
    }
}

/// Batches of three rows over a two-domain index, with the walk over each domain.
#[allow(clippy::type_complexity)] // a table of (token, document, MTLD) a domain
fn batches() -> (Vec<Batch>, Vec<Vec<(u32, u64, f32)>>) {
    let shards = [shard_lists(), vec![documents(8, 40, |d| 1 + d % 6)]];
    let domain = |name: &str, train: &Vec<Vec<Document>>| Domain {
        name: name.into(),
        train: train.clone(),
        valid: vec![],
    };
    let files = write(&[domain("a", &shards[0]), domain("b", &shards[1])], 50_000);
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let mut loader = Loader::new(index, live, LoaderConfig::new(13, 3, 5)).unwrap();
    let batches = (0..30).map(|_| loader.next_batch().unwrap()).collect();
    (batches, shards.iter().map(|s| walk(s)).collect())
}

#[test]
fn spans_and_mtld_of_a_batch_are_those_of_a_plain_walk() {
    let (batches, walks) = batches();
    let mut without_words = 0;
    for batch in &batches {
        for row in 0..batch.rows() {
            let sample = batch.samples[row];
            assert_eq!(sample.domain, batch.domains[row]);
            let from = sample.window as usize * 13;
            let part = &walks[sample.domain.index()][from..from + 14];
            assert_eq!(batch.spans(row), naive_spans(part));
            let with_words: Vec<f64> = part
                .iter()
                .map(|t| f64::from(t.2))
                .filter(|&m| m > 0.0)
                .collect();
            let want = with_words.iter().sum::<f64>() / with_words.len().max(1) as f64;
            without_words += usize::from(with_words.is_empty());
            assert!((f64::from(batch.mtld[row]) - want).abs() < 1e-4, "{want}");
        }
    }
    assert!(without_words > 0, "no window without words was seen");
}

#[test]
fn boundaries_positions_and_mask_follow_the_documents() {
    let (batches, walks) = batches();
    for batch in &batches {
        let (mut ends, mut positions, mut mask) = (vec![], vec![7; 39], vec![false; 39]);
        batch.cu_seqlens(0..3, &mut ends);
        batch.position_ids(0..3, &mut positions);
        batch.loss_mask(0..3, &mut mask);
        // Walk over the inputs, token by token.
        let mut want_ends = vec![0i32];
        let mut want_positions = vec![];
        let mut want_mask = vec![];
        for sample in &batch.samples {
            let walk = &walks[sample.domain.index()];
            let from = sample.window as usize * 13;
            for i in 0..13 {
                let document = walk[from + i].1;
                let begins = i == 0 || walk[from + i - 1].1 != document;
                if begins && !want_positions.is_empty() {
                    want_ends.push(want_positions.len() as i32);
                }
                want_positions.push(if begins {
                    0
                } else {
                    want_positions.last().unwrap() + 1
                });
                want_mask.push(walk[from + i + 1].1 == document);
            }
        }
        want_ends.push(39);
        assert_eq!(ends, want_ends);
        assert!(ends.is_sorted_by(|a, b| a < b));
        assert_eq!(positions, want_positions);
        assert_eq!(mask, want_mask);

        batch.cu_seqlens(1..2, &mut ends);
        assert_eq!((ends[0], *ends.last().unwrap()), (0, 13));
        let mut wide = vec![0; 28];
        batch.copy_tokens_i64(1..3, &mut wide);
        let Tokens::U16(tokens) = &batch.tokens else {
            panic!("u16 for 50,000 ids")
        };
        assert!(
            wide.iter()
                .zip(&tokens[14..])
                .all(|(&w, &t)| w == i64::from(t))
        );
    }
}

#[test]
fn held_out_sequences_are_in_order_and_the_same_every_time() {
    let domain = Domain {
        name: "web".into(),
        train: vec![],
        valid: vec![documents(1, 40, |d| 3 + d), documents(2, 5, |_| 9)],
    };
    let all = walk(&domain.valid);
    let files = write(&[domain], 50_000);
    let index = Index::open(files.path()).unwrap();
    let count = (all.len() - 1) / 10;
    for max in [0, 1, 17, count - 1, count, count + 1, usize::MAX] {
        let sequences =
            EvaluationSequences::new(&index, DomainId(0), Split::Valid, 10, max).unwrap();
        assert_eq!(sequences.len(), max.min(count));
        assert_eq!(sequences.is_empty(), max == 0);
        let read: Vec<_> = sequences.clone().map(Result::unwrap).collect();
        assert_eq!(read.len(), max.min(count));
        assert!(read.is_sorted_by(|a, b| a.window < b.window));
        for (place, sequence) in read.iter().enumerate() {
            let from = sequence.window as usize * 10;
            let want = all[from..from + 11].iter().map(|t| i64::from(t.0));
            assert!(sequence.tokens.iter().copied().eq(want));
            assert_eq!(sequences.window(place), Some(sequence.window));
        }
        let again = EvaluationSequences::new(&index, DomainId(0), Split::Valid, 10, max).unwrap();
        assert!(again.map(Result::unwrap).eq(read));
        assert!(sequences.read(max.min(count), &mut [0; 11]).is_err());
    }
    let sequences = EvaluationSequences::new(&index, DomainId(0), Split::Valid, 10, 3).unwrap();
    assert!(sequences.read(0, &mut [0; 10]).is_err());
    assert!(EvaluationSequences::new(&index, DomainId(1), Split::Valid, 10, 3).is_err());
    assert!(EvaluationSequences::new(&index, DomainId(0), Split::Valid, 0, 3).is_err());
    // A split too short for one window has none.
    let long = EvaluationSequences::new(&index, DomainId(0), Split::Valid, 1 << 20, 3).unwrap();
    assert!(long.is_empty());
}
