//! Makes a small corpus of several domains from real text that any machine has once this workspace is built.
//!
//! In: the sources of the crates in `Cargo.lock`, libtorch's headers and Python code, Python's standard library,
//! the toolchain's books, the system's manuals and licences; whatever is missing is left out. Out: a folder with
//! one `DOMAIN.jsonl.zst` a domain, in The Pile's format (`{"text": …, "meta": {"pile_set_name": …}}`).
//! The same machine gives the same bytes. A document appears once; no document holds a path of this machine.
//! Nothing is downloaded except crates that the lock file names.

mod candidates;
mod clean;
mod domain;
mod error;
mod extract;
mod html;
mod manual;
mod places;
mod write;

use std::path::{Path, PathBuf};

pub use domain::Domain;
pub use error::CorpusError;
pub use write::Tally;

use crate::project::Project;

/// Text that the corpus holds by default, in megabytes (10^6 bytes) at most.
pub const DEFAULT_MEGABYTES: u32 = 48;

/// Makes the corpus in `out` and gives what each domain holds; `out` appears when whole.
///
/// # Errors
/// Where cargo cannot name the crates, `out` holds something else, or a file cannot be written.
pub fn run(project: &Project, out: &Path, megabytes: u32) -> Result<Vec<Tally>, CorpusError> {
    write::check_replaceable(out)?;
    let places = places::find(project)?;
    eprintln!(
        "corpus: reading {} places, at most {megabytes} MB of text",
        places.len()
    );
    let forbidden = clean::MachinePaths::new(project);
    let candidates = candidates::collect(&places);
    let partial = write::Partial::create(out)?;
    let mut seen = clean::Seen::default();
    let mut tallies = Vec::new();
    for domain in Domain::ALL {
        let limit_bytes = domain.limit_bytes(megabytes);
        let tally = write::domain(
            &partial,
            domain,
            &candidates,
            limit_bytes,
            &forbidden,
            &mut seen,
        )?;
        tallies.extend(tally);
    }
    if tallies.len() < 2 {
        return Err(CorpusError::TooLittle {
            domains: tallies.len(),
        });
    }
    partial.publish()?;
    Ok(tallies)
}

/// A table of the domains, for people.
#[must_use]
pub fn table(tallies: &[Tally]) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "{:<14} {:>10} {:>12} {:>12}\n",
        "domain", "documents", "text bytes", "file bytes"
    );
    let mut total = (0, 0, 0);
    for tally in tallies {
        let name = tally.domain.name();
        let _ = writeln!(
            text,
            "{name:<14} {:>10} {:>12} {:>12}",
            tally.documents, tally.text_bytes, tally.file_bytes
        );
        total = (
            total.0 + tally.documents,
            total.1 + tally.text_bytes,
            total.2 + tally.file_bytes,
        );
    }
    let _ = writeln!(
        text,
        "{:<14} {:>10} {:>12} {:>12}",
        "total", total.0, total.1, total.2
    );
    text
}

/// Where [`run`] puts a domain's documents.
#[must_use]
pub fn file_of(out: &Path, domain: Domain) -> PathBuf {
    out.join(format!("{}.jsonl.zst", domain.name()))
}
