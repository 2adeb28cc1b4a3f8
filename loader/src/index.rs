//! An index, opened for reading.
//!
//! In: its folder, or a URL. Out: its domains and a [`TokenStream`] for each split.
//! Always holds: the manifest is checked, and every file the loader may read was there with the size
//! the manifest gives when the index was opened (a remote one when it is first read). Opening looks at each
//! shard's file sizes and reads no token and no document. Checksums of local files are `hds-index verify`'s.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hds::index::{Checksum, IndexError, MANIFEST_FILE, Manifest, Split};
use hds::{DomainId, DomainSet};

use crate::config::LoaderConfig;
use crate::error::LoaderError;
use crate::place::Place;
use crate::remote_options::{CacheTroubles, RemoteOptions, is_remote};
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
    place: Place,
    domains: DomainSet,
    manifest: Manifest,
    fingerprint: Checksum,
    train: Vec<TokenStream>,
    valid: Vec<TokenStream>,
}

impl Index {
    /// Opens an index folder, or the URL of one.
    ///
    /// # Errors
    /// If there is no manifest, it is of an unknown version or contradicts itself, or a file is missing
    /// or not as long as it says.
    pub fn open(place: &Path) -> Result<Self, IndexError> {
        Self::open_with(place, Access::default())
    }

    /// As [`Self::open`], with a choice of how files of a folder are read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(place: &Path, access: Access) -> Result<Self, IndexError> {
        Self::open_from(place, access, &RemoteOptions::default())
    }

    /// As [`Self::open_with`], with what is to be known of a remote index: one at `s3://`, `gs://`, `az://`,
    /// `http(s)://` or `file://`. Credentials come from the environment (`AWS_ACCESS_KEY_ID` and so on).
    ///
    /// # Errors
    /// As [`Self::open`]; or if the server or the cache is of no use, or this program was built without the
    /// feature `remote`.
    pub fn open_from(
        place: &Path,
        access: Access,
        remote: &RemoteOptions,
    ) -> Result<Self, IndexError> {
        if is_remote(place) {
            return Self::open_remote(place, remote);
        }
        let (manifest, fingerprint) = Manifest::load(place)?;
        let files = Place::Folder(place.to_owned(), access);
        Self::with_manifest(place.to_owned(), files, manifest, fingerprint)
    }

    #[cfg(feature = "remote")]
    fn open_remote(url: &Path, options: &RemoteOptions) -> Result<Self, IndexError> {
        // A URL is text, or it would not have been taken for one.
        let text = url.to_str().unwrap_or_default();
        let (remote, manifest, fingerprint) = crate::remote::Remote::open(text, options)?;
        let path = remote.url(None).into();
        Self::with_manifest(path, Place::Remote(remote), manifest, fingerprint)
    }

    #[cfg(not(feature = "remote"))]
    fn open_remote(url: &Path, _: &RemoteOptions) -> Result<Self, IndexError> {
        Err(IndexError::Remote {
            url: url.display().to_string(),
            reason: "this program was built without the feature `remote`; build it with it, or copy the index to a folder".into(),
        })
    }

    fn with_manifest(
        path: PathBuf,
        place: Place,
        manifest: Manifest,
        fingerprint: Checksum,
    ) -> Result<Self, IndexError> {
        let domains = manifest.domain_set(&path.join(MANIFEST_FILE))?;
        let streams = |split: Split| {
            let open = |domain: &hds::index::DomainEntry| {
                TokenStream::open(
                    &place,
                    format!("the {split} split of domain {:?}", domain.name),
                    domain.split(split),
                    manifest.token_type,
                    manifest.tokenizer.vocabulary,
                )
            };
            manifest.domains.iter().map(open).collect::<Result<_, _>>()
        };
        Ok(Self {
            inner: Arc::new(Inner {
                train: streams(Split::Train)?,
                valid: streams(Split::Valid)?,
                path,
                place,
                domains,
                manifest,
                fingerprint,
            }),
        })
    }

    /// Whether reading may wait for a server.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.inner.place, Place::Folder(..))
    }

    /// Checks that a loader of this configuration can read from here, whatever its weights are.
    ///
    /// # Errors
    /// The first value that is out of its range, or does not fit this index or its cache, by name.
    pub fn check(&self, config: &LoaderConfig) -> Result<(), LoaderError> {
        config.check()?;
        let vocabulary = self.inner.manifest.tokenizer.vocabulary;
        if let Some(token) = config.padding_token.filter(|&token| token >= vocabulary) {
            return Err(LoaderError::Config {
                field: "padding_token",
                reason: format!("is {token}, not below the vocabulary of {vocabulary}"),
            });
        }
        self.check_cache(config)
    }

    /// What the cache of a remote index went through in this process; nothing where the index is in a folder.
    pub fn cache_troubles(&self) -> CacheTroubles {
        #[cfg(feature = "remote")]
        if let Place::Remote(remote) = &self.inner.place {
            return remote.troubles();
        }
        CacheTroubles::default()
    }

    /// Refuses a cache that cannot hold what one batch reads at worst: each row two pieces of tokens at least, and
    /// one of documents.
    pub(crate) fn check_cache(&self, config: &LoaderConfig) -> Result<(), LoaderError> {
        #[cfg(feature = "remote")]
        if let Place::Remote(remote) = &self.inner.place {
            let options = remote.options();
            let (piece, limit) = (options.piece.0, options.cache_limit);
            let width = self.inner.manifest.token_type.bytes();
            let window = (config.sequence_length as u64 + 1).saturating_mul(width);
            let pieces = (window / piece + 3).saturating_mul(config.slots().len() as u64);
            let domains = self.inner.manifest.domains.iter();
            let shards = domains.flat_map(|domain| &domain.train.shards);
            let whole = shards.fold(0u64, |sum, shard| {
                let pieces = |bytes: u64| {
                    bytes
                        .div_ceil(piece)
                        .saturating_mul(crate::remote::stored(piece))
                };
                sum.saturating_add(pieces(shard.tokens_file.bytes))
                    .saturating_add(pieces(shard.documents_file.bytes))
            });
            let need = pieces
                .saturating_mul(crate::remote::stored(piece))
                .min(whole);
            if limit.0 < need {
                return Err(LoaderError::Config {
                    field: "cache_limit",
                    reason: format!(
                        "is {limit}, but a batch of {} sequences may touch {need} bytes in pieces of {}; raise it, or make the pieces smaller (cache_piece)",
                        config.slots().len(),
                        options.piece
                    ),
                });
            }
        }
        let _ = config;
        Ok(())
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

    /// The folder, or the URL without its password.
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
