//! What a word is: the definition, written plainly.
//!
//! In: text. Out: its words in order, lower-cased. Every faster path must give exactly these words; tests hold them
//! against this module. Counts nothing; see [`super::LexicalMeter`].
//!
//! A word is a segment of Unicode Standard Annex #29 (word boundaries, as the crate `unicode-segmentation` finds them), tailored in
//! the way the annex provides for, that holds at least one letter or digit:
//!
//! | text | words | rule |
//! |---|---|---|
//! | `don't`, `l'eau`, `don’t` | one each | an apostrophe between letters joins (annex) |
//! | `3.14`, `192.168.0.1` | one each | a full stop between digits joins (annex) |
//! | `foo.bar`, `e.g.`, `end.Start` | foo, bar; e, g; end, start | a full stop between letters parts (ours): in code it is an operator, in scraped prose a missing blank |
//! | `std::fs`, `a:b`, `<nick:hi>` | std, fs; a, b; nick, hi | a colon parts (ours); the annex joins it for Swedish only |
//! | `f(1,2)`, `1,000`, `1;2` | f, 1, 2; 1, 000; 1, 2 | a comma or semicolon parts (ours): lists of numbers are commoner in code, mathematics and tables than grouped digits |
//! | `foo_bar`, `x_1`, `fooBar` | one each | an identifier is one word (annex: `_` joins) |
//! | `__init__`, `_emphasis_`, `\sum_{i}` | init; emphasis; sum, i | `_` at an end is not part of the word (ours) |
//! | `well-known`, `\frac{a}{b}`, `x^2` | well, known; frac, a, b; x, 2 | everything else parts |
//! | `北京大学`, `ひらがな` | one a character | the annex: no dictionary, so each ideograph and hiragana is a word |
//! | `カタカナ`, `한국어` | one each | the annex: katakana runs and hangul words hold together |
//!
//! Words are compared after lower-casing as [`str::to_lowercase`] does it (full mappings, final sigma). Digits are kept,
//! unlike in `lexicalrichness`' own preprocessing: numbers are words of code, tables and mathematics. No stemming, no
//! Unicode normalisation: a document spells a word in one form.
//!
//! # Source
//! UAX #29, section 4, "Word Boundaries"; the choices marked "ours" are for The Pile's domains.

use unicode_segmentation::UnicodeSegmentation;

/// Calls `word` with every word of the text as it is written, not lower-cased.
pub(super) fn for_each_word<'t>(text: &'t str, mut word: impl FnMut(&'t str)) {
    for segment in text.split_word_bounds() {
        let mut start = 0;
        let mut characters = segment.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let parts = match character {
                ':' | ',' | ';' => true,
                '.' => !characters.peek().is_some_and(|(_, next)| next.is_numeric()),
                _ => false,
            };
            if parts {
                emit(&segment[start..at], &mut word);
                start = at + 1;
            }
        }
        emit(&segment[start..], &mut word);
    }
}

/// Passes a piece on where it is a word.
fn emit<'t>(piece: &'t str, word: &mut impl FnMut(&'t str)) {
    let piece = piece.trim_matches('_');
    if piece.chars().any(char::is_alphanumeric) {
        word(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for_each_word(text, |word| found.push(word.to_lowercase()));
        found
    }

    #[test]
    fn the_table_of_the_module_holds() {
        for (text, want) in [
            ("don't L'EAU don’t", "don't l'eau don’t"),
            ("3.14 192.168.0.1", "3.14 192.168.0.1"),
            ("foo.bar e.g. end.Start", "foo bar e g end start"),
            ("std::fs a:b <nick:hi>", "std fs a b nick hi"),
            ("f(1,2) 1,000 1;2", "f 1 2 1 000 1 2"),
            ("foo_bar x_1 fooBar", "foo_bar x_1 foobar"),
            ("__init__ _emphasis_ \\sum_{i} ____", "init emphasis sum i"),
            ("well-known \\frac{a}{b} x^2", "well known frac a b x 2"),
            ("北京大学", "北 京 大 学"),
            ("ひら カタカナ 한국어", "ひ ら カタカナ 한국어"),
            ("ΟΔΟΣ οδός naïve ÉCOLE", "οδος οδός naïve école"),
            ("... --- !? “”", ""),
        ] {
            assert_eq!(words(text).join(" "), want, "{text}");
        }
    }
}
