//! Cuts a stream of bytes into blocks of whole lines.
//!
//! In: plain bytes. Out: blocks of about [`BLOCK_BYTES`], or of one line where a line is longer, each with the number of its
//! first line and byte. Always holds: no byte is lost or doubled; the same stream gives the same blocks; what was decoded
//! before an error is delivered before it. A byte order mark at the start is passed over. Memory: one block and one line.

use std::io::Read;

use memchr::{memchr, memchr_iter, memrchr};

use super::decode::{self, Bytes};
use super::error::Place;
use crate::record::Fault;

/// Size of a block that holds more than one line. What a decoder copies from is megabytes behind it and leaves the processor's cache
/// while a block is worked on: larger blocks fetch it less often.
pub const BLOCK_BYTES: usize = 1 << 21;

/// What a reader to the end may want beyond a block to see that it is the end.
const READ_AHEAD_BYTES: usize = 1 << 10;

/// Longest line that is read into memory.
pub const LONGEST_LINE: usize = 1 << 30;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whole lines, the last one perhaps without its newline.
#[derive(Debug)]
pub struct LineBlock {
    /// The lines.
    pub bytes: Vec<u8>,
    /// Number of the first line in the stream, from 0.
    pub first_line: u64,
    /// Place of the first byte in the stream, from 0.
    pub first_byte: u64,
}

/// Cuts one stream.
pub struct LineBlocks {
    input: Bytes,
    block_bytes: usize,
    longest_line: usize,
    /// Bytes read beyond the last block.
    carried: Vec<u8>,
    /// Memory of a block that was worked on: new memory costs the system's clearing of it.
    spare: Vec<u8>,
    line: u64,
    byte: u64,
    ended: bool,
    failed: Option<(Fault, Place)>,
    /// Inside a line that was too long, which is dropped up to its newline.
    dropping: bool,
}

impl LineBlocks {
    /// Starts at the beginning of a stream.
    pub fn new(input: Bytes) -> Self {
        Self::with_sizes(input, BLOCK_BYTES, LONGEST_LINE)
    }

    fn with_sizes(input: Bytes, block_bytes: usize, longest_line: usize) -> Self {
        Self {
            input,
            block_bytes,
            longest_line,
            carried: Vec::new(),
            spare: Vec::new(),
            line: 0,
            byte: 0,
            ended: false,
            failed: None,
            dropping: false,
        }
    }

    /// The next line to come, from 0.
    pub fn next_line(&self) -> u64 {
        self.line
    }

    /// Takes the memory of a block back for one to come.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= 2 * self.block_bytes {
            self.spare = bytes;
        }
    }

    /// The next block, or `None` at the end.
    ///
    /// # Errors
    /// A stream that cannot be decoded further, after which it ends; or a line that is too long, after which the next
    /// call goes on behind it.
    pub fn next_block(&mut self) -> Result<Option<LineBlock>, (Fault, Place)> {
        if self.dropping {
            self.drop_line();
        }
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        // At once, and with a little over, so that a usual block never moves while it grows.
        bytes.reserve((self.block_bytes + READ_AHEAD_BYTES).max(self.carried.len()));
        bytes.append(&mut self.carried);
        let mut newline = memrchr(b'\n', &bytes);
        while !self.ended && (newline.is_none() || bytes.len() < self.block_bytes) {
            let old = bytes.len();
            if newline.is_none() && old > self.longest_line {
                let fault = Fault::TooLong {
                    most: self.longest_line as u64,
                };
                let place = self.place();
                self.byte += old as u64;
                self.dropping = true;
                return Err((fault, place));
            }
            // A line longer than a block is read on in steps that grow with it.
            let wanted = self.block_bytes.saturating_sub(old).max(old / 2).max(1) as u64;
            match self.input.by_ref().take(wanted).read_to_end(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => self.fail(&error),
            }
            newline = memrchr(b'\n', &bytes[old..]).map(|at| old + at).or(newline);
        }
        // At the end of a good stream its last line may lack the newline; after an error it is incomplete.
        let cut = match newline {
            Some(at) => at + 1,
            None => 0,
        };
        if self.ended && self.failed.is_none() {
            return Ok(self.deliver(bytes));
        }
        if self.failed.is_none() {
            self.carried.extend_from_slice(&bytes[cut..]);
        }
        bytes.truncate(cut);
        match self.deliver(bytes) {
            Some(block) => Ok(Some(block)),
            None => match self.failed.take() {
                Some(failed) => Err(failed),
                None => Ok(None),
            },
        }
    }

    fn deliver(&mut self, mut bytes: Vec<u8>) -> Option<LineBlock> {
        if self.byte == 0 && bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
            self.byte = BYTE_ORDER_MARK.len() as u64;
        }
        if bytes.is_empty() {
            return None;
        }
        let block = LineBlock {
            first_line: self.line,
            first_byte: self.byte,
            bytes,
        };
        self.line += memchr_iter(b'\n', &block.bytes).count() as u64;
        self.byte += block.bytes.len() as u64;
        if let Some((_, place)) = &mut self.failed {
            *place = Place::Line {
                line: self.line + 1,
                byte: self.byte,
            };
        }
        Some(block)
    }

    fn drop_line(&mut self) {
        self.dropping = false;
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            let wanted = self.block_bytes as u64;
            match self.input.by_ref().take(wanted).read_to_end(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => self.fail(&error),
            }
            if let Some(at) = memchr(b'\n', &chunk) {
                self.carried = chunk.split_off(at + 1);
                self.byte += chunk.len() as u64;
                self.line += 1;
                return;
            }
            self.byte += chunk.len() as u64;
            if self.ended {
                return;
            }
        }
    }

    fn fail(&mut self, error: &std::io::Error) {
        self.failed = Some((decode::fault_of(error), self.place()));
        self.ended = true;
    }

    fn place(&self) -> Place {
        Place::Line {
            line: self.line + 1,
            byte: self.byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Cursor};

    fn blocks(input: impl Read + Send + 'static, size: usize, longest: usize) -> Vec<String> {
        let mut blocks = LineBlocks::with_sizes(Box::new(input), size, longest);
        let mut shown = Vec::new();
        loop {
            match blocks.next_block() {
                Ok(None) => return shown,
                Ok(Some(b)) => {
                    let text = String::from_utf8(b.bytes).unwrap();
                    shown.push(format!("{}@{}:{text:?}", b.first_line, b.first_byte));
                }
                Err((fault, place)) => shown.push(format!("{} at {place}", fault.kind())),
            }
        }
    }

    #[test]
    fn every_byte_comes_once_at_any_block_size() {
        let text = "one\n\ntwo two\r\nthree\n".repeat(20) + "last";
        for size in 1..60 {
            let mut input =
                LineBlocks::with_sizes(Box::new(Cursor::new(text.clone())), size, 1 << 20);
            let mut joined = Vec::new();
            while let Some(block) = input.next_block().unwrap() {
                assert_eq!(block.first_byte, joined.len() as u64);
                let lines = joined.iter().filter(|b| **b == b'\n').count();
                assert_eq!(block.first_line, lines as u64);
                joined.extend(block.bytes);
                let whole = joined.last() == Some(&b'\n') || joined.len() == text.len();
                assert!(whole, "a block of size {size} ends inside a line");
            }
            assert_eq!(joined, text.as_bytes());
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(blocks(io::empty(), 8, 8).is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_passed_over_at_the_start_only() {
        let text = "\u{feff}a\n\u{feff}b";
        assert_eq!(
            blocks(Cursor::new(text), 100, 100),
            ["0@3:\"a\\n\\u{feff}b\""]
        );
        assert!(blocks(Cursor::new("\u{feff}"), 100, 100).is_empty());
    }

    #[test]
    fn a_line_too_long_is_dropped_alone() {
        let text = "ab\n0123456789012345678901234567890123456789\ncd\nef";
        assert_eq!(
            blocks(Cursor::new(text), 4, 16),
            [
                "0@0:\"ab\\n\"",
                "too long at line 2, byte 3",
                "2@44:\"cd\\n\"",
                "3@47:\"ef\""
            ]
        );
    }

    #[test]
    fn lines_before_a_failure_are_delivered() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
        }
        assert_eq!(
            blocks(Cursor::new("a\nb\nhalf").chain(Broken), 100, 100),
            [
                "0@0:\"a\\nb\\n\"",
                "rest of a damaged archive at line 3, byte 4"
            ]
        );
        assert_eq!(
            blocks(Cursor::new("half").chain(Broken), 100, 100),
            ["rest of a damaged archive at line 1, byte 0"]
        );
    }
}
