//! The fast engine against the reference on pieces of real text cut and joined at random: what neither hand-made pieces nor random
//! characters come near.
//!
//! In: the NeoX tokenizer and the minipile of the shared data folder (`HDS_SHARED`); without it the test says `skipped`. The cases
//! are the same in every run, but for `HDS_FUZZ_SECONDS`, which goes on that long from a seed that it prints.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod corpora;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant, SystemTime};

use corpora::shared;
use hds_indexer::tokenize::{TokenizerChoice, load};

/// Cases where no time is given.
const CASES: u32 = 1500;
/// Documents taken of every domain.
const DOCUMENTS: usize = 40;
/// Bytes of a piece, at most.
const PIECE_BYTES: u64 = 300;
/// What stands between two pieces: nothing, or what tokenizers treat in a way of its own.
const JOINTS: &[&str] = &[
    "",
    "",
    "",
    " ",
    "\n",
    "\u{301}",
    "'",
    "’s",
    "\r",
    "\u{a0}",
    "0",
    "<|endoftext|>",
    "  ",
    "\u{200d}",
    "É",
    "\t\t",
];

/// A linear congruential generator, as good as is needed here.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound) as usize
    }

    /// A piece of a text, cut between characters.
    fn piece<'t>(&mut self, text: &'t str) -> &'t str {
        let start = text.floor_char_boundary(self.below(text.len() as u64));
        let end = start + self.below(PIECE_BYTES);
        &text[start..text.floor_char_boundary(end.min(text.len())).max(start)]
    }
}

#[test]
fn both_engines_agree_on_spliced_real_text() {
    let (Some(path), Some(folder)) = (shared("20B_tokenizer.json"), shared("minipile")) else {
        return;
    };
    let mut texts = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|e| e == "zst") {
            let lines = BufReader::new(zstd::Decoder::new(File::open(file).unwrap()).unwrap());
            for line in lines.lines().take(DOCUMENTS) {
                let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
                texts.push(line["text"].as_str().unwrap().to_owned());
            }
        }
    }
    texts.sort();
    let reference = tokenizers::Tokenizer::from_file(&path).unwrap();
    let ours = load(&TokenizerChoice::File {
        path,
        end_of_document: None,
    })
    .unwrap();
    assert_eq!(ours.engine(), "fastokens");
    let longer = std::env::var("HDS_FUZZ_SECONDS")
        .ok()
        .map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let mut random = Random(17);
    if longer.is_some() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        random = Random(now.unwrap().as_nanos() as u64);
        println!("seed {}", random.0);
    }
    let start = Instant::now();
    let (mut case, mut bytes) = (0, 0);
    while longer.map_or(case < CASES, |longer| start.elapsed() < longer) {
        let mut text = String::new();
        for _ in 0..random.below(6) + 1 {
            let from = random.below(texts.len() as u64);
            text += random.piece(&texts[from]);
            text += JOINTS[random.below(JOINTS.len() as u64)];
        }
        let mut got = Vec::new();
        ours.encode_into(&text, &mut got).unwrap();
        let want = reference.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(got, want.get_ids(), "case {case}: {text:?}");
        // Normalisation may change the text, so the two decoders are compared, not what they give.
        let want = reference.decode(&got, false).unwrap();
        assert_eq!(ours.decode(&got).unwrap(), want, "case {case}: {text:?}");
        case += 1;
        bytes += text.len();
    }
    println!("{case} cases, {bytes} bytes");
    assert!(bytes / case as usize > 100, "the cases are too short");
}
