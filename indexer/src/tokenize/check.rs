//! Holds the fast engine against the reference before it is trusted with a tokenizer.
//!
//! In: both engines of one file. Out: nothing, or the first text on which they differ. Costs milliseconds a load.
//! The wider proof, over whole corpora and random text, is in the tests.

use super::{document::Document, fast::Fast, reference::Reference};

/// Texts where tokenizers differ if they do: white space, case, digits, apostrophes, scripts, combining marks,
/// compatibility forms, zero-width and control characters, long runs.
const HARD_TEXTS: &[&str] = &[
    " ",
    "\n",
    "\r\n\r\n \t \n",
    "Hello, world! It's 3.14159 o'clock; they'LL say \"don't\".",
    "  two  spaces   three\t\ttabs\n\n\nlines \u{a0}nbsp\u{3000}wide\u{2003}em\u{85}next\u{2028}line",
    "fn main() {\n    let x_1 = 0xFF_u8 as i64; // => {x_1}\n\tprintln!(\"{}\", x_1 % 10);\n}\n",
    "1234567890 12 345 6,789 ٣٤٥ １２３ ½ ² Ⅷ 𝟘𝟙",
    "naïve café e\u{301}\u{302} A\u{30a} ﬁﬂ ſ İ ı ẞ ß ΟΔΟΣ Ǆ",
    "北京大学の学生です。한국어 텍스트 ᄒ\u{1161}\u{11ab} ไทยภาษา हिन्दी עִבְרִית العربيّة",
    "👩‍👩‍👧‍👦🏳️‍🌈🇫🇷🇩🇪1️⃣ ©®™ ∑∫√ ≠ → \u{200b}\u{200d}\u{feff}\u{ad}",
    "\u{0}\u{1}\u{7f}\u{80}\u{fffd}\u{10ffff}\u{e000}",
    "https://example.org/a_b?q=1&r=%20#x user@example.com C:\\path\\n <|im_start|> </s> <s> [CLS] [MASK] ▁▁ Ġ Ċ",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE ’s a's'b''c 's's",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa================================",
    "\\begin{equation} \\frac{\\partial^2 u}{\\partial t^2} = c^2 \\nabla^2 u \\end{equation}",
    "                        indented\n\t\t\t\t\t\t\tdeep\n \n  \n   \n    \n     x",
];

/// Added tokens beyond this many are compared by id only, not in texts.
const ADDED_TOKENS_IN_TEXTS: usize = 256;

/// Compares the engines on hard texts, on every added token in several surroundings, and in decoding.
///
/// # Errors
/// A sentence that says where they differ.
pub(super) fn agree(fast: &Fast, reference: &Reference, document: &Document) -> Result<(), String> {
    for token in &document.added {
        let (got, want) = (fast.id_of(token), reference.id_of(token));
        if got != want {
            return Err(format!(
                "the added token {token:?} is {got:?} and not {want:?}"
            ));
        }
    }
    for text in HARD_TEXTS {
        same_ids(fast, reference, text)?;
    }
    for token in document.added.iter().take(ADDED_TOKENS_IN_TEXTS) {
        for text in [
            format!("word{token}word"),
            format!("a {token} b  {token}{token}\n{token}"),
            format!("{token}s {} {}", token.to_lowercase(), token.to_uppercase()),
        ] {
            same_ids(fast, reference, &text)?;
        }
    }
    Ok(())
}

fn same_ids(fast: &Fast, reference: &Reference, text: &str) -> Result<(), String> {
    let (mut got, mut want) = (Vec::new(), Vec::new());
    let got = fast.encode_into(text, &mut got).map(|()| got);
    let want = reference.encode_into(text, &mut want).map(|()| want);
    match (got, want) {
        (Ok(got), Ok(want)) if got == want => match (fast.decode(&got), reference.decode(&want)) {
            (Ok(got), Ok(want)) if got == want => Ok(()),
            _ => Err(format!("it decodes the ids of {text:?} differently")),
        },
        (Err(_), Err(_)) => Ok(()),
        _ => Err(format!("it encodes {text:?} differently")),
    }
}
