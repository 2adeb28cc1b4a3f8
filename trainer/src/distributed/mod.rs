//! Several processes that train one model, by torch's own c10d over Gloo.
//!
//! In: what a launcher says in the environment ([`Launch`]). Out: a [`Group`], in which a rank sums, broadcasts, sends and
//! agrees with the others, and [`Shares`], which splits the optimizer's states over them (ZeRO-1).
//! Always holds: all ranks call the same operations in the same order; an operation gives the same bits for the same
//! input and number of ranks; a rank that ends without a word ends the others within a minute. A group of one does
//! nothing and costs nothing. Leaves to others: what is exchanged, and when ([`crate::run`]).
//!
//! Legend: W ranks (processes), N parameters of the model.
//!
//! # Source
//! Optimizer states sharded, gradients reduced to and weights gathered from their owner: Rajbhandari et al., "ZeRO", 2020,
//! section 5.1 (P_os). Environment variables: PyTorch's `torchrun`, Slurm's `srun`, Open MPI's and MPICH's `mpirun`.

#[cfg(not(c10d))]
mod absent;
#[cfg(c10d)]
mod bridge;
mod error;
mod group;
mod launch;
mod meeting;
mod section;
mod shares;
mod watch;

#[cfg(not(c10d))]
use absent as bridge;

pub use error::GroupError;
pub use group::Group;
pub use launch::Launch;
pub use section::DistributedSection;
pub use shares::Shares;

/// Whether this program can train in several processes, and if not, how to get one that can.
pub const SUPPORT: &str = bridge::SUPPORT;

#[cfg(test)]
#[cfg(c10d)]
mod tests;
