//! Indexes behind `s3://`, `gs://`, `az://` and `http(s)://`, read through a local cache.
//!
//! In: a URL and [`RemoteOptions`](crate::RemoteOptions). Out: files that read like local ones. Always holds: the bytes handed out are
//! those of the objects, or an error says which object and why; what is known to be the manifest's stays held against
//! it ([`Fetch`](crate::Fetch)); memory grows with pieces used, not with documents. Built with the feature `remote`.
//!
//! One [`engine`] a process: a process that was forked starts its own, as no thread and no connection survives a
//! fork.

mod address;
mod ahead;
mod cache;
mod digest;
mod engine;
mod file;
mod file_state;
mod giving_up;
mod in_hand;
mod index;
mod piece;
mod recovery;
mod store;
mod troubles;
mod values;

pub(crate) use file::RemoteFile;
pub use giving_up::give_up_when;
pub(crate) use index::Remote;
pub(crate) use piece::stored_bytes as stored;
