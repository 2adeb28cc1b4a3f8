//! The other end of a connection, whatever kind of socket it is.
//!
//! In: an accepted socket. Out: reads and writes that time out every [`LOOK`], by any thread. One open file a client.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often a thread that waits looks whether to stop.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A client's socket.
#[derive(Debug)]
pub(super) enum Peer {
    /// Of a Unix socket.
    Unix(UnixStream),
    /// Of a loopback address.
    Tcp(TcpStream),
}

impl Peer {
    pub(super) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(Self::Unix(stream))
    }

    pub(super) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(Self::Tcp(stream))
    }

    /// Ends both directions; who reads from it gets its end.
    pub(super) fn hang_up(&self) {
        // One that has gone already is as good.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Says a last line, as far as it can be said without waiting, and hangs up.
    pub(super) fn dismiss(&self, line: &[u8]) {
        let ready = match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        };
        if ready.is_ok() {
            // One that does not read misses nothing.
            let _ = (&mut &*self).write(line);
        }
        self.hang_up();
    }
}

impl Read for &Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Peer::Unix(stream) => (&mut &*stream).read(buffer),
            Peer::Tcp(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Peer::Unix(stream) => (&mut &*stream).write(bytes),
            Peer::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
