//! Training batches from an index, under mixture weights that may change at every step.
//!
//! In: an index in a folder or behind a URL ([`Index`]), weights that someone publishes ([`hds::LiveWeights`]), and a
//! [`LoaderConfig`]. Out: one [`Batch`] a step: tokens, their domains, documents and MTLD.
//!
//! Always holds:
//! - The global stream of sequences is a pure function of the index, the seed and the weights that
//!   governed each batch. Ranks, world sizes and pauses do not change it.
//! - Weights published after batch t govern batch t+1. A change costs O(K) and throws nothing away.
//! - The state is a few numbers ([`LoaderState`], JSON); any number of ranks can go on from it.
//! - Opening an index takes time and memory in its shards, not in its documents or tokens.
//!
//! Leaves training, logging of weights and checkpoints to others; links no tensor library.
//!
//! Legend of shapes: K domains, B sequences of the global batch, R of them on this rank, L sequence
//! length in tokens, T tokens and N windows of a domain's split.
//!
//! ```no_run
//! use hds::{LiveWeights, Mixture};
//! use hds_loader::{Index, Loader, LoaderConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let index = Index::open("pile".as_ref())?;
//! let weights = LiveWeights::new(Mixture::uniform(index.domains()));
//! let config = LoaderConfig::new(1024, 32, 7);
//! let mut loader = Loader::new(index, weights.clone(), config)?;
//! let batch = loader.next_batch()?; // tokens [32, 1025]
//! println!("{:?}", batch.global_samples);
//! weights.publish(Mixture::uniform(loader.index().domains())); // governs the next batch
//! # Ok(()) }
//! ```
//!
//! Ranks share the global batch, and a configuration says what is wrong with it:
//!
//! ```
//! use hds_loader::{LoaderConfig, Packing};
//!
//! let third = LoaderConfig { rank: 2, world_size: 3, ..LoaderConfig::new(1024, 32, 7) };
//! assert_eq!(third.slots(), 22..32);
//! let config = LoaderConfig { world_size: 33, packing: Packing::Documents, ..third };
//! let error = config.check().unwrap_err().to_string();
//! assert!(error.contains("world_size: 33 ranks for a batch of 32 sequences"));
//! ```
//!
//! `cargo run --release -p hds-loader --example live_weights -- INDEX` is a whole training loop in miniature.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod arrow_layout;
mod batch;
mod config;
mod document_search;
mod document_table;
mod domain_end;
mod draw;
mod error;
mod evaluation;
mod index;
mod loader;
mod order;
mod place;
mod read_ahead;
#[cfg(feature = "remote")]
mod remote;
mod remote_options;
mod row_reader;
mod source_file;
mod state;
mod token_stream;
mod tokens;
mod weights;

pub use batch::{Batch, DocumentSpan, SampleId};
pub use config::{DomainEnd, Draws, LoaderConfig, Order, Packing};
pub use error::LoaderError;
pub use evaluation::{EvaluationSequence, EvaluationSequences};
pub use hds::index::{IndexError, Split};
pub use index::Index;
pub use loader::Loader;
#[cfg(feature = "remote")]
pub use remote::give_up_when;
pub use remote_options::{ByteSize, CacheTroubles, Fetch, RemoteOptions, is_remote};
pub use source_file::Access;
pub use state::LoaderState;
pub use token_stream::TokenStream;
pub use tokens::{Tokens, TokensMut};
pub use weights::check_weights;
