//! Lexical diversity of a document: its words counted, and their MTLD.
//!
//! In: a document's text. Out: [`Lexical`]. The same text always gives the same numbers, on any thread and after any
//! other document. What a word is: `words`; what MTLD is: `mtld` (public as [`mtld_of_tokens`]); both name their sources.
//! Reads no files and keeps nothing of a document after it is measured.
//!
//! One pass finds the words (`scan` in blocks of bits, `characters` where there are ideographs, marks or scripts with rules of
//! their own) and turns each into a key (`key`); the keys are read forward as they come and backward at the end (`types`).

mod batch;
mod block;
mod characters;
mod class;
mod key;
mod mtld;
mod scan;
mod types;
mod words;

use multiversion::multiversion;

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
///
/// The memory is about 4 bytes for each word of the largest document and 32 for each different one; what a document of more
/// than some 100,000 words took is given back.
#[derive(Debug, Default)]
pub struct LexicalMeter {
    types: types::Types,
    batch: batch::Batch,
}

impl LexicalMeter {
    /// A meter without scratch memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the words of a document and measures their MTLD.
    ///
    /// ```
    /// use hds_indexer::lexical::LexicalMeter;
    /// let found = LexicalMeter::new().measure("The cat saw the dog; the dog didn't.");
    /// assert_eq!(found.words, 8);
    /// ```
    pub fn measure(&mut self, text: &str) -> Lexical {
        measure(self, text)
    }
}

/// [`LexicalMeter::measure`], compiled for the bit instructions of newer processors too, of which the search and the table are full.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn measure(meter: &mut LexicalMeter, text: &str) -> Lexical {
    meter.types.start(text.len());
    let types = &mut meter.types;
    scan::scan(text, &mut meter.batch, |keys| types.read(keys));
    meter.types.finish()
}
