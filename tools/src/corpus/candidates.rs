//! Lists the files that may become documents, in an order that is shuffled but always the same.
//!
//! In: places. Out: candidates by domain, ordered by the hash of their name. No file is opened.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::domain::{Domain, Holds, classify};
use super::places::Place;

/// Larger files are data, whatever they are called.
const LARGEST_FILE_BYTES: u64 = 2 << 20;
/// Folders nested deeper are left out, which also ends loops.
const DEEPEST: usize = 16;

/// A file that may become documents of a domain.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Domain of its documents.
    pub domain: Domain,
    /// Place and path in it; the same on every machine.
    pub name: String,
    /// What it belongs to (a crate, a family of manuals), where the share of that in a domain is limited.
    pub family: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// How to read it.
    pub holds: Holds,
    order: [u8; 32],
}

/// Lists every candidate of `places`.
pub(super) fn collect(places: &[Place]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    // The folders of Python and of libtorch can hold one another; a file counts once.
    let mut listed = HashSet::new();
    for place in places {
        let mut files = Vec::new();
        walk(
            &place.folder,
            &mut PathBuf::new(),
            0,
            place.holds,
            &mut files,
        );
        for relative in files {
            let path = place.folder.join(&relative);
            let domains = classify(place.holds, &relative);
            if domains.is_empty() || !listed.insert(path.clone()) {
                continue;
            }
            let name = format!("{}/{}", place.label, relative.display());
            let family = family(place, &relative);
            let order = *blake3::hash(name.as_bytes()).as_bytes();
            candidates.extend(domains.iter().map(|&domain| Candidate {
                domain,
                name: name.clone(),
                family: family.clone(),
                path: path.clone(),
                holds: place.holds,
                order,
            }));
        }
    }
    candidates.sort_by(|left, right| {
        left.order
            .cmp(&right.order)
            .then_with(|| left.domain.cmp(&right.domain))
    });
    candidates
}

/// What a file belongs to: its crate, its installed package, or the program that its manual's name starts with.
fn family(place: &Place, relative: &Path) -> Option<String> {
    match place.holds {
        Holds::Crate => Some(place.label.clone()),
        Holds::Papers => Some(relative.iter().next()?.to_string_lossy().into_owned()),
        Holds::Manuals => {
            let name = relative.file_name()?.to_string_lossy();
            Some(name.split(['-', '_', '.']).next()?.to_owned())
        }
        Holds::Headers | Holds::Python | Holds::Books => None,
    }
}

/// Adds the regular files below `folder`, relative to it. Links are not followed: what they lead to is listed where
/// it lies.
fn walk(
    folder: &Path,
    relative: &mut PathBuf,
    depth: usize,
    holds: Holds,
    files: &mut Vec<PathBuf>,
) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
            continue;
        };
        relative.push(&name);
        if kind.is_dir() && depth < DEEPEST && !is_skipped(&name.to_string_lossy(), holds) {
            walk(&entry.path(), relative, depth + 1, holds, files);
        } else if kind.is_file()
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.len() <= LARGEST_FILE_BYTES)
        {
            files.push(relative.clone());
        }
        relative.pop();
    }
}

fn is_skipped(folder: &str, holds: Holds) -> bool {
    let hidden = folder.starts_with('.') && folder != ".github";
    // Packages that a user has installed are not the standard library; torch/include is listed as headers.
    let python = matches!(
        folder,
        "site-packages" | "dist-packages" | "__pycache__" | "include" | "lib"
    );
    hidden || (holds == Holds::Python && python)
}
