//! What a thread does with a block: parse, hash, tokenise, measure.
//!
//! In: a [`Block`]. Out: a [`Product`]: per domain and split the tokens, already as bytes, and a record a document, in input
//! order. Always holds: a product depends on its block and the options alone, so any thread may make it. Memory: the block,
//! its product, and scratch that the largest document sets.

use std::collections::BTreeSet;
use std::sync::Arc;

use hds::DomainSet;
use hds::index::{Split, TokenType, domain_folder};

use super::document::DocumentRecord;
use super::options::OnError;
use crate::input::{
    Block, Cursor, DomainOfRecords, InputError, LineBlock, Payload, Place, RecordFields, RowBlock,
    Split as SourceSplit, TextDocument, TokenBlock,
};
use crate::lexical::LexicalMeter;
use crate::record::{Fault, FieldPath, Found, read_object};
use crate::tokenize::Tokenizer;

/// Why a document without text is left out; no fault of the record.
pub(super) const EMPTY_TEXT: &str = "empty text";

/// The longest name a file system takes.
const LONGEST_FILE_NAME: usize = 255;

/// Documents of one domain and split, in input order.
#[derive(Debug)]
pub(super) struct Run {
    pub domain: Arc<str>,
    pub split: Split,
    /// Little-endian tokens of all documents.
    pub tokens: Vec<u8>,
    pub documents: Vec<DocumentRecord>,
}

/// Records left out for one reason.
#[derive(Debug)]
pub(super) struct SkipCount {
    pub kind: &'static str,
    pub count: u64,
    pub first: String,
}

/// What became of a block.
#[derive(Debug)]
pub(super) struct Product {
    pub sequence: u64,
    pub source: u32,
    pub after: Cursor,
    pub weight: usize,
    pub runs: Vec<Run>,
    pub skipped: Vec<SkipCount>,
    /// Domains that an empty text was met of.
    pub empty_domains: BTreeSet<String>,
    /// Documents of ids that came with the end-of-document id at their end.
    pub closed: u64,
    /// The first fault, where faults end the build; the rest of the block was not looked at.
    pub fault: Option<InputError>,
    pub text_bytes: u64,
    pub ends_source: bool,
}

impl Product {
    fn skip(&mut self, kind: &'static str, place: impl FnOnce() -> String) {
        match self.skipped.iter_mut().find(|s| s.kind == kind) {
            Some(known) => known.count += 1,
            None => self.skipped.push(SkipCount {
                kind,
                count: 1,
                first: place(),
            }),
        }
    }
}

/// What all workers share.
pub(super) struct WorkOptions<'o> {
    pub tokenizer: &'o dyn Tokenizer,
    pub token_type: TokenType,
    pub fields: &'o RecordFields,
    pub held_out_below: u128,
    pub on_error: OnError,
}

/// The bound for the first 8 bytes of a hash: a document below it is held out.
pub(super) fn held_out_below(fraction: f64) -> u128 {
    // Exact: a multiplication by a power of two; at most 2^64.
    (fraction.clamp(0.0, 1.0) * 2f64.powi(64)) as u128
}

/// One thread's worker.
pub(super) struct Worker<'o> {
    options: &'o WorkOptions<'o>,
    vocabulary: u32,
    end_of_document: u32,
    meter: LexicalMeter,
    ids: Vec<u32>,
    found: Found,
    spare_tokens: Vec<u8>,
}

impl<'o> Worker<'o> {
    pub fn new(options: &'o WorkOptions<'o>) -> Self {
        Self {
            options,
            vocabulary: options.tokenizer.vocabulary(),
            end_of_document: options.tokenizer.end_of_document(),
            meter: LexicalMeter::new(),
            ids: Vec::new(),
            found: Found::default(),
            spare_tokens: Vec::new(),
        }
    }

    /// Takes memory of tokens that were written for ones to come.
    pub fn give_back(&mut self, tokens: Option<Vec<u8>>) {
        self.spare_tokens = tokens.unwrap_or_default();
        self.spare_tokens.clear();
    }

    /// Works on a block.
    pub fn work(&mut self, block: &mut Block) -> Product {
        let mut product = Product {
            sequence: block.sequence,
            source: block.source,
            after: block.after,
            weight: block.payload.weight(),
            runs: Vec::new(),
            skipped: Vec::new(),
            empty_domains: BTreeSet::new(),
            closed: 0,
            fault: None,
            text_bytes: 0,
            ends_source: false,
        };
        let outcome = match &block.payload {
            Payload::Lines(lines) => self.lines(block, lines, &mut product),
            Payload::Rows(rows) => self.rows(block, rows, &mut product),
            Payload::Texts(texts) => self.texts(block, texts, &mut product),
            Payload::Tokens(tokens) => self.tokens(block, tokens, &mut product),
            Payload::End => {
                product.ends_source = true;
                Ok(())
            }
            Payload::Fault { .. } => Ok(()),
        };
        if let Err(error) = outcome {
            product.fault = Some(error);
        }
        if let Some((error, relative)) = block.payload.take_fault() {
            if self.options.on_error == OnError::Stop {
                product.fault = Some(error);
            } else {
                let place = || match (relative.as_str(), error.place) {
                    ("", place) => place.to_string(),
                    (file, Place::Whole) => file.to_owned(),
                    (file, place) => format!("{file}, {place}"),
                };
                product.skip(error.fault.kind(), place);
            }
        }
        product
    }

    fn lines(
        &mut self,
        block: &Block,
        lines: &LineBlock,
        product: &mut Product,
    ) -> Result<(), InputError> {
        let named = match &block.domain {
            DomainOfRecords::Field => None,
            DomainOfRecords::Named(name) | DomainOfRecords::Fallback(name) => Some(name.clone()),
        };
        let is_fallback = matches!(block.domain, DomainOfRecords::Fallback(_));
        let fields = self.options.fields;
        let domain_field = (is_fallback || named.is_none()).then_some(&fields.domain);
        let mut found = std::mem::take(&mut self.found);
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', &lines.bytes).chain([lines.bytes.len()]);
        for (position, end) in (lines.first_line..).zip(ends) {
            let line = &lines.bytes[start..end];
            let line_start = lines.first_byte + start as u64;
            start = (end + 1).min(lines.bytes.len());
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let outcome = match read_object(line, &fields.text, domain_field, &mut found) {
                Err(e) => Err((e.fault, e.byte)),
                Ok(()) if named.is_none() && !found.has_domain => {
                    let field = fields.domain.to_string();
                    Err((Fault::NoField { field }, 0))
                }
                Ok(()) if is_fallback && found.has_domain => {
                    let field = fields.domain.to_string();
                    Err((Fault::LateDomain { field }, 0))
                }
                Ok(()) => {
                    let domain = named.as_deref().unwrap_or(&found.domain);
                    let place = || {
                        Place::Line {
                            line: position + 1,
                            byte: line_start,
                        }
                        .to_string()
                    };
                    let content = (found.text.as_str(), None);
                    self.document(content, domain, block, position, place, product)
                        .map_err(|fault| (fault, 0))
                }
            };
            if let Err((fault, byte)) = outcome {
                let place = Place::Line {
                    line: position + 1,
                    byte: line_start + byte,
                };
                self.fault(fault, place, &block.path, "", product)?;
            }
        }
        self.found = found;
        Ok(())
    }

    fn rows(
        &mut self,
        block: &Block,
        rows: &RowBlock,
        product: &mut Product,
    ) -> Result<(), InputError> {
        let fields = self.options.fields;
        for row in 0..rows.rows {
            let position = rows.first_row + row as u64;
            let outcome = utf8(rows.text(row), &fields.text).and_then(|text| {
                let domain = match &block.domain {
                    DomainOfRecords::Named(name) | DomainOfRecords::Fallback(name) => name,
                    DomainOfRecords::Field => utf8(rows.domain(row), &fields.domain)?,
                };
                let place = || Place::Row(position).to_string();
                self.document((text, None), domain, block, position, place, product)
            });
            if let Err(fault) = outcome {
                self.fault(fault, Place::Row(position), &block.path, "", product)?;
            }
        }
        Ok(())
    }

    fn texts(
        &mut self,
        block: &Block,
        texts: &[TextDocument],
        product: &mut Product,
    ) -> Result<(), InputError> {
        for file in texts {
            let (outcome, place) = match std::str::from_utf8(&file.bytes) {
                Err(e) => (Err(Fault::NotUtf8), Place::Byte(e.valid_up_to() as u64)),
                Ok(text) => {
                    // A byte order mark is no part of the text.
                    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                    let place = || match file.relative.as_str() {
                        "" => Place::Whole.to_string(),
                        relative => relative.to_owned(),
                    };
                    let (content, domain) = ((text, None), &file.domain);
                    let done = self.document(content, domain, block, file.position, place, product);
                    (done, Place::Whole)
                }
            };
            if let Err(fault) = outcome {
                self.fault(fault, place, &file.path, &file.relative, product)?;
            }
        }
        Ok(())
    }

    /// Documents that are ids already: their text is what these decode to.
    fn tokens(
        &mut self,
        block: &Block,
        tokens: &TokenBlock,
        product: &mut Product,
    ) -> Result<(), InputError> {
        let DomainOfRecords::Named(domain) = &block.domain else {
            return Ok(());
        };
        let mut start = 0;
        for (position, end) in (tokens.first_document..).zip(&tokens.ends) {
            let ids = &tokens.ids[start..*end];
            start = *end;
            let (ids, closed) = match ids.strip_suffix(&[self.end_of_document]) {
                Some(ids) => (ids, 1),
                None => (ids, 0),
            };
            product.closed += closed;
            let outcome = match ids.iter().position(|id| *id >= self.vocabulary) {
                Some(place) => Err(Fault::UnknownToken {
                    place,
                    id: ids[place],
                    vocabulary: self.vocabulary,
                }),
                None => self.options.tokenizer.decode(ids).map_err(Fault::from),
            }
            .and_then(|text| {
                let place = || Place::Document(position).to_string();
                let content = (text.as_str(), Some(ids));
                self.document(content, domain, block, position, place, product)
            });
            if let Err(fault) = outcome {
                let place = Place::Document(position);
                self.fault(fault, place, &block.path, "", product)?;
            }
        }
        Ok(())
    }

    /// Takes a document, with its ids where they are known already.
    fn document(
        &mut self,
        (text, ids): (&str, Option<&[u32]>),
        domain: &str,
        block: &Block,
        position: u64,
        place: impl FnOnce() -> String,
        product: &mut Product,
    ) -> Result<(), Fault> {
        if text.is_empty() {
            // Nothing to train on; a document of its end alone would only teach the end to follow the end.
            product.skip(EMPTY_TEXT, place);
            if !product.empty_domains.contains(domain) && DomainSet::check_name(domain).is_ok() {
                product.empty_domains.insert(domain.to_owned());
            }
            return Ok(());
        }
        let hash = blake3::hash(text.as_bytes());
        let (mut first, mut content_hash) = ([0; 8], [0; 16]);
        first.copy_from_slice(&hash.as_bytes()[..8]);
        content_hash.copy_from_slice(&hash.as_bytes()[..16]);
        let held_out = block.split == SourceSplit::HeldOut
            || u128::from(u64::from_be_bytes(first)) < self.options.held_out_below;
        let split = if held_out { Split::Valid } else { Split::Train };
        let run = run_of(product, domain, split, &mut self.spare_tokens)?;
        self.ids.clear();
        match ids {
            None => self.options.tokenizer.encode_into(text, &mut self.ids)?,
            Some(ids) => self.ids.extend_from_slice(ids),
        }
        self.ids.push(self.end_of_document);
        let lexical = self.meter.measure(text);
        let run = &mut product.runs[run];
        append(
            &self.ids,
            self.options.token_type,
            self.vocabulary,
            &mut run.tokens,
        )?;
        run.documents.push(DocumentRecord {
            tokens: self.ids.len() as u64,
            bytes: text.len() as u64,
            words: lexical.words,
            mtld: lexical.mtld,
            position,
            source: product.source,
            content_hash,
        });
        product.text_bytes += text.len() as u64;
        Ok(())
    }

    fn fault(
        &self,
        fault: Fault,
        place: Place,
        path: &std::path::Path,
        relative: &str,
        product: &mut Product,
    ) -> Result<(), InputError> {
        if self.options.on_error == OnError::Stop || fault.is_ours() {
            return Err(InputError {
                path: path.to_owned(),
                place,
                fault,
            });
        }
        product.skip(fault.kind(), || match (relative, place) {
            ("", place) => place.to_string(),
            (file, Place::Whole) => file.to_owned(),
            (file, place) => format!("{file}, {place}"),
        });
        Ok(())
    }
}

/// The string of a row.
fn utf8<'r>(bytes: Option<&'r [u8]>, field: &FieldPath) -> Result<&'r str, Fault> {
    let bytes = bytes.ok_or_else(|| Fault::FieldType {
        field: field.to_string(),
        got: "null",
    })?;
    std::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8)
}

/// The number of the run of a domain and split; a new one if its name is good.
fn run_of(
    product: &mut Product,
    domain: &str,
    split: Split,
    spare_tokens: &mut Vec<u8>,
) -> Result<usize, Fault> {
    let known = product
        .runs
        .iter()
        .position(|r| r.split == split && *r.domain == *domain);
    if let Some(known) = known {
        return Ok(known);
    }
    DomainSet::check_name(domain).map_err(|e| Fault::DomainName { why: e.to_string() })?;
    let folder = domain_folder(domain, split);
    if folder.split('/').any(|part| part.len() > LONGEST_FILE_NAME) {
        let why = format!("domain name {domain:?} is too long for the name of a folder");
        return Err(Fault::DomainName { why });
    }
    product.runs.push(Run {
        domain: domain.into(),
        split,
        tokens: std::mem::take(spare_tokens),
        documents: Vec::new(),
    });
    Ok(product.runs.len() - 1)
}

/// Appends ids as little-endian numbers; nothing if one is out of range.
fn append(
    ids: &[u32],
    token_type: TokenType,
    vocabulary: u32,
    to: &mut Vec<u8>,
) -> Result<(), Fault> {
    // Without an early end, in vector instructions.
    let most = ids.iter().fold(0, |most, id| most.max(*id));
    if most >= vocabulary {
        let first = ids.iter().find(|id| **id >= vocabulary);
        let id = first.copied().unwrap_or(most);
        return Err(Fault::TokenOutOfRange { id, vocabulary });
    }
    let old = to.len();
    to.resize(old + ids.len() * token_type.bytes() as usize, 0);
    let to = &mut to[old..];
    match token_type {
        // Exact: u16 is chosen for vocabularies of at most 65,536 ids only.
        TokenType::U16 => {
            for (to, id) in to.as_chunks_mut().0.iter_mut().zip(ids) {
                *to = (*id as u16).to_le_bytes();
            }
        }
        TokenType::U32 => {
            for (to, id) in to.as_chunks_mut().0.iter_mut().zip(ids) {
                *to = id.to_le_bytes();
            }
        }
    }
    Ok(())
}
