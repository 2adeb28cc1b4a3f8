//! Tokenizers from files: both engines give the same ids, and a file that will not do is refused with the reason.
//!
//! The tokenizers are trained here, on a few sentences, and varied in the parts that published ones differ in; with the shared data
//! folder (`HDS_SHARED`) the NeoX tokenizer joins them.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use hds_indexer::tokenize::{EndOfDocument, TokenizeError, Tokenizer, TokenizerChoice, load};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokenizers::{
    AddedToken,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainerBuilder},
    },
    pre_tokenizers::byte_level::ByteLevel,
};

const SENTENCES: &[&str] = &[
    "The quick brown fox doesn't jump over the lazy dogs; it's 3.14 metres, they'll say, and we've 1,000 of them.",
    "fn main() {\n    let value = compute(10);\n    println!(\"{value}\");\n}\n",
    "Naïve cafés in Zürich serve crème brûlée — “really”, said the naïve waiter…",
    "北京大学的学生在北京学习。日本語のテキストも少し。 한국어 문장도 있습니다.",
    "\\begin{equation} x_{i+1} = \\frac{a}{b} x_i \\end{equation}\t\t  spaces    and\n\n\nlines",
];

/// Tokens of the trained tokenizer.
const TOKENS: u32 = 450;

/// A byte-level BPE tokenizer of [`TOKENS`] tokens.
fn trained() -> Value {
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let trainer = BpeTrainerBuilder::new()
        .vocab_size(TOKENS as usize)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from("<|endoftext|>", true)])
        .build();
    tokenizer
        .train(&mut TrainerWrapper::from(trainer), SENTENCES.iter())
        .unwrap();
    serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap()
}

fn with(mut json: Value, field: &str, value: Value) -> Value {
    json[field] = value;
    json
}

fn added(content: &str, id: u32, flags: &[&str]) -> Value {
    let mut token = json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": false});
    for flag in flags {
        token[*flag] = json!(true);
    }
    token
}

/// Tokenizers that differ in what published ones differ in.
fn variants() -> Vec<(&'static str, Value)> {
    let base = trained();
    let split = |pattern: &str| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})
    };
    let mut with_tokens = base.clone();
    with_tokens["added_tokens"].as_array_mut().unwrap().extend([
        added("<|im_start|>", TOKENS, &["special"]),
        added("    ", TOKENS + 1, &["normalized"]),
        added("<mask>", TOKENS + 2, &["special", "lstrip"]),
        added("<sep>", TOKENS + 3, &["rstrip"]),
        added("word", TOKENS + 4, &["single_word"]),
        added("É", TOKENS + 5, &["normalized"]),
    ]);
    vec![
        ("gpt2", base.clone()),
        (
            "nfc",
            with(base.clone(), "normalizer", json!({"type": "NFC"})),
        ),
        (
            "nfkc, lower-cased",
            with(
                base.clone(),
                "normalizer",
                json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}),
            ),
        ),
        (
            "prefix space",
            with(
                base.clone(),
                "pre_tokenizer",
                json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            ),
        ),
        (
            "cl100k",
            with(
                base.clone(),
                "pre_tokenizer",
                split(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
            ),
        ),
        (
            "qwen2",
            with(
                base.clone(),
                "pre_tokenizer",
                split(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
            ),
        ),
        (
            "an unknown pattern",
            with(
                base.clone(),
                "pre_tokenizer",
                split(r"\p{Lu}?\p{Ll}+|\p{N}+|\s+|[^\s\p{L}\p{N}]+"),
            ),
        ),
        (
            "digits apart",
            with(
                base.clone(),
                "pre_tokenizer",
                json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]}),
            ),
        ),
        (
            "no pre-tokenizer",
            with(base.clone(), "pre_tokenizer", Value::Null),
        ),
        ("added tokens", with_tokens.clone()),
        (
            "added tokens and nfc",
            with(with_tokens, "normalizer", json!({"type": "NFC"})),
        ),
        (
            "truncation and padding",
            with(
                with(
                    base,
                    "truncation",
                    json!({"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}),
                ),
                "padding",
                json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}),
            ),
        ),
        (
            "word pieces",
            json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [added("[SEP]", 0, &["special"])],
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                "vocab": {"[SEP]": 0, "[UNK]": 1, "the": 2, "fox": 3, "##es": 4, "a": 5, "##a": 6, "1": 7}}}),
        ),
        (
            "unigram",
            json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [added("</s>", 0, &["special"])],
            "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "post_processor": null, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": false, "vocab": [["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["▁the", -3.0], ["a", -4.0], ["b", -4.5], ["s", -4.6]]}}),
        ),
    ]
}

struct Pair {
    name: String,
    ours: Box<dyn Tokenizer>,
    theirs: tokenizers::Tokenizer,
}

impl Pair {
    fn of(name: &str, path: &Path, json: &Value) -> Self {
        let ours = load(&TokenizerChoice::File {
            path: path.to_owned(),
            end_of_document: None,
        })
        .unwrap();
        println!("{name}: {} {}", ours.engine(), ours.note().unwrap_or(""));
        let mut theirs: tokenizers::Tokenizer = json.to_string().parse().unwrap();
        theirs.with_truncation(None).unwrap();
        theirs.with_padding(None);
        Self {
            name: name.to_owned(),
            ours,
            theirs,
        }
    }

    fn compare(&self, text: &str) -> Result<(), TestCaseError> {
        let mut got = Vec::new();
        self.ours.encode_into(text, &mut got).unwrap();
        let want = self.theirs.encode_fast(text, false).unwrap();
        prop_assert_eq!(&got, want.get_ids(), "{} on {:?}", self.name, text);
        let (got, want) = (
            self.ours.decode(&got).unwrap(),
            self.theirs.decode(want.get_ids(), false).unwrap(),
        );
        prop_assert_eq!(got, want, "{} decoding {:?}", self.name, text);
        Ok(())
    }
}

static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let mut pairs: Vec<Pair> = variants()
        .iter()
        .map(|(name, json)| {
            Pair::of(
                name,
                &write(&folder, &format!("{name}.json"), json.to_string()),
                json,
            )
        })
        .collect();
    let shared = std::env::var_os("HDS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let neox = shared.join("data/20B_tokenizer.json");
    if let Ok(json) = fs::read_to_string(&neox) {
        pairs.push(Pair::of(
            "neox",
            &neox,
            &serde_json::from_str(&json).unwrap(),
        ));
    } else {
        println!("skipped: {} is not there", neox.display());
    }
    pairs
});

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Pieces that tokenizers treat in different ways, next to each other in any order.
const PIECES: &[&str] = &[
    "the",
    "The",
    "fox",
    "word",
    "words",
    " ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\u{b}",
    "\u{c}",
    "\u{85}",
    "\u{a0}",
    "\u{2003}",
    "\u{3000}",
    "\u{2028}",
    "'s",
    "'LL",
    "’s",
    "'",
    "''",
    "3",
    "14",
    "1234567",
    "٣",
    "½",
    "²",
    "Ⅷ",
    ".",
    ",",
    "!?",
    "...",
    "_",
    "-",
    "=====",
    "<|endoftext|>",
    "<|im_start|>",
    "<mask>",
    "<sep>",
    "<|endof",
    "text|>",
    "</s>",
    "[SEP]",
    "é",
    "e\u{301}",
    "É",
    "ß",
    "ſ",
    "İ",
    "ﬁ",
    "Å",
    "A\u{30a}",
    "\u{301}",
    "\u{344}",
    "\u{1112}\u{1161}\u{11ab}",
    "한",
    "字",
    "の",
    "カ",
    "ｶﾞ",
    "ไทย",
    "हिन्दी",
    "עב",
    "ع",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{ad}",
    "\u{fffd}",
    "\u{0}",
    "\u{1}",
    "\u{7f}",
    "👩\u{200d}👧",
    "🇫🇷",
    "🏳️\u{200d}🌈",
    "𝔸",
    "𝟙",
    "\u{10ffff}",
    "\u{e000}",
    "{",
    "}",
    "();",
    "//",
    "\\frac",
    "$",
    "#",
    "@a.b",
    "https://x.y/z?q=1",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_engines_agree_on_hard_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        let text = pieces.concat();
        for pair in PAIRS.iter() {
            pair.compare(&text)?;
        }
    }

    #[test]
    fn both_engines_agree_on_any_text(text in any::<String>()) {
        for pair in PAIRS.iter() {
            pair.compare(&text)?;
        }
    }
}

#[test]
fn long_texts_are_encoded_whole() {
    // Longer than the sizes at which the engines split work, with hard places all over.
    let text: String = (0..12_000)
        .map(|at| PIECES[at * at * 31 % PIECES.len()])
        .collect();
    for pair in PAIRS.iter() {
        pair.compare(&text).unwrap();
    }
}

#[test]
fn engines_are_chosen_as_documented() {
    for pair in PAIRS.iter() {
        let fast = pair.ours.engine() == "fastokens";
        assert_eq!(fast, pair.ours.note().is_none(), "{}", pair.name);
        match pair.name.as_str() {
            "gpt2" | "nfc" | "cl100k" | "qwen2" | "neox" => {
                assert!(fast, "{}: {:?}", pair.name, pair.ours.note())
            }
            "word pieces" | "unigram" => assert!(!fast, "{}", pair.name),
            _ => {}
        }
    }
}

#[test]
fn end_of_document_is_found_by_its_usual_names() {
    for pair in PAIRS.iter() {
        assert_eq!(pair.ours.end_of_document(), 0, "{}", pair.name);
    }
}

/// The message of the error that loading this file gives.
fn refused(name: &str, content: impl AsRef<[u8]>, end_of_document: Option<&str>) -> String {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, name, content);
    let choice = TokenizerChoice::File {
        path,
        end_of_document: end_of_document.map(EndOfDocument::from),
    };
    let message = match load(&choice) {
        Ok(_) => panic!("{name} is accepted"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains(name), "{message}");
    message
}

#[test]
fn files_of_another_kind_are_named() {
    let cases: &[(&str, &[u8], &str)] = &[
        ("empty.json", b"", "an empty file"),
        (
            "text.json",
            b"hello",
            "not JSON (expected value at line 1 column 1)",
        ),
        ("cut.json", b"{\"model\": {", "not JSON (EOF while parsing"),
        ("packed.json", &[0x1f, 0x8b, 8, 0], "a gzip archive"),
        ("packed.zst", &[0x28, 0xb5, 0x2f, 0xfd], "a zstd archive"),
        (
            "pointer.json",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "git lfs pull",
        ),
        (
            "tokenizer.model",
            b"\n\x0e\n\x05<unk>\x15\0\0\0\0",
            "SentencePiece",
        ),
        ("latin.json", b"{\"model\": \"\xe9\"}", "not JSON"),
        ("list.json", b"[1, 2]", "a JSON array of 2 items"),
        ("number.json", b"7", "the JSON value 7"),
        (
            "config.json",
            br#"{"model_type": "gpt_neox", "hidden_size": 64}"#,
            "a model's config.json",
        ),
        (
            "tokenizer_config.json",
            br#"{"tokenizer_class": "GPTNeoXTokenizer", "model": "x"}"#,
            "a tokenizer_config.json",
        ),
        (
            "special_tokens_map.json",
            br#"{"eos_token": "</s>"}"#,
            "a special_tokens_map.json",
        ),
        (
            "vocab.json",
            br#"{"a": 0, "b": 1}"#,
            "a vocabulary of 2 entries",
        ),
        ("other.json", br#"{"x": {}, "y": []}"#, "the keys [x, y]"),
        ("object.json", b"{}", "the keys []"),
    ];
    for (name, content, want) in cases {
        let message = refused(name, content, None);
        assert!(message.contains(want), "{message}");
    }
}

#[test]
fn missing_file_and_folder_are_refused() {
    let folder = TempDir::new().unwrap();
    for path in [folder.path().join("none.json"), folder.path().to_owned()] {
        let error = load(&TokenizerChoice::File {
            path,
            end_of_document: None,
        })
        .err()
        .unwrap();
        assert!(matches!(error, TokenizeError::Read { .. }), "{error}");
    }
}

#[test]
fn ids_out_of_range_are_refused() {
    let base = trained();
    for (id, shown) in [
        (json!(4_294_967_296u64), "4294967296"),
        (json!(-1), "-1"),
        (json!(1.5), "1.5"),
        (json!(u32::MAX), "4294967295"),
        (json!("7"), "\"7\""),
    ] {
        let mut in_vocabulary = base.clone();
        in_vocabulary["model"]["vocab"]["the"] = id.clone();
        let message = refused("vocab-id.json", in_vocabulary.to_string(), None);
        assert!(
            message.contains(&format!("model.vocab[\"the\"] has the id {shown}")),
            "{message}"
        );
        let mut in_added = base.clone();
        in_added["added_tokens"][0]["id"] = id;
        let message = refused("added-id.json", in_added.to_string(), None);
        assert!(
            message.contains(&format!("added_tokens[0].id has the id {shown}")),
            "{message}"
        );
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_the_reason() {
    let mut dropout = trained();
    dropout["model"]["dropout"] = json!(0.1);
    assert!(refused("dropout.json", dropout.to_string(), None).contains("makes ids random"));
    let mut unknown = trained();
    unknown["model"]["type"] = json!("Oracle");
    refused("unknown-model.json", unknown.to_string(), None);
    let mut merges = trained();
    merges["model"]["merges"] = json!([["no", "such"]]);
    refused("wrong-merge.json", merges.to_string(), None);
    let mut pattern = trained();
    pattern["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    refused("wrong-pattern.json", pattern.to_string(), None);
    let empty = json!({"model": {"type": "BPE", "vocab": {}, "merges": []}});
    refused("empty-vocabulary.json", empty.to_string(), None);
}

#[test]
fn end_of_document_must_exist() {
    let mut none = trained();
    none["added_tokens"] = json!([]);
    let id = none["model"]["vocab"]
        .as_object_mut()
        .unwrap()
        .remove("<|endoftext|>")
        .unwrap();
    none["model"]["vocab"]["<filler>"] = id;
    let text = none.to_string();
    assert!(refused("no-end.json", &text, None).contains("--end-of-document TOKEN"));
    assert!(refused("no-end.json", &text, Some("</s>")).contains("has no token \"</s>\""));
    assert!(refused("no-end.json", &text, Some("450")).contains("has no token \"450\""));
    let folder = TempDir::new().unwrap();
    for named in ["<filler>", "0"] {
        let path = write(&folder, "named-end.json", &text);
        let choice = TokenizerChoice::File {
            path,
            end_of_document: Some(EndOfDocument::from(named)),
        };
        let tokenizer = load(&choice).unwrap();
        assert_eq!(
            (tokenizer.end_of_document(), tokenizer.vocabulary()),
            (0, TOKENS)
        );
        assert_eq!(tokenizer.name(), "named-end");
        let note = tokenizer.note().unwrap();
        assert!(
            note.starts_with("warning: \"<filler>\" closes documents"),
            "{note}"
        );
        assert_eq!(
            tokenizer.fingerprint(),
            blake3::hash(text.as_bytes()).to_hex().to_string()
        );
        assert!(matches!(
            tokenizer.decode(&[TOKENS]),
            Err(TokenizeError::UnknownId { id: TOKENS, .. })
        ));
    }
}
