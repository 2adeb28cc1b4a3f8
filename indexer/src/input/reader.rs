//! Reads the sources of a plan, one after another, into numbered blocks.
//!
//! In: a plan and a place to start at. Out: [`Block`]s in input order, each source closed by [`Payload::End`]. Always holds: the
//! records behind a block's cursor are exactly those of the blocks up to it, so a build may start again there. Parses no
//! more than a source's first records, to see whether they have the domain's field.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memchr::memchr_iter;

use super::arrow_file::ArrowFile;
use super::block::{Block, Cursor, DomainOfRecords, Payload};
use super::decode;
use super::error::{InputError, Place};
use super::format::TextExtensions;
use super::lines::{LineBlock, LineBlocks};
use super::megatron::MegatronFile;
use super::plan::{DomainFrom, Plan, Source, SourceKind, stamp};
use super::rows::RowSource;
use super::table::Table;
use super::text::TextFiles;
use crate::guard::guarded;
use crate::record::{Fault, FieldPath, Found, JsonFault, read_object};

/// Which fields of a record are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFields {
    /// The text.
    pub text: FieldPath,
    /// The domain.
    pub domain: FieldPath,
    /// Where the domain comes from.
    pub domain_from: DomainFrom,
    /// More extensions of text files, as the plan was made with.
    pub text_extensions: TextExtensions,
}

/// The cursor's record where nothing more can be read of a source.
const NOTHING_LEFT: u64 = u64::MAX;

/// The reader of a build.
pub struct Reader<'p> {
    plan: &'p Plan,
    fields: &'p RecordFields,
    count: Arc<AtomicU64>,
    sequence: u64,
    cursor: Cursor,
    open: Option<Open>,
}

struct Open {
    path: Arc<PathBuf>,
    domain: DomainOfRecords,
    records: Records,
}

type LineResult = Result<LineBlock, (Fault, Place)>;

enum Records {
    Lines {
        /// Looked at already to see where the domain comes from.
        looked_at: VecDeque<LineResult>,
        rest: LineBlocks,
    },
    Rows(Box<dyn RowSource>),
    Tokens(Box<MegatronFile>),
    Texts(TextFiles),
    Nothing,
    Failed(Fault),
}

impl<'p> Reader<'p> {
    /// Starts at a place; `count` is raised by the bytes read.
    pub fn new(
        plan: &'p Plan,
        fields: &'p RecordFields,
        start: Cursor,
        count: Arc<AtomicU64>,
    ) -> Self {
        Self {
            plan,
            fields,
            count,
            sequence: 0,
            cursor: start,
            open: None,
        }
    }

    /// The next block, or `None` behind the last source.
    pub fn next_block(&mut self) -> Option<Block> {
        let source = self.plan.sources.get(self.cursor.source as usize)?;
        if self.open.is_none() {
            self.open = Some(self.open_source(source));
        }
        let open = self.open.as_mut()?;
        let (path, domain) = (open.path.clone(), open.domain.clone());
        let mut payload = open.records.next_payload(&path, &mut self.cursor.record);
        if matches!(payload, Payload::End)
            && self.cursor.record != NOTHING_LEFT
            && was_changed(source)
        {
            open.records = Records::Nothing;
            self.cursor.record = NOTHING_LEFT;
            payload = Payload::Fault {
                error: InputError {
                    path: source.path.clone(),
                    place: Place::Whole,
                    fault: Fault::Changed,
                },
                relative: String::new(),
            };
        }
        let number = self.cursor.source;
        if matches!(payload, Payload::End) {
            self.open = None;
            self.cursor = Cursor {
                source: number + 1,
                record: 0,
            };
        }
        let sequence = self.sequence;
        self.sequence += 1;
        Some(Block {
            sequence,
            source: number,
            path,
            split: source.split,
            domain,
            payload,
            after: self.cursor,
        })
    }

    /// Takes the memory of a block that was worked on back for one to come.
    pub fn give_back(&mut self, payload: Payload) {
        let open = self.open.as_mut().map(|open| &mut open.records);
        if let (Payload::Lines(block), Some(Records::Lines { rest, .. })) = (payload, open) {
            rest.give_back(block.bytes);
        }
    }

    fn open_source(&self, source: &Source) -> Open {
        let start = self.cursor.record;
        let named = |name: &str| DomainOfRecords::Named(name.into());
        let fixed = match &self.fields.domain_from {
            DomainFrom::Auto => None,
            DomainFrom::Field => Some(DomainOfRecords::Field),
            DomainFrom::File => Some(named(&source.file_domain)),
            DomainFrom::Folder => Some(named(&source.folder_domain)),
            DomainFrom::Named(name) => Some(named(name)),
        };
        let opened = match &source.kind {
            _ if start == NOTHING_LEFT => Ok((Records::Nothing, named(&source.file_domain))),
            SourceKind::Nothing => Ok((Records::Nothing, named(&source.file_domain))),
            SourceKind::Lines(compression) => decode::open(&source.path, *compression, &self.count)
                .map_err(|e| decode::fault_of(&e))
                .map(|bytes| self.lines(LineBlocks::new(bytes), fixed, source, start)),
            SourceKind::StandardInput => decode::standard_input(&self.count)
                .map_err(|e| decode::fault_of(&e))
                .map(|bytes| self.lines(LineBlocks::new(bytes), fixed, source, start)),
            SourceKind::Table | SourceKind::Arrow => self.table(fixed, source, start),
            SourceKind::Megatron => {
                MegatronFile::open(&source.path, start, &self.count).map(|file| {
                    let domain = fixed.unwrap_or_else(|| named(&source.file_domain));
                    (Records::Tokens(Box::new(file)), domain)
                })
            }
            SourceKind::TextFile | SourceKind::TextFolder => self
                .texts(source, start)
                .map(|texts| (Records::Texts(texts), named(&source.folder_domain))),
        };
        let (records, domain) =
            opened.unwrap_or_else(|fault| (Records::Failed(fault), named(&source.file_domain)));
        Open {
            path: Arc::new(source.path.clone()),
            domain,
            records,
        }
    }

    fn lines(
        &self,
        mut rest: LineBlocks,
        fixed: Option<DomainOfRecords>,
        source: &Source,
        start: u64,
    ) -> (Records, DomainOfRecords) {
        let mut looked_at = VecDeque::new();
        let domain = match fixed {
            Some(domain) => domain,
            None => loop {
                let block = match rest.next_block() {
                    Ok(Some(block)) => block,
                    Ok(None) => break DomainOfRecords::Field,
                    Err(failed) => {
                        looked_at.push_back(Err(failed));
                        continue;
                    }
                };
                let has_field = has_domain(&block, self.fields);
                looked_at.push_back(Ok(block));
                break if has_field {
                    DomainOfRecords::Field
                } else {
                    DomainOfRecords::Fallback(source.file_domain.as_str().into())
                };
            },
        };
        let mut records = Records::Lines { looked_at, rest };
        records.skip_lines(start);
        (records, domain)
    }

    fn table(
        &self,
        fixed: Option<DomainOfRecords>,
        source: &Source,
        start: u64,
    ) -> Result<(Records, DomainOfRecords), Fault> {
        let fields = self.fields;
        let wanted = match fixed {
            None => Some((&fields.domain, false)),
            Some(DomainOfRecords::Field) => Some((&fields.domain, true)),
            Some(DomainOfRecords::Named(_) | DomainOfRecords::Fallback(_)) => None,
        };
        let (path, text, count) = (&source.path, &fields.text, &self.count);
        let table = read_table(|| -> Result<Box<dyn RowSource>, Fault> {
            Ok(if source.kind == SourceKind::Arrow {
                Box::new(ArrowFile::open(path, text, wanted, start, count)?)
            } else {
                Box::new(Table::open(path, text, wanted, start, count)?)
            })
        })?;
        let domain = fixed.unwrap_or_else(|| {
            if table.has_domain() {
                DomainOfRecords::Field
            } else {
                DomainOfRecords::Named(source.file_domain.as_str().into())
            }
        });
        Ok((Records::Rows(table), domain))
    }

    fn texts(&self, source: &Source, start: u64) -> Result<TextFiles, Fault> {
        let from = self.fields.domain_from.clone();
        let refused = |e: super::walk::WalkError| Fault::Read {
            why: e.source.to_string(),
        };
        let mut texts = if source.kind == SourceKind::TextFile {
            TextFiles::one(source, from, &self.count)
        } else {
            let also_text = self.fields.text_extensions.clone();
            TextFiles::folder(source, from, also_text, &self.count).map_err(refused)?
        };
        texts.skip_to(start);
        Ok(texts)
    }
}

/// Whether a record file is not the one that the plan saw. Text files are read in one go each, the standard input has no stamp.
fn was_changed(source: &Source) -> bool {
    let kinds = matches!(
        source.kind,
        SourceKind::Lines(_) | SourceKind::Table | SourceKind::Arrow
    );
    kinds && std::fs::metadata(&source.path).map_or(true, |now| stamp(&now) != source.stamp)
}

/// The readers of tables are others' code, and a file may be made to trip them.
fn read_table<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    guarded(read).unwrap_or_else(|| {
        let why = "the table is malformed so badly that its reader gave up".into();
        Err(Fault::Table { why })
    })
}

/// Whether the first good record of a block has the domain's field.
fn has_domain(block: &LineBlock, fields: &RecordFields) -> bool {
    let mut found = Found::default();
    let path = fields.domain.to_string();
    let mut lines = block.bytes.split(|b| *b == b'\n');
    let decided = lines.find_map(|line| {
        match read_object(line, &fields.text, Some(&fields.domain), &mut found) {
            Ok(()) => Some(found.has_domain),
            // There, but of no use: an error of that record, not a domain by the file's name.
            Err(JsonFault {
                fault: Fault::FieldType { field, .. } | Fault::FieldTwice { field },
                ..
            }) if field == path => Some(true),
            Err(_) => None,
        }
    });
    decided.unwrap_or(false)
}

impl Records {
    /// Passes the first lines over.
    fn skip_lines(&mut self, start: u64) {
        let Self::Lines { looked_at, rest } = self else {
            return;
        };
        while rest.next_line() < start {
            match rest.next_block() {
                Ok(Some(block)) => looked_at.push_back(Ok(block)),
                Ok(None) => break,
                // Met and counted before the interruption, unless it lies behind the start.
                Err(failed) => looked_at.push_back(Err(failed)),
            }
            while looked_at.len() > 1 {
                looked_at.pop_front();
            }
        }
        looked_at.retain_mut(|result| match result {
            Ok(block) => keep_from(block, start),
            Err((_, Place::Line { line, .. })) => *line > start,
            Err(_) => true,
        });
    }

    fn next_payload(&mut self, path: &Arc<PathBuf>, record: &mut u64) -> Payload {
        let fault_at = |place, fault, relative| Payload::Fault {
            error: InputError {
                path: path.as_ref().clone(),
                place,
                fault,
            },
            relative,
        };
        match self {
            Self::Nothing => Payload::End,
            Self::Failed(_) => match std::mem::replace(self, Self::Nothing) {
                Self::Failed(fault) => {
                    *record = NOTHING_LEFT;
                    fault_at(Place::Whole, fault, String::new())
                }
                _ => Payload::End,
            },
            Self::Lines { looked_at, rest } => {
                let next = match looked_at.pop_front() {
                    Some(result) => result.map(Some),
                    None => rest.next_block(),
                };
                match next {
                    Ok(None) => Payload::End,
                    Ok(Some(block)) => {
                        let newlines = memchr_iter(b'\n', &block.bytes).count() as u64;
                        *record = block.first_line + newlines;
                        Payload::Lines(block)
                    }
                    Err((fault, place)) => {
                        *record = match (place, &fault) {
                            (Place::Line { line, .. }, Fault::TooLong { .. }) => line,
                            _ => NOTHING_LEFT,
                        };
                        fault_at(place, fault, String::new())
                    }
                }
            }
            Self::Rows(table) => {
                let place = Place::Row(table.next_row());
                match read_table(|| table.next_block()) {
                    Ok(rows) => {
                        *record = table.next_row();
                        rows.map_or(Payload::End, Payload::Rows)
                    }
                    Err(fault) => {
                        *record = NOTHING_LEFT;
                        *self = Self::Nothing;
                        fault_at(place, fault, String::new())
                    }
                }
            }
            Self::Tokens(file) => {
                let place = Place::Document(file.next_document());
                let next = file.next_block();
                *record = match &next {
                    Ok(_) => file.next_document(),
                    Err(_) => NOTHING_LEFT,
                };
                match next {
                    Ok(None) => Payload::End,
                    Ok(Some(tokens)) => Payload::Tokens(tokens),
                    Err(fault) => fault_at(place, fault, String::new()),
                }
            }
            Self::Texts(texts) => {
                let next = texts.next_block();
                *record = texts.next_position();
                match next {
                    Ok(None) => Payload::End,
                    Ok(Some(texts)) => Payload::Texts(texts),
                    Err((error, relative)) => Payload::Fault { error, relative },
                }
            }
        }
    }
}

/// Drops a block's lines before `start`; `false` if none is left.
fn keep_from(block: &mut LineBlock, start: u64) -> bool {
    let Some(behind) = start.checked_sub(block.first_line).filter(|n| *n > 0) else {
        return true;
    };
    let nth = usize::try_from(behind - 1).unwrap_or(usize::MAX);
    let Some(at) = memchr_iter(b'\n', &block.bytes).nth(nth) else {
        return false;
    };
    block.bytes.drain(..=at);
    block.first_byte += at as u64 + 1;
    block.first_line = start;
    !block.bytes.is_empty()
}
