//! Rows of an Arrow IPC file or stream (`.arrow`, `.feather`), in slices of its batches.
//!
//! In: a file from anyone and the fields' paths. Out: [`RowBlock`]s with the text and, where wanted, the domain of each row. Always holds: no
//! length in the file is believed before it was held against the file's size, and a decoder that gives up is an error of the file. Memory: one
//! batch, as its writer made it, and the dictionaries. The file format is read as the stream that it holds.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MessageHeader, root_as_message};
use arrow_schema::{DataType, Schema};

use super::lines::BLOCK_BYTES;
use super::rows::{RowBlock, RowSource};
use crate::record::{Fault, FieldPath};

/// Most rows of a block.
const MOST_ROWS: usize = 256;
/// Largest description of a batch.
const MOST_METADATA: u64 = 256 << 20;
/// Most bytes of a batch after unpacking.
const MOST_UNPACKED: u64 = 8 << 30;
/// Begins and ends the file format.
const MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];

/// An open file.
pub(super) struct ArrowFile {
    messages: Messages,
    decoder: FileDecoder,
    text: Vec<String>,
    domain: Option<Vec<String>>,
    /// What is left of the present batch.
    batch: Option<RecordBatch>,
    next_row: u64,
    /// Rows before this one are passed over.
    first_row: u64,
    failed: bool,
}

impl ArrowFile {
    /// Opens a file at a row. `domain` may be missing where it is not `needed`.
    pub fn open(
        path: &Path,
        text: &FieldPath,
        domain: Option<(&FieldPath, bool)>,
        first_row: u64,
        count: &Arc<AtomicU64>,
    ) -> Result<Self, Fault> {
        let mut messages = Messages::open(path, count)?;
        let first = messages
            .next_message(|_| true)?
            .ok_or_else(|| broken("it holds nothing"))?;
        let (schema, version) = guarded(|| {
            let message = first.head()?;
            let schema = message
                .header_as_schema()
                .ok_or_else(|| broken("it does not begin with a schema"))?;
            Ok((try_fb_to_schema(schema).map_err(broken)?, message.version()))
        })?;
        let text_path = find(&schema, text)?.ok_or_else(|| missing(&schema, text))?;
        let domain_path = match domain {
            None => None,
            Some((field, needed)) => match find(&schema, field)? {
                None if needed => return Err(missing(&schema, field)),
                found => found,
            },
        };
        let mut wanted: Vec<usize> = [Some(&text_path), domain_path.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|path| schema.index_of(&path[0]).ok())
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Self {
            messages,
            decoder: FileDecoder::new(Arc::new(schema), version).with_projection(wanted),
            text: text_path,
            domain: domain_path,
            batch: None,
            next_row: 0,
            first_row,
            failed: false,
        })
    }

    /// The next batch with rows at or behind the first one wanted.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Fault> {
        loop {
            let behind = self.first_row.saturating_sub(self.next_row);
            let message = self
                .messages
                .next_message(|rows| rows.is_none_or(|rows| rows > behind))?;
            let Some(message) = message else {
                return Ok(None);
            };
            if let (Some(rows), true) = (message.rows, message.body_left_out) {
                self.next_row += rows;
                continue;
            }
            let decoder = &mut self.decoder;
            let batch = guarded(|| {
                if message.is_dictionary {
                    decoder
                        .read_dictionary(&message.block, &message.bytes)
                        .map_err(broken)?;
                    return Ok(None);
                }
                decoder
                    .read_record_batch(&message.block, &message.bytes)
                    .map_err(broken)
            })?;
            if let Some(batch) = batch {
                // Below the number of the batch's rows, which are in memory.
                let behind = behind.min(batch.num_rows() as u64) as usize;
                self.next_row += behind as u64;
                if behind < batch.num_rows() {
                    return Ok(Some(batch.slice(behind, batch.num_rows() - behind)));
                }
            }
        }
    }

    fn block(&mut self) -> Result<Option<RowBlock>, Fault> {
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => match self.next_batch()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let domain = self.domain.as_deref();
        let mut rows = MOST_ROWS.min(batch.num_rows());
        loop {
            let slice = batch.slice(0, rows);
            let block = RowBlock::new(&slice, self.next_row, &self.text, domain)?;
            if block.weight() > 2 * BLOCK_BYTES && rows > 1 {
                rows = (rows * BLOCK_BYTES / block.weight()).clamp(1, rows / 2);
                continue;
            }
            if rows < batch.num_rows() {
                self.batch = Some(batch.slice(rows, batch.num_rows() - rows));
            }
            self.next_row += rows as u64;
            return Ok(Some(block));
        }
    }
}

impl RowSource for ArrowFile {
    fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    fn next_row(&self) -> u64 {
        self.next_row.max(self.first_row)
    }

    fn next_block(&mut self) -> Result<Option<RowBlock>, Fault> {
        if self.failed {
            return Ok(None);
        }
        let block = self.block();
        self.failed = block.is_err();
        block
    }
}

/// The messages of a stream.
struct Messages {
    input: BufReader<File>,
    left: u64,
    is_file: bool,
    started: bool,
    ended: bool,
    count: Arc<AtomicU64>,
}

struct Message {
    /// Prefix, description and body.
    bytes: Buffer,
    block: Block,
    is_dictionary: bool,
    /// Rows, where it is a batch.
    rows: Option<u64>,
    body_left_out: bool,
}

impl Message {
    fn head(&self) -> Result<arrow_ipc::Message<'_>, Fault> {
        head_of(&self.bytes[..self.block.metaDataLength() as usize])
    }
}

fn head_of(bytes: &[u8]) -> Result<arrow_ipc::Message<'_>, Fault> {
    let prefix = if bytes.starts_with(&CONTINUATION) {
        8
    } else {
        4
    };
    root_as_message(bytes.get(prefix..).unwrap_or_default()).map_err(broken)
}

impl Messages {
    fn open(path: &Path, count: &Arc<AtomicU64>) -> Result<Self, Fault> {
        let file = File::open(path).map_err(refused)?;
        let left = file.metadata().map_err(refused)?.len();
        let mut messages = Self {
            input: BufReader::with_capacity(1 << 18, file),
            left,
            is_file: false,
            started: false,
            ended: false,
            count: count.clone(),
        };
        if left >= 8 {
            let mut head = [0; 8];
            messages.read(&mut head)?;
            if head.starts_with(MAGIC) {
                messages.is_file = true;
            } else {
                messages.input.rewind().map_err(refused)?;
                messages.left = left;
                messages.count.fetch_sub(8, Ordering::Relaxed);
            }
        }
        Ok(messages)
    }

    /// The next message, or `None` at the end; the body of a batch for whose rows `wanted` is false is passed over.
    fn next_message(
        &mut self,
        wanted: impl Fn(Option<u64>) -> bool,
    ) -> Result<Option<Message>, Fault> {
        if self.ended {
            return Ok(None);
        }
        if self.left == 0 && !self.is_file {
            self.ended = true;
            return Ok(None);
        }
        // Both forms of the prefix: the length alone was used before Arrow 0.15.
        let mut bytes = vec![0; 4];
        self.read(&mut bytes)?;
        // Writers pad the file's first bytes to 8 or to 64.
        while self.is_file && !self.started && bytes[..] == [0; 4] {
            self.read(&mut bytes)?;
        }
        self.started = true;
        if bytes[..] == CONTINUATION {
            bytes.resize(8, 0);
            self.read(&mut bytes[4..])?;
        }
        let prefix = bytes.len();
        let mut length = [0; 4];
        length.copy_from_slice(&bytes[prefix - 4..]);
        let length = u32::from_le_bytes(length);
        if length == 0 {
            self.ended = true;
            // Behind the file format's batches comes its footer.
            if !self.is_file && self.left > 0 {
                let left = self.left;
                return Err(broken(format!(
                    "{left} bytes follow the end of the stream; one stream a file is read"
                )));
            }
            return Ok(None);
        }
        if u64::from(length) > self.left.min(MOST_METADATA) {
            return Err(broken(format!(
                "a message announces {length} bytes, {} are left",
                self.left
            )));
        }
        bytes.resize(prefix + length as usize, 0);
        self.read(&mut bytes[prefix..])?;
        let (body, rows, is_dictionary) = guarded(|| {
            let message = head_of(&bytes)?;
            let rows = match message.header_as_record_batch() {
                Some(batch) => Some(number(batch.length(), "a batch's length")?),
                None => None,
            };
            let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
            Ok((
                number(message.bodyLength(), "a body's length")?,
                rows,
                is_dictionary,
            ))
        })?;
        if body > self.left {
            return Err(broken(format!(
                "a batch announces {body} bytes, {} are left",
                self.left
            )));
        }
        let head = bytes.len();
        let body_left_out = rows.is_some() && !wanted(rows);
        if body_left_out {
            let step = i64::try_from(body).map_err(broken)?;
            self.input.seek_relative(step).map_err(refused)?;
            self.passed(body);
        } else {
            bytes.resize(head + body as usize, 0);
            self.read(&mut bytes[head..])?;
            guarded(|| check_unpacked(&head_of(&bytes[..head])?, &bytes[head..]))?;
        }
        // Both fit: the head is below 256 MiB, the body below the file's size.
        let block = Block::new(0, head as i32, body as i64);
        Ok(Some(Message {
            bytes: Buffer::from_vec(bytes),
            block,
            is_dictionary,
            rows,
            body_left_out,
        }))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        if bytes.len() as u64 > self.left {
            return Err(broken("it ends in the middle of a message"));
        }
        self.input.read_exact(bytes).map_err(refused)?;
        self.passed(bytes.len() as u64);
        Ok(())
    }

    fn passed(&mut self, bytes: u64) {
        self.left -= bytes;
        self.count.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Holds what packed buffers say they unpack to against a limit, before memory is taken for it.
fn check_unpacked(message: &arrow_ipc::Message<'_>, body: &[u8]) -> Result<(), Fault> {
    let dictionary = message.header_as_dictionary_batch().and_then(|d| d.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else {
        return Ok(());
    };
    if batch.compression().is_none() {
        return Ok(());
    }
    let mut sum = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let start = usize::try_from(buffer.offset()).map_err(broken)?;
        let prefix = body.get(start..).and_then(|b| b.first_chunk::<8>());
        let Some(prefix) = prefix.filter(|_| buffer.length() >= 8) else {
            continue;
        };
        // −1 marks a buffer that is not packed.
        let unpacked = i64::from_le_bytes(*prefix).max(0) as u64;
        sum = sum.saturating_add(unpacked);
    }
    if sum > MOST_UNPACKED {
        return Err(broken(format!(
            "a batch unpacks to {sum} bytes, at most {MOST_UNPACKED} are possible; write smaller batches"
        )));
    }
    Ok(())
}

/// The decoder is others' code, and the file may be made to trip it.
fn guarded<T>(decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(broken("it is malformed so badly that its decoder gave up")))
}

fn number(value: i64, what: &str) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| broken(format!("{what} is {value}")))
}

fn refused(error: io::Error) -> Fault {
    Fault::Read {
        why: error.to_string(),
    }
}

fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::Table {
        why: format!("no whole Arrow IPC file or stream: {why}"),
    }
}

/// The column of a field: its dotted path, or a flat column whose own name has the dots.
fn find(schema: &Schema, field: &FieldPath) -> Result<Option<Vec<String>>, Fault> {
    let flat = vec![field.to_string()];
    for path in [field.parts(), &flat] {
        let Some((first, rest)) = path.split_first() else {
            continue;
        };
        if schema.fields().iter().filter(|f| f.name() == first).count() > 1 {
            return Err(Fault::FieldTwice {
                field: field.to_string(),
            });
        }
        let mut found = schema.field_with_name(first).ok();
        for name in rest {
            found = found.and_then(|f| match f.data_type() {
                DataType::Struct(fields) => fields.find(name).map(|(_, field)| field.as_ref()),
                _ => None,
            });
        }
        let Some(found) = found else { continue };
        let kind = match found.data_type() {
            DataType::Dictionary(_, values) => values,
            kind => kind,
        };
        if !super::rows::is_string(kind) {
            return Err(Fault::FieldType {
                field: field.to_string(),
                got: "a column of another type",
            });
        }
        return Ok(Some(path.to_vec()));
    }
    Ok(None)
}

fn missing(schema: &Schema, field: &FieldPath) -> Fault {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    Fault::Table {
        why: format!("no column {field}; the columns are {}", names.join(", ")),
    }
}
