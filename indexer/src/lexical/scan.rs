//! Finds the words of a text, fast.
//!
//! In: text. Out: the keys of its words in order, in batches; exactly those of [`super::words::for_each_key`].
//!
//! Text goes in blocks of 64 bytes, whose word boundaries are bits (here). Letters and punctuation that are not ASCII are put
//! into the bits one by one. Where an ideograph or a complex character stands, it goes on character by character
//! (`characters`) until there is plain text again.

use super::{
    batch::Batch,
    block::{BLOCK, Masks, masks_of},
    class::{Class, class_of},
    key::WordKey,
};

/// A block is read where this much text is left: its own bytes and the 16 that a word's key is read from.
const BLOCK_AND_KEY: usize = BLOCK + 16;
/// The last bytes of a text go in blocks too, with blanks behind them, where they are no more than this.
const LONGEST_TAIL: usize = 2 * BLOCK - 1;

/// Passes the keys of all words on, in order, some at a time.
#[inline(always)] // into each version of who calls it, as what follows
pub(super) fn scan(text: &str, batch: &mut Batch, read: impl FnMut(&[WordKey])) {
    batch.clear();
    let mut scan = Scan { text, batch, read };
    let mut at = 0;
    while at < text.len() {
        at = scan.blocks(text, at);
        at = scan.tail(at);
        at = scan.characters(at);
    }
    (scan.read)(scan.batch.keys());
}

/// An unfinished search.
pub(super) struct Scan<'t, R> {
    pub(super) text: &'t str,
    pub(super) batch: &'t mut Batch,
    read: R,
}

/// A word that reaches over the end of a block.
#[derive(Debug, Clone, Copy)]
struct OpenWord {
    start: usize,
    /// Whether it is ASCII without `_`.
    plain: bool,
}

/// A block's words as bits, and how much of it was understood.
struct Marked {
    /// Bytes of words.
    word: u64,
    /// Whether all words are ASCII without `_`.
    plain: bool,
    /// Bytes that the bits speak of; less than a block where a character or a joiner goes over its end.
    length: usize,
    /// Whether an ideograph or a complex character stands behind those.
    stopped: bool,
}

impl<R: FnMut(&[WordKey])> Scan<'_, R> {
    /// Hands the keys over where they might become too many.
    #[inline(always)]
    pub(super) fn hand_over(&mut self) {
        if self.batch.is_full() {
            (self.read)(self.batch.keys());
            self.batch.clear();
        }
    }

    /// Finds words in whole blocks from `from`, a boundary, until an ideograph, a complex character or the last bytes come.
    /// Gives the place to go on from, a boundary too: the start of the word that reaches it, where one does.
    #[inline(always)]
    fn blocks(&mut self, text: &str, from: usize) -> usize {
        let bytes = text.as_bytes();
        let (mut block_at, mut open) = (from, None::<OpenWord>);
        while block_at + BLOCK_AND_KEY <= bytes.len() {
            let Some(block) = bytes[block_at..].first_chunk::<BLOCK>() else {
                break;
            };
            let masks = masks_of(block);
            let in_word = u64::from(open.is_some());
            // A joiner at the end may stand before a word of the next block.
            let between = (masks.word << 1 | in_word) & (masks.word >> 1 | 1 << (BLOCK - 1));
            let marked = if masks.not_ascii == 0 && masks.joiner & between == 0 {
                Marked {
                    word: masks.word,
                    plain: masks.underscore == 0,
                    length: BLOCK,
                    stopped: false,
                }
            } else {
                mark(text, block_at, masks, in_word)
            };
            let before = marked.word << 1 | in_word;
            let (mut starts, mut ends) = (marked.word & !before, before & !marked.word);
            let mut start = match open {
                Some(word) => word.start,
                None => block_at + take_lowest(&mut starts),
            };
            let plain = marked.plain && open.is_none_or(|word| word.plain);
            if marked.stopped {
                let at = self.until(text, block_at, marked.length, start, (starts, ends));
                self.hand_over();
                return at;
            }
            if marked.length < BLOCK {
                ends &= (1 << marked.length) - 1;
            }
            if plain {
                while ends != 0 {
                    let end = block_at + take_lowest(&mut ends);
                    self.batch.push_ascii(bytes, start, end);
                    start = block_at + take_lowest(&mut starts);
                }
            } else {
                while ends != 0 {
                    let end = block_at + take_lowest(&mut ends);
                    self.batch.push_mixed(text, start, end);
                    start = block_at + take_lowest(&mut starts);
                }
            }
            open =
                (marked.word >> (marked.length - 1) & 1 != 0).then_some(OpenWord { start, plain });
            self.hand_over();
            block_at += marked.length;
        }
        open.map_or(block_at, |word| word.start)
    }

    /// Finds the words of a block before the character at its byte `stop`, but not the one that reaches it, by itself or over a
    /// joiner. Gives the place to go on from.
    fn until(
        &mut self,
        text: &str,
        block_at: usize,
        stop: usize,
        mut start: usize,
        (mut starts, mut ends): (u64, u64),
    ) -> usize {
        let stop_at = block_at + stop;
        loop {
            if start >= stop_at {
                return stop_at;
            }
            let end = block_at + take_lowest(&mut ends);
            if end >= stop_at || is_joiner(&text[end..stop_at]) {
                return start;
            }
            self.batch.push_mixed(text, start, end);
            start = block_at + take_lowest(&mut starts);
        }
    }

    /// As [`Self::blocks`] for the last bytes, from `at` on, with blanks put behind them.
    fn tail(&mut self, at: usize) -> usize {
        let tail = &self.text[at..];
        if tail.len() > LONGEST_TAIL || tail.is_empty() {
            return at;
        }
        let mut padded = [b' '; LONGEST_TAIL.next_multiple_of(BLOCK) + BLOCK_AND_KEY];
        padded[..tail.len()].copy_from_slice(tail.as_bytes());
        match std::str::from_utf8(&padded[..tail.len() / BLOCK * BLOCK + BLOCK_AND_KEY]) {
            Ok(padded) => at + self.blocks(padded, 0).min(tail.len()),
            Err(_) => at,
        }
    }
}

/// Marks the words of a block that has joiners behind words, or characters that are not ASCII.
fn mark(text: &str, block_at: usize, masks: Masks, in_word: u64) -> Marked {
    let mut marked = Marked {
        word: masks.word,
        plain: masks.underscore == 0,
        length: BLOCK,
        stopped: false,
    };
    let mut joiners = masks.joiner;
    let mut not_ascii = masks.not_ascii;
    while not_ascii != 0 {
        let place = not_ascii.trailing_zeros() as usize;
        let Some(character) = text[block_at + place..].chars().next() else {
            break;
        };
        let after = place + character.len_utf8();
        if after > BLOCK {
            marked.length = place;
            break;
        }
        match class_of(character) {
            Class::Letter => {
                marked.word |= bits(place, after);
                marked.plain = false;
            }
            Class::Apostrophe | Class::MiddleDot => joiners |= 1 << place,
            Class::Single | Class::Complex => {
                marked.length = place;
                marked.stopped = true;
                break;
            }
            _ => {}
        }
        not_ascii &= !bits(0, after);
    }
    joiners &= marked.word << 1 | in_word;
    while joiners != 0 {
        let place = take_lowest(&mut joiners);
        if place >= marked.length {
            break;
        }
        let Some(joiner) = text[block_at + place..].chars().next() else {
            break;
        };
        let after = place + joiner.len_utf8();
        if after < marked.length {
            let before_word = marked.word >> after & 1 != 0;
            if before_word && joins(text.as_bytes(), block_at + place, joiner) {
                marked.word |= bits(place, after);
                marked.plain &= joiner.is_ascii();
            }
        } else if !marked.stopped {
            // What stands behind it is in the next block, which begins with it. A word stands before it, so `place` is not 0
            // unless the block is the joiner alone, which no block is.
            marked.length = place;
        }
    }
    marked
}

/// Whether a joiner joins the simple characters on both sides of it.
fn joins(bytes: &[u8], at: usize, joiner: char) -> bool {
    let (before, after) = (
        class_of_part(bytes[at - 1]),
        class_of_part(bytes[at + joiner.len_utf8()]),
    );
    match joiner {
        '.' => before == Class::Digit && after == Class::Digit,
        _ => class_of(joiner).joins(before, after),
    }
}

/// The class of the character that a byte is of, where it is ASCII or a part of a letter.
fn class_of_part(byte: u8) -> Class {
    if byte.is_ascii() {
        class_of(byte as char)
    } else {
        Class::Letter
    }
}

/// Whether the text is one joiner.
fn is_joiner(text: &str) -> bool {
    let mut characters = text.chars();
    let joins = characters.next().is_some_and(|character| {
        matches!(class_of(character), Class::Apostrophe | Class::MiddleDot)
    });
    joins && characters.next().is_none()
}

/// Ones from a place to the one before another.
fn bits(from: usize, to: usize) -> u64 {
    u64::MAX >> (BLOCK - (to - from)) << from
}

/// Takes the lowest bit out and gives its place, 64 where there is none.
#[inline(always)]
fn take_lowest(bits: &mut u64) -> usize {
    let place = bits.trailing_zeros() as usize;
    *bits &= bits.wrapping_sub(1);
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::words, *};

    fn fast(text: &str) -> Vec<WordKey> {
        let mut found = Vec::new();
        scan(text, &mut Batch::default(), |keys| {
            found.extend_from_slice(keys)
        });
        found
    }

    fn plain(text: &str) -> Vec<WordKey> {
        let mut found = Vec::new();
        words::for_each_key(text, &mut |key| found.push(key));
        found
    }

    /// Pieces that meet each other in every way: words, joiners, marks, scripts, runs that fill blocks.
    const PIECES: &[&str] = &[
        "a",
        "B",
        "z9",
        "7",
        "word",
        "Identifier",
        "international",
        "antidisestablishmentarianism_and_more",
        "_",
        "__",
        "'",
        "’",
        ".",
        "..",
        ",",
        ":",
        ";",
        "\"",
        "-",
        "/",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "(",
        ")",
        "\u{0}",
        "é",
        "É",
        "ß",
        "İ",
        "ı",
        "ſ",
        "Σ",
        "ς",
        "ΟΔΟΣ",
        "µ",
        "ª",
        "²",
        "½",
        "·",
        "l·l",
        "·",
        "\u{ad}",
        "\u{a0}",
        "ж",
        "Ё",
        "\u{483}",
        "א",
        "״",
        "א\"א",
        "ع",
        "\u{64b}",
        "ไ",
        "\u{e31}",
        "क",
        "\u{94d}",
        "字",
        "。",
        "、",
        "あ",
        "ア",
        "ー",
        "ﾊ",
        "한",
        "\u{1112}\u{1161}\u{11ab}",
        "Ａ",
        "１",
        "：",
        "．",
        "—",
        "“",
        "”",
        "…",
        "\u{200b}",
        "\u{200d}",
        "\u{200c}",
        "\u{feff}",
        "\u{fe0f}",
        "\u{301}",
        "\u{308}",
        "👩",
        "👩\u{200d}👧",
        "🇫🇷",
        "🇩",
        "𝔸",
        "𝟙",
        "𐐀",
        "\u{2028}",
        "\u{85}",
        "3.14",
        "1,000",
        "don't",
        "l’eau",
        "x_1",
        "e.g.",
        "::",
        "               ",
        "0123456789012345678901234567890123456789012345678901234567890123",
    ];

    fn texts() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(PIECES), 0..60)
            .prop_map(|pieces| pieces.concat())
    }

    /// Mostly ASCII with something rare in it, so that blocks are left and entered at any place.
    fn mostly_ascii() -> impl Strategy<Value = String> {
        let ascii = prop::collection::vec("[a-zA-Z0-9_'. :\"-]{0,40}", 1..8);
        (
            ascii,
            prop::collection::vec(prop::sample::select(PIECES), 8),
        )
            .prop_map(|(ascii, rare)| {
                ascii
                    .iter()
                    .zip(rare)
                    .map(|(ascii, rare)| format!("{ascii}{rare}"))
                    .collect()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn equals_the_definition_on_hard_pieces(text in texts()) {
            prop_assert_eq!(fast(&text), plain(&text));
        }

        #[test]
        fn equals_the_definition_on_mostly_ascii(text in mostly_ascii()) {
            prop_assert_eq!(fast(&text), plain(&text));
        }

        #[test]
        fn equals_the_definition_on_any_text(text in any::<String>()) {
            prop_assert_eq!(fast(&text), plain(&text));
        }
    }

    #[test]
    fn equals_the_definition_for_every_character_between_others() {
        for character in char::MIN..=char::MAX {
            let c = character;
            let text = format!("{c}a{c} {c}1{c}'{c}_{c}b’{c}.{c}字{c}\u{301}{c}{c}");
            assert_eq!(fast(&text), plain(&text), "{c:?}");
        }
    }

    #[test]
    fn equals_the_definition_with_anything_at_the_edge_of_a_block() {
        for padding in 40..140 {
            for piece in [
                "é", "'é", "'a", "'", "_é", ".5", ".é", "\u{301}", "a\u{301}", "字", "word", "_",
                " ",
            ] {
                for before in ["w", "1", " ", "_", "'"] {
                    let text = format!(
                        "{}{before}{piece}tail {}",
                        " x".repeat(padding / 2),
                        "more text ".repeat(20)
                    );
                    assert_eq!(fast(&text), plain(&text), "{padding} {before:?} {piece:?}");
                    let text = format!(
                        "{}{before}{piece}tail {}",
                        "x".repeat(padding),
                        "more text ".repeat(20)
                    );
                    assert_eq!(fast(&text), plain(&text), "{padding} {before:?} {piece:?}");
                }
            }
        }
    }
}
