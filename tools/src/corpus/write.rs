//! Writes the documents of a domain, and puts the finished corpus in place.
//!
//! In: candidates in their order. Out: one compressed JSON Lines file a domain. All is written into a sibling folder
//! that is renamed at the end, so a corpus that exists is whole.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::candidates::Candidate;
use super::clean::{self, MachinePaths, Seen};
use super::{CorpusError, Domain, extract, file_of};

/// A crate or a family of manuals may fill one part in so many of a domain, or a large one would be most of it.
const FAMILY_SHARE: u64 = 8;
/// A domain of fewer documents would leave next to none held out.
const FEWEST_DOCUMENTS: u64 = 40;
const LEAST_BYTES: u64 = 100_000;
const ZSTD_LEVEL: i32 = 3;

/// What a domain holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The domain.
    pub domain: Domain,
    /// Documents written.
    pub documents: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
    /// Bytes of the compressed file.
    pub file_bytes: u64,
}

/// A corpus in the making; removed when dropped unless published.
#[derive(Debug)]
pub(super) struct Partial {
    folder: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// Makes an empty folder beside `out`.
    pub(super) fn create(out: &Path) -> Result<Self, CorpusError> {
        let name = out.file_name().map_or_else(
            || "corpus".into(),
            |name| name.to_string_lossy().into_owned(),
        );
        let folder = out.with_file_name(format!("{name}.{}.hds-tmp", std::process::id()));
        fs::create_dir_all(&folder).map_err(CorpusError::io(&folder, "create it"))?;
        Ok(Self {
            folder,
            target: out.to_path_buf(),
        })
    }

    /// Replaces the corpus at the target.
    pub(super) fn publish(self) -> Result<(), CorpusError> {
        check_replaceable(&self.target)?;
        if self.target.exists() {
            fs::remove_dir_all(&self.target)
                .map_err(CorpusError::io(&self.target, "remove the old corpus"))?;
        }
        fs::rename(&self.folder, &self.target)
            .map_err(CorpusError::io(&self.target, "put the corpus there"))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already after a rename; a leftover does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Refuses a folder with anything in it but files of a corpus.
pub(super) fn check_replaceable(out: &Path) -> Result<(), CorpusError> {
    let entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CorpusError::io(out, "read it")(error)),
    };
    for entry in entries.flatten() {
        let ours = Domain::ALL
            .iter()
            .any(|&domain| file_of(out, domain) == entry.path());
        if !ours {
            let stranger = entry.file_name().to_string_lossy().into_owned();
            return Err(CorpusError::NotACorpus {
                path: out.to_path_buf(),
                stranger,
            });
        }
    }
    Ok(())
}

/// Writes the documents of `domain` until they hold `limit_bytes` of text; `None` where there are too few for a domain.
pub(super) fn domain(
    partial: &Partial,
    domain: Domain,
    candidates: &[Candidate],
    limit_bytes: u64,
    forbidden: &MachinePaths,
    seen: &mut Seen,
) -> Result<Option<Tally>, CorpusError> {
    let mut tally = Tally {
        domain,
        documents: 0,
        text_bytes: 0,
        file_bytes: 0,
    };
    let path = file_of(&partial.folder, domain);
    let io = |doing| CorpusError::io(&path, doing);
    let file = File::create(&path).map_err(io("create it"))?;
    let mut writer = zstd::Encoder::new(file, ZSTD_LEVEL).map_err(io("compress into it"))?;
    let mut family_bytes: HashMap<&str, u64> = HashMap::new();
    for candidate in candidates
        .iter()
        .filter(|candidate| candidate.domain == domain)
    {
        if tally.text_bytes >= limit_bytes {
            break;
        }
        let family = candidate.family.as_deref().unwrap_or_default();
        let used = family_bytes.entry(family).or_default();
        if !family.is_empty() && *used >= limit_bytes / FAMILY_SHARE {
            continue;
        }
        let Some(text) = extract::text(candidate) else {
            continue;
        };
        if !clean::is_written_by_people(&text) || forbidden.found_in(&text) {
            continue;
        }
        for document in clean::cut(&text)
            .into_iter()
            .filter(|document| seen.insert(document))
        {
            let meta = json!({ "pile_set_name": domain.name(), "source": candidate.name });
            let line = json!({ "text": document, "meta": meta });
            writeln!(writer, "{line}").map_err(io("write to it"))?;
            tally.documents += 1;
            tally.text_bytes += document.len() as u64;
            *used += document.len() as u64;
        }
    }
    let file = writer.finish().map_err(io("finish it"))?;
    file.sync_all().map_err(io("sync it"))?;
    tally.file_bytes = file.metadata().map_err(io("measure it"))?.len();
    if tally.documents < FEWEST_DOCUMENTS || tally.text_bytes < LEAST_BYTES {
        fs::remove_file(&path).map_err(io("remove it"))?;
        eprintln!(
            "corpus: {} is left out: {} documents are too few to split",
            domain.name(),
            tally.documents
        );
        return Ok(None);
    }
    Ok(Some(tally))
}
