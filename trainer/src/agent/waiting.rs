//! Clients that have no run open: a bounded number, of which the oldest makes room for the next.
//!
//! In: their sockets. Out: nothing; the one that is turned out is told and shut down, which its thread notices. Always holds: a
//! client that says nothing keeps nobody out, however many there are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::{line_of, refusal};
use super::peer::Peer;

/// The clients.
#[derive(Debug)]
pub(super) struct Waiting {
    most: usize,
    peers: Mutex<VecDeque<Arc<Peer>>>,
}

impl Waiting {
    /// Room for `most` clients, 1 or more.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            peers: Mutex::default(),
        }
    }

    /// Lets a client in, and the oldest out where there is no room.
    pub(super) fn enter(&self, peer: &Arc<Peer>) {
        let oldest = {
            let mut peers = self.peers();
            peers.push_back(Arc::clone(peer));
            (peers.len() > self.most)
                .then(|| peers.pop_front())
                .flatten()
        };
        if let Some(oldest) = oldest {
            oldest.turn_out(self.most);
        }
    }

    /// A client goes on, or has gone.
    pub(super) fn leave(&self, peer: &Arc<Peer>) {
        self.peers().retain(|other| !Arc::ptr_eq(other, peer));
    }

    fn peers(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Peer>>> {
        // A list of sockets is whole whatever happened to who held it.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Tells a client that its place is another's now, and hangs up.
    fn turn_out(&self, most: usize) {
        let reason = format!(
            "more than {most} clients are connected that have no run open, and this one has waited longest; connect again"
        );
        self.dismiss(&line_of(&refusal("busy", reason, true)));
    }
}
