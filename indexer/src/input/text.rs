//! Text files, a document each, gathered into blocks.
//!
//! In: a file, or a folder to walk. Out: blocks of about [`BLOCK_BYTES`] of small files, or of one large one. The bytes are not
//! looked at. A file that cannot be read is a fault of its own; the next call goes on behind it.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::TextDocument;
use super::error::{InputError, Place};
use super::format::{Format, TextExtensions, format_of};
use super::lines::{BLOCK_BYTES, LONGEST_LINE};
use super::plan::{DomainFrom, Source, folder_of, name_of};
use super::walk::{Entry, Walk, WalkError};
use crate::record::Fault;

/// The files of one source.
pub(super) struct TextFiles {
    files: Files,
    domain_from: DomainFrom,
    file_domain: Arc<str>,
    folder_domain: Arc<str>,
    also_text: TextExtensions,
    count: Arc<AtomicU64>,
    next: u64,
    last_domain: Arc<str>,
    failed: Option<(InputError, String)>,
}

enum Files {
    One(Option<PathBuf>),
    Walk(Walk),
}

impl TextFiles {
    /// One file.
    pub fn one(source: &Source, domain_from: DomainFrom, count: &Arc<AtomicU64>) -> Self {
        let files = Files::One(Some(source.path.clone()));
        Self::new(files, source, domain_from, TextExtensions::default(), count)
    }

    /// All text files below a folder.
    pub fn folder(
        source: &Source,
        domain_from: DomainFrom,
        also_text: TextExtensions,
        count: &Arc<AtomicU64>,
    ) -> Result<Self, WalkError> {
        let files = Files::Walk(Walk::new(&source.path)?);
        Ok(Self::new(files, source, domain_from, also_text, count))
    }

    fn new(
        files: Files,
        source: &Source,
        domain_from: DomainFrom,
        also_text: TextExtensions,
        count: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            files,
            domain_from,
            file_domain: source.file_domain.as_str().into(),
            folder_domain: source.folder_domain.as_str().into(),
            also_text,
            count: count.clone(),
            next: 0,
            last_domain: "".into(),
            failed: None,
        }
    }

    /// Files behind the reader.
    pub fn next_position(&self) -> u64 {
        self.next
    }

    /// Passes files over without opening them.
    pub fn skip_to(&mut self, position: u64) {
        while self.next < position {
            match self.next_file() {
                Ok(Some(_)) => self.next += 1,
                Ok(None) => return,
                // Met and counted before the interruption.
                Err(_) => {}
            }
        }
    }

    /// The next files, or `None` at the end.
    ///
    /// # Errors
    /// A file that cannot be read, with its path below the source.
    pub fn next_block(&mut self) -> Result<Option<Vec<TextDocument>>, (InputError, String)> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let mut texts = Vec::new();
        let mut bytes = 0;
        while bytes < BLOCK_BYTES {
            let file = match self.next_file() {
                Ok(file) => file,
                Err(e) => {
                    let fault = Fault::Read {
                        why: e.source.to_string(),
                    };
                    self.failed = Some(whole(e.path, fault, e.relative));
                    break;
                }
            };
            let Some((path, relative)) = file else { break };
            let position = self.next;
            self.next += 1;
            match read_whole(&path) {
                Ok(content) => {
                    self.count
                        .fetch_add(content.len() as u64, Ordering::Relaxed);
                    bytes += content.len().max(64);
                    let domain = self.domain_of(&path, &relative);
                    texts.push(TextDocument {
                        position,
                        path,
                        relative,
                        domain,
                        bytes: content,
                    });
                }
                Err(fault) => {
                    self.failed = Some(whole(path, fault, relative));
                    break;
                }
            }
        }
        if texts.is_empty() {
            return self.failed.take().map_or(Ok(None), Err);
        }
        Ok(Some(texts))
    }

    fn next_file(&mut self) -> Result<Option<(PathBuf, String)>, WalkError> {
        match &mut self.files {
            Files::One(path) => Ok(path.take().map(|p| (p, String::new()))),
            Files::Walk(walk) => {
                for entry in walk {
                    let Entry {
                        path,
                        relative,
                        left_out,
                        ..
                    } = entry?;
                    let is_text = matches!(
                        format_of(&name_of(&path), &self.also_text),
                        Some((Format::Text, _))
                    );
                    if left_out.is_none() && is_text {
                        return Ok(Some((path, relative)));
                    }
                }
                Ok(None)
            }
        }
    }

    fn domain_of(&mut self, path: &std::path::Path, relative: &str) -> Arc<str> {
        let name = name_of(path);
        let domain = match &self.domain_from {
            DomainFrom::Named(name) => name.as_str(),
            DomainFrom::File if relative.is_empty() => return self.file_domain.clone(),
            DomainFrom::File => format_of(&name, &self.also_text).map_or(name.as_str(), |f| f.1),
            _ => match folder_of(relative) {
                Some(folder) => folder,
                None => return self.folder_domain.clone(),
            },
        };
        if *self.last_domain != *domain {
            self.last_domain = domain.into();
        }
        self.last_domain.clone()
    }
}

fn whole(path: PathBuf, fault: Fault, relative: String) -> (InputError, String) {
    let error = InputError {
        path,
        place: Place::Whole,
        fault,
    };
    (error, relative)
}

fn read_whole(path: &std::path::Path) -> Result<Vec<u8>, Fault> {
    let read = |e: io::Error| Fault::Read { why: e.to_string() };
    let file = File::open(path).map_err(read)?;
    let size = file.metadata().map_err(read)?.len();
    let most = LONGEST_LINE as u64;
    if size > most {
        return Err(Fault::TooLong { most });
    }
    let mut content = Vec::with_capacity(size as usize);
    file.take(most + 1)
        .read_to_end(&mut content)
        .map_err(read)?;
    if content.len() as u64 > most {
        return Err(Fault::TooLong { most });
    }
    Ok(content)
}
