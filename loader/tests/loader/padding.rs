//! Documents as sequences: each one, cut or padded, against the documents themselves.

use hds::{DomainId, LiveWeights, Mixture};
use hds_loader::{Access, Index, Loader, LoaderConfig, Packing};

use crate::builder::{Document, Domain, documents, write};

const LENGTH: usize = 10;

fn shards() -> Vec<Vec<Document>> {
    vec![
        documents(1, 7, |d| 1 + d * 3),
        documents(2, 1, |_| 11),
        documents(3, 12, |d| 5 + d),
    ]
}

#[test]
fn an_epoch_has_every_document_once_cut_or_padded() {
    let shards = shards();
    let all: Vec<&Document> = shards.iter().flatten().collect();
    let domain = Domain {
        name: "web".into(),
        train: shards.clone(),
        valid: vec![],
    };
    let files = write(&[domain], 50_000);
    for (access, padding_token) in [(Access::Map, None), (Access::Read, Some(49_999))] {
        let index = Index::open_with(files.path(), access).unwrap();
        let live = LiveWeights::new(Mixture::uniform(index.domains()));
        let config = LoaderConfig {
            packing: Packing::Documents,
            padding_token,
            ..LoaderConfig::new(LENGTH, 5, 3)
        };
        let mut loader = Loader::new(index, live, config).unwrap();
        // The end of a document, 0, where no padding is named.
        let padding = padding_token.unwrap_or(0);
        let mut seen = vec![];
        for _ in 0..4 {
            let batch = loader.next_batch().unwrap();
            let (mut inputs, mut targets) = (vec![0; 50], vec![0; 50]);
            let (mut mask, mut positions, mut ends) = (vec![false; 50], vec![9; 50], vec![]);
            batch.inputs_i64(0..5, &mut inputs);
            batch.targets_i64(0..5, &mut targets);
            batch.loss_mask(0..5, &mut mask);
            batch.position_ids(0..5, &mut positions);
            batch.cu_seqlens(0..5, &mut ends);
            assert!(ends.is_sorted_by(|a, b| a < b) && ends.last() == Some(&50));
            for row in 0..5 {
                let number = batch.samples[row].window;
                seen.push(number);
                let document = all[number as usize];
                let filled = document.tokens.len().min(LENGTH + 1);
                assert_eq!(batch.filled(row), filled);
                assert_eq!(batch.spans(row).len(), 1);
                assert_eq!(batch.spans(row)[0].document, number);
                assert_eq!(batch.mtld[row], document.mtld);
                let token = |place: usize| {
                    let token = document.tokens[..filled].get(place);
                    i64::from(*token.unwrap_or(&padding))
                };
                for place in 0..LENGTH {
                    let at = row * LENGTH + place;
                    assert_eq!((inputs[at], targets[at]), (token(place), token(place + 1)));
                    assert_eq!(
                        mask[at],
                        place + 1 < filled,
                        "row {row}, {place} of {filled}"
                    );
                    let position = if place < filled { place as i64 } else { 0 };
                    assert_eq!(positions[at], position);
                }
                let padded = filled < LENGTH;
                let end = (row * LENGTH + filled.min(LENGTH)) as i32;
                assert_eq!(padded, end % LENGTH as i32 != 0);
                assert!(ends.contains(&end), "{ends:?} {end}");
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<u64>>());
    }
}

#[test]
fn a_padding_token_outside_the_vocabulary_is_refused() {
    let domain = Domain {
        name: "web".into(),
        train: shards(),
        valid: vec![],
    };
    let files = write(&[domain], 50_000);
    let index = Index::open(files.path()).unwrap();
    let live = LiveWeights::new(Mixture::uniform(index.domains()));
    let config = LoaderConfig {
        packing: Packing::Documents,
        padding_token: Some(50_000),
        ..LoaderConfig::new(LENGTH, 5, 3)
    };
    let error = Loader::new(index.clone(), live.clone(), config.clone()).unwrap_err();
    assert!(error.to_string().contains("padding_token"), "{error}");
    // A state of windows is not one of documents.
    let windows = Loader::new(index.clone(), live.clone(), LoaderConfig::new(LENGTH, 5, 3));
    let state = windows.unwrap().state();
    let good = LoaderConfig {
        padding_token: None,
        ..config
    };
    let error = Loader::resume(index.clone(), live.clone(), good.clone(), &state).unwrap_err();
    assert!(error.to_string().contains("another packing"), "{error}");
    let loader = Loader::new(index.clone(), live, good).unwrap();
    assert_eq!(loader.epochs(), [0.0]);
    let documents = index.split(DomainId(0), hds_loader::Split::Train);
    assert_eq!(documents.samples(Packing::Documents, LENGTH), 20);
}
