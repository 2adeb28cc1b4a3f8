//! What a file holds, told by its name alone.
//!
//! In: a file name. Out: its [`Format`] and the stem that may serve as a domain's name. A file whose name says nothing
//! is refused by the plan rather than guessed at, since a wrong guess would index rubbish silently.

/// How the bytes of a record file are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Zstandard, any number of frames.
    Zstd,
    /// Gzip, any number of members.
    Gzip,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object a line.
    Lines(Compression),
    /// A table, a record a row.
    Parquet,
    /// A table in Arrow's IPC file or stream format, a record a row.
    Arrow,
    /// Text, one document.
    Text,
}

/// The record formats as messages name them.
pub const RECORD_FORMATS: &str =
    ".jsonl .json .ndjson (also with .zst or .gz), .parquet, .arrow .feather .ipc";

const LINES: [&str; 3] = ["jsonl", "json", "ndjson"];

/// Extensions of files that are one document each: prose, markup, and sources of common languages.
const TEXT: &[&str] = &[
    "txt", "text", "md", "markdown", "rst", "adoc", "org", "tex", "html", "htm", "xhtml", "xml",
    "srt", "vtt", "log", "rs", "py", "pyi", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "cu", "cuh",
    "java", "kt", "scala", "go", "js", "mjs", "ts", "tsx", "jsx", "rb", "php", "pl", "pm", "lua",
    "r", "jl", "hs", "ml", "mli", "ex", "exs", "erl", "clj", "lisp", "el", "scm", "swift", "m",
    "cs", "fs", "vb", "f90", "f", "for", "pas", "ada", "adb", "ads", "asm", "s", "sh", "bash",
    "zsh", "fish", "ps1", "bat", "sql", "css", "scss", "vue", "dart", "zig", "nim", "v", "sv",
    "vhd", "vhdl", "proto", "cmake", "mk", "toml", "yaml", "yml", "ini", "cfg", "conf",
];

/// Extensions that a user adds to the text formats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextExtensions(Vec<String>);

impl TextExtensions {
    /// Takes extensions with or without their dot; `*` stands for every name.
    pub fn new<S: AsRef<str>>(extensions: impl IntoIterator<Item = S>) -> Self {
        let clean = |e: S| e.as_ref().trim_start_matches('.').to_ascii_lowercase();
        Self(extensions.into_iter().map(clean).collect())
    }

    /// The extensions, lower-cased, without dots.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    fn claims(&self, extension: Option<&str>) -> bool {
        self.0
            .iter()
            .any(|e| e == "*" || Some(e.as_str()) == extension)
    }
}

/// The format of a file, and its name without the extensions that told it. `None` if the name says nothing.
pub fn format_of<'n>(name: &'n str, also_text: &TextExtensions) -> Option<(Format, &'n str)> {
    let (stem, last) = split_extension(name);
    let last_lower = last.map(str::to_ascii_lowercase);
    let last = last_lower.as_deref();
    if also_text.claims(last) {
        return Some((Format::Text, stem));
    }
    let compression = match last? {
        "zst" | "zstd" => Compression::Zstd,
        "gz" | "gzip" => Compression::Gzip,
        "arrow" | "arrows" | "feather" | "ipc" => return Some((Format::Arrow, stem)),
        "parquet" | "pq" => return Some((Format::Parquet, stem)),
        e if LINES.contains(&e) => return Some((Format::Lines(Compression::None), stem)),
        e if TEXT.contains(&e) => return Some((Format::Text, stem)),
        _ => return None,
    };
    // A bare `00.zst` is taken for what it nearly always is.
    match split_extension(stem) {
        (_, None) => Some((Format::Lines(compression), stem)),
        (inner, Some(e)) if LINES.contains(&e.to_ascii_lowercase().as_str()) => {
            Some((Format::Lines(compression), inner))
        }
        _ => None,
    }
}

/// Cuts a name at its last dot; a dot at the front (`.profile`) starts no extension.
fn split_extension(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => {
            (stem, Some(extension))
        }
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats() {
        let none = TextExtensions::default();
        let lines = |c| Some(Format::Lines(c));
        for (name, format, stem) in [
            ("web.jsonl", lines(Compression::None), "web"),
            ("a.b.jsonl.zst", lines(Compression::Zstd), "a.b"),
            ("WEB.JSONL.GZ", lines(Compression::Gzip), "WEB"),
            ("00.zst", lines(Compression::Zstd), "00"),
            ("x.json", lines(Compression::None), "x"),
            ("t.parquet", Some(Format::Parquet), "t"),
            ("t.arrow", Some(Format::Arrow), "t"),
            ("t.Feather", Some(Format::Arrow), "t"),
            ("read.me.md", Some(Format::Text), "read.me"),
            ("x.tar.gz", None, ""),
            ("x.txt.gz", None, ""),
            ("x.png", None, ""),
            ("Makefile", None, ""),
            (".jsonl", None, ""),
            ("x.", None, ""),
        ] {
            let got = format_of(name, &none);
            assert_eq!(got.map(|g| g.0), format, "{name}");
            assert_eq!(got.map_or("", |g| g.1), stem, "{name}");
        }
    }

    #[test]
    fn a_user_says_what_else_is_text() {
        let some = TextExtensions::new([".json", "Lock"]);
        assert_eq!(
            format_of("package.json", &some),
            Some((Format::Text, "package"))
        );
        assert_eq!(
            format_of("Cargo.lock", &some),
            Some((Format::Text, "Cargo"))
        );
        let all = TextExtensions::new(["*"]);
        assert_eq!(
            format_of("Makefile", &all),
            Some((Format::Text, "Makefile"))
        );
    }
}
