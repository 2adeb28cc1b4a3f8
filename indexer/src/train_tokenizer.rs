//! Trains a byte-level BPE tokenizer on a sample of a corpus.
//!
//! In: inputs as a build takes them, and a size. Out: a Hugging Face `tokenizer.json` of Pythia's kind (NFC, GPT-2's cutting of words, bytes as
//! the alphabet, `<|endoftext|>` = 0, `<|padding|>` = 1), which `hds-index build --tokenizer` and every library of Hugging Face's read. Always
//! holds: every source gives its first documents, in proportion to its size, so that no domain is missing; the same inputs
//! and options give the same sample. Memory: the different words of the sample with their counts.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use hds::durable::{self, FileError};
use serde::Serialize;
use thiserror::Error;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, TokenizerBuilder};

use crate::input::{
    Block, Cursor, DomainFrom, InputError, Payload, Place, Plan, PlanError, PlanOptions, Reader,
    RecordFields, TextExtensions,
};
use crate::record::{Fault, FieldPath, Found, read_object};
use crate::tokenize::{TokenizeError, TokenizerChoice, load};

/// Tokens that every trained tokenizer has, in the order of their ids, as Pythia's.
pub const SPECIAL_TOKENS: [&str; 2] = ["<|endoftext|>", "<|padding|>"];
/// Bytes that the alphabet takes.
const ALPHABET: usize = 256;
/// Texts read ahead of the training.
const WAITING_TEXTS: usize = 64;

/// What is trained on, and how.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Files, folders, or `-`.
    pub inputs: Vec<PathBuf>,
    /// The field of the text.
    pub text_field: FieldPath,
    /// More extensions of text files.
    pub text_extensions: TextExtensions,
    /// Ids of the tokenizer to make, special tokens and bytes counted.
    pub vocabulary: usize,
    /// Bytes of text to train on, about; all if there is less.
    pub sample_bytes: u64,
    /// Pairs rarer than this are not joined.
    pub least_count: u64,
    /// More special tokens, behind [`SPECIAL_TOKENS`].
    pub special_tokens: Vec<String>,
    /// Leave out and count records that cannot be read, rather than end.
    pub skip_faults: bool,
    /// The file to make.
    pub target: PathBuf,
}

/// What training did.
#[derive(Clone, Debug, Serialize)]
pub struct TrainSummary {
    /// The file made.
    pub path: PathBuf,
    /// Its ids; fewer than asked for where the sample has too few different pairs.
    pub vocabulary: u32,
    /// BLAKE3 of the file, as an index's manifest names it.
    pub fingerprint: String,
    /// Documents of the sample.
    pub documents: u64,
    /// Bytes of its text.
    pub text_bytes: u64,
    /// Records left out.
    pub skipped: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Why there is no tokenizer. The target is then as it was before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The inputs make no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A record cannot be read.
    #[error("{0}; `--on-error skip` leaves out and counts what is like it")]
    Input(InputError),
    /// The sample is empty.
    #[error("the input holds no text; no tokenizer was made")]
    NoText,
    /// The vocabulary cannot be of that size.
    #[error(
        "--vocabulary is {got}; {least} bytes and special tokens alone take {least} ids, at most {most} are possible"
    )]
    Vocabulary {
        /// What was asked for.
        got: usize,
        /// What is needed.
        least: usize,
        /// What is possible.
        most: usize,
    },
    /// A special token without a text.
    #[error("--special-token is empty; give the text of the token")]
    EmptySpecialToken,
    /// A special token given twice, or one that is there without being given.
    #[error("--special-token {token:?} {what}; give every other token once")]
    SpecialTokenTwice {
        /// Its text.
        token: String,
        /// Why it is one too many.
        what: &'static str,
    },
    /// The target is there already.
    #[error("{path} exists; nothing is overwritten: remove it or name another file with -o")]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The library refused.
    #[error("training failed: {0}")]
    Library(String),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was written cannot be loaded, which is a fault of this program.
    #[error(transparent)]
    Check(#[from] TokenizeError),
}

/// Trains and writes a tokenizer.
///
/// # Errors
/// [`TrainError`]
pub fn train_tokenizer(options: &TrainOptions) -> Result<TrainSummary, TrainError> {
    let started = Instant::now();
    let target = &options.target;
    if target.symlink_metadata().is_ok() {
        return Err(TrainError::TargetExists {
            path: target.clone(),
        });
    }
    let special = special_tokens(&options.special_tokens)?;
    let (least, most) = (ALPHABET + special.len(), 1 << 24);
    if !(least..=most).contains(&options.vocabulary) {
        let got = options.vocabulary;
        return Err(TrainError::Vocabulary { got, least, most });
    }
    let plan = Plan::new(
        &options.inputs,
        &[],
        &PlanOptions {
            text_extensions: options.text_extensions.clone(),
            skip_faults: options.skip_faults,
        },
    )?;
    let (sender, receiver) = sync_channel(WAITING_TEXTS);
    let (json, sampled) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let sender = sender;
            read_sample(&plan, options, &sender)
        });
        let json = train(options, special, receiver.into_iter());
        (json, reading.join())
    });
    let sampled = sampled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if let Some(error) = sampled.failed {
        return Err(TrainError::Input(error));
    }
    let json = json?;
    if sampled.documents == 0 {
        return Err(TrainError::NoText);
    }
    durable::write_file(target, |file| file.write_all(json.as_bytes()))?;
    let loaded = load(&TokenizerChoice::File {
        path: target.clone(),
        end_of_document: None,
    })?;
    Ok(TrainSummary {
        path: target.clone(),
        vocabulary: loaded.vocabulary(),
        fingerprint: loaded.fingerprint(),
        documents: sampled.documents,
        text_bytes: sampled.text_bytes,
        skipped: sampled.skipped,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// [`SPECIAL_TOKENS`] and those given behind them, each once.
fn special_tokens(more: &[String]) -> Result<Vec<AddedToken>, TrainError> {
    let mut seen = HashSet::new();
    for token in more {
        let what = if token.is_empty() {
            return Err(TrainError::EmptySpecialToken);
        } else if SPECIAL_TOKENS.contains(&token.as_str()) {
            "is one that every trained tokenizer has"
        } else if !seen.insert(token) {
            "is given twice"
        } else {
            continue;
        };
        let token = token.clone();
        return Err(TrainError::SpecialTokenTwice { token, what });
    }
    let all = SPECIAL_TOKENS
        .into_iter()
        .chain(more.iter().map(String::as_str));
    Ok(all
        .map(|token| AddedToken::from(token, true).normalized(false))
        .collect())
}

fn train(
    options: &TrainOptions,
    special: Vec<AddedToken>,
    texts: impl Iterator<Item = String> + Send,
) -> Result<String, TrainError> {
    let refused = |e: tokenizers::Error| TrainError::Library(e.to_string());
    // No space before the first word, as for Pythia; words are cut by GPT-2's expression.
    let byte_level = ByteLevel::new(false, true, true);
    let mut trainer = BpeTrainer::builder()
        .vocab_size(options.vocabulary)
        .min_frequency(options.least_count)
        .special_tokens(special)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .show_progress(false)
        .build();
    let mut tokenizer = TokenizerBuilder::<BPE, NFC, ByteLevel, ByteLevel, ByteLevel>::new()
        .with_model(BPE::default())
        .with_normalizer(Some(NFC))
        .with_pre_tokenizer(Some(byte_level))
        .with_post_processor(Some(byte_level))
        .with_decoder(Some(byte_level))
        .build()
        .map_err(refused)?;
    tokenizer.train(&mut trainer, texts).map_err(refused)?;
    tokenizer.to_string(true).map_err(refused)
}

/// What the sampling came to.
#[derive(Default)]
struct Sampled {
    documents: u64,
    text_bytes: u64,
    skipped: u64,
    failed: Option<InputError>,
}

/// Sends the first documents of every source; ends early at a fault, or where nobody listens any more.
fn read_sample(plan: &Plan, options: &TrainOptions, sender: &SyncSender<String>) -> Sampled {
    let fields = RecordFields {
        text: options.text_field.clone(),
        domain: FieldPath::default(),
        domain_from: DomainFrom::File,
        text_extensions: options.text_extensions.clone(),
    };
    let mut sampled = Sampled::default();
    let whole = plan.bytes();
    for source in &plan.sources {
        let share = u128::from(options.sample_bytes) * u128::from(source.bytes);
        let budget = match share.checked_div(u128::from(whole)) {
            // Of the standard input alone no size is known.
            None => options.sample_bytes,
            // At most the sample's bytes.
            Some(share) => share as u64,
        };
        let own = Plan {
            sources: vec![source.clone()],
        };
        let mut left = budget;
        let mut reader = Reader::new(&own, &fields, Cursor::default(), Default::default());
        while left > 0 {
            let Some(block) = reader.next_block() else {
                break;
            };
            let mut heard = true;
            let faults = each_text(&block, &fields.text, |text| {
                if left == 0 || text.is_empty() {
                    return;
                }
                left = left.saturating_sub(text.len() as u64);
                sampled.documents += 1;
                sampled.text_bytes += text.len() as u64;
                heard &= sender.send(text.to_owned()).is_ok();
            });
            match faults.into_iter().next() {
                Some((error, _)) if !options.skip_faults => {
                    sampled.failed = Some(error);
                    return sampled;
                }
                Some((_, count)) => sampled.skipped += count,
                None => {}
            }
            if !heard {
                return sampled;
            }
        }
    }
    sampled
}

/// Calls with each text of a block; gives the first fault, and how many there are, if any.
fn each_text(
    block: &Block,
    field: &FieldPath,
    mut take: impl FnMut(&str),
) -> Option<(InputError, u64)> {
    let mut first: Option<(InputError, u64)> = None;
    let mut wrong = |place: Place, fault: Fault| match &mut first {
        Some((_, count)) => *count += 1,
        None => {
            let path = block.path.as_ref().clone();
            first = Some((InputError { path, place, fault }, 1));
        }
    };
    match &block.payload {
        Payload::Lines(lines) => {
            let mut found = Found::default();
            let mut byte = lines.first_byte;
            for (line, bytes) in (lines.first_line + 1..).zip(lines.bytes.split(|b| *b == b'\n')) {
                if !bytes.iter().all(u8::is_ascii_whitespace) {
                    match read_object(bytes, field, None, &mut found) {
                        Ok(()) => take(&found.text),
                        Err(e) => wrong(
                            Place::Line {
                                line,
                                byte: byte + e.byte,
                            },
                            e.fault,
                        ),
                    }
                }
                byte += bytes.len() as u64 + 1;
            }
        }
        Payload::Rows(rows) => {
            for row in 0..rows.rows {
                let place = Place::Row(rows.first_row + row as u64);
                match rows.text(row).map(std::str::from_utf8) {
                    Some(Ok(text)) => take(text),
                    Some(Err(_)) => wrong(place, Fault::NotUtf8),
                    None => {
                        let (field, got) = (field.to_string(), "null");
                        wrong(place, Fault::FieldType { field, got });
                    }
                }
            }
        }
        Payload::Texts(texts) => {
            for file in texts {
                match std::str::from_utf8(&file.bytes) {
                    Ok(text) => take(text.strip_prefix('\u{feff}').unwrap_or(text)),
                    Err(e) => wrong(Place::Byte(e.valid_up_to() as u64), Fault::NotUtf8),
                }
            }
        }
        Payload::Fault { error, .. } => wrong(
            error.place,
            Fault::Read {
                why: error.fault.to_string(),
            },
        ),
        Payload::Tokens(_) | Payload::End => {}
    }
    first
}
