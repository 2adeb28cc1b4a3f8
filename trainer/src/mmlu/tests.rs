//! Scores against the model's own forward pass and the harness's formulas.

use hds::index::TokenizerEntry;
use tch::{Device, Kind};

use super::*;
use crate::model::ModelSettings;

fn question(text: &str, answer: usize) -> Question {
    Question {
        question: text.to_owned(),
        choices: ["one", "two", "three", "four"].map(str::to_owned),
        answer,
    }
}

fn questions() -> Questions {
    let mut questions = Questions::default();
    for (subject, count) in [("anatomy", 5), ("virology", 3), ("made_up", 2)] {
        let asked: Vec<Question> = (0..count)
            .map(|i| question(&format!("{subject} {}", "?".repeat(30 * i)), i % 4))
            .collect();
        questions
            .dev
            .insert(subject.to_owned(), asked[..2].to_vec());
        questions.test.insert(subject.to_owned(), asked);
    }
    questions
}

fn bytes() -> Tokenizer {
    let entry = TokenizerEntry {
        name: "byte".to_owned(),
        fingerprint: String::new(),
        vocabulary: 257,
        end_of_document: 256,
    };
    Tokenizer::of_index(&entry, None).unwrap()
}

fn model() -> Model {
    let settings = ModelSettings {
        hidden_size: Some(32),
        num_hidden_layers: Some(1),
        num_attention_heads: Some(2),
        max_position_embeddings: Some(256),
        ..ModelSettings::default()
    };
    let config = settings.resolve(257, 256).unwrap();
    Model::new(&config, Device::Cpu, Kind::Float, 1).unwrap()
}

const OPTIONS: MmluOptions = MmluOptions {
    shots: 0,
    limit: None,
    subjects: Vec::new(),
    batch_size: 3,
};

#[test]
fn log_likelihoods_are_the_models_whatever_the_batches() {
    let (model, tokenizer, questions) = (model(), bytes(), questions());
    let scores = score(&model, &tokenizer, &questions, &OPTIONS, |_, _| ()).unwrap();
    assert_eq!(scores.answered.len(), 10);
    let alone = MmluOptions {
        batch_size: 1,
        ..OPTIONS
    };
    let alone = score(&model, &tokenizer, &questions, &alone, |_, _| ()).unwrap();
    for (together, alone) in scores.answered.iter().zip(&alone.answered) {
        for (a, b) in together.log_likelihoods.iter().zip(&alone.log_likelihoods) {
            assert!((a - b).abs() < 1e-4, "{together:?} {alone:?}");
        }
    }
    // One of them by the model's own forward pass: ln P(" ") + ln P("C" | " ").
    let asked = &questions.test["virology"][1];
    let text = prompt::context("virology", &[], asked) + " C";
    let ids: Vec<i64> = text.bytes().map(i64::from).collect();
    let ids = &ids[ids.len().saturating_sub(257)..];
    let tokens = tch::Tensor::from_slice(&ids[..ids.len() - 1]).unsqueeze(0);
    let logits = tch::no_grad(|| model.forward(&tokens, None)).log_softmax(-1, Kind::Float);
    let last = ids.len() as i64 - 2;
    let want = logits.double_value(&[0, last - 1, i64::from(b' ')])
        + logits.double_value(&[0, last, i64::from(b'C')]);
    let got = scores
        .answered
        .iter()
        .find(|a| a.subject == "virology" && a.question == 1)
        .unwrap();
    assert!(
        (got.log_likelihoods[2] - want).abs() < 1e-4,
        "{want} {got:?}"
    );
}

#[test]
fn options_choose_what_is_asked() {
    let (model, tokenizer, questions) = (model(), bytes(), questions());
    let limited = MmluOptions {
        shots: 2,
        limit: Some(2),
        subjects: vec!["anatomy".to_owned()],
        ..OPTIONS
    };
    let mut heard = Vec::new();
    let scores = score(&model, &tokenizer, &questions, &limited, |done, all| {
        heard.push((done, all));
    })
    .unwrap();
    assert_eq!(scores.overall.questions, 2);
    assert_eq!(heard.last(), Some(&(2, 2)));
    // With two examples the first prompt has 252 bytes, the second 282; the model has 256 positions.
    assert_eq!(scores.truncated, 1);
    let error = |options: MmluOptions| {
        score(&model, &tokenizer, &questions, &options, |_, _| ())
            .unwrap_err()
            .to_string()
    };
    assert!(
        error(MmluOptions {
            shots: 3,
            ..OPTIONS
        })
        .contains("--shots asks for 3")
    );
    let unknown = MmluOptions {
        subjects: vec!["alchemy".to_owned()],
        ..OPTIONS
    };
    assert!(error(unknown).contains("anatomy, made_up, virology"));
    let none = MmluOptions {
        limit: Some(0),
        ..OPTIONS
    };
    assert!(error(none).contains("--limit 0"));
}

#[test]
fn accuracies_and_errors_follow_the_harness() {
    let answered = |subject: &str, right: &[bool]| -> Vec<Answered> {
        right
            .iter()
            .enumerate()
            .map(|(question, &right)| Answered {
                subject: subject.to_owned(),
                question,
                answer: 1,
                chosen: usize::from(right),
                log_likelihoods: [0.0; 4],
            })
            .collect()
    };
    let all = [
        answered("anatomy", &[true, false, false, true]),
        answered("astronomy", &[true, true, false]),
        answered("virology", &[false, false]),
    ]
    .concat();
    let scores = summarize(0, all, 0);
    let anatomy = &scores.subjects[0];
    // Sample deviation of 1, 0, 0, 1 is √(1/3), over √4.
    assert!((anatomy.standard_error.unwrap() - (1.0f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
    let names: Vec<&str> = scores.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, ["stem", "other"]);
    assert_eq!(
        (scores.groups[0].correct, scores.groups[0].questions),
        (4, 7)
    );
    // (3 · 4 · 1/12 + 2 · 3 · 1/9) / 5 / 7: squares of both standard errors by hand.
    let want = ((3.0 * 4.0 / 12.0 + 2.0 * 3.0 / 9.0) / 5.0 / 7.0f64).sqrt();
    assert!((scores.groups[0].standard_error.unwrap() - want).abs() < 1e-12);
    assert!((scores.overall.accuracy - 4.0 / 9.0).abs() < 1e-12);
    assert_eq!(greatest(&[-2.0, -1.0, -1.0, -3.0]), 1);
    assert!(scores.table().contains("astronomy"));
}

#[test]
fn there_are_57_subjects_in_four_groups() {
    let all: Vec<&str> = subjects::GROUPS
        .iter()
        .flat_map(|(_, s)| s.iter().copied())
        .collect();
    let unique: std::collections::BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!((all.len(), unique.len()), (57, 57));
}
