//! Writes small indexes from token lists: the format by its schemas alone, independent of the indexer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, RecordBatch, UInt64Array};
use arrow_ipc::writer::FileWriter;
use hds::index::{
    BATCH_ROWS, Checksum, DomainEntry, FORMAT_NAME, FORMAT_VERSION, FileEntry, MANIFEST_FILE,
    Manifest, ShardEntry, Split, SplitEntry, TokenType, TokenizerEntry, domain_folder,
    runtime_schema, shard_stem,
};

/// A document: its ids, the last one the end of document, and its MTLD.
#[derive(Clone, Debug)]
pub struct Document {
    pub tokens: Vec<u32>,
    pub mtld: f32,
}

/// A domain: for each split its shards, each a list of documents.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    pub name: String,
    pub train: Vec<Vec<Document>>,
    pub valid: Vec<Vec<Document>>,
}

/// A folder that is an index, and removed when dropped.
pub struct TestIndex {
    folder: tempfile::TempDir,
}

impl TestIndex {
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of a domain's training split: `tokens` or `documents.arrow` of a shard.
    #[allow(dead_code)] // the benchmark has no use for it
    pub fn train_file(&self, domain: &str, shard: u64, extension: &str) -> PathBuf {
        let folder = domain_folder(domain, Split::Train);
        let stem = shard_stem(shard);
        self.path().join(format!("{folder}/{stem}.{extension}"))
    }
}

/// `count` documents with ids that name domain, document and place, so that no two windows are alike.
pub fn documents(domain: u32, count: u32, length: impl Fn(u32) -> u32) -> Vec<Document> {
    (0..count)
        .map(|d| {
            let body = length(d).saturating_sub(1);
            let ids = (0..body).map(|i| 1 + (domain * 7919 + d * 131 + i * 17) % 49_999);
            Document {
                tokens: ids.chain([0]).collect(),
                mtld: if d % 5 == 4 { 0.0 } else { 10.0 + d as f32 },
            }
        })
        .collect()
}

/// Writes an index; domains must be in ascending order of their names.
pub fn write(domains: &[Domain], vocabulary: u32) -> TestIndex {
    let folder = tempfile::tempdir().unwrap();
    let token_type = TokenType::for_vocabulary(vocabulary);
    let entries = domains
        .iter()
        .map(|domain| DomainEntry {
            name: domain.name.clone(),
            train: split(
                folder.path(),
                &domain.name,
                Split::Train,
                &domain.train,
                token_type,
            ),
            valid: split(
                folder.path(),
                &domain.name,
                Split::Valid,
                &domain.valid,
                token_type,
            ),
        })
        .collect();
    let manifest = Manifest {
        format: FORMAT_NAME.into(),
        version: FORMAT_VERSION,
        tokenizer: TokenizerEntry {
            name: "test".into(),
            fingerprint: "test".into(),
            vocabulary,
            end_of_document: 0,
        },
        token_type,
        domains: entries,
        sources: vec![],
        options: BTreeMap::new(),
    };
    save(&manifest, folder.path());
    TestIndex { folder }
}

/// Writes a manifest without waiting for the disk, as tests write thousands.
pub fn save(manifest: &Manifest, index: &Path) {
    let text = serde_json::to_string_pretty(manifest).unwrap();
    fs::write(index.join(MANIFEST_FILE), text).unwrap();
}

fn split(
    index: &Path,
    name: &str,
    split: Split,
    shards: &[Vec<Document>],
    token_type: TokenType,
) -> SplitEntry {
    let folder = domain_folder(name, split);
    fs::create_dir_all(index.join(&folder)).unwrap();
    let mut entry = SplitEntry::default();
    for (number, documents) in (0..).zip(shards) {
        let stem = format!("{folder}/{}", shard_stem(number));
        let first_token = entry.tokens;
        let mut bytes = Vec::new();
        let mut offsets = Vec::new();
        for document in documents {
            offsets.push(entry.tokens);
            for &id in &document.tokens {
                match token_type {
                    TokenType::U16 => bytes.extend((id as u16).to_le_bytes()),
                    TokenType::U32 => bytes.extend(id.to_le_bytes()),
                }
            }
            entry.tokens += document.tokens.len() as u64;
        }
        let mtld: Vec<f32> = documents.iter().map(|d| d.mtld).collect();
        entry.shards.push(ShardEntry {
            first_token,
            tokens: entry.tokens - first_token,
            first_document: entry.documents,
            documents: documents.len() as u64,
            tokens_file: file(index, format!("{stem}.tokens"), &bytes),
            documents_file: file(
                index,
                format!("{stem}.documents.arrow"),
                &table(&offsets, &mtld, BATCH_ROWS),
            ),
            table_file: file(index, format!("{stem}.documents.parquet"), b""),
        });
        entry.documents += documents.len() as u64;
    }
    entry
}

/// The run-time document table as an Arrow IPC file.
pub fn table(offsets: &[u64], mtld: &[f32], batch_rows: usize) -> Vec<u8> {
    let schema = Arc::new(runtime_schema());
    let mut writer = FileWriter::try_new(Vec::new(), &schema).unwrap();
    for (offsets, mtld) in offsets.chunks(batch_rows).zip(mtld.chunks(batch_rows)) {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(offsets.to_vec())),
            Arc::new(Float32Array::from(mtld.to_vec())),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        writer.write(&batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn file(index: &Path, path: String, content: &[u8]) -> FileEntry {
    fs::write(index.join(&path), content).unwrap();
    FileEntry {
        path,
        bytes: content.len() as u64,
        blake3: Checksum::of(content),
    }
}
