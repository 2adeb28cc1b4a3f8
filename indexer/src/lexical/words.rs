//! What a word is: the definition, written plainly.
//!
//! In: text. Out: its words in order, as written or as [`WordKey`]s of their lower-case form. [`super::scan`] gives exactly
//! these keys many times faster and hands back to this module whatever is rare; tests hold the two against each other.
//!
//! The text is cut at every `:`, `,` and `;` (full-width too) and at every `.` that is not between two ASCII digits. The pieces are
//! segmented at the word boundaries of Unicode Standard Annex #29 (default rules, as the crate `unicode-segmentation` finds
//! them). A segment that holds a letter or digit is a word, without what comes before the first one and any `_` at its end.
//!
//! | text | words | rule |
//! |---|---|---|
//! | `don't`, `l'eau`, `don’t` | one each | an apostrophe between letters joins (annex) |
//! | `3.14`, `192.168.0.1` | one each | a full stop between digits joins (annex) |
//! | `foo.bar`, `e.g.`, `end.Start` | foo, bar; e, g; end, start | a full stop between letters parts (ours): in code it is an operator, in scraped prose a missing blank |
//! | `std::fs`, `a:b`, `<nick:hi>` | std, fs; a, b; nick, hi | a colon parts (ours); the annex joins it for Swedish |
//! | `f(1,2)`, `1,000`, `1;2` | f, 1, 2; 1, 000; 1, 2 | a comma or semicolon parts (ours): lists of numbers are commoner in code, mathematics and tables than grouped digits |
//! | `foo_bar`, `x_1`, `fooBar` | one each | an identifier is one word (annex: `_` joins) |
//! | `__init__`, `_emphasis_`, `\sum_{i}` | init; emphasis; sum, i | `_` at an end is not part of the word (ours) |
//! | `well-known`, `\frac{a}{b}`, `x^2` | well, known; frac, a, b; x, 2 | everything else parts |
//! | `北京大学`, `ひらがな` | one a character | annex: no dictionary, so each ideograph and hiragana is a word |
//! | `カタカナ`, `한국어` | one each | annex: katakana runs and hangul words hold together |
//!
//! Words are compared after lower-casing as [`str::to_lowercase`] does it (full mappings, final sigma). Digits are kept,
//! unlike in the own preprocessing of `lexicalrichness`: numbers are words of code, tables and mathematics. No stemming and no
//! Unicode normalisation: a document spells a word in one form.
//!
//! # Source
//! UAX #29, section 4, "Word Boundaries", and its section 4.2 on tailoring; what is marked "ours" is for The Pile's domains.

use unicode_segmentation::UnicodeSegmentation;

use super::key::WordKey;

/// Calls `word` with every word of the text as it is written.
pub(super) fn for_each_word<'t>(text: &'t str, word: &mut impl FnMut(&'t str)) {
    let mut start = 0;
    for (at, character) in text.char_indices() {
        if cuts(text.as_bytes(), at, character) {
            for_each_word_of_piece(&text[start..at], word);
            start = at + character.len_utf8();
        }
    }
    for_each_word_of_piece(&text[start..], word);
}

/// Whether the text is cut at the character at `at`: a colon, comma or semicolon, full-width or not, or a `.` that is not
/// between ASCII digits.
#[inline]
pub(super) fn cuts(bytes: &[u8], at: usize, character: char) -> bool {
    match character {
        ':' | ',' | ';' | '：' | '，' | '；' => true,
        '.' => {
            let digit_at = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
            at == 0 || !digit_at(at - 1) || !digit_at(at + 1)
        }
        _ => false,
    }
}

fn for_each_word_of_piece<'t>(piece: &'t str, word: &mut impl FnMut(&'t str)) {
    for segment in piece.split_word_bounds() {
        let found = segment
            .trim_start_matches(|character: char| !character.is_alphanumeric())
            .trim_end_matches('_');
        if !found.is_empty() {
            word(found);
        }
    }
}

/// Calls `key` with the key of every word of the text.
pub(super) fn for_each_key(text: &str, key: &mut impl FnMut(WordKey)) {
    for_each_word(text, &mut |word| key(WordKey::of(word)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for_each_word(text, &mut |word| found.push(word.to_lowercase()));
        found
    }

    #[test]
    fn the_table_of_the_module_holds() {
        for (text, want) in [
            ("don't L'EAU don’t", "don't l'eau don’t"),
            ("3.14 192.168.0.1 .5 5. 1.a", "3.14 192.168.0.1 5 5 1 a"),
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
