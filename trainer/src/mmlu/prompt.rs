//! The prompt of a question and what may follow it, word for word as the lm-evaluation-harness writes them.
//!
//! In: a question, its subject, examples. Out: text, or token ids cut to the model's length. Always holds: what is cut is cut
//! from the left.
//!
//! # Source
//! lm-evaluation-harness, `tasks/mmlu/default` (version 1 of the task) and `models/huggingface.py`: description and examples joined by
//! empty lines, answers after a space; ids of the context and, beyond as many, of context and answer together; the last
//! `max_length` + 1 of them.

use super::{MmluError, Question};
use crate::model::Scored;
use crate::tokenizer::Tokenizer;

const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// Everything before the answer.
pub(super) fn context(subject: &str, examples: &[Question], question: &Question) -> String {
    let mut text = format!(
        "The following are multiple choice questions (with answers) about {}.\n\n",
        subject.replace('_', " ")
    );
    for example in examples {
        text.push_str(&format!(
            "{} {}\n\n",
            asked(example),
            LETTERS[example.answer]
        ));
    }
    text + &asked(question)
}

fn asked(question: &Question) -> String {
    let mut text = question.question.trim().to_owned();
    for (letter, choice) in LETTERS.iter().zip(&question.choices) {
        text.push_str(&format!("\n{letter}. {choice}"));
    }
    text + "\nAnswer:"
}

/// The sequences that give the log-likelihoods of the four answers, and which of their wanted tokens belong to each answer:
/// one sequence where they differ in their last token only, else up to four.
pub(super) fn sequences(
    tokenizer: &Tokenizer,
    context: &str,
    positions: usize,
) -> Result<Vec<(Scored, Vec<usize>)>, MmluError> {
    let context_ids = tokenizer.encode(context)?;
    let mut found: Vec<(Scored, Vec<usize>)> = Vec::new();
    for (answer, letter) in LETTERS.iter().enumerate() {
        let whole = tokenizer.encode(&format!("{context} {letter}"))?;
        let continuation = whole.get(context_ids.len()..).unwrap_or_default();
        if continuation.is_empty() || continuation.len() > positions {
            return Err(MmluError::Answer {
                answer: (*letter).to_owned(),
                tokens: continuation.len(),
            });
        }
        let mut ids = context_ids.clone();
        ids.extend_from_slice(continuation);
        let cut = ids.len().saturating_sub(positions + 1);
        ids.drain(..cut);
        ids.pop();
        let first = ids.len() - continuation.len();
        let wanted = (first..).zip(continuation.iter().copied());
        match found.last_mut() {
            Some((last, answers)) if last.read == ids => {
                answers.extend(std::iter::repeat_n(answer, continuation.len()));
                last.wanted.extend(wanted);
            }
            _ => found.push((
                Scored {
                    wanted: wanted.collect(),
                    read: ids,
                },
                vec![answer; continuation.len()],
            )),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use hds::index::TokenizerEntry;

    use super::*;

    fn question(text: &str, answer: usize) -> Question {
        Question {
            question: text.to_owned(),
            choices: ["one", "two", "three", "four"].map(str::to_owned),
            answer,
        }
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

    #[test]
    fn prompts_are_the_harnesss_word_for_word() {
        let text = context(
            "college_physics",
            &[question("x?", 2)],
            &question(" y? ", 0),
        );
        assert_eq!(
            text,
            "The following are multiple choice questions (with answers) about college physics.\n\n\
             x?\nA. one\nB. two\nC. three\nD. four\nAnswer: C\n\n\
             y?\nA. one\nB. two\nC. three\nD. four\nAnswer:"
        );
    }

    #[test]
    fn long_prompts_lose_their_beginning() {
        // Bytes: the answer " A" is two tokens, of which the model reads the first only, the same for all four.
        let found = sequences(&bytes(), "0123456789", 6).unwrap();
        let [(scored, answers)] = &found[..] else {
            panic!("{found:?}");
        };
        // The last seven of "0123456789 C" without the very last.
        assert_eq!(scored.read, b"56789 ".map(i64::from));
        let space = (4, i64::from(b' '));
        let letter = |letter: u8| (5, i64::from(letter));
        let pairs = [b'A', b'B', b'C', b'D'].map(|l| [space, letter(l)]);
        assert_eq!(scored.wanted, pairs.concat());
        assert_eq!(answers, &[0, 0, 1, 1, 2, 2, 3, 3]);
        assert!(sequences(&bytes(), "0", 1).is_err());
        // What fits is not cut.
        let found = sequences(&bytes(), "0", 6).unwrap();
        assert_eq!(found[0].0.read, b"0 ".map(i64::from));
    }
}
