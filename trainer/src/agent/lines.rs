//! Lines of a socket, of bounded length, while somebody may ask to stop.
//!
//! In: a reader whose reads time out every now and then. Out: one line at a time, without its end.
//! Always holds: no more than the limit is kept in memory; a line that is not finished is never given.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Instant;

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
    /// A stop was asked for, or the deadline has passed.
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

    /// The next line of at most `limit` bytes, which must have come by `deadline`.
    ///
    /// # Errors
    /// Those of the reader but for time-outs and interruptions.
    pub(super) fn next(
        &mut self,
        limit: usize,
        deadline: Option<Instant>,
        stop: &Interrupt,
    ) -> io::Result<Next> {
        loop {
            if stop.is_asked() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Next::Stopped);
            }
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

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

    /// Times out for ever.
    struct Silent;

    impl Read for Silent {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(1));
            Err(io::Error::from(io::ErrorKind::WouldBlock))
        }
    }

    /// Sends a byte now and then for ever.
    struct Dripping;

    impl Read for Dripping {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(1));
            out[0] = b' ';
            Ok(1)
        }
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_has_no_more_time_than_a_silent_one() {
        let mut lines = Lines::new(Dripping);
        let soon = Instant::now() + Duration::from_millis(20);
        let next = lines.next(1 << 20, Some(soon), &Interrupt::default());
        assert_eq!(next.unwrap(), Next::Stopped);
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
        let later = Instant::now() + Duration::from_secs(600);
        let mut next = || lines.next(10, Some(later), &stop).unwrap();
        assert_eq!(next(), Next::Line(b"ab".to_vec()));
        assert_eq!(next(), Next::Line(b"c".to_vec()));
        assert_eq!(next(), Next::End);
    }

    #[test]
    fn a_line_beyond_the_limit_and_a_silent_peer_end_it() {
        let stop = Interrupt::default();
        let mut lines = Lines::new(Parts(vec![Some(&b"12345678901"[..])]));
        assert_eq!(lines.next(10, None, &stop).unwrap(), Next::TooLong);
        let mut lines = Lines::new(Silent);
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(lines.next(10, Some(soon), &stop).unwrap(), Next::Stopped);
        stop.ask();
        let mut lines = Lines::new(Parts(vec![None]));
        assert_eq!(lines.next(10, None, &stop).unwrap(), Next::Stopped);
    }
}
