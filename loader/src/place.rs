//! Where the files of an index are: in a folder, or behind a URL.
//!
//! In: the place and how it is read. Out: a [`SourceFile`] for each file of the manifest. Everything above is the
//! same for both.

use std::path::PathBuf;

use hds::index::{FileEntry, IndexError};

use crate::source_file::{Access, SourceFile};

/// The place of an index.
#[derive(Debug)]
pub(crate) enum Place {
    /// A folder.
    Folder(PathBuf, Access),
    /// A server.
    #[cfg(feature = "remote")]
    Remote(std::sync::Arc<crate::remote::Remote>),
}

impl Place {
    /// A file of the index.
    ///
    /// # Errors
    /// If it is not in the folder, or has another size. A remote one is looked at when it is first read.
    pub(crate) fn file(&self, entry: &FileEntry) -> Result<SourceFile, IndexError> {
        match self {
            Self::Folder(folder, access) => {
                SourceFile::new(folder.join(&entry.path), entry.bytes, *access)
            }
            #[cfg(feature = "remote")]
            Self::Remote(remote) => {
                let url = remote.url(Some(&entry.path)).into();
                Ok(SourceFile::remote(url, entry.bytes, remote.file(entry)))
            }
        }
    }
}
