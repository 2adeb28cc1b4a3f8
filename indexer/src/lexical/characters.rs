//! The search for words where blocks do not do: character by character.
//!
//! In: a place in a text, at a word boundary. Out: the keys of the words from there to where blocks can go on. Simple characters
//! are told apart by [`class_of`]; around a complex one, the stretch of text between certain boundaries is given to
//! [`super::words`].

use super::{
    class::{Class, class_of},
    key::WordKey,
    scan::Scan,
    words,
};

/// A character of the text.
#[derive(Clone, Copy)]
struct Met {
    character: char,
    class: Class,
    /// Where the next one begins.
    next: usize,
}

impl<R: FnMut(&[WordKey])> Scan<'_, R> {
    /// Finds words character by character from `at`, a boundary, at least one step far, until the next sixteen bytes are ASCII or
    /// the text ends. Gives that place, a boundary too.
    pub(super) fn characters(&mut self, mut at: usize) -> usize {
        let mut met = self.meet(at);
        while let Some(Met {
            character,
            class,
            next,
        }) = met
        {
            (at, met) = match class {
                Class::Single => self.singles(at, character, next),
                Class::Separator | Class::Apostrophe | Class::MiddleDot => (next, self.meet(next)),
                Class::Letter | Class::Digit | Class::Underscore => self.word(at),
                // A mark belongs to the character before; all that can be there are separators.
                Class::Complex => self.stretch(
                    self.text[..at]
                        .char_indices()
                        .next_back()
                        .map_or(at, |(before, _)| before),
                ),
            };
            self.hand_over();
            if self.text.as_bytes()[at..]
                .first_chunk::<16>()
                .is_some_and(|bytes| bytes.is_ascii())
            {
                break;
            }
        }
        at
    }

    /// Adds a run of one-character words, the first from `at` to `next`. Gives its end and the character there.
    fn singles(
        &mut self,
        mut at: usize,
        mut single: char,
        mut next: usize,
    ) -> (usize, Option<Met>) {
        loop {
            let after = self.meet(next);
            if after.is_some_and(|after| after.class == Class::Complex) {
                return self.stretch(at);
            }
            self.batch.push(WordKey::of_character(single));
            self.hand_over();
            match after {
                Some(after) if after.class == Class::Single => {
                    (at, single, next) = (next, after.character, after.next);
                }
                _ => return (next, after),
            }
        }
    }

    #[inline(always)]
    fn meet(&self, at: usize) -> Option<Met> {
        let character = self.text[at..].chars().next()?;
        Some(Met {
            character,
            class: class_of(character),
            next: at + character.len_utf8(),
        })
    }

    /// Adds the word of simple characters that starts at `start`, if it is one. Gives its end and the character there.
    fn word(&mut self, start: usize) -> (usize, Option<Met>) {
        let (mut at, mut last) = (start, Class::Separator);
        let mut met = self.meet(at);
        while let Some(Met {
            character,
            class,
            next,
        }) = met
        {
            let after = self.meet(next);
            match class {
                Class::Letter | Class::Digit | Class::Underscore => {}
                Class::Apostrophe | Class::MiddleDot => match after.map(|after| after.class) {
                    Some(Class::Complex) => return self.stretch(start),
                    Some(after) if class.joins(last, after) => {}
                    _ => break,
                },
                Class::Separator
                    if character == '.' && !words::cuts(self.text.as_bytes(), at, '.') => {}
                Class::Separator | Class::Single => break,
                Class::Complex => return self.stretch(start),
            }
            (at, last, met) = (next, class, after);
        }
        self.batch.push_simple(&self.text[start..at]);
        (at, met)
    }

    /// Adds the words from `start`, a boundary, to the next certain boundary behind a complex character. Gives that place and the
    /// character there.
    fn stretch(&mut self, start: usize) -> (usize, Option<Met>) {
        let mut end = self.text.len();
        let mut passed = false;
        for (at, character) in self.text[start..].char_indices() {
            let at = start + at;
            let certain = match class_of(character) {
                Class::Complex => {
                    passed = true;
                    false
                }
                Class::Single => true,
                Class::Separator => match character {
                    '"' => false,
                    '.' => words::cuts(self.text.as_bytes(), at, '.'),
                    _ => true,
                },
                _ => false,
            };
            if passed && certain {
                end = at;
                break;
            }
        }
        words::for_each_key(&self.text[start..end], &mut |key| {
            self.batch.push(key);
            self.hand_over();
        });
        (end, self.meet(end))
    }
}
