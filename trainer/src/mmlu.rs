//! MMLU, scored as the lm-evaluation-harness scores it.
//!
//! In: a model, its tokenizer, questions, the number of examples. Out: accuracy by subject, group and over all, with standard
//! errors, and each answer's log-likelihood. Always holds: an answer is right if the right letter has the greatest
//! log-likelihood of the four (the first of equals); nothing is random.
//!
//! # Source
//! Hendrycks et al., "Measuring Massive Multitask Language Understanding", ICLR 2021; lm-evaluation-harness, task `mmlu`.

mod prompt;
mod questions;
mod subjects;
mod table;

use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

pub use questions::{Question, Questions};

use crate::model::{Model, ModelError, Scored};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Why MMLU cannot be scored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MmluError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder without questions.
    #[error(
        "no questions in {path}: neither test.jsonl (or .jsonl.zst) nor test/SUBJECT_test.csv is there"
    )]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// Files without a question.
    #[error("{path} has no question; give a folder with those of the test split")]
    NoQuestion {
        /// The file or folder.
        path: PathBuf,
    },
    /// The same split twice.
    #[error("{first} and {second} are both there, and may differ; leave one of them")]
    Twice {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A limit that leaves nothing to ask.
    #[error("--limit 0 leaves no question to ask; give 1 or more, or no limit for all")]
    Limit,
    /// A line that is no question.
    #[error("{path}, line {line}: {reason}")]
    Question {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Too few examples.
    #[error("subject {subject} has {got} questions to take examples from, --shots asks for {want}")]
    Examples {
        /// The subject.
        subject: String,
        /// Questions of its dev split.
        got: usize,
        /// Examples wanted.
        want: usize,
    },
    /// A subject that is not there.
    #[error("no subject {got:?}; there are {known}")]
    Subject {
        /// The name.
        got: String,
        /// Those there are.
        known: String,
    },
    /// An answer that cannot be scored.
    #[error(
        "the answer \" {answer}\" is {tokens} tokens after its prompt; the model cannot score that"
    )]
    Answer {
        /// The letter.
        answer: String,
        /// Tokens.
        tokens: usize,
    },
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What to score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmluOptions {
    /// Examples before each question, the first of the dev split.
    pub shots: usize,
    /// Questions of each subject at most.
    pub limit: Option<usize>,
    /// Subjects to ask; empty asks all.
    pub subjects: Vec<String>,
    /// Sequences of a forward pass.
    pub batch_size: usize,
}

/// Right answers among questions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Subject, group, or "mmlu".
    pub name: String,
    /// Questions asked.
    pub questions: usize,
    /// Answered rightly.
    pub correct: usize,
    /// `correct` / `questions`.
    pub accuracy: f64,
    /// Standard error of `accuracy`; `None` for a single question.
    pub standard_error: Option<f64>,
}

/// One answered question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answered {
    /// Its subject.
    pub subject: String,
    /// Its place among the subject's questions, from 0.
    pub question: usize,
    /// The right choice, 0 to 3.
    pub answer: usize,
    /// The model's choice.
    pub chosen: usize,
    /// Log-likelihoods of the four letters, nats.
    pub log_likelihoods: [f64; 4],
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MmluScores {
    /// Examples before each question.
    pub shots: usize,
    /// Over all questions.
    pub overall: Accuracy,
    /// The four groups, those that were asked.
    pub groups: Vec<Accuracy>,
    /// Every subject.
    pub subjects: Vec<Accuracy>,
    /// Prompts that were longer than the model and lost their beginning.
    pub truncated: usize,
    /// Every question, in the order of subjects and files.
    #[serde(skip)]
    pub answered: Vec<Answered>,
}

impl MmluScores {
    /// The scores as a table for a terminal.
    pub fn table(&self) -> String {
        table::render(self)
    }
}

/// Asks the questions; `progress` hears how many sequences of how many are scored.
///
/// # Errors
/// A subject that is not there or has too few examples; a tokenizer or model that cannot take a prompt.
pub fn score(
    model: &Model,
    tokenizer: &Tokenizer,
    questions: &Questions,
    options: &MmluOptions,
    mut progress: impl FnMut(usize, usize),
) -> Result<MmluScores, MmluError> {
    let positions = model.config().max_position_embeddings as usize;
    let mut answered = Vec::new();
    // Sequence, the question it is for, and the answer that each wanted token belongs to.
    let mut waiting: Vec<(Scored, usize, Vec<usize>)> = Vec::new();
    let mut truncated = 0;
    for (subject, asked) in chosen(questions, options)? {
        let dev = questions.dev.get(subject).map_or(&[][..], Vec::as_slice);
        let examples = dev
            .get(..options.shots)
            .ok_or_else(|| MmluError::Examples {
                subject: subject.to_owned(),
                got: dev.len(),
                want: options.shots,
            })?;
        for (place, question) in asked.iter().enumerate() {
            let text = prompt::context(subject, examples, question);
            let sequences = prompt::sequences(tokenizer, &text, positions)?;
            let full = tokenizer.encode(&text)?.len();
            truncated += usize::from(full > sequences[0].0.wanted[0].0 + 1);
            for (scored, answers) in sequences {
                waiting.push((scored, answered.len(), answers));
            }
            answered.push(Answered {
                subject: subject.to_owned(),
                question: place,
                answer: question.answer,
                chosen: 0,
                log_likelihoods: [0.0; 4],
            });
        }
    }
    // The longest first: what does not fit into memory shows at once, and a batch has little padding.
    waiting.sort_by_key(|(scored, ..)| std::cmp::Reverse(scored.read.len()));
    let all = waiting.len();
    let mut done = 0;
    for batch in waiting.chunks(options.batch_size.max(1)) {
        let sequences: Vec<Scored> = batch.iter().map(|(scored, ..)| scored.clone()).collect();
        let found = model.log_probabilities(&sequences)?;
        for ((_, question, answers), values) in batch.iter().zip(found) {
            for (&answer, value) in answers.iter().zip(values) {
                answered[*question].log_likelihoods[answer] += value;
            }
        }
        done += batch.len();
        progress(done, all);
    }
    for question in &mut answered {
        question.chosen = greatest(&question.log_likelihoods);
    }
    Ok(summarize(options.shots, answered, truncated))
}

fn chosen<'a>(
    questions: &'a Questions,
    options: &MmluOptions,
) -> Result<Vec<(&'a str, &'a [Question])>, MmluError> {
    if let Some(got) = options
        .subjects
        .iter()
        .find(|name| !questions.test.contains_key(*name))
    {
        let known: Vec<&str> = questions.test.keys().map(String::as_str).collect();
        return Err(MmluError::Subject {
            got: got.clone(),
            known: known.join(", "),
        });
    }
    if options.limit == Some(0) {
        return Err(MmluError::Limit);
    }
    let most = options.limit.unwrap_or(usize::MAX);
    Ok(questions
        .test
        .iter()
        .filter(|(name, _)| options.subjects.is_empty() || options.subjects.contains(name))
        .map(|(name, asked)| (name.as_str(), &asked[..asked.len().min(most)]))
        .collect())
}

/// The first place of the greatest value, as NumPy's `argmax`; one that is no number counts as the greatest.
fn greatest(values: &[f64; 4]) -> usize {
    let mut best = 0;
    for (place, value) in values.iter().enumerate().skip(1) {
        if !values[best].is_nan() && (value.is_nan() || *value > values[best]) {
            best = place;
        }
    }
    best
}

fn summarize(shots: usize, answered: Vec<Answered>, truncated: usize) -> MmluScores {
    let mut subjects: Vec<Accuracy> = Vec::new();
    for question in &answered {
        if subjects
            .last()
            .is_none_or(|last| last.name != question.subject)
        {
            subjects.push(Accuracy {
                name: question.subject.clone(),
                questions: 0,
                correct: 0,
                accuracy: 0.0,
                standard_error: None,
            });
        }
        if let Some(last) = subjects.last_mut() {
            last.questions += 1;
            last.correct += usize::from(question.chosen == question.answer);
        }
    }
    for subject in &mut subjects {
        let (n, p) = (
            subject.questions as f64,
            subject.correct as f64 / subject.questions as f64,
        );
        subject.accuracy = p;
        // √(n/(n−1) · p (1−p)) / √n: the sample deviation of zeros and ones over √n.
        subject.standard_error =
            (subject.questions > 1).then(|| (p * (1.0 - p) / (n - 1.0)).sqrt());
    }
    let groups = subjects::GROUPS
        .iter()
        .filter_map(|(name, _)| {
            let members: Vec<&Accuracy> = subjects
                .iter()
                .filter(|subject| subjects::group_of(&subject.name) == Some(name))
                .collect();
            (!members.is_empty()).then(|| pooled(name, &members))
        })
        .collect();
    MmluScores {
        shots,
        overall: pooled("mmlu", &subjects.iter().collect::<Vec<_>>()),
        groups,
        subjects,
        truncated,
        answered,
    }
}

/// Accuracy over subjects, weighted by their questions.
///
/// # Source
/// Standard error: lm-evaluation-harness, `pooled_sample_stderr`.
fn pooled(name: &str, subjects: &[&Accuracy]) -> Accuracy {
    let questions: usize = subjects.iter().map(|s| s.questions).sum();
    let correct: usize = subjects.iter().map(|s| s.correct).sum();
    let variance: Option<f64> = subjects
        .iter()
        .map(|s| {
            let n = s.questions as f64;
            s.standard_error.map(|e| (n - 1.0) * e * e * n)
        })
        .sum();
    let freedom = questions - subjects.len();
    Accuracy {
        name: name.to_owned(),
        questions,
        correct,
        accuracy: correct as f64 / questions.max(1) as f64,
        standard_error: variance
            .filter(|_| freedom > 0)
            .map(|sum| (sum / freedom as f64 / questions as f64).sqrt()),
    }
}

#[cfg(test)]
mod tests;
