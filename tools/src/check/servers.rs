//! Gets the servers that tests of remote indexes read from into `.servers/`, once.
//!
//! In: cargo, the network once; for nginx a system with apt. Out: `.servers/bin/s3s-fs` and, where the machine has no
//! nginx, `.servers/bin/nginx`, unpacked from Debian's package without installing it. Always holds: nothing of the
//! system is changed but, for the superuser, apt's lists of packages. What cannot be had is said, and its tests say
//! "skipped".

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{quiet_stdout, run_shown};
use crate::project::{Project, cargo};

/// The S3 server: keeps objects as files, and checks signatures.
const S3_SERVER: (&str, &str) = ("s3s-fs", "0.14.1");
/// Debian's and Ubuntu's packages with the program nginx, by release.
const NGINX_PACKAGES: [&str; 3] = ["nginx", "nginx-light", "nginx-core"];

/// Gets what is missing.
pub(super) fn run(project: &Project) -> Result<(), String> {
    let home = project.root().join(".servers");
    std::fs::create_dir_all(home.join("bin")).map_err(|e| format!("{}: {e}", home.display()))?;
    for (name, got) in [("s3s-fs", s3_server(&home)), ("nginx", nginx(&home))] {
        match got {
            Ok(place) => eprintln!("servers: {name} is {}", project.shown(&place)),
            Err(reason) => eprintln!("servers: tests of {name} will be skipped: {reason}"),
        }
    }
    Ok(())
}

fn s3_server(home: &Path) -> Result<PathBuf, String> {
    let (name, version) = S3_SERVER;
    let program = home.join("bin").join(name);
    // cargo's own list of what it installed there.
    let installed = std::fs::read_to_string(home.join(".crates.toml")).unwrap_or_default();
    if program.is_file() && installed.contains(&format!("\"{name} {version} ")) {
        return Ok(program);
    }
    let build = home.join("build");
    let mut install = Command::new(cargo());
    install
        .args(["install", name, "--version", version, "--locked"])
        .args(["--features", "binary", "--force", "--root"])
        .arg(home)
        .arg("--target-dir")
        .arg(&build);
    let ended = run_shown(&mut install).map_err(|e| format!("cargo: {e}"))?;
    let _ = std::fs::remove_dir_all(&build);
    if ended.status.success() {
        Ok(program)
    } else {
        Err(format!(
            "`cargo install {name}` failed; is there a network?"
        ))
    }
}

fn nginx(home: &Path) -> Result<PathBuf, String> {
    let own = home.join("bin").join("nginx");
    let known = ["nginx".into(), "/usr/sbin/nginx".into(), own.clone()];
    for program in known {
        let mut ask = Command::new(&program);
        if quiet_stdout(ask.arg("-v")).is_some() {
            return Ok(program);
        }
    }
    let help = "install nginx (on Debian: apt-get install nginx-light)";
    if quiet_stdout(Command::new("apt-get").arg("--version")).is_none() {
        return Err(format!("no apt-get; {help}"));
    }
    let folder = home.join("nginx");
    let unpacked = NGINX_PACKAGES.iter().any(|name| unpack(&folder, name)) || {
        let id = quiet_stdout(Command::new("id").arg("-u")).unwrap_or_default();
        let updated = id.trim() == "0"
            && quiet_stdout(Command::new("apt-get").args(["-qq", "update"])).is_some();
        updated && NGINX_PACKAGES.iter().any(|name| unpack(&folder, name))
    };
    let found = unpacked.then(|| std::fs::copy(folder.join("usr/sbin/nginx"), &own));
    let _ = std::fs::remove_dir_all(&folder);
    match found {
        Some(Ok(_)) if quiet_stdout(Command::new(&own).arg("-v")).is_some() => Ok(own),
        _ => Err(format!("no package of it could be unpacked; {help}")),
    }
}

/// Downloads a Debian package and unpacks it in `folder`; whether nginx came of it.
fn unpack(folder: &Path, name: &str) -> bool {
    let _ = std::fs::remove_dir_all(folder);
    if std::fs::create_dir_all(folder).is_err() {
        return false;
    }
    let mut download = Command::new("apt-get");
    download.args(["-qq", "download", name]).current_dir(folder);
    if quiet_stdout(&mut download).is_none() {
        return false;
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let package = files
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|name| name == "deb"));
    let Some(package) = package else {
        return false;
    };
    let mut extract = Command::new("dpkg");
    extract.arg("-x").arg(package).arg(folder);
    quiet_stdout(&mut extract).is_some() && folder.join("usr/sbin/nginx").is_file()
}
