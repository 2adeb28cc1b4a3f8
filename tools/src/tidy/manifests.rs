//! Rules for manifests: every crate takes the workspace's lints.

use super::{Breach, Source};

pub(super) fn check(source: &Source) -> Option<Breach> {
    if source
        .path
        .file_name()
        .is_none_or(|name| name != "Cargo.toml")
    {
        return None;
    }
    let has_package = source.text.lines().any(|line| line.trim() == "[package]");
    let mut lines = source.text.lines().map(str::trim);
    let inherits = lines.any(|line| line == "[lints]")
        && lines.find(|line| !line.is_empty()) == Some("workspace = true");
    (has_package && !inherits).then(|| source.breach(0, "add `[lints]` with `workspace = true`"))
}
