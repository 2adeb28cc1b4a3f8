//! Folders of this machine that hold text.
//!
//! In: what cargo, rustc and Python say of themselves. Out: folders with a label that is the same on every machine,
//! in a fixed order. Folders that do not exist are left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::CorpusError;
use super::domain::Holds;
use crate::process::quiet_stdout;
use crate::project::{Project, cargo};

/// Books that rustup installs with the toolchain's documentation.
const BOOKS: [&str; 12] = [
    "book",
    "nomicon",
    "reference",
    "rust-by-example",
    "cargo",
    "edition-guide",
    "embedded-book",
    "rustc",
    "rustdoc",
    "style-guide",
    "unstable-book",
    "error_codes",
];

/// A folder with text.
#[derive(Debug)]
pub(super) struct Place {
    /// Stands for the folder in the names of documents.
    pub label: String,
    /// The folder.
    pub folder: PathBuf,
    /// What is in it.
    pub holds: Holds,
}

/// Finds every folder of this machine that the corpus is made of.
pub(super) fn find(project: &Project) -> Result<Vec<Place>, CorpusError> {
    let mut places = crates(project)?;
    let mut add = |label: &str, folder: PathBuf, holds| {
        places.push(Place {
            label: label.into(),
            folder,
            holds,
        })
    };
    let torch =
        std::env::var_os("LIBTORCH").map_or_else(|| project.default_libtorch(), PathBuf::from);
    add("libtorch/include", torch.join("include"), Holds::Headers);
    add("torch", torch, Holds::Python);
    let python = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    if let Some(folder) = quiet_stdout(Command::new("python3").args(["-c", python])) {
        add("python", PathBuf::from(folder.trim()), Holds::Python);
    }
    if let Some(sysroot) = quiet_stdout(Command::new("rustc").args(["--print", "sysroot"])) {
        let share = Path::new(sysroot.trim()).join("share");
        for book in BOOKS {
            add(
                &format!("rust-{book}"),
                share.join("doc/rust/html").join(book),
                Holds::Books,
            );
        }
        add("rust-manuals", share.join("man"), Holds::Manuals);
    }
    add("include/c++", "/usr/include/c++".into(), Holds::Headers);
    for section in 1..=8 {
        add(
            &format!("man{section}"),
            format!("/usr/share/man/man{section}").into(),
            Holds::Manuals,
        );
    }
    add("doc", "/usr/share/doc".into(), Holds::Papers);
    add(
        "common-licenses",
        "/usr/share/common-licenses".into(),
        Holds::Papers,
    );
    places.retain(|place| place.folder.is_dir());
    Ok(places)
}

/// Sources of the crates that this workspace is built from on this machine, its own excepted.
fn crates(project: &Project) -> Result<Vec<Place>, CorpusError> {
    let host = quiet_stdout(Command::new("rustc").arg("-vV")).and_then(|text| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix("host: ")?.to_owned()))
    });
    let mut command = Command::new(cargo());
    command
        .current_dir(project.root())
        .args(["metadata", "--format-version", "1"]);
    if let Some(host) = host {
        command.args(["--filter-platform", &host]);
    }
    let failed = |said: String| CorpusError::Metadata { said };
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    // The resolved graph leaves out crates of other platforms, which need not be on this machine.
    let used: std::collections::HashSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let mut places: Vec<Place> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| !package["source"].is_null())
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .filter_map(|package| {
            let label = format!(
                "{}-{}",
                package["name"].as_str()?,
                package["version"].as_str()?
            );
            let folder = Path::new(package["manifest_path"].as_str()?)
                .parent()?
                .to_path_buf();
            Some(Place {
                label,
                folder,
                holds: Holds::Crate,
            })
        })
        .collect();
    places.sort_by(|left, right| left.label.cmp(&right.label));
    Ok(places)
}
