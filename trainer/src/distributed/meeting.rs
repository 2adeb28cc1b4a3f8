//! How ranks come together: each waits for rank 0's store, and in it for all others.
//!
//! In: the launch, and how long to wait. Out: nothing, or what is missing or not alike. Always holds: whatever happens between ranks
//! or in their place (a port of another program, ranks of another launch), a process that is not through when its time is over
//! says where it stood and ends ([`Patience`]): libtorch's own calls do not all have an end.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::bridge::Link;
use super::section::DistributedSection;
use super::{GroupError, Launch};

/// Beyond the time given: errors that know more come first.
const GRACE: Duration = Duration::from_secs(3);

/// Ends the program where joining takes longer than it may.
pub(super) struct Patience {
    doing: Arc<Mutex<&'static str>>,
    /// Its end tells that the ranks have met.
    _met: Sender<()>,
}

impl Patience {
    /// From now on.
    pub(super) fn new(launch: &Launch, section: &DistributedSection) -> Self {
        let doing = Arc::new(Mutex::new("find rank 0"));
        let (met, over) = channel();
        let error = GroupError::Stuck {
            rank: launch.rank,
            world: launch.world,
            variable: launch.variable,
            address: format!("{}:{}", launch.address, launch.port),
            seconds: section.join_seconds,
            doing: "",
        };
        let watched = Arc::clone(&doing);
        let time = section.join().saturating_add(GRACE);
        // Without a thread there is no watch, and all else goes on.
        let _ = thread::Builder::new()
            .name("join watch".into())
            .spawn(move || watch(&over, time, &watched, error));
        Self { doing, _met: met }
    }

    /// What is waited for next.
    pub(super) fn now(&self, doing: &'static str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }
}

fn watch(over: &Receiver<()>, time: Duration, doing: &Mutex<&'static str>, error: GroupError) {
    if over.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let mut error = error;
    if let GroupError::Stuck { doing: told, .. } = &mut error {
        *told = *doing.lock().unwrap_or_else(PoisonError::into_inner);
    }
    hds::note!("error: {error}");
    // The other thread is inside libtorch, where nothing reaches it. Nothing has been written yet.
    std::process::exit(1);
}

/// Waits until somebody listens where rank 0 should be.
pub(super) fn wait_for_leader(
    launch: &Launch,
    section: &DistributedSection,
    deadline: Instant,
) -> Result<(), GroupError> {
    let mut waited = Notice::new(launch);
    loop {
        let reason = match TcpStream::connect((launch.address.as_str(), launch.port)) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(GroupError::NoLeader {
                rank: launch.rank,
                world: launch.world,
                variable: launch.variable,
                address: format!("{}:{}", launch.address, launch.port),
                seconds: section.join_seconds,
                reason,
            });
        }
        waited.tell("rank 0");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until every rank has put its name into the store.
pub(super) fn wait_for_all(
    link: &Link,
    launch: &Launch,
    section: &DistributedSection,
    deadline: Instant,
) -> Result<(), GroupError> {
    let &Launch {
        rank,
        world,
        variable,
        ..
    } = launch;
    let gone = |reason: String| GroupError::Operation {
        rank,
        world,
        operation: "wait for all ranks (rank 0 may have given up; see its message)",
        reason,
    };
    let key = |rank: usize| format!("joined/{rank}");
    let world_key = |rank: usize| format!("world/{rank}");
    if link.add(&format!("claimed/{rank}"), 1).map_err(gone)? > 1 {
        return Err(GroupError::Twice {
            rank,
            world,
            address: format!("{}:{}", launch.address, launch.port),
        });
    }
    // The number of ranks first: whoever sees the other key finds it.
    link.add(&world_key(rank), world as i64).map_err(gone)?;
    link.add(&key(rank), 1).map_err(gone)?;
    let mut missing: Vec<usize> = (0..world).collect();
    let mut waited = Notice::new(launch);
    loop {
        let mut still = Vec::new();
        for &other in &missing {
            if !link.announced(&key(other)).map_err(gone)? {
                still.push(other);
                continue;
            }
            let theirs = link.add(&world_key(other), 0).map_err(gone)?;
            if theirs != world as i64 {
                return Err(GroupError::OtherWorld {
                    rank,
                    world,
                    variable,
                    other,
                    theirs,
                });
            }
        }
        missing = still;
        let Some((first, more)) = missing.split_first() else {
            return Ok(());
        };
        let names = if more.is_empty() {
            format!("rank {first}")
        } else {
            let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("ranks {}", names.join(", "))
        };
        if Instant::now() >= deadline {
            return Err(GroupError::Missing {
                rank,
                world,
                variable: launch.variable,
                missing: names,
                address: format!("{}:{}", launch.address, launch.port),
                seconds: section.join_seconds,
            });
        }
        waited.tell(&names);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says once what is waited for, if that takes longer than a start does.
struct Notice<'a> {
    launch: &'a Launch,
    at: Option<Instant>,
}

impl<'a> Notice<'a> {
    fn new(launch: &'a Launch) -> Self {
        Self {
            launch,
            at: Some(Instant::now() + Duration::from_secs(5)),
        }
    }

    fn tell(&mut self, names: &str) {
        if self.at.is_some_and(|at| Instant::now() >= at) {
            self.at = None;
            let Launch {
                rank,
                world,
                variable,
                address,
                port,
                ..
            } = self.launch;
            hds::note!(
                "rank {rank} of {world} (by {variable}): waiting for {names} at {address}:{port}"
            );
        }
    }
}
