//! Listens on a Unix socket or a loopback address; one thread a client.
//!
//! In: a [`ServerConfig`]. Out: served clients until asked to stop; then every open run is saved.
//! Always holds: at most `connections` runs are open at once; clients that have none are bounded too, and the one that has waited
//! longest makes room for the next; a socket file left by a dead agent is replaced,
//! one of a living agent never; an address that other machines reach is refused.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hds::durable::{self, FileError};
use thiserror::Error;

use super::connection::{self, Context, line_of, refusal};
use super::peer::{LOOK, Peer};
use super::registry::Sessions;
use super::waiting::Waiting;
use crate::run::Interrupt;

/// Longest path of a socket; the system's structure has room for 108 bytes with the last one 0.
const SOCKET_PATH: usize = 107;
/// Clients at once that have not shown the token.
const STRANGERS: usize = 32;
/// Least room for clients that have no run open.
const GUESTS: usize = 32;
/// Threads beyond those: of clients that were turned out, or whose run is being saved.
const SPARE: usize = 256;
/// How long a client may take to open a run.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// Shortest token.
const TOKEN_BYTES: usize = 16;
/// Longest file of a token; a client's first line has no room for more.
const MOST_TOKEN_BYTES: u64 = 2048;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket at this path; who may connect is a matter of its folder's and its own mode.
    Socket(PathBuf),
    /// A loopback address; clients show the token that the file holds.
    Loopback {
        /// The address; port 0 takes a free one.
        address: SocketAddr,
        /// The file with the token, of at least 16 bytes.
        token_file: PathBuf,
    },
}

/// What a server is.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: Listen,
    /// Folder of the runs.
    pub state: PathBuf,
    /// Runs open at once.
    pub connections: usize,
}

/// Why an agent cannot serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Another agent is there.
    #[error("another agent listens on {path}; stop it, or choose another path")]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The socket's path is something else.
    #[error("{path} is there and is no socket; choose another path")]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// A path that no socket may have.
    #[error(
        "the socket's path has {got} bytes, it may have {SOCKET_PATH}: {path}; choose a shorter one"
    )]
    LongPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        got: usize,
    },
    /// An address that other machines reach.
    #[error("{address} is not a loopback address; other machines are not served")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// A token that is easily guessed.
    #[error("the token in {path} has {got} bytes; at least {TOKEN_BYTES} are needed")]
    Token {
        /// The token's file.
        path: PathBuf,
        /// Its length, white space around it left out.
        got: usize,
    },
    /// A token that no client can send.
    #[error("the token in {path} is not one line of UTF-8, as clients send it")]
    TokenText {
        /// The token's file.
        path: PathBuf,
    },
    /// The system refuses to listen.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// Path or address.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// An agent that listens.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    token: Option<blake3::Hash>,
    sessions: Sessions,
    connections: usize,
}

impl Server {
    /// Binds.
    ///
    /// # Errors
    /// If the state folder, the token or the place to listen is not usable.
    pub fn bind(config: &ServerConfig) -> Result<Self, AgentError> {
        let sessions = Sessions::new(config.state.clone())?;
        let (listener, token) = match &config.listen {
            Listen::Socket(path) => (Listener::unix(path.clone())?, None),
            Listen::Loopback {
                address,
                token_file,
            } => (Listener::tcp(*address)?, Some(read_token(token_file)?)),
        };
        Ok(Self {
            listener,
            token,
            sessions,
            connections: config.connections,
        })
    }

    /// Where it listens, as a client is told: `unix:PATH` or `tcp:ADDRESS:PORT`.
    pub fn place(&self) -> String {
        match &self.listener {
            Listener::Unix(_, path, _) => format!("unix:{}", path.display()),
            Listener::Tcp(_, address) => format!("tcp:{address}"),
        }
    }

    /// Serves until `stop` asks to end; then saves every open run and waits for its thread. Gives the number of runs that
    /// could not be saved then.
    ///
    /// # Errors
    /// If the listening socket fails.
    pub fn serve(&self, stop: &Interrupt) -> io::Result<usize> {
        self.listener.set_nonblocking()?;
        let context = Arc::new(Context {
            sessions: self.sessions.clone(),
            token: self.token,
            strangers: Waiting::new(STRANGERS),
            guests: Waiting::new(self.connections.max(GUESTS)),
            open: AtomicUsize::new(0),
            most_open: self.connections,
            stop: stop.clone(),
            open_within: OPEN_LIMIT,
            unsaved: AtomicUsize::new(0),
        });
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut failing = false;
        let most_threads = STRANGERS + self.connections.max(GUESTS) + self.connections + SPARE;
        while !stop.is_asked() {
            threads.retain(|thread| !thread.is_finished());
            if threads.len() > most_threads {
                // Clients that were turned out have not all noticed; whoever comes meanwhile waits to be accepted.
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            match self.listener.accept() {
                Ok(peer) => {
                    failing = false;
                    threads.extend(serve_apart(Arc::new(peer), &context));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOOK),
                // The client gave up before it was accepted, or files ran out for a while.
                Err(e) => {
                    if !failing {
                        hds::note!("cannot accept a client: {e}; trying again");
                    }
                    failing = true;
                    thread::sleep(LOOK);
                }
            }
        }
        for thread in threads {
            // A thread that panicked outside a run has told so on standard error.
            let _ = thread.join();
        }
        Ok(context.unsaved.load(Ordering::Relaxed))
    }
}

/// Serves a client on a thread of its own; it is refused where the system gives none.
fn serve_apart(peer: Arc<Peer>, context: &Arc<Context>) -> Option<JoinHandle<()>> {
    // Here, not on its thread: so many are never there at once that threads would run out.
    context.enter(&peer);
    let (theirs, served) = (Arc::clone(context), Arc::clone(&peer));
    let started = thread::Builder::new().spawn(move || {
        // A client that is gone has nobody to tell.
        let _ = connection::serve(&served, &theirs);
    });
    match started {
        Ok(thread) => Some(thread),
        Err(error) => {
            let reason = format!("the agent can start no thread for this client: {error}");
            hds::note!("{reason}");
            context.leave(&peer);
            peer.dismiss(&line_of(&refusal("busy", reason, true)));
            None
        }
    }
}

fn read_token(path: &std::path::Path) -> Result<blake3::Hash, AgentError> {
    let text = durable::read_regular(path, MOST_TOKEN_BYTES)
        .map_err(|e| FileError::new("read", path, e))?;
    let token = text.trim_ascii();
    if std::str::from_utf8(token).is_err() || token.iter().any(u8::is_ascii_control) {
        return Err(AgentError::TokenText {
            path: path.to_owned(),
        });
    }
    if token.len() < TOKEN_BYTES {
        return Err(AgentError::Token {
            path: path.to_owned(),
            got: token.len(),
        });
    }
    Ok(blake3::hash(token))
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener, PathBuf, Option<Identity>),
    Tcp(TcpListener, SocketAddr),
}

impl Listener {
    fn unix(path: PathBuf) -> Result<Self, AgentError> {
        let failed = |source| AgentError::Listen {
            place: path.display().to_string(),
            source,
        };
        let got = path.as_os_str().len();
        if got > SOCKET_PATH {
            return Err(AgentError::LongPath { path, got });
        }
        if let Ok(found) = path.symlink_metadata() {
            if !found.file_type().is_socket() {
                return Err(AgentError::NoSocket { path });
            }
            match UnixStream::connect(&path) {
                Ok(_) => return Err(AgentError::Taken { path }),
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(&path).map_err(failed)?;
                }
                Err(e) => return Err(failed(e)),
            }
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let ours = identity(&path);
        Ok(Self::Unix(listener, path, ours))
    }

    fn tcp(address: SocketAddr) -> Result<Self, AgentError> {
        let loopback = match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        };
        if !loopback {
            return Err(AgentError::NotLoopback { address });
        }
        let failed = |source| AgentError::Listen {
            place: address.to_string(),
            source,
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self::Tcp(listener, bound))
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener, ..) => listener.set_nonblocking(true),
            Self::Tcp(listener, _) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Peer> {
        match self {
            Self::Unix(listener, ..) => Peer::unix(listener.accept()?.0),
            Self::Tcp(listener, _) => Peer::tcp(listener.accept()?.0),
        }
    }
}

/// Device and inode of a socket's file.
type Identity = (u64, u64);

fn identity(path: &std::path::Path) -> Option<Identity> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Left behind it is replaced by the next agent; another agent's in its place is not ours to remove.
        if let Self::Unix(_, path, ours) = self
            && ours.is_some()
            && identity(path) == *ours
        {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
