//! Notices when another rank ends, whatever this one is doing.
//!
//! In: a connection of every rank to rank 0. Out: which rank was lost and why, within seconds of a process's death and
//! within [`SILENCE`] of a machine's; a program that does not end of itself soon after is ended. Always holds: a rank
//! that said goodbye is not lost; the first loss is the one told. Leaves the message to [`super::Group`].
//!
//! c10d alone notices a death only in the next operation, and only by the neighbours of the rank that died.
//!
//! Every message begins with one byte: [`BEAT`], [`BYE`], or [`LOST`] with the rank (u32), the length (u16, both
//! little-endian) and the text of the reason.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const BEAT: u8 = b'.';
const BYE: u8 = b'b';
const LOST: u8 = b'x';

/// Time between two beats.
const INTERVAL: Duration = Duration::from_secs(5);
/// A rank not heard of for this long is lost.
const SILENCE: Duration = Duration::from_secs(35);
/// Time the program has to end of itself after a loss.
const GRACE: Duration = Duration::from_secs(10);
/// How long an operation that failed waits for the reason: a death is known at once, but to rank 0 first.
const REASON: Duration = Duration::from_secs(3);
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A rank that ended, and what is known of why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub rank: usize,
    pub reason: String,
}

#[derive(Default)]
struct State {
    lost: Option<Lost>,
    closing: bool,
    peers: Vec<(usize, TcpStream)>,
}

struct Shared {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// Watches over the other ranks from its making to its end.
pub struct Watch {
    rank: usize,
    shared: Arc<Shared>,
}

impl Watch {
    /// Rank 0's: takes the connections of all others, which show `token`.
    ///
    /// # Errors
    /// If they do not come in time, or the system refuses.
    pub fn lead(
        listener: &TcpListener,
        token: i64,
        world: usize,
        patience: Duration,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        listener.set_nonblocking(true)?;
        let mut peers: Vec<(usize, TcpStream)> = Vec::new();
        while peers.len() + 1 < world {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Whoever else finds the port is no rank.
                    if let Ok(rank) = greeted(&stream, token)
                        && (1..world).contains(&rank)
                        && peers.iter().all(|(other, _)| *other != rank)
                    {
                        peers.push((rank, stream));
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() > deadline {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Err(e) => return Err(e),
            }
        }
        Self::start(0, world, peers)
    }

    /// Another rank's: connects to rank 0 and shows the token.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn follow(
        host: &str,
        port: u16,
        token: i64,
        rank: usize,
        world: usize,
    ) -> io::Result<Self> {
        let mut stream = TcpStream::connect((host, port))?;
        let number = u32::try_from(rank).map_err(io::Error::other)?;
        let mut greeting = token.to_le_bytes().to_vec();
        greeting.extend(number.to_le_bytes());
        stream.write_all(&greeting)?;
        Self::start(rank, world, vec![(0, stream)])
    }

    fn start(rank: usize, world: usize, peers: Vec<(usize, TcpStream)>) -> io::Result<Self> {
        let mut readers = Vec::new();
        for (peer, stream) in &peers {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE))?;
            // A rank that takes nothing any more must not hold this one up.
            stream.set_write_timeout(Some(Duration::from_secs(2)))?;
            readers.push((*peer, stream.try_clone()?));
        }
        let shared = Arc::new(Shared {
            world,
            state: Mutex::new(State {
                peers,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        for (peer, stream) in readers {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name(format!("watch rank {peer}"))
                .spawn(move || shared.listen(peer, stream))?;
        }
        let beating = Arc::clone(&shared);
        thread::Builder::new()
            .name("watch beat".into())
            .spawn(move || beating.beat())?;
        Ok(Self { rank, shared })
    }

    /// Why an operation between ranks failed, if that is because one is gone.
    pub fn reason(&self) -> Option<Lost> {
        let state = self.shared.lock();
        let waiting = |state: &mut State| state.lost.is_none();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, REASON, waiting);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .lost
            .clone()
    }

    /// Says goodbye, or what made this rank fail.
    pub fn close(&self, failure: Option<&str>) {
        let mut state = self.shared.lock();
        if state.lost.is_none() && !state.closing {
            let message = match failure {
                None => vec![BYE],
                Some(text) => lost_message(self.rank, &format!("failed: {text}")),
            };
            state.tell(None, &message);
        }
        state.end();
        self.shared.changed.notify_all();
    }
}

/// Without a goodbye: the others see that this rank is gone.
impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().end();
        self.shared.changed.notify_all();
    }
}

impl State {
    /// Sends to all peers but one. What cannot be sent is no news: the reader of that peer sees it gone.
    fn tell(&mut self, except: Option<usize>, message: &[u8]) {
        for (peer, stream) in &mut self.peers {
            if Some(*peer) != except {
                let _ = stream.write_all(message);
            }
        }
    }

    fn end(&mut self) {
        self.closing = true;
        for (_, stream) in self.peers.drain(..) {
            // Writing only: the goodbye of the others is still to be read.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let mut state = self.lock();
        while !state.closing {
            state.tell(None, &[BEAT]);
            let waited = self.changed.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn listen(&self, peer: usize, mut stream: TcpStream) {
        loop {
            let mut kind = [0u8];
            let lost = match stream.read_exact(&mut kind) {
                Ok(()) if kind[0] == BEAT => continue,
                Ok(()) if kind[0] == BYE => return,
                Ok(()) if kind[0] == LOST => read_lost(&mut stream),
                Ok(()) => Err(io::Error::other("it sent what no rank sends")),
                Err(e) => Err(e),
            };
            let lost = lost.unwrap_or_else(|e| Lost {
                rank: peer,
                reason: match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                        "was not heard of for {} s: stopped, or its machine or network is gone",
                        SILENCE.as_secs()
                    ),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                        "ended without a word: killed, or out of memory".to_owned()
                    }
                    _ => format!("is gone: {e}"),
                },
            });
            self.lose(peer, lost);
            return;
        }
    }

    fn lose(&self, source: usize, lost: Lost) {
        let mut state = self.lock();
        if state.closing || state.lost.is_some() {
            return;
        }
        let message = lost_message(lost.rank, &lost.reason);
        state.tell(Some(source), &message);
        state.lost = Some(lost.clone());
        self.changed.notify_all();
        let waiting = |state: &mut State| !state.closing;
        let waited = self.changed.wait_timeout_while(state, GRACE, waiting);
        if !waited.unwrap_or_else(PoisonError::into_inner).0.closing {
            // The rank is in the middle of something long. Files are whole or absent, so nothing is broken.
            let error = super::GroupError::Lost {
                rank: lost.rank,
                world: self.world,
                reason: lost.reason,
            };
            hds::note!("error: {error}");
            std::process::exit(1);
        }
    }
}

fn greeted(stream: &TcpStream, token: i64) -> io::Result<usize> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    let mut greeting = [0u8; 12];
    let mut reader = stream;
    reader.read_exact(&mut greeting)?;
    let (shown, rank) = greeting.split_at(8);
    if shown != token.to_le_bytes() {
        return Err(io::Error::other("another token"));
    }
    let rank = rank
        .iter()
        .rev()
        .fold(0u32, |n, byte| n << 8 | u32::from(*byte));
    Ok(rank as usize)
}

fn lost_message(rank: usize, reason: &str) -> Vec<u8> {
    let end = (0..=reason.len().min(4000))
        .rev()
        .find(|end| reason.is_char_boundary(*end))
        .unwrap_or(0);
    let mut message = vec![LOST];
    message.extend((rank as u32).to_le_bytes());
    message.extend((end as u16).to_le_bytes());
    message.extend(&reason.as_bytes()[..end]);
    message
}

fn read_lost(stream: &mut TcpStream) -> io::Result<Lost> {
    let (mut rank, mut length) = ([0u8; 4], [0u8; 2]);
    stream.read_exact(&mut rank)?;
    stream.read_exact(&mut length)?;
    let mut text = vec![0u8; usize::from(u16::from_le_bytes(length))];
    stream.read_exact(&mut text)?;
    Ok(Lost {
        rank: u32::from_le_bytes(rank) as usize,
        reason: String::from_utf8_lossy(&text).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Watch> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // No rank: it must not take a place.
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.write_all(&[0; 12]).unwrap();
        let followers: Vec<Watch> = (1..3)
            .map(|rank| Watch::follow("127.0.0.1", port, 77, rank, 3).unwrap())
            .collect();
        let leader = Watch::lead(&listener, 77, 3, Duration::from_secs(5)).unwrap();
        std::iter::once(leader).chain(followers).collect()
    }

    #[test]
    fn every_rank_learns_which_one_ended_without_a_word() {
        let mut ranks = three();
        drop(ranks.remove(1));
        for watch in &ranks {
            let lost = watch.reason().unwrap();
            assert_eq!(lost.rank, 1);
            assert!(lost.reason.contains("without a word"), "{}", lost.reason);
        }
        for watch in &ranks {
            watch.close(None);
        }
    }

    #[test]
    fn the_message_of_a_rank_that_fails_reaches_all() {
        let ranks = three();
        ranks[2].close(Some("the disk is full"));
        for watch in &ranks[..2] {
            let lost = watch.reason().unwrap();
            assert_eq!(
                (lost.rank, lost.reason.as_str()),
                (2, "failed: the disk is full")
            );
            watch.close(Some("not the first"));
        }
    }

    #[test]
    fn a_rank_that_says_goodbye_is_not_lost() {
        let ranks = three();
        ranks[1].close(None);
        ranks[0].close(None);
        assert_eq!(ranks[2].reason(), None);
        ranks[2].close(None);
    }
}
