//! Reads a file and takes out the text that its domain is about.

use std::fs;
use std::io::Read;

use super::candidates::Candidate;
use super::domain::{Domain, Holds};
use super::{html, manual};

/// Text of one file after decompression at most; what claims more is no document.
const LARGEST_TEXT_BYTES: u64 = 4 << 20;

/// The candidate's text, or `None` for a file that is no UTF-8 text or cannot be read.
pub(super) fn text(candidate: &Candidate) -> Option<String> {
    let mut bytes = fs::read(&candidate.path).ok()?;
    if candidate
        .path
        .extension()
        .is_some_and(|extension| extension == "gz")
    {
        let mut plain = Vec::new();
        let decoder = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        decoder
            .take(LARGEST_TEXT_BYTES)
            .read_to_end(&mut plain)
            .ok()?;
        bytes = plain;
    }
    let text = String::from_utf8(bytes).ok()?.replace("\r\n", "\n");
    Some(match (candidate.holds, candidate.domain) {
        (Holds::Books, _) => html::main_text(&text),
        (Holds::Manuals, _) => manual::plain_text(&text),
        (_, Domain::RustDocs) => split_rust(&text).0,
        (_, Domain::RustCode) => split_rust(&text).1,
        _ => text,
    })
}

/// Takes Rust source apart: the text of its documentation comments, and the rest.
fn split_rust(source: &str) -> (String, String) {
    let (mut docs, mut code) = (String::new(), String::new());
    let mut in_docs = false;
    for line in source.lines() {
        let trimmed = line.trim_start();
        let comment = trimmed.strip_prefix("//!").or_else(|| {
            // A fourth slash makes it an ordinary comment.
            trimmed
                .strip_prefix("///")
                .filter(|rest| !rest.starts_with('/'))
        });
        if let Some(comment) = comment {
            docs.push_str(comment.strip_prefix(' ').unwrap_or(comment));
            docs.push('\n');
        } else {
            if in_docs {
                docs.push('\n');
            }
            code.push_str(line);
            code.push('\n');
        }
        in_docs = comment.is_some();
    }
    (docs, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_source_is_split_into_docs_and_code() {
        let source = "//! Module.\n\n/// Adds.\n///\n/// Two numbers.\n#[inline]\nfn add() {} // why\n//// ruler\n";
        let (docs, code) = split_rust(source);
        assert_eq!(docs, "Module.\n\nAdds.\n\nTwo numbers.\n\n");
        assert_eq!(code, "\n#[inline]\nfn add() {} // why\n//// ruler\n");
    }
}
