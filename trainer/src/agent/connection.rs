//! One client's connection: requests in, replies out.
//!
//! In: lines of a socket. Out: one reply a line. Always holds: every line is answered, in order; what
//! cannot be read as a request is answered with an error and the connection goes on, but for a line
//! beyond the limit or a wrong token; a panic in one run is told to its client and ends that run alone.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::error::SessionError;
use super::lines::{Lines, Next};
use super::peer::Peer;
use super::protocol::{PROTOCOL, Reply, Request, explain};
use super::registry::Sessions;
use super::session::Session;
use super::waiting::Waiting;
use crate::run::Interrupt;

/// Longest line once a client is trusted: the Gram matrix of 1,000 domains has about 20 MB.
const LINE_BYTES: usize = 64 << 20;
/// Longest line before that.
const HELLO_BYTES: usize = 4096;
/// Longest line of a client that has no run open: facts of thousands of domains. What is parsed takes many times a line's length.
const OPEN_BYTES: usize = 4 << 20;
/// Time for a client to show its token.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// How long a client may take to read a reply, and how long once the agent is to end.
const WRITE_LIMITS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// What a connection needs of its server.
pub(super) struct Context {
    pub sessions: Sessions,
    /// Asked of the client first, if there is one.
    pub token: Option<blake3::Hash>,
    /// Clients that have not shown it.
    pub strangers: Waiting,
    /// Clients that have, or need none, and no run open.
    pub guests: Waiting,
    /// Runs open, and how many there may be.
    pub open: AtomicUsize,
    pub most_open: usize,
    pub stop: Interrupt,
    /// Time from the first look at a connection until its run must be open.
    pub open_within: Duration,
    /// Runs that could not be saved when their session ended because the agent does.
    pub unsaved: AtomicUsize,
}

impl Context {
    /// Gives a client that has just come its place among those that wait.
    pub(super) fn enter(&self, peer: &Arc<Peer>) {
        match self.token {
            None => self.guests.enter(peer),
            Some(_) => self.strangers.enter(peer),
        }
    }

    /// A client waits no longer.
    pub(super) fn leave(&self, peer: &Arc<Peer>) {
        self.strangers.leave(peer);
        self.guests.leave(peer);
    }
}

/// Serves a client that has entered, until it ends, is refused, or the server stops; saves its run if it is open.
///
/// # Errors
/// Those of the socket.
pub(super) fn serve(peer: &Arc<Peer>, context: &Context) -> io::Result<()> {
    let mut connection = Connection {
        peer,
        context,
        trusted: context.token.is_none(),
        session: None,
        place: None,
    };
    let outcome = connection.serve();
    context.leave(peer);
    if let Some(mut session) = connection.session.take() {
        let (run, step) = (session.run().to_owned(), session.steps());
        match session.save_at_end() {
            Ok(()) => hds::note!("run {run}: session ended at step {step}"),
            Err(error) => {
                if context.stop.is_asked() {
                    context.unsaved.fetch_add(1, Ordering::Relaxed);
                }
                hds::note!("run {run}: session ended at step {step}, not saved: {error}");
            }
        }
    }
    outcome
}

struct Connection<'a> {
    peer: &'a Arc<Peer>,
    context: &'a Context,
    trusted: bool,
    session: Option<Session>,
    place: Option<Place<'a>>,
}

/// One of the places for open runs.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(context: &'a Context) -> Result<Self, SessionError> {
        let taken = |open| (open < context.most_open).then_some(open + 1);
        let order = Ordering::Relaxed;
        match context.open.fetch_update(order, order, taken) {
            Ok(_) => Ok(Self(&context.open)),
            Err(open) => Err(SessionError::Full { open }),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let mut lines = Lines::new(&**self.peer);
        // By the clock, whatever is sent: a client that sends a byte now and then is no better than a silent one.
        let begin = Instant::now();
        loop {
            let (limit, within) = match (self.trusted, &self.session) {
                (false, _) => (HELLO_BYTES, HELLO_WITHIN.min(self.context.open_within)),
                (true, None) => (OPEN_BYTES, self.context.open_within),
                (true, Some(_)) => (LINE_BYTES, self.context.open_within),
            };
            // A training step may take as long as it likes, a client that opens no run may not.
            let deadline = self.session.is_none().then_some(begin + within);
            let line = match lines.next(limit, deadline, &self.context.stop)? {
                Next::Line(line) => line,
                Next::End | Next::Stopped => return Ok(()),
                Next::TooLong => {
                    let reason = format!("a line of more than {limit} bytes");
                    return self.reply(&refusal("protocol", reason, true));
                }
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let reply = self.answer(&line);
            self.reply(&reply)?;
            match reply {
                Reply::Closed { .. } | Reply::Error { closed: true, .. } => return Ok(()),
                _ => {}
            }
        }
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let (line, mut writer) = (line_of(reply), &**self.peer);
        let (begin, mut sent) = (Instant::now(), 0);
        while sent < line.len() {
            match writer.write(&line[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A time limit of the socket, at which to look whether to go on.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    let (usual, ending) = WRITE_LIMITS;
                    let limit = if self.context.stop.is_asked() {
                        ending
                    } else {
                        usual
                    };
                    if begin.elapsed() > limit {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn answer(&mut self, line: &[u8]) -> Reply {
        let request: Request = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => {
                let reason = format!("not a request: {}", explain(line, &error));
                return refusal("protocol", reason, !self.trusted);
            }
        };
        if let Request::Hello(hello) = &request {
            // Hashes are compared in constant time.
            let right = self
                .context
                .token
                .is_none_or(|token| token == blake3::hash(hello.token.as_bytes()));
            if right && !self.trusted {
                self.context.strangers.leave(self.peer);
                self.context.guests.enter(self.peer);
                self.trusted = true;
            }
            return match right {
                true => Reply::Welcome { protocol: PROTOCOL },
                false => refusal("token", "the token is not this agent's", true),
            };
        }
        if !self.trusted {
            return refusal("token", "say hello with the agent's token first", true);
        }
        match catch_unwind(AssertUnwindSafe(|| self.carry_out(request))) {
            Ok(Ok(reply)) => reply,
            Ok(Err(error @ SessionError::Spoilt { .. })) => {
                // What the policy keeps is spoilt as well: it must not be saved.
                self.session = None;
                refusal(error.code(), &error, true)
            }
            Ok(Err(error)) => refusal(error.code(), &error, false),
            Err(_) => {
                // What the run was in the middle of is unknown; its checkpoints are whole.
                self.session = None;
                let reason = "the agent failed inside this run; resume it from a checkpoint";
                refusal("internal", reason, true)
            }
        }
    }

    fn carry_out(&mut self, request: Request) -> Result<Reply, SessionError> {
        let none = || SessionError::Invalid {
            field: "type",
            reason: "no run is open on this connection; open one first".into(),
        };
        match request {
            Request::Hello(_) => Ok(Reply::Welcome { protocol: PROTOCOL }),
            Request::Open(open) => {
                if let Some(session) = &self.session {
                    return Err(SessionError::Invalid {
                        field: "type",
                        reason: format!("run {} is open on this connection", session.run()),
                    });
                }
                let place = Place::take(self.context)?;
                // Whoever comes meanwhile turns out no client whose run is being opened.
                self.context.guests.leave(self.peer);
                let session = Session::open(&self.context.sessions, &open)
                    .inspect_err(|_| self.context.guests.enter(self.peer))?;
                let reply = session.opened();
                hds::note!("run {}: opened at step {}", session.run(), session.steps());
                self.session = Some(session);
                self.place = Some(place);
                Ok(reply)
            }
            Request::Step(step) => self.session.as_mut().ok_or_else(none)?.next(*step),
            Request::Save(_) => {
                let session = self.session.as_mut().ok_or_else(none)?;
                let folder = session.save()?.display().to_string();
                let step = session.steps();
                Ok(Reply::Saved { step, folder })
            }
            Request::Close(_) => {
                let session = self.session.as_mut().ok_or_else(none)?;
                session.save_at_end()?;
                let step = session.steps();
                self.session = None;
                Ok(Reply::Closed { step })
            }
        }
    }
}

/// A reply as it is sent.
pub(super) fn line_of(reply: &Reply) -> Vec<u8> {
    // Plain data with text as keys: there is nothing in it that JSON cannot hold.
    let mut line = serde_json::to_vec(reply).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The reply that refuses a request.
pub(super) fn refusal(code: &str, message: impl ToString, closed: bool) -> Reply {
    Reply::Error {
        code: code.to_owned(),
        message: message.to_string(),
        closed,
    }
}
