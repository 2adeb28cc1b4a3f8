//! The scheduler as a service: other trainers send what a step showed and get the next weights.
//!
//! In: JSON lines over a Unix socket, or over loopback TCP with a token ([`protocol`]). Out: weights
//! with a version, rewards and diagnostics; checkpoints in the state folder.
//! Always holds: runs share nothing but the process, so that a client that dies or sends nonsense
//! harms no other; nothing listens beyond the machine; a checkpoint is whole or absent; a run restored
//! at a step goes on bit for bit as if never stopped.
//!
//! The policies and rewards are those of [`crate::scheduler`] and [`crate::reward`], which `hds-train`
//! uses in process.

mod connection;
mod error;
mod lines;
mod parts;
mod peer;
pub mod protocol;
mod registry;
mod server;
mod session;
mod signals;
mod waiting;

pub use error::SessionError;
pub use registry::Sessions;
pub use server::{AgentError, Listen, Server, ServerConfig};
pub use session::Session;
