//! What a checkpoint consists of: `contents.json`, sizes and BLAKE3 of every file.
//!
//! In: the folder of a checkpoint. Out: whether it is whole, or the list itself for a folder that is. Always holds: a list that
//! names no file, or leads out of the folder, is of no checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hds::durable::{self, FileError};
use hds::index::{Checksum, checksum_file};
use serde::{Deserialize, Serialize};

use super::checkpoint::{CheckpointError, checkpoint_name, step_of};

pub(super) const CONTENTS_FILE: &str = "contents.json";
const FORMAT_VERSION: u32 = 1;

const STATE_FILE: &str = "run.json";
/// What every checkpoint of a run has, beside the weights in one or more files.
const NEEDED: [&str; 3] = [STATE_FILE, "optimizer.safetensors", "model/config.json"];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    files: BTreeMap<String, Content>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    bytes: u64,
    blake3: Checksum,
}

/// What is looked at of a run's state.
#[derive(Deserialize)]
struct Place {
    step: u64,
}

/// Checks that every file of a checkpoint is there and as it was written.
///
/// # Errors
/// The first file that is not.
pub fn verify(path: &Path) -> Result<(), CheckpointError> {
    verified(path).map(drop)
}

/// As [`verify`], of a checkpoint that a training run goes on from: it lists what that takes, and its name tells the step it is of.
///
/// # Errors
/// What is missing or does not fit.
pub(super) fn verify_of_run(path: &Path) -> Result<(), CheckpointError> {
    let contents = verified(path)?;
    let weights = |file: &String| file.starts_with("model/") && file.ends_with(".safetensors");
    let missing = NEEDED
        .into_iter()
        .find(|&needed| !contents.files.contains_key(needed))
        .or_else(|| (!contents.files.keys().any(weights)).then_some("model/model.safetensors"));
    if let Some(missing) = missing {
        return Err(CheckpointError::Incomplete {
            path: path.to_owned(),
            reason: format!("{CONTENTS_FILE} does not list {missing}"),
        });
    }
    let text = fs::read(path.join(STATE_FILE)).unwrap_or_default();
    let place: Option<Place> = serde_json::from_slice(&text).ok();
    match (step_of(path), place) {
        (Some(named), Some(Place { step })) if step != named => Err(CheckpointError::Damaged {
            path: path.to_owned(),
            file: STATE_FILE.to_owned(),
            reason: format!(
                "is of step {step}: the folder was renamed; name it {} again",
                checkpoint_name(step)
            ),
        }),
        // What cannot be read is told of by its reader.
        _ => Ok(()),
    }
}

fn verified(path: &Path) -> Result<Contents, CheckpointError> {
    let incomplete = |reason: String| CheckpointError::Incomplete {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read(path.join(CONTENTS_FILE))
        .map_err(|e| incomplete(format!("cannot read {CONTENTS_FILE}: {e}")))?;
    let contents: Contents =
        serde_json::from_slice(&text).map_err(|e| incomplete(format!("{CONTENTS_FILE}: {e}")))?;
    if contents.version != FORMAT_VERSION {
        let reason = format!(
            "{CONTENTS_FILE} has version {}, known is {FORMAT_VERSION}",
            contents.version
        );
        return Err(incomplete(reason));
    }
    if contents.files.is_empty() {
        return Err(incomplete(format!("{CONTENTS_FILE} lists no file")));
    }
    for (file, want) in &contents.files {
        let damaged = |reason: String| CheckpointError::Damaged {
            path: path.to_owned(),
            file: file.clone(),
            reason,
        };
        if file.split('/').any(|part| part.is_empty() || part == "..") {
            return Err(damaged(
                "has a path that leads out of the checkpoint".into(),
            ));
        }
        let full = path.join(file);
        let got = fs::metadata(&full)
            .map_err(|e| damaged(format!("cannot be read: {e}")))?
            .len();
        if got != want.bytes {
            return Err(damaged(format!(
                "holds {got} bytes, expected {}",
                want.bytes
            )));
        }
        let sum = checksum_file(&full).map_err(|e| damaged(format!("cannot be read: {e}")))?;
        if sum != want.blake3 {
            return Err(damaged(
                "has another checksum than when it was written".into(),
            ));
        }
    }
    Ok(contents)
}

pub(super) fn seal(folder: &Path) -> Result<(), CheckpointError> {
    let mut files = BTreeMap::new();
    collect(folder, "", &mut files)?;
    durable::write_json(
        &folder.join(CONTENTS_FILE),
        &Contents {
            version: FORMAT_VERSION,
            files,
        },
    )?;
    Ok(())
}

fn collect(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Content>,
) -> Result<(), CheckpointError> {
    let read_error = |e| FileError::new("read", folder, e);
    for entry in fs::read_dir(folder).map_err(read_error)? {
        let entry = entry.map_err(read_error)?;
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
            durable::sync_folder(&path)?;
            continue;
        }
        let io_error = |e| FileError::new("read", &path, e);
        fs::File::open(&path)
            .and_then(|f| f.sync_all())
            .map_err(io_error)?;
        let bytes = fs::metadata(&path).map_err(io_error)?.len();
        let blake3 = checksum_file(&path).map_err(io_error)?;
        files.insert(name, Content { bytes, blake3 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::checkpoint::Checkpoints;
    use super::*;

    fn of_step(all: &Checkpoints, step: u64, named: u64, files: &[&str]) -> std::path::PathBuf {
        all.save::<CheckpointError>(named, |folder| {
            fs::create_dir(folder.join("model")).unwrap();
            for file in files {
                fs::write(folder.join(file), "{}").unwrap();
            }
            fs::write(folder.join(STATE_FILE), format!("{{\"step\":{step}}}")).unwrap();
            Ok(())
        })
        .unwrap()
    }

    const FILES: [&str; 3] = [
        "optimizer.safetensors",
        "model/config.json",
        "model/model-00001-of-00002.safetensors",
    ];

    #[test]
    fn hostile_contents_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::new(dir.path().to_owned(), 1);
        let path = of_step(&all, 1, 1, &FILES);
        let sum = Checksum::of(b"").to_string();
        for text in [
            "{}".to_owned(),
            r#"{"version":1,"files":{}}"#.to_owned(),
            r#"{"version":9,"files":{}}"#.to_owned(),
            format!(r#"{{"version":1,"files":{{"../x":{{"bytes":0,"blake3":"{sum}"}}}}}}"#),
        ] {
            fs::write(path.join(CONTENTS_FILE), text).unwrap();
            assert!(verify(&path).is_err());
        }
    }

    #[test]
    fn a_checkpoint_of_a_run_lists_all_that_it_goes_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::of_run(dir.path().to_owned(), 9);
        let whole = of_step(&all, 1, 1, &FILES);
        verify_of_run(&whole).unwrap();
        for (step, left_out) in (2..).zip(FILES) {
            let files: Vec<&str> = FILES.into_iter().filter(|f| *f != left_out).collect();
            let path = of_step(&all, step, step, &files);
            let error = verify_of_run(&path).unwrap_err().to_string();
            assert!(error.contains("does not list"), "{error}");
        }
        // The newest three are not whole.
        assert_eq!(all.newest().unwrap().0, Some(whole));
    }

    #[test]
    fn a_renamed_checkpoint_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let all = Checkpoints::of_run(dir.path().to_owned(), 9);
        let good = of_step(&all, 20, 20, &FILES);
        of_step(&all, 10, 30, &FILES);
        let (found, damaged) = all.newest().unwrap();
        assert_eq!(found, Some(good.clone()));
        let error = damaged[0].to_string();
        assert!(
            error.contains("is of step 10") && error.contains("step-00000010"),
            "{error}"
        );
        // Moved away under a name of another kind it is what it was.
        let away = dir.path().join("kept");
        fs::rename(good, &away).unwrap();
        verify_of_run(&away).unwrap();
    }
}
