//! The `.idx` file of a Megatron dataset, both of its formats, read as it is needed.
//!
//! In: a file from anyone, and the size of its `.bin`. Out: for each document the places of its sequences. Always holds: magic, version, type and
//! exact size were checked before the first document; a sequence lies inside the `.bin`, and all of them together are not longer than it,
//! so that a small file cannot announce a large corpus. Memory: constant.
//!
//! # Source
//! `MMIDIDX`: Megatron-LM, `megatron/core/datasets/indexed_dataset.py`. `TNTIDX`: the format before it, from fairseq, with Megatron's
//! list of documents or without.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::record::Fault;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const LEGACY_MAGIC: &[u8; 8] = b"TNTIDX\0\0";

/// How the `.bin` stores an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdType {
    U8,
    I8,
    I16,
    I32,
    I64,
    U16,
}

impl IdType {
    fn of_code(code: u64) -> Result<Self, Fault> {
        Ok(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            8 => Self::U16,
            6 | 7 => {
                return Err(broken(format!(
                    "its type {code} is one of floats, tokens are wanted"
                )));
            }
            _ => return Err(broken(format!("its type {code} is unknown"))),
        })
    }

    /// Bytes of an id.
    pub fn bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Appends the ids in some bytes; an id that is no `u32` becomes `u32::MAX`, which no vocabulary has.
    pub fn append(self, bytes: &[u8], ids: &mut Vec<u32>) {
        let id = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::U8 => ids.extend(bytes.iter().map(|b| u32::from(*b))),
            Self::I8 => ids.extend(bytes.iter().map(|b| id(i64::from(*b as i8)))),
            Self::I16 => ids.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| id(i16::from_le_bytes(*b).into())),
            ),
            Self::U16 => ids.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| u32::from(u16::from_le_bytes(*b))),
            ),
            Self::I32 => ids.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| id(i32::from_le_bytes(*b).into())),
            ),
            Self::I64 => ids.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| id(i64::from_le_bytes(*b))),
            ),
        }
    }
}

/// A run of bytes of the `.bin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub start: u64,
    pub bytes: u64,
}

/// An open `.idx`.
pub(super) struct MegatronIndex {
    pub id_type: IdType,
    /// Whether it is of fairseq's own format, where every item is a document.
    pub is_fairseq: bool,
    bin_bytes: u64,
    places: Places,
    /// Ends of documents, in sequences; each is a document without them.
    ends: Option<Numbers>,
    sequences: u64,
    next_sequence: u64,
    documents: u64,
    next_document: u64,
    bytes_behind: u64,
}

/// Where the sequences are.
enum Places {
    /// Lengths in ids, and places in bytes.
    Modern { lengths: Numbers, pointers: Numbers },
    /// Places in ids of a sequence and its end; its dimensions; its size.
    Legacy {
        dimensions: Numbers,
        offsets: Numbers,
        sizes: Numbers,
        start: u64,
    },
}

impl MegatronIndex {
    /// Opens a file whose `.bin` has so many bytes.
    ///
    /// # Errors
    /// If it cannot be read, or is not whole.
    pub fn open(path: &Path, bin_bytes: u64) -> Result<Self, Fault> {
        let mut file = hds::durable::open_regular(path).map_err(refused)?;
        let size = file.metadata().map_err(refused)?.len();
        let mut head = [0; 56];
        let got = read_up_to(&mut file, &mut head)?;
        let head = &head[..got];
        let mut index = if head.starts_with(MAGIC) {
            Self::open_modern(path, head, size, bin_bytes)?
        } else if head.starts_with(LEGACY_MAGIC) {
            Self::open_legacy(path, head, size, bin_bytes)?
        } else {
            return Err(broken("it begins with neither MMIDIDX nor TNTIDX"));
        };
        if let Some(ends) = &mut index.ends {
            let first = ends.next()?;
            if first != 0 {
                return Err(broken(format!(
                    "its first document starts at sequence {first}"
                )));
            }
        }
        Ok(index)
    }

    fn open_modern(path: &Path, head: &[u8], size: u64, bin_bytes: u64) -> Result<Self, Fault> {
        check_version(number_at(head, 9)?)?;
        let code = *head.get(17).ok_or_else(cut)?;
        let id_type = IdType::of_code(code.into())?;
        let (sequences, ends) = (number_at(head, 18)?, number_at(head, 26)?);
        let want = 34 + 12 * u128::from(sequences) + 8 * u128::from(ends);
        if u128::from(size) == want + u128::from(sequences) && sequences > 0 {
            return Err(broken(
                "it is of a multimodal dataset, tokens alone are wanted",
            ));
        }
        check_size(size, want, sequences, ends)?;
        // In range, as the file is at least as long.
        let numbers = |start, width| Numbers::open(path, start, width);
        Ok(Self {
            id_type,
            is_fairseq: false,
            bin_bytes,
            places: Places::Modern {
                lengths: numbers(34, 4)?,
                pointers: numbers(34 + 4 * sequences, 8)?,
            },
            ends: Some(numbers(34 + 12 * sequences, 8)?),
            sequences,
            next_sequence: 0,
            documents: ends
                .checked_sub(1)
                .ok_or_else(|| broken("its list of documents is empty"))?,
            next_document: 0,
            bytes_behind: 0,
        })
    }

    fn open_legacy(path: &Path, head: &[u8], size: u64, bin_bytes: u64) -> Result<Self, Fault> {
        check_version(number_at(head, 8)?)?;
        let id_type = IdType::of_code(number_at(head, 16)?)?;
        let width = number_at(head, 24)?;
        if width != id_type.bytes() {
            return Err(broken(format!(
                "its ids have {width} bytes, their type has {}",
                id_type.bytes()
            )));
        }
        let (items, sizes) = (number_at(head, 32)?, number_at(head, 40)?);
        let arrays = 8 * (2 * (u128::from(items) + 1) + u128::from(sizes));
        let is_fairseq = u128::from(size) == 48 + arrays;
        let (start, ends) = if is_fairseq {
            (48, 0)
        } else {
            (56, number_at(head, 48)?)
        };
        check_size(
            size,
            u128::from(start) + arrays + 8 * u128::from(ends),
            items,
            ends,
        )?;
        if sizes != items {
            return Err(broken(format!(
                "{items} items have {sizes} dimensions, one each is wanted"
            )));
        }
        let numbers = |start| Numbers::open(path, start, 8);
        let offsets = start + 8 * (items + 1);
        let sizes = offsets + 8 * (items + 1);
        let mut index = Self {
            id_type,
            is_fairseq,
            bin_bytes,
            places: Places::Legacy {
                dimensions: numbers(start)?,
                offsets: numbers(offsets)?,
                sizes: numbers(sizes)?,
                start: 0,
            },
            ends: if is_fairseq {
                None
            } else {
                Some(numbers(sizes + 8 * items)?)
            },
            sequences: items,
            next_sequence: 0,
            documents: items,
            next_document: 0,
            bytes_behind: 0,
        };
        if !is_fairseq {
            index.documents = ends
                .checked_sub(1)
                .ok_or_else(|| broken("its list of documents is empty"))?;
        }
        if let Places::Legacy {
            dimensions,
            offsets,
            start,
            ..
        } = &mut index.places
        {
            let first = dimensions.next()?;
            if first != 0 {
                return Err(broken(format!(
                    "its first item starts at dimension {first}"
                )));
            }
            *start = position(offsets.next()?, "the first item's place")?;
        }
        Ok(index)
    }

    /// The number of the next document.
    pub fn next_document(&self) -> u64 {
        self.next_document
    }

    /// The sequences of the next document, or `None` behind the last.
    ///
    /// # Errors
    /// The first number that cannot be.
    pub fn document(&mut self, sequences: &mut Vec<Sequence>) -> Result<Option<()>, Fault> {
        sequences.clear();
        if self.next_document == self.documents {
            if self.next_sequence != self.sequences {
                return Err(broken(format!(
                    "its last document ends at sequence {}, there are {}",
                    self.next_sequence, self.sequences
                )));
            }
            if self.bytes_behind != self.bin_bytes {
                return Err(broken(format!(
                    "the .bin has {} bytes, all its sequences together {}: it is the .idx of another .bin",
                    self.bin_bytes, self.bytes_behind
                )));
            }
            return Ok(None);
        }
        let end = match &mut self.ends {
            None => self.next_sequence + 1,
            Some(ends) => {
                let end = ends.next()?;
                match u64::try_from(end) {
                    Ok(end) if (self.next_sequence..=self.sequences).contains(&end) => end,
                    _ => {
                        return Err(broken(format!(
                            "the document ends at sequence {end}, {} to {} is possible",
                            self.next_sequence, self.sequences
                        )));
                    }
                }
            }
        };
        while self.next_sequence < end {
            sequences.push(self.sequence()?);
            self.next_sequence += 1;
        }
        self.next_document += 1;
        Ok(Some(()))
    }

    fn sequence(&mut self) -> Result<Sequence, Fault> {
        let (number, width) = (self.next_sequence, self.id_type.bytes());
        let wrong = |what: String| broken(format!("sequence {number}: {what}"));
        let (start, length) = match &mut self.places {
            Places::Modern { lengths, pointers } => {
                let length = position(lengths.next()?, "a length")?;
                let start = position(pointers.next()?, "a place")?;
                if !start.is_multiple_of(width) {
                    return Err(wrong(format!(
                        "its place {start} is no multiple of {width}"
                    )));
                }
                (Some(start), length)
            }
            Places::Legacy {
                dimensions,
                offsets,
                sizes,
                start,
            } => {
                let dimension = dimensions.next()?;
                if u64::try_from(dimension) != Ok(number + 1) {
                    return Err(wrong("it does not have one dimension".into()));
                }
                let length = position(sizes.next()?, "a size")?;
                let end = position(offsets.next()?, "a place")?;
                if end.checked_sub(*start) != Some(length) {
                    return Err(wrong(format!(
                        "it goes from {start} to {end}, its size is {length}"
                    )));
                }
                (std::mem::replace(start, end).checked_mul(width), length)
            }
        };
        let bytes = length.checked_mul(width);
        let end = start
            .zip(bytes)
            .and_then(|(start, bytes)| start.checked_add(bytes));
        let (Some(start), Some(bytes), Some(_)) =
            (start, bytes, end.filter(|end| *end <= self.bin_bytes))
        else {
            return Err(wrong(format!(
                "it ends behind the .bin, which has {} bytes",
                self.bin_bytes
            )));
        };
        // In range: both are at most the size of the .bin.
        self.bytes_behind += bytes;
        if self.bytes_behind > self.bin_bytes {
            return Err(wrong(
                "the sequences overlap: together they are longer than the .bin".into(),
            ));
        }
        Ok(Sequence { start, bytes })
    }
}

/// Little-endian signed numbers one after another.
struct Numbers {
    input: BufReader<File>,
    width: usize,
}

impl Numbers {
    fn open(path: &Path, start: u64, width: usize) -> Result<Self, Fault> {
        let mut file = hds::durable::open_regular(path).map_err(refused)?;
        file.seek(SeekFrom::Start(start)).map_err(refused)?;
        Ok(Self {
            input: BufReader::with_capacity(1 << 16, file),
            width,
        })
    }

    fn next(&mut self) -> Result<i64, Fault> {
        let mut bytes = [0; 8];
        let number = &mut bytes[..self.width];
        self.input.read_exact(number).map_err(refused)?;
        Ok(if self.width == 4 {
            let mut low = [0; 4];
            low.copy_from_slice(&bytes[..4]);
            i32::from_le_bytes(low).into()
        } else {
            i64::from_le_bytes(bytes)
        })
    }
}

fn position(value: i64, what: &str) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| broken(format!("{what} is {value}")))
}

fn check_version(version: u64) -> Result<(), Fault> {
    if version == 1 {
        return Ok(());
    }
    Err(broken(format!(
        "it is of version {version}, version 1 is known"
    )))
}

fn check_size(got: u64, want: u128, sequences: u64, ends: u64) -> Result<(), Fault> {
    if u128::from(got) == want {
        return Ok(());
    }
    Err(broken(format!(
        "it holds {got} bytes, {sequences} sequences and {ends} ends of documents take {want}"
    )))
}

fn number_at(head: &[u8], at: usize) -> Result<u64, Fault> {
    let bytes = head.get(at..).and_then(|b| b.first_chunk::<8>());
    bytes.map(|b| u64::from_le_bytes(*b)).ok_or_else(cut)
}

fn cut() -> Fault {
    broken("it ends inside its header")
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]).map_err(refused)? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}

fn refused(error: io::Error) -> Fault {
    Fault::Read {
        why: error.to_string(),
    }
}

pub(super) fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::Megatron {
        why: why.to_string(),
    }
}
