//! Why ranks cannot come together, or cannot go on.

use std::path::PathBuf;

use thiserror::Error;

/// What ends a run of several processes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A variable of the launcher is missing or no number.
    #[error("{variable} in the environment {reason}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The program was built without the bridge.
    #[error(
        "{variable} asks for {world} processes, and this program was built without c10d's Gloo: install libgloo-dev \
         (Debian, Ubuntu) and build again with `cargo build --release --workspace --bins`; for one process set RANK=0 WORLD_SIZE=1"
    )]
    NotBuilt {
        /// The variable that says how many.
        variable: &'static str,
        /// W.
        world: usize,
    },
    /// Rank 0 is not there.
    #[error(
        "rank {rank} of {world} (by {variable}): no rank 0 at {address} within {seconds} s: {reason}; start all ranks, or \
         check MASTER_ADDR and MASTER_PORT (for one process set RANK=0 WORLD_SIZE=1)"
    )]
    NoLeader {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// The variable that says how many.
        variable: &'static str,
        /// Where rank 0 should be.
        address: String,
        /// How long it was waited for.
        seconds: u64,
        /// What the last attempt said.
        reason: String,
    },
    /// Some ranks are not there.
    #[error(
        "rank {rank} of {world} (by {variable}): {missing} did not come to {address} within {seconds} s; start all ranks \
         (for one process set RANK=0 WORLD_SIZE=1)"
    )]
    Missing {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// The variable that says how many.
        variable: &'static str,
        /// `rank 1` or `ranks 1, 2`.
        missing: String,
        /// Where they should come.
        address: String,
        /// How long they were waited for.
        seconds: u64,
    },
    /// Ranks of launches of different sizes.
    #[error(
        "rank {rank} was started with {variable} = {world}, rank {other} with {theirs}: start all ranks of a run alike"
    )]
    OtherWorld {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// The variable that says how many.
        variable: &'static str,
        /// Another rank.
        other: usize,
        /// Its number of ranks.
        theirs: i64,
    },
    /// Two processes of one number.
    #[error(
        "rank {rank} of {world}: another process came to {address} as rank {rank} before; give every process a number of its own, and \
         every run a port of its own (MASTER_PORT)"
    )]
    Twice {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// Where they meet.
        address: String,
    },
    /// The ranks have not met in time, and the library that they meet by does not say why.
    #[error(
        "rank {rank} of {world} (by {variable}): not through at {address} within {seconds} s, could not {doing}; start all ranks alike, \
         and see that no other program answers at that port (MASTER_PORT)"
    )]
    Stuck {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// The variable that says how many.
        variable: &'static str,
        /// Where they meet.
        address: String,
        /// How long was waited.
        seconds: u64,
        /// What it was at.
        doing: &'static str,
    },
    /// A rank ended before the run did.
    #[error(
        "rank {rank} of {world} {reason}; this run of {world} processes ends, go on with --resume"
    )]
    Lost {
        /// Which.
        rank: usize,
        /// W.
        world: usize,
        /// What is known of it.
        reason: String,
    },
    /// An operation failed, and no rank is known to be lost.
    #[error("rank {rank} of {world} cannot {operation}: {reason}")]
    Operation {
        /// This rank.
        rank: usize,
        /// W.
        world: usize,
        /// What was tried.
        operation: &'static str,
        /// What c10d said.
        reason: String,
    },
    /// Another rank failed, and all agreed to end.
    #[error("rank {rank} of {world} failed: {message}")]
    Other {
        /// Which.
        rank: usize,
        /// W.
        world: usize,
        /// Its message.
        message: String,
    },
    /// Two ranks were not started alike.
    #[error("ranks must be started alike: {key} is {got} on rank {rank} and {want} on rank 0")]
    Differs {
        /// What differs.
        key: String,
        /// The other rank.
        rank: usize,
        /// There.
        got: String,
        /// On rank 0.
        want: String,
    },
    /// A rank does not see the run folder's files.
    #[error(
        "rank {rank}: {path} is not there; all ranks must see the same run folder to go on with a run"
    )]
    NotShared {
        /// Which.
        rank: usize,
        /// What is missing.
        path: PathBuf,
    },
}
