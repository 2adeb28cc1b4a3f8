//! Listens on a Unix socket or a loopback address; one thread a client.
//!
//! In: a [`ServerConfig`]. Out: served clients until asked to stop; then every open run is saved.
//! Always holds: at most `connections` clients at once; a socket file left by a dead agent is replaced,
//! one of a living agent never; an address that other machines reach is refused.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hds::durable::FileError;
use thiserror::Error;

use super::connection::{self, Context, refusal};
use super::registry::Sessions;
use crate::run::Interrupt;

/// How often a thread that waits looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may take to read a reply.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a client may take to open a run.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// Shortest token.
const TOKEN_BYTES: usize = 16;

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
            Listener::Unix(_, path) => format!("unix:{}", path.display()),
            Listener::Tcp(_, address) => format!("tcp:{address}"),
        }
    }

    /// Serves until `stop` asks to end; then saves every open run and waits for its thread.
    ///
    /// # Errors
    /// If the listening socket fails.
    pub fn serve(&self, stop: &Interrupt) -> io::Result<()> {
        self.listener.set_nonblocking()?;
        let context = Arc::new(Context {
            sessions: self.sessions.clone(),
            token: self.token,
            stop: stop.clone(),
            open_within: OPEN_LIMIT,
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
        Ok(())
    }
}

fn read_token(path: &std::path::Path) -> Result<blake3::Hash, AgentError> {
    let text = fs::read(path).map_err(|e| FileError::new("read", path, e))?;
    let token = text.trim_ascii();
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
    Unix(UnixListener, PathBuf),
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
        Ok(Self::Unix(listener, path))
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
            Self::Unix(listener, _) => listener.set_nonblocking(true),
            Self::Tcp(listener, _) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Ends> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(WRITE_LIMIT))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
            Self::Tcp(listener, _) => {
                let (stream, _): (TcpStream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(WRITE_LIMIT))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Left behind it is replaced by the next agent.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
