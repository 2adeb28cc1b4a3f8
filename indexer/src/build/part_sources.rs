//! Holds what parts say of their sources against what they hold.
//!
//! In: the `part.json` of all parts, and the records of each. Out: nothing, or the number that does not add up. Always holds behind it: the
//! bytes of all sources and what was left out of them have sums, and a source has as many documents as there are records of it.
//! Memory: a number a source.

use std::path::Path;

use hds::index::PART_FILE;

use super::merge::MergeError;
use super::part::PartManifest;

/// No file system holds more bytes: places in files are signed numbers.
const MOST_BYTES: u64 = i64::MAX as u64;

/// Refuses bytes and counts of sources that cannot be added up; documents are left to [`SourceDocuments`].
/// `parts` are all folders with what they say of themselves.
///
/// # Errors
/// The part with which a sum gets too large.
pub(super) fn check_sums<'p>(
    parts: impl Iterator<Item = (&'p Path, &'p PartManifest)>,
) -> Result<(), MergeError> {
    let (mut bytes, mut skipped) = (0u64, 0u64);
    for (folder, part) in parts {
        for source in &part.sources {
            let add = |sum: u64, more: u64, most: u64, what: &str| {
                let sum = sum.checked_add(more).filter(|sum| *sum <= most);
                sum.ok_or_else(|| MergeError::Damaged {
                    path: folder.join(PART_FILE),
                    reason: format!(
                        "source {:?} has {more} {what}, with which all sources have more than {most}",
                        source.name
                    ),
                })
            };
            bytes = add(bytes, source.bytes, MOST_BYTES, "bytes")?;
            for left_out in &source.skipped {
                skipped = add(skipped, left_out.count, u64::MAX, "records left out")?;
            }
        }
    }
    Ok(())
}

/// The documents that the records of a part have of each of its sources.
pub(super) struct SourceDocuments(Vec<u64>);

impl SourceDocuments {
    /// Of a part with so many sources, before the first record.
    pub fn new(sources: usize) -> Self {
        Self(vec![0; sources])
    }

    /// Counts a record of a source of the part; one that it does not have is for the caller to refuse.
    pub fn count(&mut self, source: usize) {
        if let Some(documents) = self.0.get_mut(source) {
            // Each is a record of a file.
            *documents += 1;
        }
    }

    /// Compares with what the part says once all its records are counted.
    ///
    /// # Errors
    /// The first source that differs.
    pub fn compare(&self, folder: &Path, part: &PartManifest) -> Result<(), MergeError> {
        for (source, got) in part.sources.iter().zip(&self.0) {
            if source.documents != *got {
                return Err(MergeError::Damaged {
                    path: folder.join(PART_FILE),
                    reason: format!(
                        "source {:?} has {} documents, the records have {got}",
                        source.name, source.documents
                    ),
                });
            }
        }
        Ok(())
    }
}
