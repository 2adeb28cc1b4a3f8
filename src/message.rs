//! What programs say to people.
//!
//! In: an error and what caused it, or a text. Out: one line; the text on standard output or standard
//! error. Always holds: what a cause says is said once, also where an error's own text holds its cause's
//! already; a standard error that cannot be written (a full disk, a dead pipe) never ends the work.

use std::error::Error;
use std::io::{self, Write};

/// Writes a line to standard error as `eprintln!` does, but goes on where that cannot be written.
#[macro_export]
macro_rules! note {
    ($($part:tt)*) => {
        $crate::message::write_note(format_args!($($part)*))
    };
}

/// What [`note!`](crate::note) does.
pub fn write_note(text: std::fmt::Arguments<'_>) {
    // There is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "{}", harmless(&text.to_string()));
}

/// The text without characters that would command a terminal: names of files and fields are anyone's. Lines and tabs stay.
fn harmless(text: &str) -> std::borrow::Cow<'_, str> {
    let commands = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(commands) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if commands(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Writes a text to standard output. A reader that has gone away, as `head` does, is no error.
///
/// # Errors
/// If it cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let outcome = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    outcome.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}"),
        )),
    })
}

/// The texts of an error and its causes, joined by ": ", without those that an earlier text ends with.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string().trim_end().to_owned();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.ends_with(said.trim_end()) {
            text = format!("{text}: {}", said.trim_end());
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::durable::FileError;

    #[test]
    fn names_command_no_terminal() {
        assert_eq!(harmless("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(harmless("\x1b[31m\r\u{9b}x"), "\\u{1b}[31m\\u{d}\\u{9b}x");
    }

    #[test]
    fn a_cause_is_told_once() {
        let io = io::Error::from_raw_os_error(2);
        let said = io.to_string();
        let file = FileError::new("read", "a.toml".as_ref(), io);
        assert_eq!(with_causes(&file), format!("cannot read a.toml: {said}"));

        // As parsers end theirs.
        #[derive(Debug, thiserror::Error)]
        #[error("line 1\n")]
        struct Parser;
        #[derive(Debug, thiserror::Error)]
        #[error("no TOML: {0}")]
        struct Syntax(#[source] Parser);
        assert_eq!(with_causes(&Syntax(Parser)), "no TOML: line 1");

        #[derive(Debug, thiserror::Error)]
        #[error("no configuration")]
        struct Outer(#[source] FileError);
        let io = io::Error::from_raw_os_error(2);
        let outer = Outer(FileError::new("read", "a.toml".as_ref(), io));
        let want = format!("no configuration: cannot read a.toml: {said}");
        assert_eq!(with_causes(&outer), want);
    }
}
