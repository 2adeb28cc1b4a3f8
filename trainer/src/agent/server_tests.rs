//! Clients over real sockets: good ones, hostile ones, and ones that die.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use super::*;
use crate::agent::protocol::{Reply, Request, Start};
use crate::agent::session::tests::{facts, request, step};

struct Running {
    dir: tempfile::TempDir,
    stop: Interrupt,
    place: String,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(listen: impl FnOnce(&Path) -> Listen, connections: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::bind(&ServerConfig {
            listen: listen(dir.path()),
            state: dir.path().join("state"),
            connections,
        })
        .unwrap();
        let stop = Interrupt::default();
        let (place, asked) = (server.place(), stop.clone());
        let thread = thread::spawn(move || {
            server.serve(&asked).unwrap();
        });
        Self {
            dir,
            stop,
            place,
            thread: Some(thread),
        }
    }

    fn unix(connections: usize) -> Self {
        Self::new(|dir| Listen::Socket(dir.join("s")), connections)
    }

    fn client(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.dir.path().join("s")).unwrap();
        Client {
            reader: BufReader::new(stream.try_clone().unwrap()),
            writer: stream,
        }
    }

    fn end(mut self) -> tempfile::TempDir {
        self.stop.ask();
        self.thread.take().unwrap().join().unwrap();
        let empty = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.dir, empty)
    }
}

struct Client<S> {
    reader: BufReader<S>,
    writer: S,
}

impl<S: Read + Write> Client<S> {
    fn line(&mut self, line: &[u8]) -> Option<Reply> {
        // A server that has hung up shows in the missing reply.
        let _ = self
            .writer
            .write_all(line)
            .and_then(|()| self.writer.write_all(b"\n"));
        let mut reply = String::new();
        self.reader.read_line(&mut reply).ok()?;
        (!reply.is_empty()).then(|| serde_json::from_str(&reply).unwrap())
    }

    fn ask(&mut self, request: &Request) -> Reply {
        self.line(&serde_json::to_vec(request).unwrap()).unwrap()
    }

    fn open(&mut self, run: &str, start: Start) -> Reply {
        self.ask(&Request::Open(Box::new(request(run, start, facts(50)))))
    }

    fn step(&mut self, at: u64) -> Reply {
        self.ask(&Request::Step(Box::new(step(at))))
    }

    fn error(&mut self, line: &[u8]) -> (String, bool) {
        match self.line(line) {
            Some(Reply::Error { code, closed, .. }) => (code, closed),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn several_runs_at_once_and_nonsense_on_one_harms_no_other() {
    let running = Running::unix(8);
    let (mut good, mut bad) = (running.client(), running.client());
    assert!(matches!(
        good.open("good", Start::New),
        Reply::Opened { step: 0, .. }
    ));
    assert!(matches!(bad.open("bad", Start::New), Reply::Opened { .. }));
    let deep = "[".repeat(100_000);
    for nonsense in [
        &b"{"[..],
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"{\"type\":\"launch\"}",
        b"{\"type\":\"step\",\"step\":0}",
        b"{\"type\":\"save\",\"to\":\"/etc\"}",
        b"{\"type\":\"step\",\"step\":-1,\"samples\":[1e999]}",
        deep.as_bytes(),
    ] {
        assert_eq!(bad.error(nonsense), ("protocol".into(), false));
        assert!(matches!(good.step(0), Reply::Weights { step: 1, .. }));
    }
    let taken = running.client().open("good", Start::Any);
    assert!(matches!(taken, Reply::Error { code, .. } if code == "busy"));
    // One dies in the middle of a line; its name is free again soon, at the step it had.
    assert!(matches!(bad.step(0), Reply::Weights { step: 1, .. }));
    bad.writer.write_all(b"{\"type\":\"st").unwrap();
    drop(bad);
    let again = (0..100).find_map(|_| {
        thread::sleep(LOOK);
        match running.client().open("bad", Start::Resume) {
            Reply::Opened { step, .. } => Some(step),
            _ => None,
        }
    });
    assert_eq!(again, Some(1));
    for at in 1..10 {
        assert!(matches!(good.step(at), Reply::Weights { .. }));
    }
    // The server's end saves what is open.
    let dir = running.end();
    assert!(
        dir.path()
            .join("state/good/ended/step-00000010/agent.json")
            .exists()
    );
    assert!(!dir.path().join("s").exists());
}

#[test]
fn a_line_without_end_closes_its_connection_alone() {
    let running = Running::unix(8);
    let mut good = running.client();
    good.open("good", Start::New);
    let mut endless = running.client();
    let block = vec![b' '; 1 << 20];
    let mut sent = 0;
    while endless.writer.write_all(&block).is_ok() && sent < 80 {
        sent += 1;
    }
    assert!(sent < 80, "80 MB of one line were taken");
    assert!(matches!(good.step(0), Reply::Weights { .. }));
    running.end();
}

#[test]
fn clients_beyond_the_limit_are_told() {
    let running = Running::unix(1);
    let mut first = running.client();
    first.open("a", Start::New);
    let mut second = running.client();
    let told = second.open("b", Start::New);
    let Reply::Error {
        code,
        message,
        closed: false,
    } = told
    else {
        panic!("{told:?}");
    };
    assert_eq!(code, "busy");
    assert!(message.contains("1 runs are open"), "{message}");
    assert!(matches!(first.step(0), Reply::Weights { .. }));
    // The same connection may try again.
    drop(first);
    let opened = (0..100).any(|_| {
        thread::sleep(LOOK);
        matches!(second.open("b", Start::New), Reply::Opened { .. })
    });
    assert!(opened);
    running.end();
}

/// Connects and says nothing, many times.
fn silent<S>(count: usize, connect: impl Fn() -> S) -> Vec<S> {
    (0..count).map(|_| connect()).collect()
}

#[test]
fn clients_that_say_nothing_keep_no_good_one_out() {
    let running = Running::unix(1);
    let connect = || UnixStream::connect(running.dir.path().join("s")).unwrap();
    let mut before = silent(200, connect);
    let mut good = running.client();
    assert!(matches!(
        good.open("good", Start::New),
        Reply::Opened { .. }
    ));
    let _after = silent(200, connect);
    assert!(matches!(good.step(0), Reply::Weights { .. }));
    // The oldest have made room, and were told.
    let mut told = String::new();
    let oldest = &mut before[0];
    oldest
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    BufReader::new(oldest).read_line(&mut told).unwrap();
    assert!(told.contains("waited longest"), "{told}");
    running.end();
}

#[test]
fn loopback_wants_the_token_and_nothing_else_is_bound() {
    let token = "0123456789abcdef-token";
    let loopback = |dir: &Path| {
        let token_file = dir.join("token");
        fs::write(&token_file, format!("{token}\n")).unwrap();
        Listen::Loopback {
            address: "127.0.0.1:0".parse().unwrap(),
            token_file,
        }
    };
    let running = Running::new(loopback, 8);
    let address = running.place.strip_prefix("tcp:").unwrap().to_owned();
    let client = || {
        let stream = TcpStream::connect(&address).unwrap();
        Client {
            reader: BufReader::new(stream.try_clone().unwrap()),
            writer: stream,
        }
    };
    for first in [
        &b"{\"type\":\"hello\",\"token\":\"0123456789abcdef-tokem\"}"[..],
        b"{\"type\":\"close\"}",
        b"GET / HTTP/1.1",
    ] {
        let mut stranger = client();
        assert!(stranger.error(first).1);
        assert!(stranger.line(b"{\"type\":\"close\"}").is_none());
    }
    let mut friend = client();
    let hello = format!("{{\"type\":\"hello\",\"token\":\"{token}\"}}");
    assert!(matches!(
        friend.line(hello.as_bytes()),
        Some(Reply::Welcome { .. })
    ));
    assert!(matches!(friend.open("a", Start::New), Reply::Opened { .. }));
    // Strangers that say nothing, or something without end, keep no friend out.
    let mut strangers = silent(200, || TcpStream::connect(&address).unwrap());
    for stranger in &mut strangers[100..] {
        let _ = stranger.write_all(b"{\"type\":");
    }
    let begin = std::time::Instant::now();
    let mut other = client();
    assert!(matches!(
        other.line(hello.as_bytes()),
        Some(Reply::Welcome { .. })
    ));
    assert!(matches!(other.open("b", Start::New), Reply::Opened { .. }));
    assert!(matches!(friend.step(0), Reply::Weights { .. }));
    assert!(
        begin.elapsed() < Duration::from_secs(4),
        "waited for strangers"
    );
    let dir = running.end();

    let bind = |address: &str, token_file: &Path| {
        Server::bind(&ServerConfig {
            listen: Listen::Loopback {
                address: address.parse().unwrap(),
                token_file: token_file.to_owned(),
            },
            state: dir.path().join("state"),
            connections: 1,
        })
    };
    let token_file = dir.path().join("token");
    assert!(matches!(
        bind("0.0.0.0:0", &token_file),
        Err(AgentError::NotLoopback { .. })
    ));
    fs::write(&token_file, "short\n").unwrap();
    assert!(matches!(
        bind("[::1]:0", &token_file),
        Err(AgentError::Listen { .. } | AgentError::Token { got: 5, .. })
    ));
}

#[test]
fn a_dead_agents_socket_is_replaced_a_living_ones_and_a_file_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let bind = || {
        Server::bind(&ServerConfig {
            listen: Listen::Socket(path.clone()),
            state: dir.path().join("state"),
            connections: 1,
        })
    };
    let long = Server::bind(&ServerConfig {
        listen: Listen::Socket(dir.path().join("x".repeat(120))),
        state: dir.path().join("state"),
        connections: 1,
    });
    let text = long.unwrap_err().to_string();
    assert!(text.contains("it may have 107"), "{text}");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let living = bind().unwrap();
    assert!(matches!(bind(), Err(AgentError::Taken { .. })));
    assert!(
        path.exists(),
        "the refused one removed the living one's socket"
    );
    drop(living);
    fs::write(&path, "mine").unwrap();
    assert!(matches!(bind(), Err(AgentError::NoSocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_socket_that_another_agent_took_over_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let bind = |state: &str| {
        Server::bind(&ServerConfig {
            listen: Listen::Socket(path.clone()),
            state: dir.path().join(state),
            connections: 1,
        })
        .unwrap()
    };
    let first = bind("a");
    fs::remove_file(&path).unwrap();
    let second = bind("b");
    drop(first);
    UnixStream::connect(&path).unwrap();
    drop(second);
    assert!(!path.exists());
}

#[test]
fn tokens_that_no_client_can_send_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    for (token, why) in [
        (&[0xff; 32][..], "not one line of UTF-8"),
        (
            b"0123456789abcdef\n0123456789abcdef",
            "not one line of UTF-8",
        ),
        (&[b'a'; 1 << 16], "longer than"),
        (b"short", "at least 16"),
    ] {
        fs::write(&file, token).unwrap();
        let error = read_token(&file).unwrap_err();
        let text = hds::message::with_causes(&error);
        assert!(text.contains(why), "{text}");
    }
    let error = read_token(Path::new("/dev/zero")).unwrap_err();
    assert!(!hds::message::with_causes(&error).is_empty());
}

/// A session that ends while its agent does and cannot be saved is counted, and one client that reads nothing holds up no other.
#[test]
fn runs_that_cannot_be_saved_at_the_end_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = Server::bind(&ServerConfig {
        listen: Listen::Socket(path.clone()),
        state: dir.path().join("state"),
        connections: 4,
    })
    .unwrap();
    let stop = Interrupt::default();
    let asked = stop.clone();
    let thread = thread::spawn(move || server.serve(&asked).unwrap());
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        Client {
            reader: BufReader::new(stream.try_clone().unwrap()),
            writer: stream,
        }
    };
    let (mut one, mut deaf) = (connect(), connect());
    for (client, run) in [(&mut one, "one"), (&mut deaf, "deaf")] {
        client.open(run, Start::New);
        client.step(0);
    }
    // A file where the folder of the last checkpoint would be.
    fs::write(dir.path().join("state/one/ended"), "").unwrap();
    // Answers that nobody reads, until the socket takes no more.
    deaf.writer.set_write_timeout(Some(LOOK)).unwrap();
    while deaf.writer.write_all(b"{\"type\":\"save\"}\n").is_ok() {}
    let begin = std::time::Instant::now();
    stop.ask();
    assert_eq!(thread.join().unwrap(), 1);
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    drop((one, deaf));
}
