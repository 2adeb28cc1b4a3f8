//! Why a request to the agent was not carried out.

use hds::durable::FileError;
use thiserror::Error;

use super::protocol::PROTOCOL;
use crate::run::CheckpointError;
use crate::scheduler::PolicyError;

/// Why a request was not carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Another version of the protocol.
    #[error("protocol is {got}, this agent speaks {PROTOCOL}")]
    Protocol {
        /// What the client speaks.
        got: u32,
    },
    /// A value that cannot be.
    #[error("{field}: {reason}")]
    Invalid {
        /// Field of the request.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The run is open elsewhere.
    #[error("run {run} is open in another session{holder}; close that one, or choose another name")]
    Busy {
        /// The run.
        run: String,
        /// The process that has it, where it is known and another, as part of a sentence.
        holder: String,
    },
    /// As many runs are open as there may be.
    #[error(
        "{open} runs are open, as many as the agent has places for (--connections); close one, or connect again later"
    )]
    Full {
        /// Runs open.
        open: usize,
    },
    /// A step out of order.
    #[error("step is {got}, the next one is {want}")]
    Order {
        /// The step sent.
        got: u64,
        /// The step to send.
        want: u64,
    },
    /// The run is at its end.
    #[error("step is {step}, the run has {total}")]
    Ended {
        /// The step sent.
        step: u64,
        /// Steps of the run.
        total: u64,
    },
    /// The state folder does not hold what was asked for, or holds what was not.
    #[error("run {run}: {reason}")]
    State {
        /// The run.
        run: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The policy came to weights that are none.
    #[error("run {run}: step {step} led to no weights ({reason}); resume from a checkpoint")]
    Spoilt {
        /// The run.
        run: String,
        /// The step.
        step: u64,
        /// What is wrong with them.
        reason: String,
    },
    /// The policy refuses.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The reward refuses.
    #[error(transparent)]
    Reward(#[from] crate::reward::RewardError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl SessionError {
    /// The `code` of the reply that tells it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "protocol",
            Self::Invalid { .. } | Self::Policy(_) | Self::Reward(_) => "invalid",
            Self::Busy { .. } | Self::Full { .. } => "busy",
            Self::Order { .. } | Self::Ended { .. } => "step",
            Self::Spoilt { .. } => "internal",
            Self::State { .. } | Self::Checkpoint(_) | Self::File(_) => "state",
        }
    }
}

pub(super) fn invalid(field: &'static str, reason: impl ToString) -> SessionError {
    SessionError::Invalid {
        field,
        reason: reason.to_string(),
    }
}
