//! Makes Megatron datasets byte by byte, and imports them.

use std::sync::atomic::AtomicBool;

use hds_indexer::build::{
    BuildError, BuildOptions, BuildSummary, ImportOptions, OnError, Silent, import,
};
use hds_indexer::input::MegatronName;
use hds_indexer::tokenize::Tokenizer;

use super::Scratch;

pub fn import_options(scratch: &Scratch, inputs: &[&str]) -> ImportOptions {
    let name = |input: &&str| {
        let (domain, prefix) = input
            .split_once('=')
            .map_or((None, *input), |(d, p)| (Some(d.into()), p));
        MegatronName {
            domain,
            prefix: scratch.path(prefix),
        }
    };
    ImportOptions {
        inputs: inputs.iter().map(name).collect(),
        held_out: Vec::new(),
        target: scratch.path("imported"),
        valid_fraction: 0.0,
        on_error: OnError::Stop,
        shard_tokens: BuildOptions::SHARD_TOKENS,
        threads: 2,
        restart: false,
        checkpoint_every: BuildOptions::CHECKPOINT_EVERY,
    }
}

pub fn import_with(
    options: &ImportOptions,
    tokenizer: &dyn Tokenizer,
) -> Result<BuildSummary, BuildError> {
    import(options, tokenizer, &Silent, &AtomicBool::new(false))
}

/// An `.idx` of the current format.
pub struct Modern {
    pub code: u8,
    pub lengths: Vec<i32>,
    pub pointers: Vec<i64>,
    pub ends: Vec<i64>,
}

impl Modern {
    /// One sequence a document, ids of two bytes.
    pub fn of(lengths: &[i32]) -> Self {
        let mut pointers = vec![0];
        pointers.extend(lengths.iter().scan(0i64, |at, l| {
            *at += 2 * i64::from(*l);
            Some(*at)
        }));
        pointers.pop();
        Self {
            code: 8,
            lengths: lengths.to_vec(),
            pointers,
            ends: (0..=lengths.len() as i64).collect(),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut all = b"MMIDIDX\0\0".to_vec();
        all.extend(1u64.to_le_bytes());
        all.push(self.code);
        all.extend((self.lengths.len() as u64).to_le_bytes());
        all.extend((self.ends.len() as u64).to_le_bytes());
        self.lengths
            .iter()
            .for_each(|n| all.extend(n.to_le_bytes()));
        self.pointers
            .iter()
            .for_each(|n| all.extend(n.to_le_bytes()));
        self.ends.iter().for_each(|n| all.extend(n.to_le_bytes()));
        all
    }
}

/// An `.idx` of the format before; without ends of documents as fairseq wrote it.
pub fn legacy(code: u64, width: u64, lengths: &[i64], ends: Option<&[i64]>) -> Vec<u8> {
    let numbers = |numbers: &[i64]| {
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let items = lengths.len() as i64;
    let mut offsets = vec![0];
    offsets.extend(lengths.iter().scan(0, |at, l| {
        *at += l;
        Some(*at)
    }));
    let mut all = b"TNTIDX\0\0".to_vec();
    for number in [1, code, width, items as u64, items as u64] {
        all.extend(number.to_le_bytes());
    }
    if let Some(ends) = ends {
        all.extend((ends.len() as u64).to_le_bytes());
    }
    all.extend(numbers(&(0..=items).collect::<Vec<_>>()));
    all.extend(numbers(&offsets));
    all.extend(numbers(lengths));
    all.extend(numbers(ends.unwrap_or_default()));
    all
}

pub fn ids16(ids: &[u16]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}
