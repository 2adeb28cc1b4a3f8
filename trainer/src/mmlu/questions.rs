//! MMLU's questions from files.
//!
//! In: a folder in one of two layouts: `test.jsonl` and `dev.jsonl`, also `.jsonl.zst`, with `question`, `subject`, `choices` (4) and
//! `answer` (0 to 3 or A to D), as the data set `cais/mmlu` has them; or `test/SUBJECT_test.csv` and `dev/SUBJECT_dev.csv` with
//! question, four choices and a letter, as the original archive (a header is skipped). Out: questions by subject, in the files'
//! order. Always holds: every question has four choices and an answer among them, or the file and line are named.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use hds::durable::open_regular;
use serde::Deserialize;

use super::MmluError;

/// A question with four choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question, as in the file.
    pub question: String,
    /// The choices A to D.
    pub choices: [String; 4],
    /// Which is right, 0 to 3.
    pub answer: usize,
}

/// The questions of both splits by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// What is asked.
    pub test: BTreeMap<String, Vec<Question>>,
    /// Where examples come from.
    pub dev: BTreeMap<String, Vec<Question>>,
}

impl Questions {
    /// Reads a folder.
    ///
    /// # Errors
    /// A folder in neither layout, or a line that is no question.
    pub fn read(folder: &Path) -> Result<Self, MmluError> {
        let questions = Self {
            test: split(folder, "test")?,
            dev: split(folder, "dev")?,
        };
        if questions.test.is_empty() {
            return Err(MmluError::Nothing {
                path: folder.to_owned(),
            });
        }
        Ok(questions)
    }
}

type BySubject = BTreeMap<String, Vec<Question>>;

fn split(folder: &Path, name: &str) -> Result<BySubject, MmluError> {
    let inner = folder.join(name);
    let places = [
        folder.join(format!("{name}.jsonl")),
        folder.join(format!("{name}.jsonl.zst")),
        inner.clone(),
    ];
    let mut there = places
        .into_iter()
        .filter(|path| path.is_file() || (*path == inner && path.is_dir()));
    let Some(first) = there.next() else {
        return Ok(BySubject::new());
    };
    if let Some(second) = there.next() {
        return Err(MmluError::Twice { first, second });
    }
    let found = match first == inner {
        true => csv_folder(&inner, name)?,
        false => json_lines(&first)?,
    };
    // Without examples a model is asked all the same; without questions it is not.
    if name == "test" && found.is_empty() {
        return Err(MmluError::NoQuestion { path: first });
    }
    Ok(found)
}

/// The files `SUBJECT_NAME.csv` of a folder.
fn csv_folder(inner: &Path, name: &str) -> Result<BySubject, MmluError> {
    let fail = |source| MmluError::Read {
        path: inner.to_owned(),
        source,
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(inner)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(fail)?;
    paths.sort();
    let ending = format!("_{name}");
    let mut found = BySubject::new();
    for path in paths {
        let subject = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.strip_suffix(&ending))
            .map(str::to_owned);
        if let (Some(subject), Some("csv")) =
            (subject, path.extension().and_then(|end| end.to_str()))
        {
            let questions = csv(&path)?;
            if name == "test" && questions.is_empty() {
                return Err(MmluError::NoQuestion { path });
            }
            found.insert(subject, questions);
        }
    }
    Ok(found)
}

/// The text without the mark of UTF-8 that some editors put before it.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[derive(Deserialize)]
struct Line {
    question: String,
    subject: String,
    choices: [String; 4],
    answer: Answer,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Number(usize),
    Letter(String),
}

fn letter(text: &str) -> Option<usize> {
    ["A", "B", "C", "D"]
        .iter()
        .position(|letter| *letter == text.trim())
}

fn json_lines(path: &Path) -> Result<BySubject, MmluError> {
    let fail = |source| MmluError::Read {
        path: path.to_owned(),
        source,
    };
    let file = open_regular(path).map_err(fail)?;
    let reader: Box<dyn Read> = match path.extension().and_then(|end| end.to_str()) {
        Some("zst") => Box::new(zstd::Decoder::new(file).map_err(fail)?),
        _ => Box::new(file),
    };
    let mut found = BySubject::new();
    for (number, line) in BufReader::new(reader).lines().enumerate() {
        let line = line.map_err(fail)?;
        let line = match number {
            0 => without_mark(&line),
            _ => &line,
        };
        if line.trim().is_empty() {
            continue;
        }
        let bad = |reason: String| MmluError::Question {
            path: path.to_owned(),
            line: number + 1,
            reason,
        };
        let line: Line = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        let answer = match &line.answer {
            Answer::Number(number) => Some(*number).filter(|number| *number < 4),
            Answer::Letter(text) => letter(text),
        }
        .ok_or_else(|| bad("answer is neither 0 to 3 nor A to D".to_owned()))?;
        found.entry(line.subject).or_default().push(Question {
            question: line.question,
            choices: line.choices,
            answer,
        });
    }
    Ok(found)
}

fn csv(path: &Path) -> Result<Vec<Question>, MmluError> {
    let text = fs::read_to_string(path).map_err(|source| MmluError::Read {
        path: path.to_owned(),
        source,
    })?;
    let bad = |line: usize, reason: String| MmluError::Question {
        path: path.to_owned(),
        line,
        reason,
    };
    let mut questions = Vec::new();
    for (number, (line, fields)) in records(without_mark(&text))
        .map_err(|line| bad(line, "a quoted field has no end".to_owned()))?
        .into_iter()
        .enumerate()
    {
        let count = fields.len();
        let [question, a, b, c, d, answer] = <[String; 6]>::try_from(fields).map_err(|_| {
            let want = "6 (question, four choices, answer)";
            bad(line, format!("has {count} fields, must have {want}"))
        })?;
        if number == 0 && answer == "answer" {
            continue;
        }
        let answer = letter(&answer)
            .or_else(|| answer.trim().parse().ok().filter(|number| *number < 4))
            .ok_or_else(|| bad(line, format!("answer is {answer:?}, must be A to D")))?;
        questions.push(Question {
            question,
            choices: [a, b, c, d],
            answer,
        });
    }
    Ok(questions)
}

/// The records of a comma-separated text with the line each begins in.
///
/// # Errors
/// The line where a quoted field begins that does not end.
///
/// # Source
/// RFC 4180: fields may be quoted, and then hold commas, line breaks, and quotes written twice.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, usize> {
    let mut all = Vec::new();
    let (mut record, mut field) = (Vec::new(), String::new());
    let (mut line, mut start) = (1, 1);
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                if record != [""] {
                    all.push((start, std::mem::take(&mut record)));
                }
                record.clear();
                start = line;
            }
            other => field.push(other),
        }
    }
    if quoted {
        return Err(start);
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        all.push((start, record));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const JSON: &str = concat!(
        r#"{"question":"Is 2, \"two\"\nright?","subject":"anatomy","choices":["a","b,c","d","e"],"answer":1}"#,
        "\n",
        r#"{"question":"q2","subject":"anatomy","choices":["1","2","3","4"],"answer":"D"}"#,
        "\n"
    );

    #[test]
    fn both_layouts_give_the_same_questions() {
        let folder = tempfile::tempdir().unwrap();
        let [json, csv, packed] = ["json", "csv", "zst"].map(|name| folder.path().join(name));
        for split in ["test", "dev"] {
            write(&json, &format!("{split}.jsonl"), JSON);
            let packed_lines = zstd::encode_all(JSON.as_bytes(), 3).unwrap();
            fs::create_dir_all(&packed).unwrap();
            fs::write(packed.join(format!("{split}.jsonl.zst")), packed_lines).unwrap();
            let text = "\"Is 2, \"\"two\"\"\nright?\",a,\"b,c\",d,e,B\r\nq2,1,2,3,4,D";
            write(&csv, &format!("{split}/anatomy_{split}.csv"), text);
        }
        let questions = Questions::read(&json).unwrap();
        assert_eq!(
            questions.test["anatomy"][0].question,
            "Is 2, \"two\"\nright?"
        );
        assert_eq!(questions.test["anatomy"][1].answer, 3);
        assert_eq!(Questions::read(&csv).unwrap(), questions);
        assert_eq!(Questions::read(&packed).unwrap(), questions);
        let header = "question,choice0,choice1,choice2,choice3,answer\nq2,1,2,3,4,3\n";
        write(&csv, "test/anatomy_test.csv", header);
        let again = Questions::read(&csv).unwrap();
        assert_eq!(again.test["anatomy"], questions.test["anatomy"][1..]);
        // As some editors save.
        write(&csv, "test/anatomy_test.csv", &format!("\u{feff}{header}"));
        assert_eq!(Questions::read(&csv).unwrap(), again);
        write(&json, "test.jsonl", &format!("\u{feff}{JSON}"));
        assert_eq!(Questions::read(&json).unwrap(), questions);
    }

    #[test]
    fn a_split_that_is_empty_or_there_twice_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name: &str, files: &[(&str, &str)]| {
            let inner = folder.path().join(name);
            for (file, text) in files {
                write(&inner, file, text);
            }
            Questions::read(&inner).unwrap_err().to_string()
        };
        for (name, files, words) in [
            (
                "a",
                &[("test.jsonl", "\n")][..],
                ["test.jsonl", "has no question"],
            ),
            (
                "b",
                &[("test/x_test.csv", "question,a,b,c,d,answer\n")],
                ["x_test.csv", "has no question"],
            ),
            ("c", &[("test/notes.txt", "")], ["test", "has no question"]),
            (
                "d",
                &[("test.jsonl", JSON), ("test.jsonl.zst", "")],
                ["test.jsonl.zst", "both there"],
            ),
            (
                "e",
                &[
                    ("test.jsonl", JSON),
                    ("dev.jsonl", JSON),
                    ("dev/x_dev.csv", ""),
                ],
                ["dev.jsonl", "both there"],
            ),
        ] {
            let error = refused(name, files);
            for word in words {
                assert!(error.contains(word), "{name} {word}: {error}");
            }
        }
    }

    #[test]
    fn a_line_that_is_no_question_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = |file: &str, content: &str| {
            let inner = folder.path().join("x");
            let _ = fs::remove_dir_all(&inner);
            write(&inner, file, content);
            Questions::read(&inner).unwrap_err().to_string()
        };
        let three = JSON.replace("\"b,c\",", "");
        for (file, content, words) in [
            ("test.jsonl", three.as_str(), ["test.jsonl", "line 1"]),
            (
                "test.jsonl",
                &JSON.replace("\"D\"", "4"),
                ["line 2", "answer"],
            ),
            ("test/a_test.csv", "q,1,2,3,A\n", ["a_test.csv", "5 fields"]),
            (
                "test/a_test.csv",
                "q,1,2,3,4,A\nq,1,2,3,4,E\n",
                ["line 2", "\"E\""],
            ),
            ("test/a_test.csv", "\"q,1,2,3,4,A\n", ["line 1", "no end"]),
            ("other.txt", "", ["no questions", "test.jsonl"]),
        ] {
            let error = text(file, content);
            for word in words {
                assert!(error.contains(word), "{word}: {error}");
            }
        }
    }
}
