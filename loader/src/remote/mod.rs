//! Indexes behind `s3://`, `gs://`, `az://` and `http(s)://`, read through a local cache.
//!
//! In: a URL and [`RemoteOptions`]. Out: files that read like local ones. Always holds: the bytes handed out are
//! those of the objects, or an error says which object and why; what is known to be the manifest's stays held against
//! it ([`Fetch`]); memory grows with pieces used, not with documents. Nothing here runs without the feature `remote`.
//!
//! One [`engine`] a process: a process that was forked starts its own, as no thread and no connection survives a
//! fork.

#[cfg(feature = "remote")]
mod address;
#[cfg(feature = "remote")]
mod ahead;
#[cfg(feature = "remote")]
mod cache;
#[cfg(feature = "remote")]
mod digest;
#[cfg(feature = "remote")]
mod engine;
#[cfg(feature = "remote")]
mod file;
#[cfg(feature = "remote")]
mod giving_up;
#[cfg(feature = "remote")]
mod in_hand;
#[cfg(feature = "remote")]
mod index;
mod options;
#[cfg(feature = "remote")]
mod piece;
#[cfg(feature = "remote")]
mod store;
#[cfg(feature = "remote")]
mod values;

#[cfg(feature = "remote")]
pub(crate) use file::RemoteFile;
#[cfg(feature = "remote")]
pub use giving_up::give_up_when;
#[cfg(feature = "remote")]
pub(crate) use index::Remote;
pub use options::{ByteSize, Fetch, RemoteOptions, is_remote};
#[cfg(feature = "remote")]
pub(crate) use piece::stored_bytes as stored;
