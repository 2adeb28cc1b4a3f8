//! Whether all ranks of a group train the same run.
//!
//! In: what this rank was started with and has read. Out: nothing, or on all ranks the same error, which names what
//! differs. Always holds: what all decisions come from is compared: configuration, program, index, place, weights.

use std::path::{Path, PathBuf};

use super::config::{ConfigError, RunConfig};
use super::error::RunError;
use super::setup;
use super::trainer::Start;
use crate::distributed::{Group, GroupError};

/// Checks that all ranks have the same configuration, run folder, command and program.
///
/// # Errors
/// If one has not, or is lost.
pub fn check_start(
    config: &RunConfig,
    out: &Path,
    start: Start,
    group: &Group,
) -> Result<(), RunError> {
    if group.is_alone() {
        return Ok(());
    }
    let mut own = setup::as_table(config)?;
    let place = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
    let place: PathBuf = place.components().collect();
    own.insert("--out".into(), place.display().to_string().into());
    own.insert("--resume".into(), (start == Start::Resume).into());
    own.insert("program version".into(), env!("CARGO_PKG_VERSION").into());
    check(&own, group)
}

/// Checks that all ranks stand at the same place: facts by name, as text.
///
/// # Errors
/// If one does not, or is lost.
pub fn check_place(facts: &[(&str, String)], group: &Group) -> Result<(), RunError> {
    if group.is_alone() {
        return Ok(());
    }
    let facts = facts.iter();
    let own = facts.map(|(name, text)| ((*name).to_owned(), text.clone().into()));
    check(&own.collect(), group)
}

fn check(own: &toml::Table, group: &Group) -> Result<(), RunError> {
    let write = |e: toml::ser::Error| ConfigError::Key {
        key: "(all)".into(),
        reason: e.to_string(),
    };
    let texts = group.texts(&toml::to_string(own).map_err(write)?)?;
    let mut tables = Vec::with_capacity(texts.len());
    for text in &texts {
        let table: toml::Table = toml::from_str(text).map_err(|e| ConfigError::Key {
            key: "(another rank's)".into(),
            reason: e.to_string(),
        })?;
        tables.push(table);
    }
    let Some((first, others)) = tables.split_first() else {
        return Ok(());
    };
    for (other, rank) in others.iter().zip(1..) {
        let mut differences = Vec::new();
        setup::compare(other, first, "", &mut differences);
        let bad =
            |(key, ..): &(String, String, String)| !setup::OF_A_PROCESS.contains(&key.as_str());
        if let Some((key, got, want)) = differences.into_iter().find(bad) {
            return Err(GroupError::Differs {
                key,
                rank,
                got,
                want,
            }
            .into());
        }
    }
    Ok(())
}
