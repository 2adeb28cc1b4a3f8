//! The tokens of an index as Megatron datasets, one a domain and split.
//!
//! In: an index and what is wanted of it. Out: a folder with `<domain>_<split>.bin` and `.idx`, readable by Megatron-LM and GPT-NeoX: every
//! document is a sequence, closed by the end-of-document id. Ids are stored as in the index, two bytes each or four. Memory: constant.
//!
//! # Source
//! Megatron-LM, `megatron/core/datasets/indexed_dataset.py`, magic `MMIDIDX`, version 1.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use hds::durable::FileError;
use hds::index::{ChecksumReader, IndexError, Manifest, TokenType, domain_folder};
use serde::Serialize;

use super::{ExportError, Selection};
use crate::build::Staging;
use crate::guard::guarded_table;
use crate::selection::Chosen;
use crate::verify::file::{check_file, compare_checksum, io_error, open_sized};
use crate::verify::tables::RuntimeRows;

/// One dataset that was written.
#[derive(Clone, Debug, Serialize)]
pub struct MegatronDataset {
    /// Path of both files without their extensions, as Megatron's `--data-path` takes it.
    pub prefix: PathBuf,
    /// The domain.
    pub domain: String,
    /// `train` or `valid`.
    pub split: &'static str,
    /// Documents, a sequence each.
    pub documents: u64,
    /// Tokens, ends of documents counted.
    pub tokens: u64,
}

/// Writes the datasets into a new folder.
///
/// # Errors
/// If the index cannot be read or is damaged, the target exists, or nothing is chosen.
pub fn export_megatron(
    index: &Path,
    selection: &Selection,
    target: &Path,
) -> Result<Vec<MegatronDataset>, ExportError> {
    let (manifest, _) = Manifest::load(index)?;
    let chosen = selection.of(index, &manifest)?;
    if chosen.is_empty() {
        return Err(ExportError::Nothing { path: index.into() });
    }
    if manifest.token_type == TokenType::U32 && manifest.tokenizer.vocabulary > 1 << 31 {
        return Err(ExportError::TooLarge {
            path: index.into(),
            domain: chosen[0].domain.into(),
            what: format!("a vocabulary of {} ids", manifest.tokenizer.vocabulary),
        });
    }
    let staging = Staging::enter_anew(target)?;
    let folder = staging.index();
    let outcome = fs::create_dir_all(&folder)
        .map_err(|e| FileError::new("create", &folder, e).into())
        .and_then(|()| {
            let write = |split: &Chosen<'_>| -> Result<MegatronDataset, ExportError> {
                let exporter = Exporter {
                    index,
                    manifest: &manifest,
                    split,
                };
                let name = exporter.name();
                exporter.write_tokens(&folder.join(format!("{name}.bin")))?;
                exporter.write_index(&folder.join(format!("{name}.idx")))?;
                Ok(MegatronDataset {
                    prefix: target.join(name),
                    domain: split.domain.into(),
                    split: split.split.name(),
                    documents: split.entry.documents,
                    tokens: split.entry.tokens,
                })
            };
            chosen
                .iter()
                .map(write)
                .collect::<Result<Vec<_>, ExportError>>()
        });
    match outcome {
        Ok(datasets) => {
            staging.publish()?;
            Ok(datasets)
        }
        Err(error) => {
            let _ = staging.discard();
            Err(error)
        }
    }
}

struct Exporter<'e> {
    index: &'e Path,
    manifest: &'e Manifest,
    split: &'e Chosen<'e>,
}

impl Exporter<'_> {
    /// The name of both files: the domain's folder and the split, which differ where the names do.
    fn name(&self) -> String {
        let folder = domain_folder(self.split.domain, self.split.split);
        let parts: Vec<&str> = folder.split('/').skip(1).collect();
        parts.join("_")
    }

    /// The shards' tokens one after another.
    fn write_tokens(&self, path: &Path) -> Result<(), ExportError> {
        let failed = |e| FileError::new("write", path, e);
        let mut output = File::create(path).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        for shard in &self.split.entry.shards {
            let from = self.index.join(&shard.tokens_file.path);
            let mut input = ChecksumReader::new(open_sized(&from, &shard.tokens_file)?);
            loop {
                match input
                    .read(&mut buffer)
                    .map_err(|e| io_error("read", &from, e))?
                {
                    0 => break,
                    n => output.write_all(&buffer[..n]).map_err(failed)?,
                }
            }
            compare_checksum(&from, &shard.tokens_file, input.finish())?;
        }
        output.sync_all().map_err(failed)?;
        Ok(())
    }

    /// Header, lengths, places, and ends of documents: a pass over the document tables for each array, behind one for their checksums.
    fn write_index(&self, path: &Path) -> Result<(), ExportError> {
        for shard in &self.split.entry.shards {
            let table = self.index.join(&shard.documents_file.path);
            check_file(&table, &shard.documents_file, |_| ())?;
        }
        let failed = |e| FileError::new("write", path, e);
        let file = File::create(path).map_err(failed)?;
        let mut output = BufWriter::with_capacity(1 << 18, file);
        let documents = self.split.entry.documents;
        let (code, width) = match self.manifest.token_type {
            TokenType::U16 => (8u8, 2),
            TokenType::U32 => (4, 4),
        };
        let mut put = |bytes: &[u8]| output.write_all(bytes).map_err(failed);
        put(b"MMIDIDX\0\0")?;
        put(&1u64.to_le_bytes())?;
        put(&[code])?;
        put(&documents.to_le_bytes())?;
        put(&(documents + 1).to_le_bytes())?;
        self.each_document(|_, tokens| {
            let length = i32::try_from(tokens)
                .map_err(|_| self.too_large(format!("a document of {tokens} tokens")))?;
            Ok(put(&length.to_le_bytes())?)
        })?;
        self.each_document(|first_token, _| {
            let place = first_token
                .checked_mul(width)
                .and_then(|p| i64::try_from(p).ok());
            let place = place
                .ok_or_else(|| self.too_large(format!("a document at token {first_token}")))?;
            Ok(put(&place.to_le_bytes())?)
        })?;
        for end in 0..=documents {
            // A number of documents, each of which has a row.
            put(&(end as i64).to_le_bytes())?;
        }
        let file = output.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
        Ok(())
    }

    fn too_large(&self, what: String) -> ExportError {
        ExportError::TooLarge {
            path: self.index.into(),
            domain: self.split.domain.into(),
            what,
        }
    }

    /// Calls with the first token and the number of tokens of every document in order.
    fn each_document(
        &self,
        mut each: impl FnMut(u64, u64) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        for shard in &self.split.entry.shards {
            let path = self.index.join(&shard.documents_file.path);
            let content = |reason: String| IndexError::Content {
                path: path.clone(),
                reason,
            };
            guarded_table(&path, || -> Result<(), ExportError> {
                let end = shard.first_token + shard.tokens;
                let mut start = shard.first_token;
                let mut rows = RuntimeRows::open(&path, shard.documents)?;
                let first = rows.next().transpose()?.map(|row| row.0);
                if first != Some(start) {
                    return Err(content(format!("does not start at token {start}")).into());
                }
                for next in rows.map(|row| row.map(|r| r.0)).chain([Ok(end)]) {
                    let next = next?;
                    if next <= start || next > end {
                        return Err(content(
                            "token_offset does not ascend inside the shard".into(),
                        )
                        .into());
                    }
                    each(start, next - start)?;
                    start = next;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
