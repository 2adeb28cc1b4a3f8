//! Listens on a Unix socket or a loopback address; one thread a client.
//!
//! In: a [`ServerConfig`]. Out: served clients until asked to stop; then every open run is saved.
//! Always holds: at most `connections` clients at once; a socket file left by a dead agent is replaced,
//! one of a living agent never; an address that other machines reach is refused.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hds::durable::{self, FileError};
use thiserror::Error;

use super::connection::{self, Context, refusal};
use super::registry::Sessions;
use crate::run::Interrupt;

/// How often a thread that waits looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
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
    /// Clients at once.
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
            stop: stop.clone(),
            open_within: OPEN_LIMIT,
            unsaved: AtomicUsize::new(0),
        });
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !stop.is_asked() {
            threads.retain(|thread| !thread.is_finished());
            match self.listener.accept() {
                Ok((reader, mut writer)) => {
                    if threads.len() >= self.connections {
                        let reason = format!("{} clients are connected already", threads.len());
                        let mut line = serde_json::to_vec(&refusal("busy", reason, true))?;
                        line.push(b'\n');
                        // A client that does not wait for its refusal misses nothing.
                        let _ = writer.write_all(&line);
                        continue;
                    }
                    let context = Arc::clone(&context);
                    threads.push(thread::spawn(move || {
                        // A client that is gone has nobody to tell.
                        let _ = connection::serve(reader, writer, &context);
                    }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOOK),
                // The client gave up before it was accepted, or files ran out for a while.
                Err(e) => {
                    hds::note!("cannot accept a client: {e}");
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

type Ends = (Box<dyn Read + Send>, Box<dyn Write + Send>);

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

    fn accept(&self) -> io::Result<Ends> {
        match self {
            Self::Unix(listener, ..) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
            Self::Tcp(listener, _) => {
                let (stream, _): (TcpStream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
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
