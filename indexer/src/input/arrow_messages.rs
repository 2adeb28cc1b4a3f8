//! The messages of an Arrow IPC file or stream: schema, dictionaries, batches.
//!
//! In: a file from anyone. Out: [`Message`]s, whole, their bytes checked to be there. Always holds: no length in the file is believed before
//! it was held against the file's size; the file format ends with a footer that lists as many batches as were met; nothing behind the end is passed
//! over. What is in a batch is for [`super::arrow_file`].

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use arrow_buffer::Buffer;
use arrow_ipc::{Block, MessageHeader, RecordBatch, root_as_footer, root_as_message};
use memchr::memmem;

use crate::record::Fault;

/// Largest description of a batch.
const MOST_METADATA: u64 = 256 << 20;
/// Most bytes of a batch after unpacking.
const MOST_UNPACKED: u64 = 8 << 30;
/// Most bytes of padding behind the last column of a batch.
const MOST_PADDING: u64 = 64;
/// Begins and ends the file format.
const MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The messages of a stream.
pub(super) struct Messages {
    path: PathBuf,
    input: BufReader<File>,
    left: u64,
    is_file: bool,
    started: bool,
    ended: bool,
    /// Dictionaries and batches met, which the footer of a file must list.
    met: [usize; 2],
    count: Arc<AtomicU64>,
}

pub(super) struct Message {
    /// Prefix, description and body.
    pub bytes: Buffer,
    pub block: Block,
    pub is_dictionary: bool,
    /// Rows, where it is a batch.
    pub rows: Option<u64>,
    pub body_left_out: bool,
}

impl Message {
    pub(super) fn head(&self) -> Result<arrow_ipc::Message<'_>, Fault> {
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
    /// Opens a file before its first message.
    pub(super) fn open(path: &Path, count: &Arc<AtomicU64>) -> Result<Self, Fault> {
        let file = File::open(path).map_err(refused)?;
        let left = file.metadata().map_err(refused)?.len();
        let mut messages = Self {
            path: path.into(),
            input: BufReader::with_capacity(1 << 18, file),
            left,
            is_file: false,
            started: false,
            ended: false,
            met: [0; 2],
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
    pub(super) fn next_message(
        &mut self,
        wanted: impl Fn(Option<u64>) -> bool,
    ) -> Result<Option<Message>, Fault> {
        if self.ended {
            return Ok(None);
        }
        if self.left == 0 && !self.is_file {
            self.ended = true;
            if self.started {
                self.note_no_end();
            }
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
            if self.is_file {
                self.footer()?;
            } else if self.left > 0 {
                return Err(behind("stream", self.left));
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
        let message = head_of(&bytes)?;
        let rows = message.header_as_record_batch().map(rows_of).transpose()?;
        let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
        self.met[0] += usize::from(is_dictionary);
        self.met[1] += usize::from(rows.is_some());
        let body = number(message.bodyLength(), "a body's length")?;
        check_extent(&message, body)?;
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
            check_unpacked(&head_of(&bytes[..head])?, &bytes[head..])?;
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

    /// Reads what is behind the batches of the file format: a footer that lists them, its length, and the mark of the end.
    fn footer(&mut self) -> Result<(), Fault> {
        let mut rest = vec![0; self.left.min(MOST_METADATA) as usize];
        self.read(&mut rest)?;
        // The end is where the length before the mark leads back to here.
        let is_end = |end: &usize| {
            let length = rest[..*end].last_chunk::<4>();
            length.is_some_and(|l| u64::from(u32::from_le_bytes(*l)) + 4 == *end as u64)
        };
        let Some(end) = memmem::find_iter(&rest, MAGIC).find(is_end) else {
            return Err(broken("its footer is cut off or damaged"));
        };
        let more = (rest.len() - end - MAGIC.len()) as u64 + self.left;
        if more > 0 {
            return Err(behind("file", more));
        }
        let footer = root_as_footer(&rest[..end - 4]).map_err(broken)?;
        let listed = [footer.dictionaries(), footer.recordBatches()]
            .map(|blocks| blocks.map_or(0, |blocks| blocks.len()));
        if listed != self.met {
            let ([dictionaries, batches], met) = (listed, self.met);
            return Err(broken(format!(
                "its footer lists {batches} batches and {dictionaries} dictionaries, it holds {} and {}",
                met[1], met[0]
            )));
        }
        Ok(())
    }

    /// Says, once, that nobody can tell whether a stream is whole: the format asks for no mark of its end.
    fn note_no_end(&self) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            hds::note!(
                "note: {}: the Arrow stream has no end-of-stream mark; that is allowed, but were it cut off between two batches, nobody could tell",
                self.path.display()
            );
        });
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

/// The rows of a batch, which its first column must have too: what says so may be damaged, and the batch would be taken for an empty one.
fn rows_of(batch: RecordBatch<'_>) -> Result<u64, Fault> {
    let rows = number(batch.length(), "a batch's length")?;
    let nodes = batch.nodes().filter(|nodes| !nodes.is_empty());
    let first = nodes.map(|nodes| nodes.get(0).length());
    if first != i64::try_from(rows).ok() {
        let first = first.map_or("none".into(), |first| first.to_string());
        return Err(broken(format!(
            "a batch announces {rows} rows, its first column {first}"
        )));
    }
    Ok(rows)
}

/// Holds the length of a body against what its columns take of it: a longer one would take the messages behind it along.
fn check_extent(message: &arrow_ipc::Message<'_>, body: u64) -> Result<(), Fault> {
    let dictionary = message.header_as_dictionary_batch().and_then(|d| d.data());
    let batch = message.header_as_record_batch().or(dictionary);
    let buffers = batch.and_then(|batch| batch.buffers());
    let ends = buffers.iter().flatten().map(|buffer| {
        let [start, length] = [buffer.offset(), buffer.length()].map(|n| n.max(0) as u64);
        start.saturating_add(length)
    });
    let extent = ends.max().unwrap_or(0);
    if body < extent || body - extent > MOST_PADDING {
        return Err(broken(format!(
            "a message announces {body} bytes, its columns take {extent}"
        )));
    }
    Ok(())
}

fn behind(what: &str, bytes: u64) -> Fault {
    broken(format!(
        "{bytes} bytes follow the end of the {what} and would be lost; give each {what} a name of its own"
    ))
}

fn number(value: i64, what: &str) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| broken(format!("{what} is {value}")))
}

fn refused(error: io::Error) -> Fault {
    Fault::Read {
        why: error.to_string(),
    }
}

pub(super) fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::Table {
        why: format!("no whole Arrow IPC file or stream: {why}"),
    }
}
