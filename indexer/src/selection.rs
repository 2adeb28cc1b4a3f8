//! Which domains and splits of an index a tool works on.
//!
//! In: names as a user gives them. Out: the splits that have documents, in the order of the index. A name that is no domain is an error that
//! lists those there are.

use std::path::Path;

use hds::index::{IndexError, Manifest, ShardEntry, Split, SplitEntry};

/// Domains and splits; empty stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names of domains.
    pub domains: Vec<String>,
    /// One split only.
    pub split: Option<Split>,
}

/// A split that was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'m> {
    pub domain: &'m str,
    pub split: Split,
    pub entry: &'m SplitEntry,
}

impl Selection {
    /// The splits of an index that are meant and not empty.
    ///
    /// # Errors
    /// If a name is no domain.
    pub(crate) fn of<'m>(
        &self,
        index: &Path,
        manifest: &'m Manifest,
    ) -> Result<Vec<Chosen<'m>>, IndexError> {
        let set = manifest.domain_set(index)?;
        for name in &self.domains {
            set.find(name).map_err(|source| IndexError::Domains {
                path: index.into(),
                source,
            })?;
        }
        let wanted = |name: &str| self.domains.is_empty() || self.domains.iter().any(|d| d == name);
        let mut chosen = Vec::new();
        for domain in manifest.domains.iter().filter(|d| wanted(&d.name)) {
            for split in Split::ALL {
                let entry = domain.split(split);
                if entry.documents > 0 && self.split.is_none_or(|s| s == split) {
                    chosen.push(Chosen {
                        domain: &domain.name,
                        split,
                        entry,
                    });
                }
            }
        }
        Ok(chosen)
    }
}

/// The shard that holds a document of a split.
pub(crate) fn shard_of(entry: &SplitEntry, document: u64) -> Option<&ShardEntry> {
    let behind = entry
        .shards
        .partition_point(|s| s.first_document <= document);
    let shard = entry.shards.get(behind.checked_sub(1)?)?;
    (document - shard.first_document < shard.documents).then_some(shard)
}
