//! An index folder, opened for reading.
//!
//! In: the folder. Out: its domains and a [`TokenStream`] for each split.
//! Always holds: the manifest is checked, and every file the loader may read was there with the size
//! the manifest gives when the index was opened. Opening looks at each shard's file sizes and reads no
//! token and no document. Checksums are `hds-index verify`'s.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hds::index::{Checksum, IndexError, MANIFEST_FILE, Manifest, Split};
use hds::{DomainId, DomainSet};

use crate::source_file::Access;
use crate::token_stream::TokenStream;

/// A handle to an open index; clones share it, threads too.
#[derive(Clone, Debug)]
pub struct Index {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    domains: DomainSet,
    manifest: Manifest,
    fingerprint: Checksum,
    train: Vec<TokenStream>,
    valid: Vec<TokenStream>,
}

impl Index {
    /// Opens an index folder.
    ///
    /// # Errors
    /// If there is no manifest, it is of an unknown version or contradicts itself, or a file is missing
    /// or not as long as it says.
    pub fn open(folder: &Path) -> Result<Self, IndexError> {
        Self::open_with(folder, Access::default())
    }

    /// As [`Self::open`], with a choice of how files are read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(folder: &Path, access: Access) -> Result<Self, IndexError> {
        let (manifest, fingerprint) = Manifest::load(folder)?;
        let domains = manifest.domain_set(&folder.join(MANIFEST_FILE))?;
        let streams = |split: Split| {
            let open = |domain: &hds::index::DomainEntry| {
                TokenStream::open(
                    folder,
                    format!("the {split} split of domain {:?}", domain.name),
                    domain.split(split),
                    manifest.token_type,
                    manifest.tokenizer.vocabulary,
                    access,
                )
            };
            manifest.domains.iter().map(open).collect::<Result<_, _>>()
        };
        Ok(Self {
            inner: Arc::new(Inner {
                path: folder.to_owned(),
                train: streams(Split::Train)?,
                valid: streams(Split::Valid)?,
                domains,
                manifest,
                fingerprint,
            }),
        })
    }

    /// Looks again that every file the loader may read is there and whole, as [`Self::open`] did; a file
    /// seen with another size is an error at every later use.
    ///
    /// # Errors
    /// The first file that is missing or of another size.
    pub fn look_again(&self) -> Result<(), IndexError> {
        let mut streams = self.inner.train.iter().chain(&self.inner.valid);
        streams.try_for_each(TokenStream::look_again)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The K domains.
    pub fn domains(&self) -> &DomainSet {
        &self.inner.domains
    }

    /// What the index says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// Digest of the manifest, and through its checksums of everything in the index.
    pub fn fingerprint(&self) -> &Checksum {
        &self.inner.fingerprint
    }

    /// The tokens and documents of a domain's split.
    ///
    /// # Panics
    /// If the id is not below K: it is of another index.
    pub fn split(&self, domain: DomainId, split: Split) -> &TokenStream {
        let streams = match split {
            Split::Train => &self.inner.train,
            Split::Valid => &self.inner.valid,
        };
        &streams[domain.index()]
    }
}
