//! Finds documents whose text occurred before, and leaves them out where asked to.
//!
//! In: the closed shards with their document records. Out: every document whose text has the same BLAKE3 (its first 128 bits) as one
//! before it in the input, in whatever domain and split; or new shards without them. Always holds: the first copy stays; the result is a
//! function of the records alone. Memory: [`BUCKET_BYTES`] and some buffers: the records are dealt out by their hash over files that
//! are sorted one at a time. Only many copies of one text, which cannot be dealt apart, take 40 bytes each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hds::durable::FileError;
use hds::index::{ChecksumReader, TokenType};

use super::document::DocumentRecord;
use super::error::BuildError;
use super::shard_files::{RecordFile, check_content, check_size};
use super::shards::{Shards, SplitPaths, SplitState};
use super::work::Run;

/// Bytes sorted at once, about.
const BUCKET_BYTES: u64 = 64 << 20;
/// Most files that the records are dealt out over.
const MOST_BUCKETS: u64 = 1024;
/// Bytes gathered before they are handed to the writer.
const RUN_BYTES: usize = 1 << 20;

/// A document as it is sorted: hash, source, position, split, number in the split; all big-endian, so that the order of
/// bytes is the order of the input among equal texts.
type Entry = [u8; 40];

/// Closed shards of every domain and split.
pub(super) type Splits = [(SplitState, SplitPaths)];

/// Closed shards without copies.
pub(super) type Kept = Vec<(SplitState, SplitPaths)>;

/// A document whose text occurred before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Duplicate {
    /// Its source.
    pub source: u32,
    /// Its line, row or file in the source.
    pub position: u64,
    /// Its split's number in the list.
    pub split: usize,
    /// Its number in the split.
    pub document: u64,
}

/// Copies that were left out of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftOutCopies {
    /// How many.
    pub count: u64,
    /// Line, row or file of the first.
    pub first: u64,
}

/// How many documents of each split occurred before.
///
/// # Errors
/// If a file cannot be read or written.
pub(super) fn count(splits: &Splits, scratch: &Path) -> Result<Vec<u64>, BuildError> {
    let mut counts = vec![0; splits.len()];
    find(splits, scratch, BUCKET_BYTES, &mut |copy| {
        counts[copy.split] += 1;
        Ok(())
    })?;
    Ok(counts)
}

/// Writes shards without the documents that occurred before into `index`, with their records in `records`; gives them, and what was
/// left out of each source. Both folders are made anew.
///
/// # Errors
/// If a file cannot be read or written.
pub(super) fn leave_out(
    splits: &Splits,
    scratch: &Path,
    (index, records): (PathBuf, PathBuf),
    token_type: TokenType,
    shard_tokens: u64,
) -> Result<(Kept, BTreeMap<u32, LeftOutCopies>), BuildError> {
    for folder in [&index, &records] {
        remake(folder)?;
    }
    let marks = Marks::make(splits, &scratch.join("marks"))?;
    let mut sources: BTreeMap<u32, LeftOutCopies> = BTreeMap::new();
    find(
        splits,
        &scratch.join("buckets"),
        BUCKET_BYTES,
        &mut |copy| {
            let source = sources.entry(copy.source).or_insert(LeftOutCopies {
                count: 0,
                first: copy.position,
            });
            source.count += 1;
            source.first = source.first.min(copy.position);
            marks.mark(copy)
        },
    )?;
    let mut kept = Shards::new(index, records, token_type, shard_tokens);
    for (number, (state, paths)) in splits.iter().enumerate() {
        let mut marks = marks.read(number)?;
        let mut run = Run {
            domain: Arc::from(state.domain.as_str()),
            split: state.split,
            tokens: Vec::new(),
            documents: Vec::new(),
        };
        for (shard, closed) in (0..).zip(&state.closed) {
            let path = paths.file(shard, "tokens");
            let failed = |e| FileError::new("read", &path, e);
            check_size(&path, closed.tokens.saturating_mul(token_type.bytes()))?;
            let file = ChecksumReader::new(File::open(&path).map_err(failed)?);
            let mut tokens = BufReader::with_capacity(1 << 18, file);
            for record in RecordFile::open(paths.records(shard), closed)? {
                let record = record?;
                let old = run.tokens.len();
                run.tokens
                    .resize(old + (record.tokens * token_type.bytes()) as usize, 0);
                tokens.read_exact(&mut run.tokens[old..]).map_err(failed)?;
                if marks.next()? {
                    run.tokens.truncate(old);
                } else {
                    run.documents.push(record);
                }
                if run.tokens.len() >= RUN_BYTES {
                    kept.append(&run)?;
                    run.tokens.clear();
                    run.documents.clear();
                }
            }
            // All of it is read ahead by now.
            check_content(&path, tokens.get_ref().digest(), Some(closed.checksum))?;
        }
        if !run.documents.is_empty() {
            kept.append(&run)?;
        }
    }
    remove(scratch)?;
    Ok((kept.finish()?, sources))
}

/// Calls `found` with every document whose text occurred before, in the order of hashes.
fn find(
    splits: &Splits,
    scratch: &Path,
    bucket_bytes: u64,
    found: &mut dyn FnMut(&Duplicate) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let closed = splits.iter().flat_map(|(state, _)| &state.closed);
    let documents: u64 = closed.map(|shard| shard.documents).sum();
    let bytes = documents.saturating_mul(size_of::<Entry>() as u64);
    let buckets = bytes
        .div_ceil(bucket_bytes)
        .next_power_of_two()
        .min(MOST_BUCKETS);
    if buckets <= 1 {
        let mut entries = Vec::with_capacity(documents as usize);
        for_each_entry(splits, &mut |entry| {
            entries.push(*entry);
            Ok(())
        })?;
        return find_in(entries, found);
    }
    remake(scratch)?;
    let path_of = |bucket: u64| scratch.join(format!("{bucket:04}"));
    let mut files = Vec::new();
    for path in (0..buckets).map(path_of) {
        let file = File::create(&path).map_err(|e| FileError::new("create", &path, e))?;
        files.push(BufWriter::with_capacity(1 << 15, file));
    }
    for_each_entry(splits, &mut |entry| {
        let bucket = (u64::from(u16::from_be_bytes([entry[0], entry[1]])) * buckets) >> 16;
        files[bucket as usize]
            .write_all(entry)
            .map_err(|e| FileError::new("write", &path_of(bucket), e))
    })?;
    for (path, mut file) in (0..buckets).map(path_of).zip(files) {
        file.flush()
            .map_err(|e| FileError::new("write", &path, e))?;
        drop(file);
        let failed = |e| FileError::new("read", &path, e);
        let bytes = fs::read(&path).map_err(failed)?;
        fs::remove_file(&path).map_err(|e| FileError::new("remove", &path, e))?;
        find_in(bytes.as_chunks().0.to_vec(), found)?;
    }
    Ok(remove(scratch)?)
}

fn find_in(
    mut entries: Vec<Entry>,
    found: &mut dyn FnMut(&Duplicate) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    entries.sort_unstable();
    for pair in entries.windows(2) {
        if pair[0][..16] == pair[1][..16] {
            found(&duplicate(&pair[1]))?;
        }
    }
    Ok(())
}

fn for_each_entry(
    splits: &Splits,
    take: &mut dyn FnMut(&Entry) -> Result<(), FileError>,
) -> Result<(), BuildError> {
    for (split, (state, paths)) in splits.iter().enumerate() {
        let mut document = 0;
        for (shard, closed) in (0..).zip(&state.closed) {
            for record in RecordFile::open(paths.records(shard), closed)? {
                take(&entry(&record?, split, document))?;
                document += 1;
            }
        }
    }
    Ok(())
}

fn entry(record: &DocumentRecord, split: usize, document: u64) -> Entry {
    let mut entry = [0; 40];
    entry[..16].copy_from_slice(&record.content_hash);
    entry[16..20].copy_from_slice(&record.source.to_be_bytes());
    entry[20..28].copy_from_slice(&record.position.to_be_bytes());
    // An index has at most 2^13 splits.
    entry[28..32].copy_from_slice(&(split as u32).to_be_bytes());
    entry[32..].copy_from_slice(&document.to_be_bytes());
    entry
}

fn duplicate(entry: &Entry) -> Duplicate {
    let number = |from: usize, to: usize| {
        let bytes = entry[from..to].iter();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    Duplicate {
        source: number(16, 20) as u32,
        position: number(20, 28),
        split: number(28, 32) as usize,
        document: number(32, 40),
    }
}

/// A byte a document, in a file a split: whether it is to be left out. Full of holes, so it takes little room.
struct Marks {
    files: Vec<(PathBuf, File)>,
}

impl Marks {
    fn make(splits: &Splits, folder: &Path) -> Result<Self, FileError> {
        remake(folder)?;
        let mut files = Vec::new();
        for (number, (state, _)) in splits.iter().enumerate() {
            let path = folder.join(number.to_string());
            let documents = state.closed.iter().map(|shard| shard.documents).sum();
            let file = File::create(&path)
                .and_then(|file| file.set_len(documents).map(|()| file))
                .map_err(|e| FileError::new("create", &path, e))?;
            files.push((path, file));
        }
        Ok(Self { files })
    }

    fn mark(&self, copy: &Duplicate) -> Result<(), BuildError> {
        let (path, file) = &self.files[copy.split];
        Ok(file
            .write_all_at(&[1], copy.document)
            .map_err(|e| FileError::new("write", path, e))?)
    }

    fn read(&self, split: usize) -> Result<ReadMarks, FileError> {
        let path = &self.files[split].0;
        let file = File::open(path).map_err(|e| FileError::new("open", path, e))?;
        Ok(ReadMarks {
            path: path.clone(),
            input: BufReader::new(file),
        })
    }
}

struct ReadMarks {
    path: PathBuf,
    input: BufReader<File>,
}

impl ReadMarks {
    fn next(&mut self) -> Result<bool, FileError> {
        let mut byte = [0];
        self.input
            .read_exact(&mut byte)
            .map_err(|e| FileError::new("read", &self.path, e))?;
        Ok(byte[0] != 0)
    }
}

/// Makes an empty folder, whatever was there.
fn remake(folder: &Path) -> Result<(), FileError> {
    remove(folder)?;
    fs::create_dir_all(folder).map_err(|e| FileError::new("create", folder, e))
}

fn remove(folder: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError::new("remove", folder, e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use hds::index::Split;

    use super::*;

    /// Documents of two splits with the given hashes; source and position from the order given.
    fn written(folder: &Path, order: &[(usize, u8)]) -> Vec<(SplitState, SplitPaths)> {
        let mut shards = Shards::new(folder.join("i"), folder.join("r"), TokenType::U16, 4);
        for (at, (split, hash)) in order.iter().enumerate() {
            shards
                .append(&Run {
                    domain: "web".into(),
                    split: Split::ALL[*split],
                    tokens: vec![*hash; 4],
                    documents: vec![DocumentRecord {
                        tokens: 2,
                        bytes: 1,
                        words: 1,
                        mtld: 1.0,
                        position: (at % 3) as u64,
                        source: (at / 3) as u32,
                        // Different in the first byte, so that they come into different files.
                        content_hash: [hash.wrapping_mul(37); 16],
                    }],
                })
                .unwrap();
        }
        shards.finish().unwrap()
    }

    fn found(splits: &Splits, folder: &Path, bucket_bytes: u64) -> Vec<(usize, u64)> {
        let mut copies = Vec::new();
        let mut take = |copy: &Duplicate| {
            copies.push((copy.split, copy.document));
            Ok(())
        };
        find(splits, &folder.join("s"), bucket_bytes, &mut take).unwrap();
        copies.sort_unstable();
        copies
    }

    #[test]
    fn copies_are_found_in_input_order_whatever_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let order = [
            (1, 5),
            (0, 1),
            (0, 2),
            (1, 1),
            (0, 5),
            (0, 1),
            (0, 3),
            (1, 5),
            (1, 6),
        ];
        let splits = written(folder.path(), &order);
        // Train holds 1, 2, 5, 1, 3 and valid 5, 1, 5, 6; the first 5 of the input is held out.
        let want = [(0, 2), (0, 3), (1, 1), (1, 2)];
        for bucket_bytes in [1, 40, 100, 1 << 20] {
            assert_eq!(found(&splits, folder.path(), bucket_bytes), want);
        }
        assert!(!folder.path().join("s").exists());
        assert_eq!(count(&splits, &folder.path().join("s")).unwrap(), [2, 2]);
    }

    #[test]
    fn first_copies_stay_in_order_and_in_full_shards() {
        let folder = tempfile::tempdir().unwrap();
        let order = [
            (1, 5),
            (0, 1),
            (0, 2),
            (1, 1),
            (0, 5),
            (0, 1),
            (0, 3),
            (1, 5),
            (1, 6),
        ];
        let splits = written(folder.path(), &order);
        let to = (folder.path().join("j"), folder.path().join("q"));
        let scratch = folder.path().join("s");
        let (kept, sources) = leave_out(&splits, &scratch, to, TokenType::U16, 4).unwrap();
        let tokens: Vec<Vec<Vec<u8>>> = kept
            .iter()
            .map(|(state, paths)| {
                let shards = 0..state.closed.len() as u64;
                shards
                    .map(|shard| fs::read(paths.file(shard, "tokens")).unwrap())
                    .collect()
            })
            .collect();
        let documents = |hashes: &[u8]| hashes.iter().flat_map(|h| [*h; 4]).collect::<Vec<u8>>();
        assert_eq!(
            tokens,
            [
                vec![documents(&[1, 2]), documents(&[3])],
                vec![documents(&[5, 6])]
            ]
        );
        let copies = |count, first| LeftOutCopies { count, first };
        assert_eq!(
            sources.into_iter().collect::<Vec<_>>(),
            [(1, copies(3, 0)), (2, copies(1, 1))]
        );
        assert!(!scratch.exists());
    }
}
