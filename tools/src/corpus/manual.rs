//! Plain text of a manual page.
//!
//! In: roff source with the `man` or `mdoc` macros. Out: readable text: headings, paragraphs, no markup. It is no
//! roff: definitions, conditions and tables are dropped, layout is one line per source line.

/// Macros that place text but hold none.
const LAYOUT: [&str; 16] = [
    "TH", "Dd", "Dt", "Os", "Bl", "El", "Bd", "Ed", "RS", "RE", "EX", "EE", "TS", "TE", "Bk", "Ek",
];

/// Renders `source` as plain text.
pub(super) fn plain_text(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut in_definition = false;
    for line in source.lines() {
        if in_definition {
            in_definition = line != "..";
            continue;
        }
        let Some(request) = line.strip_prefix(['.', '\'']) else {
            text.push_str(&unescape(line));
            text.push('\n');
            continue;
        };
        let request = request.trim_start();
        let (name, arguments) = request
            .split_once(char::is_whitespace)
            .unwrap_or((request, ""));
        match name {
            "de" | "de1" | "am" | "ig" => in_definition = true,
            "SH" | "SS" | "Sh" | "Ss" => {
                end_paragraph(&mut text);
                text.push_str(&words(arguments).join(" "));
                text.push('\n');
            }
            "HP" | "PP" | "P" | "LP" | "Pp" | "TP" | "sp" => end_paragraph(&mut text),
            "IP" | "It" => {
                end_paragraph(&mut text);
                // `.IP TAG INDENT`, `.It Fl x Ar file`
                let all = words(arguments);
                let shown = if name == "IP" {
                    all.get(..1).unwrap_or_default().join(" ")
                } else {
                    mdoc(&all)
                };
                text.push_str(&shown);
                text.push('\n');
            }
            // Alternating fonts: the words are set without space between them.
            "BR" | "RB" | "IR" | "RI" | "BI" | "IB" => {
                push_line(&mut text, &words(arguments).concat())
            }
            "B" | "I" | "SM" | "SB" => push_line(&mut text, &words(arguments).join(" ")),
            _ if LAYOUT.contains(&name) => {}
            // Macros of mdoc are two letters, the first a capital, and set their arguments as text.
            _ if name.len() == 2 && name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                let mut all = vec![name.to_owned()];
                all.extend(words(arguments));
                push_line(&mut text, &mdoc(&all));
            }
            _ => {}
        }
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    if !line.is_empty() {
        text.push_str(line);
        text.push('\n');
    }
}

fn end_paragraph(text: &mut String) {
    while !text.is_empty() && !text.ends_with("\n\n") {
        text.push('\n');
    }
}

/// Sets mdoc words: `Fl x` is an option, other macro names vanish.
fn mdoc(words: &[String]) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut option = false;
    for word in words {
        let is_macro = word.len() == 2
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.ends_with(|last: char| last.is_ascii_lowercase());
        if is_macro {
            option = word == "Fl";
        } else {
            shown.push(if option {
                format!("-{word}")
            } else {
                word.clone()
            });
            option = false;
        }
    }
    shown.join(" ")
}

/// Splits a request's arguments; double quotes hold words together.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once([' ', '\t']).unwrap_or((rest, "")),
        };
        words.push(unescape(word));
        rest = after.trim_start();
    }
    words
}

/// Resolves roff's escapes.
fn unescape(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('-') => text.push('-'),
            Some('e' | '\\') => text.push('\\'),
            Some(' ' | '~' | '0') => text.push(' '),
            Some('`') => text.push('`'),
            Some('\'') => text.push('\''),
            Some('.') => text.push('.'),
            Some('"' | '#') => return text,
            Some('(') => {
                let name: String = letters.by_ref().take(2).collect();
                text.push_str(special(&name));
            }
            Some('[') => {
                let name: String = letters
                    .by_ref()
                    .take_while(|&letter| letter != ']')
                    .collect();
                text.push_str(special(&name));
            }
            Some('f' | '*' | 'm' | 'n' | 'F' | 'k' | 'g') => skip_name(&mut letters),
            Some('s') => {
                let mut ahead = letters.clone();
                while ahead
                    .next()
                    .is_some_and(|letter| letter.is_ascii_digit() || matches!(letter, '+' | '-'))
                {
                    letters.next();
                }
            }
            // \& \| \^ \% \: \/ \, \c and what is not known print nothing.
            _ => {}
        }
    }
    text
}

/// Skips `X`, `(XX` or `[XXX]`.
fn skip_name(letters: &mut std::str::Chars<'_>) {
    match letters.next() {
        Some('(') => {
            letters.nth(1);
        }
        Some('[') => {
            letters.find(|&letter| letter == ']');
        }
        _ => {}
    }
}

fn special(name: &str) -> &'static str {
    match name {
        "aq" | "cq" | "oq" => "'",
        "dq" | "lq" | "rq" => "\"",
        "bu" => "*",
        "em" | "en" | "hy" | "mi" => "-",
        "co" => "(c)",
        "ha" => "^",
        "ti" => "~",
        "rs" => "\\",
        "ga" => "`",
        "la" => "<",
        "ra" => ">",
        "or" => "|",
        "->" => "->",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_macros_become_text() {
        let page = ".\\\" comment\n.TH TAR 1\n.SH \"SEE ALSO\"\n\\fBtar\\fR \\-c\\&, it\\(aqs\n.de XX\nhidden\n..\n.BR gzip (1)\n.PP\nEnd\\e.\n";
        assert_eq!(
            plain_text(page),
            "SEE ALSO\ntar -c, it's\ngzip(1)\n\nEnd\\.\n"
        );
    }

    #[test]
    fn mdoc_macros_become_text() {
        let page = ".Dd June\n.Sh NAME\n.Nm ssh\n.Op Fl b Ar address\n.Bl -tag\n.It Fl 4\nForces IPv4.\n.El\n";
        assert_eq!(
            plain_text(page),
            "NAME\nssh\n-b address\n\n-4\nForces IPv4.\n"
        );
    }

    #[test]
    fn broken_escapes_do_no_harm() {
        for page in [
            "\\",
            "\\f",
            "\\f(",
            "\\f[never",
            "\\(",
            "\\s",
            ".",
            ".IP",
            "\\*[",
            ".SH \"open",
        ] {
            let _ = plain_text(page);
        }
    }
}
