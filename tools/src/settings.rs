//! Makes variants of a corpus in which no fixed mixture is right: some domains scarce, or useless ones added.
//!
//! In: a folder of `DOMAIN.jsonl.zst` files in The Pile's format, a document a line. Out: a folder of such files that
//! appears when whole: the others as they are, scarce domains cut to their first documents, and, where asked,
//! `ShuffledWords` (words of all domains in no order) and `Repeated` (few documents over and over). Documents that `hds-index build`
//! would hold out of a scarce domain are kept, all of them, so that what is measured stays the same. The same input gives the same bytes.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

const ZSTD_LEVEL: i32 = 3;
/// Documents whose words are shuffled together.
const SHUFFLED_TOGETHER: usize = 40;
/// Words of a shuffled document.
const SHUFFLED_WORDS: usize = 400;
/// Documents that are repeated.
const REPEATED_DOCUMENTS: usize = 200;

/// Why a variant could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The target is there.
    #[error("{path} exists; remove it or name another folder")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// No file of a domain.
    #[error("{path} holds no DOMAIN.jsonl.zst{}", .wanted.as_ref().map(|w| format!(" of the name {w}")).unwrap_or_default())]
    NoDomain {
        /// The corpus.
        path: PathBuf,
        /// The domain that was asked for.
        wanted: Option<String>,
    },
    /// A line that is no document.
    #[error("{path}, line {line}: no object with a string `text`")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What to make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Domains to cut, with the bytes of text that each keeps for training.
    pub scarce: Vec<(String, u64)>,
    /// The part of a scarce domain that the index holds out, which is kept whole.
    pub valid_fraction: f64,
    /// Text in each of the two useless domains, in bytes; 0 for none.
    pub useless_bytes: u64,
}

/// A file made, for a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The domain.
    pub domain: String,
    /// Its documents.
    pub documents: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
}

/// Makes the variant of `corpus` in `out`; `out` appears when whole. Gives the domains that are new or cut.
///
/// # Errors
/// Where `out` exists, the corpus lacks a domain or has a line that is no document, or the system refuses.
pub fn run(corpus: &Path, out: &Path, options: &Options) -> Result<Vec<Made>, SettingsError> {
    if out.exists() {
        return Err(SettingsError::Exists { path: out.into() });
    }
    let domains = domains_of(corpus)?;
    if let Some((name, _)) = options.scarce.iter().find(|(n, _)| !domains.contains(n)) {
        return Err(SettingsError::NoDomain {
            path: corpus.into(),
            wanted: Some(name.clone()),
        });
    }
    let mut partial = out.as_os_str().to_owned();
    partial.push(format!(".{}.hds-tmp", std::process::id()));
    let partial = PathBuf::from(partial);
    if let Some(parent) = out.parent() {
        fs::create_dir_all(parent).map_err(failed(parent))?;
    }
    // A folder that is there already is somebody's: it is neither removed nor written to.
    fs::create_dir(&partial).map_err(failed(&partial))?;
    let made = fill(corpus, &partial, &domains, options);
    let made = made.and_then(|made| {
        fs::rename(&partial, out).map_err(failed(out))?;
        Ok(made)
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    made
}

/// Writes the domains of the variant into a folder.
fn fill(
    corpus: &Path,
    folder: &Path,
    domains: &[String],
    options: &Options,
) -> Result<Vec<Made>, SettingsError> {
    let mut made = Vec::new();
    for domain in domains {
        match options.scarce.iter().find(|(name, _)| name == domain) {
            Some((_, bytes)) => made.push(cut(corpus, folder, domain, *bytes, options)?),
            None => {
                let (from, to) = (file_of(corpus, domain), file_of(folder, domain));
                fs::copy(&from, &to).map_err(failed(&from))?;
            }
        }
    }
    if options.useless_bytes > 0 {
        made.push(shuffle(corpus, folder, domains, options.useless_bytes)?);
        made.push(repeat(corpus, folder, domains, options.useless_bytes)?);
    }
    Ok(made)
}

/// A table of what was made, for people.
#[must_use]
pub fn table(made: &[Made]) -> String {
    let mut text = format!(
        "{:<16} {:>10} {:>12}\n",
        "domain", "documents", "text bytes"
    );
    for one in made {
        text.push_str(&format!(
            "{:<16} {:>10} {:>12}\n",
            one.domain, one.documents, one.text_bytes
        ));
    }
    text
}

fn domains_of(corpus: &Path) -> Result<Vec<String>, SettingsError> {
    let entries = fs::read_dir(corpus).map_err(failed(corpus))?;
    let mut domains: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".jsonl.zst").map(str::to_owned))
        .collect();
    domains.sort_unstable();
    if domains.is_empty() {
        return Err(SettingsError::NoDomain {
            path: corpus.into(),
            wanted: None,
        });
    }
    Ok(domains)
}

fn file_of(folder: &Path, domain: &str) -> PathBuf {
    folder.join(format!("{domain}.jsonl.zst"))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SettingsError {
    move |source| SettingsError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Keeps what the index holds out, and the first of the others.
fn cut(
    corpus: &Path,
    out: &Path,
    domain: &str,
    bytes: u64,
    options: &Options,
) -> Result<Made, SettingsError> {
    let mut writer = Writer::create(out, domain)?;
    // As hds-index chooses: the first 8 bytes of the text's BLAKE3 against this part of 2^64.
    let below = options.valid_fraction * 2f64.powi(64);
    let mut kept = 0;
    for document in Documents::open(corpus, domain)? {
        let text = document?;
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
        let held_out = (u64::from_be_bytes(first) as f64) < below;
        if held_out || kept < bytes {
            writer.write(&text)?;
            kept += if held_out { 0 } else { text.len() as u64 };
        }
    }
    writer.finish()
}

/// Documents of words that come from all domains, in no order.
fn shuffle(
    corpus: &Path,
    out: &Path,
    domains: &[String],
    bytes: u64,
) -> Result<Made, SettingsError> {
    let mut writer = Writer::create(out, "ShuffledWords")?;
    let mut random = Numbers::new("hds settings: shuffled words");
    let mut sources: Vec<Documents> = domains
        .iter()
        .map(|domain| Documents::open(corpus, domain))
        .collect::<Result<_, _>>()?;
    let mut next = 0;
    while writer.made.text_bytes < bytes && !sources.is_empty() {
        let mut words: Vec<String> = Vec::new();
        for _ in 0..SHUFFLED_TOGETHER {
            if sources.is_empty() {
                break;
            }
            next %= sources.len();
            match sources[next].next() {
                Some(text) => words.extend(text?.split_whitespace().map(str::to_owned)),
                None => drop(sources.remove(next)),
            }
            next += 1;
        }
        for place in (1..words.len()).rev() {
            words.swap(place, random.below(place + 1));
        }
        for document in words.chunks(SHUFFLED_WORDS) {
            if writer.made.text_bytes < bytes {
                writer.write(&document.join(" "))?;
            }
        }
    }
    writer.finish()
}

/// The first documents of all domains in turn, over and over.
fn repeat(
    corpus: &Path,
    out: &Path,
    domains: &[String],
    bytes: u64,
) -> Result<Made, SettingsError> {
    let mut writer = Writer::create(out, "Repeated")?;
    let each = REPEATED_DOCUMENTS.div_ceil(domains.len());
    let mut texts = Vec::new();
    for domain in domains {
        for document in Documents::open(corpus, domain)?.take(each) {
            texts.push(document?);
        }
    }
    texts.truncate(REPEATED_DOCUMENTS);
    let all: usize = texts.iter().map(String::len).sum();
    while all > 0 && writer.made.text_bytes < bytes {
        for text in &texts {
            writer.write(text)?;
        }
    }
    writer.finish()
}

/// Texts of a file, line by line.
struct Documents {
    path: PathBuf,
    line: usize,
    lines: io::Lines<BufReader<zstd::Decoder<'static, BufReader<File>>>>,
}

impl Documents {
    fn open(corpus: &Path, domain: &str) -> Result<Self, SettingsError> {
        let path = file_of(corpus, domain);
        let file = File::open(&path).map_err(failed(&path))?;
        let decoder = zstd::Decoder::new(file).map_err(failed(&path))?;
        Ok(Self {
            lines: BufReader::new(decoder).lines(),
            path,
            line: 0,
        })
    }
}

impl Iterator for Documents {
    type Item = Result<String, SettingsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.lines.next()? {
            Ok(line) => line,
            Err(source) => return Some(Err(failed(&self.path)(source))),
        };
        self.line += 1;
        let text = match serde_json::from_str::<Value>(&line) {
            Ok(Value::Object(mut object)) => object.remove("text"),
            _ => None,
        };
        Some(match text {
            Some(Value::String(text)) => Ok(text),
            _ => Err(SettingsError::Line {
                path: self.path.clone(),
                line: self.line,
            }),
        })
    }
}

struct Writer {
    path: PathBuf,
    out: zstd::Encoder<'static, File>,
    made: Made,
}

impl Writer {
    fn create(folder: &Path, domain: &str) -> Result<Self, SettingsError> {
        let path = file_of(folder, domain);
        let file = File::create(&path).map_err(failed(&path))?;
        let out = zstd::Encoder::new(file, ZSTD_LEVEL).map_err(failed(&path))?;
        let made = Made {
            domain: domain.into(),
            documents: 0,
            text_bytes: 0,
        };
        Ok(Self { path, out, made })
    }

    fn write(&mut self, text: &str) -> Result<(), SettingsError> {
        let meta = json!({ "pile_set_name": self.made.domain });
        let line = json!({ "text": text, "meta": meta });
        writeln!(self.out, "{line}").map_err(failed(&self.path))?;
        self.made.documents += 1;
        self.made.text_bytes += text.len() as u64;
        Ok(())
    }

    fn finish(self) -> Result<Made, SettingsError> {
        let file = self.out.finish().map_err(failed(&self.path))?;
        file.sync_all().map_err(failed(&self.path))?;
        Ok(self.made)
    }
}

/// Random numbers that depend on a name alone.
struct Numbers(blake3::OutputReader);

impl Numbers {
    fn new(name: &str) -> Self {
        Self(blake3::Hasher::new_derive_key(name).finalize_xof())
    }

    /// A whole number below `bound`; its bias is below bound / 2^64.
    fn below(&mut self, bound: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        ((u128::from(u64::from_le_bytes(bytes)) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for domain in ["code", "law"] {
            let mut writer = Writer::create(folder, domain).unwrap();
            for number in 0..300 {
                let text = format!("{domain} has words of its own, number {number}");
                writer.write(&text).unwrap();
            }
            writer.finish().unwrap();
        }
    }

    fn texts(folder: &Path, domain: &str) -> Vec<String> {
        let documents = Documents::open(folder, domain).unwrap();
        documents.map(Result::unwrap).collect()
    }

    #[test]
    fn scarce_domains_keep_what_is_held_out_and_their_first_documents() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("all"), dir.path().join("scarce"));
        corpus(&from);
        let options = Options {
            scarce: vec![("law".into(), 400)],
            valid_fraction: 0.1,
            useless_bytes: 0,
        };
        let made = run(&from, &to, &options).unwrap();
        let (all, kept) = (texts(&from, "law"), texts(&to, "law"));
        assert_eq!(made[0].documents, kept.len() as u64);
        let held_out = |text: &&String| {
            let hash = blake3::hash(text.as_bytes());
            f64::from(hash.as_bytes()[0]) + f64::from(hash.as_bytes()[1]) / 256.0 < 25.6
        };
        let held: Vec<_> = all.iter().filter(held_out).collect();
        assert!((15..=45).contains(&held.len()), "{}", held.len());
        assert!(held.iter().all(|text| kept.contains(text)));
        let trained: Vec<_> = kept.iter().filter(|text| !held_out(text)).collect();
        let first: Vec<_> = all.iter().filter(|text| !held_out(text)).collect();
        assert_eq!(trained, first[..trained.len()]);
        let bytes: usize = trained.iter().map(|text| text.len()).sum();
        assert!((400..450).contains(&bytes), "{bytes}");
        assert_eq!(texts(&to, "code"), texts(&from, "code"));
        assert!(matches!(
            run(&from, &to, &options),
            Err(SettingsError::Exists { .. })
        ));
    }

    #[test]
    fn useless_domains_are_words_in_no_order_and_a_few_documents_again() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("all");
        corpus(&from);
        let options = Options {
            useless_bytes: 20_000,
            ..Options::default()
        };
        for name in ["a", "b"] {
            run(&from, &dir.path().join(name), &options).unwrap();
        }
        let bytes = |name: &str, domain| fs::read(file_of(&dir.path().join(name), domain)).unwrap();
        for domain in ["ShuffledWords", "Repeated"] {
            assert_eq!(bytes("a", domain), bytes("b", domain));
        }
        let shuffled = texts(&dir.path().join("a"), "ShuffledWords");
        assert!(shuffled[0].contains("code") && shuffled[0].contains("law"));
        assert!(!shuffled[0].contains("has words of its own"));
        let repeated = texts(&dir.path().join("a"), "Repeated");
        assert_eq!(repeated[..200], repeated[200..400]);
        assert_eq!(repeated[100], "law has words of its own, number 0");
    }

    #[test]
    fn what_is_no_corpus_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("all");
        corpus(&from);
        let wrong = Options {
            scarce: vec![("web".into(), 1)],
            ..Options::default()
        };
        let to = dir.path().join("to");
        let error = run(&from, &to, &wrong).unwrap_err().to_string();
        assert!(error.contains("of the name web"), "{error}");
        let error = run(dir.path(), &to, &Options::default()).unwrap_err();
        assert!(error.to_string().ends_with("holds no DOMAIN.jsonl.zst"));
        let path = file_of(&from, "odd");
        let odd = zstd::encode_all(&b"{\"text\": \"x\"}\n[]\n"[..], 1).unwrap();
        fs::write(&path, odd).unwrap();
        let options = Options {
            scarce: vec![("odd".into(), 10)],
            ..Options::default()
        };
        let error = run(&from, &to, &options).unwrap_err().to_string();
        assert!(error.contains("odd.jsonl.zst, line 2"), "{error}");
        // Nothing is left, and nothing that was there is gone.
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1);
        let beside = dir
            .path()
            .join(format!("to.{}.hds-tmp", std::process::id()));
        fs::rename(&from, &beside).unwrap();
        assert!(run(&beside, &to, &Options::default()).is_err());
        assert_eq!(texts(&beside, "law").len(), 300);
    }
}
