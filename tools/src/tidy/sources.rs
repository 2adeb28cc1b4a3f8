//! Rules for source files: length, header, names, words that mean unfinished, paths of one machine.

use super::{Breach, Source};

/// Most lines of a Rust file.
const MOST_LINES: usize = 500;
/// Longer files, and why they are not split.
const LONGER: [(&str, usize, &str); 1] = [(
    "indexer/tests/tokenizer_files.rs",
    600,
    "one table of tokenizer files, good and bad, and what each gives",
)];
/// File names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 4] = ["utils", "util", "common", "helpers"];
/// Marks of unfinished work; the halves are joined so that this file does not name them.
const UNFINISHED: [(&str, &str); 6] = [
    ("todo", "!("),
    ("unimplemented", "!("),
    ("#[ign", "ore"),
    ("FIX", "ME"),
    ("TO", "DO"),
    ("//! Place", "holder"),
];
/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [(&str, &str); 5] = [
    ("/ho", "me/"),
    ("/ro", "ot/"),
    ("/Us", "ers/"),
    ("/wo", "rk/"),
    ("/tm", "p/"),
];

pub(super) fn check(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for (start, end) in MACHINE_FOLDERS {
            let folder = format!("{start}{end}");
            if names_folder(line, &folder) {
                breaches.push(source.breach(
                    number + 1,
                    format!("holds a path of one machine ({folder}…)"),
                ));
            }
        }
        let mark = UNFINISHED
            .iter()
            .map(|(start, end)| format!("{start}{end}"))
            .find(|mark| line.contains(mark));
        if let (true, Some(mark)) = (source.is_rust(), mark) {
            breaches.push(source.breach(
                number + 1,
                format!("`{mark}` means unfinished: finish it or take it out"),
            ));
        }
    }
    if source.is_rust() {
        breaches.extend(check_rust(source));
    }
    breaches
}

/// Whether `line` holds an absolute path that begins with `folder` (not a longer path or an address with it inside).
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|before| {
            !before.is_alphanumeric() && !matches!(before, '.' | '-' | '_' | '}' | '*' | '$')
        })
    })
}

fn check_rust(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let first = source
        .text
        .lines()
        .position(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    let has_header = first
        .and_then(|at| source.text.lines().nth(at))
        .is_some_and(|line| line.starts_with("//! "));
    if !has_header {
        let line = first.map_or(1, |at| at + 1);
        breaches.push(source.breach(
            line,
            "begin with a module header: what it does, in, out, what always holds (`//! …`)",
        ));
    }
    let lines = source.text.lines().count();
    let path = source.path.to_string_lossy().replace('\\', "/");
    let most = LONGER
        .iter()
        .find(|(longer, ..)| *longer == path)
        .map_or(MOST_LINES, |&(_, most, _)| most);
    if lines > most {
        breaches.push(source.breach(
            0,
            format!("{lines} lines, at most {most}: split it by concept"),
        ));
    }
    let stem = source
        .path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    if EMPTY_NAMES.contains(&&*stem) {
        breaches.push(source.breach(0, "name the file after what is in it"));
    }
    breaches
}
