//! Shares a plan out among machines.
//!
//! In: a plan, and which part of how many. Out: the part's run of sources. Always holds: the parts of a plan are consecutive, without
//! gap or overlap, and depend on the names, order and sizes of the sources alone, so that every machine that sees the same files cuts
//! them alike. A file is never cut: there are parts without a source where there are fewer files than parts.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use super::plan::{Plan, Split};

/// One part of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: u32,
    of: u32,
}

/// Why text names no part.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{got:?} names no part; give it as i/n, i from 1 to n, for example 2/8")]
pub struct PartError {
    /// What was given.
    pub got: String,
}

impl Part {
    /// Part `number`, from 1, of `of`; `None` if there is no such part.
    pub fn new(number: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&number).then_some(Self { number, of })
    }

    /// Its number, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many there are.
    pub fn of(self) -> u32 {
        self.of
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        let number = |digits: &str| digits.parse().ok();
        text.split_once('/')
            .and_then(|(i, n)| Self::new(number(i)?, number(n)?))
            .ok_or_else(|| PartError { got: text.into() })
    }
}

impl Plan {
    /// The numbers of the sources of a part.
    ///
    /// A source goes to the part in which the middle of its bytes lies when all are laid end to end, so parts differ by about the
    /// largest file.
    pub fn sources_of(&self, part: Part) -> Range<usize> {
        // One byte more each, so that empty sources have a place too.
        let weight = |bytes: u64| u128::from(bytes) + 1;
        let total: u128 = self.sources.iter().map(|s| weight(s.bytes)).sum();
        let mut behind = 0u128;
        let (mut start, mut end) = (0, 0);
        for source in &self.sources {
            let middle = 2 * behind + weight(source.bytes);
            behind += weight(source.bytes);
            // Below `of`, as the middle lies below twice the total.
            let number = middle * u128::from(part.of) / (2 * total) + 1;
            start += usize::from(number < u128::from(part.number));
            end += usize::from(number <= u128::from(part.number));
        }
        start..end
    }

    /// BLAKE3, in hexadecimal, of what the cut depends on: the names, order, sizes and uses of the sources, not their times, which
    /// differ between copies.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for source in &self.sources {
            let held_out = source.split == Split::HeldOut;
            let line = format!("{:?}\n", (&source.name, source.bytes, held_out));
            hasher.update(line.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Source, SourceKind};
    use super::*;

    fn plan(bytes: &[u64]) -> Plan {
        let source = |(number, bytes): (usize, &u64)| Source {
            path: format!("{number}.txt").into(),
            name: format!("{number}.txt"),
            bytes: *bytes,
            stamp: String::new(),
            kind: SourceKind::TextFile,
            file_domain: String::new(),
            folder_domain: String::new(),
            split: Split::ByHash,
            left_out: Vec::new(),
        };
        Plan {
            sources: bytes.iter().enumerate().map(source).collect(),
        }
    }

    #[test]
    fn parts_follow_each_other_and_hold_everything() {
        let plans: [&[u64]; 6] = [
            &[],
            &[0],
            &[0, 0, 0],
            &[5; 30],
            &[1000, 1, 1, 1, 1000],
            &[u64::MAX; 4],
        ];
        for bytes in plans {
            let plan = plan(bytes);
            for of in 1..=9 {
                let mut next = 0;
                for number in 1..=of {
                    let part = plan.sources_of(Part::new(number, of).unwrap());
                    assert_eq!(part.start, next, "part {number}/{of} of {bytes:?}");
                    next = part.end;
                }
                assert_eq!(next, bytes.len(), "{of} parts of {bytes:?}");
            }
        }
    }

    #[test]
    fn parts_are_of_like_size() {
        let even = plan(&[100; 30]);
        for (number, want) in [(1, 0..4), (2, 4..8), (8, 26..30)] {
            let got = even.sources_of(Part::new(number, 8).unwrap());
            assert!(got.len().abs_diff(want.len()) <= 1, "{got:?}");
        }
        // A file larger than a part's share leaves the others what is beside it.
        let uneven = plan(&[10, 1000, 10]);
        let parts = [1, 2, 3].map(|n| uneven.sources_of(Part::new(n, 3).unwrap()));
        assert_eq!(parts, [0..1, 1..2, 2..3]);
    }

    #[test]
    fn names_of_parts_are_checked() {
        let part: Part = "2/5".parse().unwrap();
        assert_eq!(
            (part.number(), part.of(), part.to_string().as_str()),
            (2, 5, "2/5")
        );
        for bad in ["", "2", "0/5", "6/5", "1/0", "a/b", "1/2/3", "-1/2", "1/ 2"] {
            let error = bad.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("i/n"), "{bad}: {error}");
        }
    }
}
