//! Lines of a socket, of bounded length, while somebody may ask to stop.
//!
//! In: a reader whose reads time out every now and then. Out: one line at a time, without its end.
//! Always holds: no more than the limit is kept in memory; a line that is not finished is never given.

use std::io::{self, BufRead, BufReader, Read};

use crate::run::Interrupt;

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line.
    Line(Vec<u8>),
    /// The peer has ended; what it left of a line is dropped.
    End,
    /// A line beyond the limit.
    TooLong,
    /// A stop was asked for, or `patience` reads timed out in a row.
    Stopped,
}

/// Reads lines.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(1 << 16, reader),
            line: Vec::new(),
        }
    }

    /// The next line of at most `limit` bytes. `patience` bounds the reads that may time out in a row.
    ///
    /// # Errors
    /// Those of the reader but for time-outs and interruptions.
    pub(super) fn next(
        &mut self,
        limit: usize,
        patience: Option<u32>,
        stop: &Interrupt,
    ) -> io::Result<Next> {
        let mut timed_out = 0;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    timed_out += 1;
                    if stop.is_asked() || patience.is_some_and(|most| timed_out > most) {
                        return Ok(Next::Stopped);
                    }
                    continue;
                }
                Err(e) => return Err(e),
            };
            if available.is_empty() {
                return Ok(Next::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            if self.line.len() + taken > limit {
                return Ok(Next::TooLong);
            }
            self.line.extend_from_slice(&available[..taken]);
            self.reader.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Next::Line(std::mem::take(&mut self.line)));
            }
            if stop.is_asked() {
                return Ok(Next::Stopped);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its parts one read at a time, `None` as a time-out.
    struct Parts(Vec<Option<&'static [u8]>>);

    impl Read for Parts {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            match self.0.remove(0) {
                None => Err(io::Error::from(io::ErrorKind::WouldBlock)),
                Some(part) => {
                    out[..part.len()].copy_from_slice(part);
                    Ok(part.len())
                }
            }
        }
    }

    #[test]
    fn a_line_is_whole_whatever_the_reads_were() {
        let parts = vec![
            Some(&b"a"[..]),
            None,
            Some(b"b\nc"),
            None,
            None,
            Some(b"\nrest"),
        ];
        let mut lines = Lines::new(Parts(parts));
        let stop = Interrupt::default();
        let mut next = || lines.next(10, Some(3), &stop).unwrap();
        assert_eq!(next(), Next::Line(b"ab".to_vec()));
        assert_eq!(next(), Next::Line(b"c".to_vec()));
        assert_eq!(next(), Next::End);
    }

    #[test]
    fn a_line_beyond_the_limit_and_a_silent_peer_end_it() {
        let stop = Interrupt::default();
        let mut lines = Lines::new(Parts(vec![Some(&b"12345678901"[..])]));
        assert_eq!(lines.next(10, None, &stop).unwrap(), Next::TooLong);
        let mut lines = Lines::new(Parts(vec![None, None, None, Some(&b"x\n"[..])]));
        assert_eq!(lines.next(10, Some(2), &stop).unwrap(), Next::Stopped);
        stop.ask();
        let mut lines = Lines::new(Parts(vec![None]));
        assert_eq!(lines.next(10, None, &stop).unwrap(), Next::Stopped);
    }
}
