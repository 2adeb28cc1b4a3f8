//! Gets libtorch into `.libtorch/`, once.
//!
//! In: the pinned package lists `tools/libtorch-*.txt`, a Python 3 with pip, the network. Out: `.libtorch/`
//! with `torch/lib` and `torch/include`, where `.cargo/config.toml` points `LIBTORCH`.
//! A folder appears under its final name only when whole: everything is unpacked beside it and renamed.
//! A user's own `LIBTORCH` always wins. Leaves compiling against it to cargo.

mod contents;
mod error;
mod install;
mod machine;
mod python;

use std::path::{Path, PathBuf};

pub use contents::Flavour;
pub use error::SetupError;

use crate::project::Project;

/// How libtorch came to be where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was there, whole and of the pinned versions.
    AlreadyThere,
    /// It was installed now.
    Installed,
    /// The user's own `LIBTORCH` is used.
    Own(PathBuf),
}

/// Makes libtorch available and says on stderr what it does.
///
/// # Errors
/// Where the machine lacks something; the message names the command that helps.
pub fn run(project: &Project, flavour: Flavour) -> Result<Outcome, SetupError> {
    machine::check_compiler()?;
    if let Some(own) = own_libtorch(project) {
        check_own(&own)?;
        return Ok(Outcome::Own(own));
    }
    machine::check_platform()?;
    let packages = install::resolve(&project.packages())?;
    install::remove_leftovers(&packages);
    match contents::check(&packages, flavour) {
        Ok(()) => {
            eprintln!(
                "setup: libtorch {} is already there ({})",
                contents::torch_version(),
                project.shown(&packages)
            );
            return Ok(Outcome::AlreadyThere);
        }
        Err(contents::NotUsable::Absent) => {}
        Err(reason) => eprintln!("setup: installing again: {reason}"),
    }
    install::install(project, &packages, flavour)?;
    eprintln!(
        "setup: libtorch {} is in {}",
        contents::torch_version(),
        project.shown(&packages)
    );
    Ok(Outcome::Installed)
}

/// The user's `LIBTORCH`, if it is not the one that cargo's configuration sets.
fn own_libtorch(project: &Project) -> Option<PathBuf> {
    let value = std::env::var_os("LIBTORCH").filter(|value| !value.is_empty())?;
    let path = PathBuf::from(value);
    (path != project.default_libtorch()).then_some(path)
}

/// Looks whether `own` can be compiled against; warns where its version is another one.
fn check_own(own: &Path) -> Result<(), SetupError> {
    for needed in ["include/ATen/ATen.h", "lib"] {
        if !own.join(needed).exists() {
            return Err(SetupError::OwnLibtorch {
                path: own.to_path_buf(),
                missing: needed,
            });
        }
    }
    let version = own_version(own);
    eprintln!(
        "setup: using your LIBTORCH={} ({})",
        own.display(),
        version.as_deref().unwrap_or("version unknown")
    );
    let wanted = contents::torch_version();
    if version.is_none_or(|version| version.split('+').next() != Some(wanted)) {
        eprintln!(
            "setup: warning: this workspace is built for libtorch {wanted}; unset LIBTORCH to have it installed"
        );
    }
    Ok(())
}

/// Version of a libtorch: `build-version` in the C++ archive, `version.py` in the Python package.
fn own_version(own: &Path) -> Option<String> {
    if let Ok(text) = std::fs::read_to_string(own.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = std::fs::read_to_string(own.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    line.split('\'').nth(1).map(str::to_owned)
}
