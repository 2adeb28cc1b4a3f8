//! All ranks of a run, seen from one of them.
//!
//! In: a [`Launch`]; then tensors and numbers. Out: their sums, rank 0's, or another rank's. Always holds: ranks call
//! the same operations in the same order; a group of one does nothing. Tensors on a GPU go through the CPU.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor, no_grad};

use super::bridge::Link;
use super::meeting::{Patience, wait_for_all, wait_for_leader};
use super::section::DistributedSection;
use super::watch::Watch;
use super::{GroupError, Launch};

/// The ranks of a run.
pub struct Group {
    rank: usize,
    world: usize,
    local_rank: usize,
    local_world: usize,
    ties: Option<Ties>,
}

struct Ties {
    link: Link,
    watch: Watch,
}

impl Group {
    /// One process on its own.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            world: 1,
            local_rank: 0,
            local_world: 1,
            ties: None,
        }
    }

    /// Meets the other ranks; returns when all are there and connected.
    ///
    /// # Errors
    /// If the program was built without c10d, a rank does not come in time, or they cannot be connected.
    pub fn join(launch: &Launch, section: &DistributedSection) -> Result<Self, GroupError> {
        let &Launch { rank, world, .. } = launch;
        let place = format!("{}:{}", launch.address, launch.port);
        let fail = |operation| {
            move |reason: String| GroupError::Operation {
                rank,
                world,
                operation,
                reason,
            }
        };
        if !cfg!(c10d) {
            return Err(GroupError::NotBuilt {
                variable: launch.variable,
                world,
            });
        }
        let deadline = Instant::now() + section.join();
        let left = || {
            let left = deadline.saturating_duration_since(Instant::now());
            left.max(Duration::from_secs(1))
        };
        let patience = Patience::new(launch, section);
        let serves = rank == 0 && !launch.hosted;
        if !serves {
            wait_for_leader(launch, section, deadline)?;
        }
        patience.now("talk to the store of rank 0");
        let prefix = format!("hds/{}", launch.attempt);
        let link = Link::meet(&launch.address, launch.port, serves, &prefix, left())
            .map_err(fail("open the store where ranks meet"))?;
        patience.now("wait for all ranks");
        wait_for_all(&link, launch, section, deadline)?;
        patience.now("connect to the other ranks by Gloo");
        link.connect(rank, world, section.operation())
            .map_err(fail("connect to the other ranks"))?;
        patience.now("connect to rank 0's watch");
        let watch = watch(&link, launch, left())
            .map_err(|reason| fail("watch the other ranks")(format!("{reason} (at {place})")))?;
        Ok(Self {
            rank,
            world,
            local_rank: launch.local_rank,
            local_world: launch.local_world.max(1),
            ties: Some(Ties { link, watch }),
        })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.world
    }

    /// This rank among those of its machine, from 0.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Ranks on this machine.
    pub fn local_world(&self) -> usize {
        self.local_world
    }

    /// Whether this is rank 0, which runs the agent and writes the files.
    pub fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Whether there is no other rank.
    pub fn is_alone(&self) -> bool {
        self.ties.is_none()
    }

    /// Leaves the sum over all ranks in `values`, of the same shape and kind everywhere.
    ///
    /// # Errors
    /// If a rank is lost or the operation fails.
    pub fn sum(&self, values: &mut Tensor) -> Result<(), GroupError> {
        self.on_cpu(values, "sum over all ranks", |link, values| {
            link.all_reduce(values)
        })
    }

    /// As [`Self::sum`], of numbers; as many on every rank.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn sum_numbers(&self, values: &mut [f64]) -> Result<(), GroupError> {
        if self.is_alone() || values.is_empty() {
            return Ok(());
        }
        let mut tensor = Tensor::from_slice(values);
        self.sum(&mut tensor)?;
        tensor.copy_data(values, values.len());
        Ok(())
    }

    /// Copies rank `root`'s values to all.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn broadcast(&self, values: &mut Tensor, root: usize) -> Result<(), GroupError> {
        self.on_cpu(values, "take over another rank's values", |link, values| {
            link.broadcast(values, root)
        })
    }

    /// Copies rank 0's numbers to all; as many on every rank.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn share_numbers(&self, values: &mut [f64]) -> Result<(), GroupError> {
        if self.is_alone() || values.is_empty() {
            return Ok(());
        }
        let mut tensor = Tensor::from_slice(values);
        self.broadcast(&mut tensor, 0)?;
        tensor.copy_data(values, values.len());
        Ok(())
    }

    /// Sends values to rank `to`, which [`Self::receive`]s them.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn send(&self, values: &Tensor, to: usize) -> Result<(), GroupError> {
        let mut values = values.shallow_clone();
        self.on_cpu(&mut values, "send to another rank", |link, values| {
            link.send(values, to)
        })
    }

    /// Fills `values` with what rank `from` [`Self::send`]s, of the same length and kind.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn receive(&self, values: &mut Tensor, from: usize) -> Result<(), GroupError> {
        self.on_cpu(values, "receive from another rank", |link, values| {
            link.receive(values, from)
        })
    }

    /// Whether any rank says yes.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn any(&self, here: bool) -> Result<bool, GroupError> {
        let mut count = [f64::from(u8::from(here))];
        self.sum_numbers(&mut count)?;
        Ok(count[0] > 0.0)
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn wait(&self) -> Result<(), GroupError> {
        self.any(false).map(drop)
    }

    /// The text of each rank, in their order.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub fn texts(&self, own: &str) -> Result<Vec<String>, GroupError> {
        if self.is_alone() {
            return Ok(vec![own.to_owned()]);
        }
        let mut lengths = vec![0.0; self.world];
        lengths[self.rank] = own.len() as f64;
        self.sum_numbers(&mut lengths)?;
        let mut texts = Vec::with_capacity(self.world);
        for (rank, length) in lengths.into_iter().enumerate() {
            let mut bytes = vec![0u8; length as usize];
            if rank == self.rank {
                bytes.copy_from_slice(own.as_bytes());
            }
            if !bytes.is_empty() {
                let mut tensor = Tensor::from_slice(&bytes);
                self.broadcast(&mut tensor, rank)?;
                let length = bytes.len();
                tensor.copy_data(&mut bytes, length);
            }
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(texts)
    }

    /// Goes on only if `outcome` is good on all ranks: where one failed, the others end with its message.
    ///
    /// # Errors
    /// This rank's own, or [`GroupError::Other`].
    pub fn agree<T, E: From<GroupError> + std::error::Error + 'static>(
        &self,
        outcome: Result<T, E>,
    ) -> Result<T, E> {
        if self.is_alone() {
            return outcome;
        }
        let own = match &outcome {
            Ok(_) => String::new(),
            Err(error) => hds::message::with_causes(error),
        };
        let texts = self.texts(&own)?;
        let value = outcome?;
        match texts
            .into_iter()
            .enumerate()
            .find(|(_, text)| !text.is_empty())
        {
            None => Ok(value),
            Some((rank, message)) => Err(GroupError::Other {
                rank,
                world: self.world,
                message,
            }
            .into()),
        }
    }

    /// Leaves the group: with nothing when the run is over, with a message when this rank has failed.
    pub fn close(&self, failure: Option<&str>) {
        if let Some(ties) = &self.ties {
            ties.watch.close(failure);
        }
    }

    fn on_cpu(
        &self,
        values: &mut Tensor,
        operation: &'static str,
        run: impl FnOnce(&Link, &Tensor) -> Result<(), String>,
    ) -> Result<(), GroupError> {
        let Some(ties) = &self.ties else {
            return Ok(());
        };
        let outcome = no_grad(|| {
            let plain = values.detach();
            if plain.device() == Device::Cpu && plain.is_contiguous() {
                return run(&ties.link, &plain);
            }
            let staged = plain.to_device(Device::Cpu).contiguous();
            run(&ties.link, &staged)?;
            values.detach().copy_(&staged);
            Ok(())
        });
        outcome.map_err(|reason| match ties.watch.reason() {
            Some(lost) => GroupError::Lost {
                rank: lost.rank,
                world: self.world,
                reason: lost.reason,
            },
            None => GroupError::Operation {
                rank: self.rank,
                world: self.world,
                operation,
                reason,
            },
        })
    }
}

/// Rank 0 tells all others where to connect, and they do.
fn watch(link: &Link, launch: &Launch, patience: Duration) -> Result<Watch, String> {
    let text = |e: std::io::Error| e.to_string();
    let &Launch { rank, world, .. } = launch;
    if rank == 0 {
        let listener = TcpListener::bind(("::", 0))
            .or_else(|_| TcpListener::bind(("0.0.0.0", 0)))
            .map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        let token = token();
        link.broadcast(&Tensor::from_slice(&[i64::from(port), token]), 0)?;
        return Watch::lead(&listener, token, world, patience).map_err(text);
    }
    let place = Tensor::zeros([2], (Kind::Int64, Device::Cpu));
    link.broadcast(&place, 0)?;
    let port = u16::try_from(place.int64_value(&[0])).map_err(|e| e.to_string())?;
    let host = &launch.address;
    Watch::follow(host, port, place.int64_value(&[1]), rank, world).map_err(text)
}

/// A number that a stranger does not know: the standard library's keys of hash maps are random.
fn token() -> i64 {
    use std::hash::{BuildHasher, Hasher};
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.finish().cast_signed()
}
