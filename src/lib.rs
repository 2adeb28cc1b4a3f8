//! Contracts of the Holistic Data Scheduler (HDS), shared by indexer, loader and trainer.
//!
//! What is here is what two crates must agree on and neither may own: which domains exist
//! ([`DomainSet`]), with which weights they are sampled ([`Mixture`], [`LiveWeights`],
//! [`weight_log`]), what an index on disk looks like ([`index`]), and where every random number
//! comes from ([`random`], [`permutation`]). [`shared`] carries live weights across processes, and
//! [`WeightSource`] is whatever a loader takes weights from. [`durable`] writes files that are whole or absent.
//!
//! Always holds: nothing here reads token data, starts threads or links a tensor library.

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod domain;
pub mod durable;
pub mod index;
pub mod live;
pub mod message;
pub mod mixture;
pub mod permutation;
pub mod random;
pub mod shared;
pub mod source;
pub mod weight_log;

pub use domain::{DomainError, DomainId, DomainSet};
pub use live::{LiveWeights, VersionedMixture};
pub use mixture::{Mixture, MixtureError};
pub use shared::{SharedWeights, SharedWeightsError, SharedWeightsWriter};
pub use source::{WeightReplay, WeightSource, WeightSourceError};
