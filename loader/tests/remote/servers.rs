//! Servers of files, started on a free port and ended when dropped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const ACCESS_KEY: &str = "HDSTESTACCESSKEY";
pub const SECRET_KEY: &str = "hds-test-secret-key";
/// The bucket of [`S3`].
pub const BUCKET: &str = "indexes";

/// A port that nobody listens on right now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A program of `cargo xtask test --only servers`, on PATH or in one of the usual folders.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/bin");
    let folders = std::iter::once(own).chain(std::env::split_paths(&path));
    let folders = folders.chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn wait_for(port: u16, child: &mut Child) {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the server has ended");
        assert!(start.elapsed() < Duration::from_secs(20), "no server");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// nginx with a configuration of its own, run by whoever runs the test.
pub struct Nginx {
    program: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

/// A request that nginx has answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answered {
    pub uri: String,
    pub range: String,
    pub status: String,
}

impl Nginx {
    /// Serves a folder; `more` goes into the server's block. `None`, with a line that says so, where there is no
    /// nginx.
    #[allow(clippy::print_stdout)] // what the checks read
    pub fn start(root: &Path, more: &str) -> Option<Self> {
        let Some(program) = program("nginx") else {
            println!("skipped: nginx is not installed; on Debian: apt-get install nginx-light");
            return None;
        };
        let mut server = Self {
            program,
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
            child: None,
        };
        server.configure(root, more);
        server.go();
        Some(server)
    }

    /// Writes another configuration, of force from the next start on.
    pub fn configure(&self, root: &Path, more: &str) {
        let folder = self.folder.path().display();
        let (port, root) = (self.port, root.display());
        let text = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n\
               log_format ranges '$uri|$http_range|$status';\n\
               access_log {folder}/access.log ranges;\n\
               client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
               fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
               server {{ listen 127.0.0.1:{port}; root {root}; {more} }}\n\
             }}\n"
        );
        fs::write(self.folder.path().join("nginx.conf"), text).unwrap();
    }

    /// Starts it.
    pub fn go(&mut self) {
        let folder = self.folder.path();
        let mut child = Command::new(&self.program)
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .arg("-e")
            .arg(folder.join("error.log"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(self.port, &mut child);
        self.child = Some(child);
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The URL of a folder that it serves.
    pub fn url(&self, folder: &str) -> String {
        format!("http://127.0.0.1:{}/{folder}", self.port)
    }

    /// What it has answered so far.
    pub fn answered(&self) -> Vec<Answered> {
        let text = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        let line = |line: &str| {
            let mut fields = line.split('|').map(str::to_owned);
            Some(Answered {
                uri: fields.next()?,
                range: fields.next()?,
                status: fields.next()?,
            })
        };
        text.lines().filter_map(line).collect()
    }

    /// The pieces of files that it has given whole.
    pub fn pieces(&self) -> Vec<Answered> {
        let mut answered = self.answered();
        answered.retain(|answer| answer.status == "206");
        answered
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An S3 server that keeps objects as files.
pub struct S3 {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl S3 {
    /// Starts it with the bucket [`BUCKET`]; `None`, with a line that says so, where it is not installed.
    #[allow(clippy::print_stdout)] // what the checks read
    pub fn start() -> Option<Self> {
        let Some(program) = program("s3s-fs") else {
            println!(
                "skipped: s3s-fs is not installed; `cargo xtask test` does it, or: cargo install s3s-fs --version 0.14.1 --locked --features binary"
            );
            return None;
        };
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let port_text = port.to_string();
        let mut child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port_text])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(port, &mut child);
        Some(Self {
            folder,
            port,
            child,
        })
    }

    /// Where the bucket's objects are.
    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }

    /// What the environment of a reader must say.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".into()),
        ]
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
