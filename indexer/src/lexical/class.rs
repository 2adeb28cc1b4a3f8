//! What a character is to a word boundary, for the characters that most text is made of.
//!
//! In: a character. Out: its [`Class`] and, for letters, its lower-case form. Whatever is not certain to behave simply is
//! [`Class::Complex`] and goes the long way round, through the tables of `unicode-segmentation`. A test holds every
//! character against that crate.

use std::sync::LazyLock;

/// How a character behaves at a word boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A letter that joins with letters, digits and `_`, and whose lower-case form is one letter, the same in any word.
    Letter,
    /// An ASCII digit.
    Digit,
    /// `_`.
    Underscore,
    /// `'` or `’`: joins two letters or two digits that it stands between.
    Apostrophe,
    /// `·`: joins two letters that it stands between.
    MiddleDot,
    /// A word by itself whatever stands beside it: an ideograph or hiragana.
    Single,
    /// Parts words and belongs to none.
    Separator,
    /// Anything else: marks, formats, scripts with rules of their own.
    Complex,
}

impl Class {
    /// Whether a character of this class can join those before and after it, and does where they are of the classes given.
    #[inline]
    pub(super) fn joins(self, before: Self, after: Self) -> bool {
        before == after
            && match before {
                Self::Letter => matches!(self, Self::Apostrophe | Self::MiddleDot),
                Self::Digit => self == Self::Apostrophe,
                _ => false,
            }
    }
}

/// The classes of what UTF-8 writes in one or two bytes.
static SHORT: [Class; 0x800] = {
    let mut classes = [Class::Complex; 0x800];
    let mut code = 0;
    while code < classes.len() {
        classes[code] = of_code(code as u32);
        code += 1;
    }
    classes
};

/// The lower-case forms of the letters among them; the character itself for the others.
static SHORT_LOWER: LazyLock<[u16; 0x800]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let lower = match SHORT[code] {
            Class::Letter => {
                char::from_u32(code as u32).and_then(|letter| letter.to_lowercase().next())
            }
            _ => None,
        };
        lower
            .and_then(|lower| u16::try_from(u32::from(lower)).ok())
            .unwrap_or(code as u16)
    })
});

/// The class of a character. A `.` is a [`Class::Separator`] here, though between two digits it joins, and so is a `"`, though
/// between Hebrew letters, which are complex, it joins.
#[inline]
pub(super) fn class_of(character: char) -> Class {
    match u32::from(character) {
        code @ ..0x800 => SHORT[code as usize],
        0x4e00..=0x9fff => Class::Single,
        code => of_code(code),
    }
}

/// The lower-case form of a character of [`Class::Letter`]; any other character itself.
#[inline]
pub(super) fn lower_of(character: char) -> char {
    match u32::from(character) {
        code @ ..0x800 => {
            char::from_u32(u32::from(SHORT_LOWER[code as usize])).unwrap_or(character)
        }
        0xac00..=0xd7a3 => character,
        _ => character.to_lowercase().next().unwrap_or(character),
    }
}

const fn of_code(code: u32) -> Class {
    match code {
        0x41..=0x5a | 0x61..=0x7a => Class::Letter,
        0x30..=0x39 => Class::Digit,
        0x5f => Class::Underscore,
        // ' and ’
        0x27 | 0x2019 => Class::Apostrophe,
        0xb7 => Class::MiddleDot,
        0x00..=0x7f => Class::Separator,
        // Latin-1, without the soft hyphen and the cedilla, which have rules of their own, and without ², ³, ¹ and the fractions,
        // which count as alphanumeric but are no letters. ª, µ and º are letters.
        0xaa | 0xb5 | 0xba => Class::Letter,
        0xa0..=0xac | 0xae..=0xb1 | 0xb4 | 0xb6 | 0xbb | 0xbf | 0xd7 | 0xf7 => Class::Separator,
        // Latin with diacritics, without İ, whose lower-case form is two characters.
        0xc0..=0x12f | 0x131..=0x24f | 0x1e00..=0x1eff => Class::Letter,
        // Greek, without Σ, whose lower-case form depends on its place.
        0x386 | 0x388..=0x38a | 0x38c | 0x38e..=0x3a1 | 0x3a4..=0x3ce => Class::Letter,
        // Cyrillic, without its marks.
        0x400..=0x481 | 0x48a..=0x52f => Class::Letter,
        // Hangul syllables.
        0xac00..=0xd7a3 => Class::Letter,
        // Dashes, quotes, daggers, bullets, ellipsis, per mille, primes.
        0x2010..=0x2017 | 0x201a..=0x2023 | 0x2025 | 0x2026 | 0x2030..=0x203e => Class::Separator,
        // Currency, arrows, operators of mathematics, lines and blocks.
        0x20a0..=0x20c0 | 0x2190..=0x2193 | 0x2200..=0x22ff | 0x2500..=0x259f => Class::Separator,
        // Punctuation and full-width forms of Chinese and Japanese text; `words` cuts at ，, ： and ；.
        0x3000..=0x3003 | 0x3008..=0x3011 | 0x3014..=0x301b => Class::Separator,
        0xff01..=0xff06 | 0xff08..=0xff0d | 0xff0f | 0xff1a..=0xff20 | 0xff5e => Class::Separator,
        // Hiragana and ideographs.
        0x3041..=0x3096 | 0x3400..=0x4dbf | 0x4e00..=0x9fff => Class::Single,
        _ => Class::Complex,
    }
}

#[cfg(test)]
mod tests {
    use unicode_segmentation::UnicodeSegmentation;

    use super::*;

    /// Whether the crate sees no boundary anywhere in the text.
    fn whole(text: &str) -> bool {
        text.split_word_bounds().count() == 1
    }

    fn is_letter(c: char) {
        for text in [
            format!("{c}{c}"),
            format!("a{c}"),
            format!("{c}1"),
            format!("1{c}"),
            format!("_{c}_"),
        ] {
            assert!(whole(&text), "{text:?}");
        }
        for joiner in ["'", "’", "·"] {
            assert!(
                whole(&format!("a{joiner}{c}")) && whole(&format!("{c}{joiner}a")),
                "{c:?}"
            );
        }
        assert!(!whole(&format!("א\"{c}")), "{c:?}");
        assert!(c.is_alphanumeric());
        assert_eq!(c.to_lowercase().to_string(), lower_of(c).to_string());
        for around in [("", ""), ("a", ""), ("", "a"), ("a", "b"), ("A", "'")] {
            let word = format!("{}{c}{}", around.0, around.1);
            let want = format!("{}{}{}", around.0.to_lowercase(), lower_of(c), around.1);
            assert_eq!(word.to_lowercase(), want);
        }
    }

    fn parts(c: char) {
        for beside in [
            "a", "1", "_", "'", "’", "·", "カ", "字", "א", "\"", "ก", "!", "🇫", "👩", "١", ".",
        ] {
            assert!(!whole(&format!("{c}{beside}")), "{c:?} before {beside:?}");
            assert!(!whole(&format!("{beside}{c}")), "{c:?} after {beside:?}");
        }
        // The definition of words cuts at these, which the annex lets join.
        if !matches!(c, ':' | ',' | ';' | '：' | '，' | '；') {
            for beside in ["a", "1", "א", "_", "カ", "١"] {
                assert_eq!(
                    format!("{beside}{c}{beside}").split_word_bounds().count(),
                    3,
                    "{c:?}"
                );
            }
        }
    }

    fn joins_between(c: char, letters: bool, digits: bool) {
        assert_eq!(whole(&format!("a{c}b")), letters, "{c:?}");
        assert_eq!(whole(&format!("1{c}2")), digits, "{c:?}");
        for text in [
            format!("a{c}1"),
            format!("1{c}a"),
            format!("_{c}a"),
            format!("a{c}_"),
            format!("a{c}字"),
        ] {
            assert!(!whole(&text), "{text:?}");
        }
        assert!(!c.is_alphanumeric());
    }

    #[test]
    fn every_character_behaves_as_its_class_says() {
        for c in char::MIN..=char::MAX {
            match class_of(c) {
                Class::Letter => is_letter(c),
                Class::Digit => assert!(c.is_ascii_digit() && whole(&format!("{c}.{c}"))),
                Class::Underscore => {
                    assert!(whole("a_") && whole("_1") && whole("__") && !whole("_字"))
                }
                Class::Apostrophe => joins_between(c, true, true),
                Class::MiddleDot => joins_between(c, true, false),
                Class::Single => {
                    parts(c);
                    assert!(c.is_alphanumeric());
                    assert_eq!(c.to_lowercase().to_string(), c.to_string());
                }
                Class::Separator => {
                    if !matches!(c, '.' | '"') {
                        parts(c);
                    }
                    assert!(!c.is_alphanumeric());
                }
                Class::Complex => {}
            }
        }
    }
}
