//! Lexical diversity of a document: its words counted, and their MTLD.
//!
//! In: a document's text. Out: [`Lexical`]. The same text always gives the same numbers, on any thread and after any
//! other document. [`words`](self) says what a word is, [`mtld_of_tokens`] what MTLD is; both have their sources
//! in their modules. Reads no files and keeps nothing of a document after it is measured.

mod mtld;
mod words;

use std::collections::HashMap;

pub use mtld::{mtld_of_ids, mtld_of_tokens};

/// What [`LexicalMeter::measure`] finds in one document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lexical {
    /// Words of the document.
    pub words: u64,
    /// MTLD of the words, threshold 0.72; 0 where there are no words, else in (0, words].
    pub mtld: f64,
}

/// Measures documents one after another; holds the scratch memory that they share. One per thread.
#[derive(Debug, Default)]
pub struct LexicalMeter {
    ids: Vec<u32>,
}

impl LexicalMeter {
    /// A meter without scratch memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the words of a document and measures their MTLD.
    pub fn measure(&mut self, text: &str) -> Lexical {
        let mut known: HashMap<String, u32> = HashMap::new();
        self.ids.clear();
        words::for_each_word(text, |word| {
            let next = known.len() as u32;
            self.ids
                .push(*known.entry(word.to_lowercase()).or_insert(next));
        });
        Lexical {
            words: self.ids.len() as u64,
            mtld: mtld_of_ids(&self.ids),
        }
    }
}
