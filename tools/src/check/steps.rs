//! The steps, and the command of each.

use std::process::Command;

use super::python;
use super::results::{self, Counts};
use super::servers;
use crate::process::{quiet_stdout, run_shown};
use crate::project::{Project, cargo};
use crate::setup::{self, Flavour};
use crate::tidy;

/// A step of `cargo xtask test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// libtorch is there.
    Setup,
    /// The sources are formatted.
    Fmt,
    /// The house rules hold.
    Tidy,
    /// The lints find nothing.
    Clippy,
    /// The documentation builds without warnings.
    Doc,
    /// The programs build.
    Build,
    /// Servers that tests read from are there.
    Servers,
    /// The tests pass.
    Test,
    /// The Python package builds and its tests pass.
    Python,
}

impl Step {
    /// Every step, the quick ones first.
    pub const ALL: [Self; 9] = [
        Self::Setup,
        Self::Fmt,
        Self::Tidy,
        Self::Clippy,
        Self::Doc,
        Self::Build,
        Self::Servers,
        Self::Test,
        Self::Python,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Fmt => "fmt",
            Self::Tidy => "tidy",
            Self::Clippy => "clippy",
            Self::Doc => "doc",
            Self::Build => "build",
            Self::Servers => "servers",
            Self::Test => "test",
            Self::Python => "python",
        }
    }

    /// Whether it is of no use unless `other` has passed.
    pub(super) fn needs(self, other: Self) -> bool {
        match self {
            Self::Setup | Self::Fmt | Self::Tidy | Self::Servers => false,
            Self::Clippy | Self::Doc | Self::Build => other == Self::Setup,
            Self::Test => matches!(other, Self::Setup | Self::Build),
            Self::Python => other == Self::Build,
        }
    }

    /// The arguments of cargo; none for what this program does itself.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Setup | Self::Tidy | Self::Servers | Self::Python => &[],
            Self::Fmt => &["fmt", "--all", "--check"],
            Self::Clippy => &[
                "clippy",
                "--release",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            Self::Doc => &["doc", "--release", "--workspace", "--no-deps"],
            Self::Build => &["build", "--release", "--workspace", "--bins"],
            // Output of passing tests is needed to see which of them could not run.
            Self::Test => &[
                "test",
                "--release",
                "--workspace",
                "--no-fail-fast",
                "--",
                "--show-output",
            ],
        }
    }

    /// The command that it stands for.
    pub(super) fn shown(self) -> String {
        match self {
            Self::Setup => "libtorch is there".into(),
            Self::Tidy => "house rules".into(),
            Self::Servers => "nginx and an S3 server are there".into(),
            Self::Python => "wheel and tests of the Python package".into(),
            _ => format!("cargo {}", self.arguments().join(" ")),
        }
    }

    /// Runs it; an error says in a few words what failed.
    pub(super) fn run(self, project: &Project, counts: &mut Counts) -> Result<(), String> {
        match self {
            Self::Setup => setup::run(project, Flavour::Cpu)
                .map(drop)
                .map_err(|error| error.to_string()),
            Self::Tidy => check_tidy(project),
            Self::Servers => servers::run(project),
            Self::Python => python::run(project, counts),
            Self::Test => results::run_tests(&mut self.command(project), counts)
                .map_err(|error| format!("cargo: {error}"))?,
            _ => self.run_cargo(project),
        }
    }

    fn command(self, project: &Project) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(project.root()).args(self.arguments());
        if self == Self::Doc {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        command
    }

    fn run_cargo(self, project: &Project) -> Result<(), String> {
        if matches!(self, Self::Fmt | Self::Clippy) {
            let name = self.arguments()[0];
            if quiet_stdout(Command::new(cargo()).args([name, "--version"])).is_none() {
                let component = if self == Self::Fmt {
                    "rustfmt"
                } else {
                    "clippy"
                };
                return Err(format!(
                    "cargo has no `{name}`; get it with `rustup component add {component}`"
                ));
            }
        }
        let ended =
            run_shown(&mut self.command(project)).map_err(|error| format!("cargo: {error}"))?;
        if ended.status.success() {
            Ok(())
        } else {
            Err(self.failure())
        }
    }

    fn failure(self) -> String {
        match self {
            Self::Fmt => "run `cargo fmt --all`".into(),
            Self::Clippy => "lints found something".into(),
            Self::Doc => "rustdoc warns".into(),
            _ => "the build failed".into(),
        }
    }
}

fn check_tidy(project: &Project) -> Result<(), String> {
    let breaches = tidy::check(project.root()).map_err(|error| error.to_string())?;
    for breach in &breaches {
        eprintln!("{breach}");
    }
    if breaches.is_empty() {
        Ok(())
    } else {
        Err(format!("{} breaches", breaches.len()))
    }
}
