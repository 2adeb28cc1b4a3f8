//! Finds a Python with a usable pip, or makes one.
//!
//! In: `PATH`, and a scratch folder. Out: the command of a pip. Nothing outside the scratch folder is changed:
//! an environment that the system manages (PEP 668) is only read.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use super::SetupError;
use crate::process::quiet_stdout;

/// First pip that takes several `--platform` values.
const OLDEST_PIP: u32 = 21;

/// A Python whose `-m pip` works.
#[derive(Debug)]
pub(super) struct Pip {
    python: OsString,
}

impl Pip {
    /// Takes the pip of `python3` (or `python`), or bootstraps one in a virtual environment in `scratch`.
    pub(super) fn find(scratch: &Path) -> Result<Self, SetupError> {
        let python = ["python3", "python"]
            .into_iter()
            .find(|name| python_version(name).is_some_and(|version| version.starts_with("3.")))
            .ok_or(SetupError::Python)?;
        let pip = Self {
            python: python.into(),
        };
        if pip.major().is_some_and(|major| major >= OLDEST_PIP) {
            return Ok(pip);
        }
        Self::bootstrap(python, scratch)
    }

    /// A command `python -m pip install`, unaffected by settings that contradict `--target`.
    pub(super) fn install(&self) -> Command {
        let mut command = Command::new(&self.python);
        command
            .args([
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
            ])
            .env("PIP_USER", "0")
            .env("PIP_ROOT_USER_ACTION", "ignore")
            .env("PIP_REQUIRE_VIRTUALENV", "0")
            .env_remove("PIP_PREFIX")
            .env_remove("PIP_TARGET")
            .env_remove("PYTHONHOME")
            .env_remove("PYTHONPATH");
        command
    }

    /// pip's major version; `None` where there is no pip.
    fn major(&self) -> Option<u32> {
        let text = quiet_stdout(Command::new(&self.python).args(["-m", "pip", "--version"]))?;
        text.split_whitespace()
            .nth(1)?
            .split('.')
            .next()?
            .parse()
            .ok()
    }

    fn bootstrap(python: &str, scratch: &Path) -> Result<Self, SetupError> {
        eprintln!(
            "setup: {python} has no pip of version {OLDEST_PIP} or newer; making one in a temporary environment"
        );
        let home = scratch.join("venv");
        let failed = |detail: String| SetupError::Pip {
            version: python_version(python).unwrap_or_default(),
            detail: detail
                .trim()
                .lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
                .trim_end()
                .to_owned(),
        };
        let output = Command::new(python)
            .args(["-m", "venv"])
            .arg(&home)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(failed(String::from_utf8_lossy(&said).into_owned()));
        }
        let pip = Self {
            python: home.join("bin").join("python").into(),
        };
        if pip.major().is_some_and(|major| major >= OLDEST_PIP) {
            return Ok(pip);
        }
        let upgraded = pip
            .install()
            .args(["--quiet", "--upgrade", "pip>=23"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if upgraded.status.success() && pip.major().is_some_and(|major| major >= OLDEST_PIP) {
            return Ok(pip);
        }
        Err(failed(
            String::from_utf8_lossy(&upgraded.stderr).into_owned(),
        ))
    }
}

/// "3.12.1" for a Python that runs; a name on `PATH` alone proves nothing.
fn python_version(python: &str) -> Option<String> {
    let text = quiet_stdout(
        Command::new(python).args(["-c", "import platform; print(platform.python_version())"]),
    )?;
    Some(text.trim().to_owned())
}
