//! Turns what a user names as input into sources in a fixed order.
//!
//! In: files, folders and `-`. Out: a [`Plan`]: one source a record file, one for all the text files of a folder. Always holds:
//! the same names give the same plan on any machine; nothing is passed over silently. Opens no file; see [`super::Reader`].

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::format::{Compression, Format, RECORD_FORMATS, TextExtensions, format_of};
use super::walk::{Entry, Walk, WalkError};

/// Where the domain of a record comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DomainFrom {
    /// The field where a source's first record has it, else the file's name; for text files the folder.
    #[default]
    Auto,
    /// The field, which every record must have.
    Field,
    /// The name of the file without its extensions.
    File,
    /// The first folder below the input, else the folder that the file is in.
    Folder,
    /// One name for all.
    Named(String),
}

/// Which split the documents of a source go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// By the hash of the text.
    ByHash,
    /// All held out.
    HeldOut,
}

/// What a source holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A file with a JSON object a line.
    Lines(Compression),
    /// A Parquet file.
    Table,
    /// An Arrow IPC file or stream.
    Arrow,
    /// The `.idx` of a Megatron dataset, its `.bin` beside it.
    Megatron,
    /// A text file.
    TextFile,
    /// All text files below a folder.
    TextFolder,
    /// Lines on the standard input.
    StandardInput,
    /// Nothing to read: a folder's entry for what was left out of it.
    Nothing,
}

impl SourceKind {
    /// What its records are.
    pub fn record_kind(&self) -> RecordKind {
        match self {
            Self::Lines(_) | Self::StandardInput => RecordKind::Line,
            Self::Table | Self::Arrow => RecordKind::Row,
            Self::Megatron => RecordKind::Document,
            Self::TextFile | Self::TextFolder | Self::Nothing => RecordKind::File,
        }
    }
}

/// What the records of a source are, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// Lines.
    Line,
    /// Rows of a table.
    Row,
    /// Documents of a dataset.
    Document,
    /// Files.
    File,
}

impl RecordKind {
    /// A record's number, as document tables have it, in words: "line 3" counts from 1, as messages do, the others from 0.
    pub fn place_of(self, position: u64) -> String {
        match self {
            Self::Line => format!("line {}", position + 1),
            Self::Row => format!("row {position}"),
            Self::Document => format!("document {position}"),
            Self::File => format!("file {position}"),
        }
    }
}

/// Files left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The reason.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
    /// The first one.
    pub first: String,
}

/// One input of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where to open it.
    pub path: PathBuf,
    /// Its name in the manifest: the file's, or the path below the named folder behind the folder's name.
    pub name: String,
    /// Size in bytes; the sum for a folder of text, 0 for the standard input.
    pub bytes: u64,
    /// Tells whether it was changed since: of sizes and times, never in the manifest.
    pub stamp: String,
    /// What it holds.
    pub kind: SourceKind,
    /// The domain that the file's name gives.
    pub file_domain: String,
    /// The domain that the folder's name gives.
    pub folder_domain: String,
    /// Where its documents go.
    pub split: Split,
    /// Files left out of a folder.
    pub left_out: Vec<LeftOut>,
}

/// The sources in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Every source; their numbers are what document tables refer to.
    pub sources: Vec<Source>,
}

/// How inputs are understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// More extensions of text files.
    pub text_extensions: TextExtensions,
    /// Leave out files of unknown format, links that lead nowhere and folders that cannot be listed, and count them, rather
    /// than refuse them.
    pub skip_faults: bool,
}

/// Why there is no plan.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An input cannot be looked at.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A name that does not say what the file holds.
    #[error(
        "{path}: the name does not say what the file holds{more}; known are {RECORD_FORMATS}, and text files \
         (`--text-extension EXT` names more of them; `--on-error skip` leaves such files out)"
    )]
    UnknownFormat {
        /// The first such file.
        path: PathBuf,
        /// How many more there are, in words.
        more: String,
    },
    /// Neither file nor folder.
    #[error("{path} is neither a file nor a folder; pipe it in and give `-` as the input")]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A folder without anything to index.
    #[error("folder {path} holds no file to index; known are {RECORD_FORMATS}, and text files")]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The same file through two inputs.
    #[error(
        "{path} is given twice, under this name or another; weights, not copies, make a domain count more"
    )]
    Twice {
        /// The file.
        path: PathBuf,
    },
    /// An import's `=` with nothing before it.
    #[error(
        "={prefix}: the domain before `=` is empty; give DOMAIN=PREFIX, or PREFIX alone for a domain of the file's name"
    )]
    NoDomain {
        /// What is behind it.
        prefix: PathBuf,
    },
    /// No input at all.
    #[error("no input is given")]
    Nothing,
}

impl Plan {
    /// Makes the plan of a build: `inputs` to be split by hash, `held_out` whole.
    ///
    /// # Errors
    /// An input that cannot be read, holds nothing, is of unknown format, or is given twice.
    pub fn new(
        inputs: &[PathBuf],
        held_out: &[PathBuf],
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if inputs.is_empty() {
            return Err(PlanError::Nothing);
        }
        let mut planner = Planner {
            options,
            split: Split::ByHash,
            seen: HashSet::new(),
            seen_files: HashSet::new(),
            plan: Self::default(),
        };
        for input in inputs {
            planner.add(input)?;
        }
        planner.split = Split::HeldOut;
        for input in held_out {
            planner.add(input)?;
        }
        Ok(planner.plan)
    }

    /// Bytes to be read, as far as they are known beforehand.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(|s| s.bytes).sum()
    }

    /// Whether a build from it can go on after an interruption: not from the standard input.
    pub fn is_repeatable(&self) -> bool {
        self.sources
            .iter()
            .all(|s| s.kind != SourceKind::StandardInput)
    }
}

struct Planner<'o> {
    options: &'o PlanOptions,
    split: Split,
    seen: HashSet<PathBuf>,
    /// Device and number of each file, which all its hard links share.
    seen_files: HashSet<(u64, u64)>,
    plan: Plan,
}

impl Planner<'_> {
    fn add(&mut self, input: &Path) -> Result<(), PlanError> {
        if input == Path::new("-") {
            self.note(input, input)?;
            let stdin = self.source(input, "stdin", SourceKind::StandardInput);
            self.plan.sources.push(stdin);
            return Ok(());
        }
        let failed = |source| PlanError::Read {
            path: input.to_owned(),
            source,
        };
        let metadata = fs::metadata(input).map_err(failed)?;
        let identity = fs::canonicalize(input).map_err(failed)?;
        self.note(&identity, input)?;
        if metadata.is_dir() {
            return self.add_folder(input, &identity);
        }
        if !metadata.is_file() {
            return Err(PlanError::NoFile { path: input.into() });
        }
        self.note_file(&metadata, input)?;
        let name = name_of(&identity);
        let Some((format, stem)) = format_of(&name, &self.options.text_extensions) else {
            return self.unknown_file(input, &name);
        };
        let mut source = self.source(input, &name, kind_of(format));
        (source.bytes, source.stamp) = (metadata.len(), stamp(&metadata));
        source.file_domain = stem.to_owned();
        source.folder_domain = identity.parent().map(name_of).unwrap_or_default();
        self.plan.sources.push(source);
        Ok(())
    }

    /// All record files below a folder, a source each; or, where there are none, its text files as one source.
    fn add_folder(&mut self, folder: &Path, identity: &Path) -> Result<(), PlanError> {
        let folder_name = name_of(identity);
        let mut found = Vec::new();
        let mut text = self.source(folder, &format!("{folder_name}/"), SourceKind::TextFolder);
        text.folder_domain = folder_name.clone();
        let mut texts = 0u64;
        let mut first_text = String::new();
        let mut names = blake3::Hasher::new();
        let mut unknown: Option<(PathBuf, u64)> = None;
        let mut unreadable = Vec::new();
        for entry in Walk::new(folder).map_err(read_error)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if self.options.skip_faults => {
                    leave_out(&mut unreadable, "unreadable", &error.relative);
                    continue;
                }
                Err(error) => return Err(read_error(error)),
            };
            if let Some(reason) = entry.left_out {
                leave_out(&mut text.left_out, reason, &entry.relative);
                continue;
            }
            let name = name_of(&entry.path);
            match format_of(&name, &self.options.text_extensions) {
                Some((Format::Text, _)) => {
                    if texts == 0 {
                        first_text.clone_from(&entry.relative);
                    }
                    texts += 1;
                    text.bytes += entry.metadata.len();
                    names.update(entry.relative.as_bytes());
                    names.update(stamp(&entry.metadata).as_bytes());
                }
                Some((format, stem)) => found.push((entry, format, stem.to_owned())),
                None => {
                    leave_out(&mut text.left_out, "unknown format", &entry.relative);
                    unknown.get_or_insert((entry.path, 0)).1 += 1;
                }
            }
        }
        match unknown {
            Some((path, count)) if !self.options.skip_faults => {
                let more = match count {
                    1 => String::new(),
                    n => format!(" (and {} more like it in {})", n - 1, folder.display()),
                };
                return Err(PlanError::UnknownFormat { path, more });
            }
            _ => {}
        }
        if found.is_empty() && texts == 0 {
            return Err(PlanError::EmptyFolder {
                path: folder.into(),
            });
        }
        if found.is_empty() {
            text.stamp = format!("{texts} files {}", names.finalize().to_hex());
        } else {
            // A README beside the shards of a corpus is no document of it.
            if texts > 0 {
                text.left_out.push(LeftOut {
                    reason: "text beside record files",
                    count: texts,
                    first: first_text,
                });
            }
            // The reader of a text folder meets and counts them itself.
            text.left_out.append(&mut unreadable);
            (text.kind, text.bytes) = (SourceKind::Nothing, 0);
        }
        if text.kind == SourceKind::TextFolder || !text.left_out.is_empty() {
            self.plan.sources.push(text);
        }
        for (entry, format, stem) in found {
            self.add_record_file(entry, format, stem, &folder_name)?;
        }
        Ok(())
    }

    fn add_record_file(
        &mut self,
        entry: Entry,
        format: Format,
        stem: String,
        folder_name: &str,
    ) -> Result<(), PlanError> {
        let identity = fs::canonicalize(&entry.path).map_err(|source| PlanError::Read {
            path: entry.path.clone(),
            source,
        })?;
        self.note(&identity, &entry.path)?;
        self.note_file(&entry.metadata, &entry.path)?;
        let name = format!("{folder_name}/{}", entry.relative);
        let mut source = self.source(&entry.path, &name, kind_of(format));
        (source.bytes, source.stamp) = (entry.metadata.len(), stamp(&entry.metadata));
        source.file_domain = stem;
        source.folder_domain = folder_of(&entry.relative).unwrap_or(folder_name).to_owned();
        self.plan.sources.push(source);
        Ok(())
    }

    fn unknown_file(&mut self, path: &Path, name: &str) -> Result<(), PlanError> {
        if !self.options.skip_faults {
            return Err(PlanError::UnknownFormat {
                path: path.into(),
                more: String::new(),
            });
        }
        let mut source = self.source(path, name, SourceKind::Nothing);
        leave_out(&mut source.left_out, "unknown format", name);
        self.plan.sources.push(source);
        Ok(())
    }

    fn source(&self, path: &Path, name: &str, kind: SourceKind) -> Source {
        Source {
            path: path.to_owned(),
            name: name.to_owned(),
            bytes: 0,
            stamp: String::new(),
            kind,
            file_domain: name.to_owned(),
            folder_domain: name.to_owned(),
            split: self.split,
            left_out: Vec::new(),
        }
    }

    /// Refuses a second hard link to a file.
    fn note_file(&mut self, metadata: &Metadata, path: &Path) -> Result<(), PlanError> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let is_new = self.seen_files.insert((metadata.dev(), metadata.ino()));
            if !is_new && metadata.nlink() > 1 {
                return Err(PlanError::Twice { path: path.into() });
            }
        }
        #[cfg(not(unix))]
        let _ = (metadata, path);
        Ok(())
    }

    fn note(&mut self, identity: &Path, path: &Path) -> Result<(), PlanError> {
        if self.seen.insert(identity.to_owned()) {
            return Ok(());
        }
        Err(PlanError::Twice { path: path.into() })
    }
}

/// The first folder of a path below an input folder, if there is one.
pub(super) fn folder_of(relative: &str) -> Option<&str> {
    relative.split_once('/').map(|(folder, _)| folder)
}

fn kind_of(format: Format) -> SourceKind {
    match format {
        Format::Lines(compression) => SourceKind::Lines(compression),
        Format::Parquet => SourceKind::Table,
        Format::Arrow => SourceKind::Arrow,
        Format::Text => SourceKind::TextFile,
    }
}

fn leave_out(list: &mut Vec<LeftOut>, reason: &'static str, name: &str) {
    match list.iter_mut().find(|l| l.reason == reason) {
        Some(known) => known.count += 1,
        None => list.push(LeftOut {
            reason,
            count: 1,
            first: name.to_owned(),
        }),
    }
}

fn read_error(error: WalkError) -> PlanError {
    PlanError::Read {
        path: error.path,
        source: error.source,
    }
}

pub(super) fn name_of(path: &Path) -> String {
    match path.components().next_back() {
        Some(Component::Normal(name)) => name.to_string_lossy().into_owned(),
        _ => "root".into(),
    }
}

/// Size and time of the last change.
pub(super) fn stamp(metadata: &Metadata) -> String {
    let modified = metadata.modified().ok();
    let nanoseconds = modified
        .and_then(|m| m.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |d| d.as_nanos());
    format!("{} bytes, modified at {nanoseconds}", metadata.len())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
