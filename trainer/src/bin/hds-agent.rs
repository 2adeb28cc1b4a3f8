//! The command `hds-agent`: serves the scheduler to other trainers.

#![warn(clippy::print_stderr, clippy::print_stdout)]

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use hds_trainer::agent::{Listen, Server, ServerConfig};
use hds_trainer::run::Interrupt;

/// Serve the scheduler to other trainers.
///
/// A trainer in any language opens a run, sends what each step showed (losses, counts, weight norms, gradients' inner products), and
/// gets the weights of the next batch. The protocol, JSON lines, is described in docs/agent.md.
#[derive(Parser)]
#[command(name = "hds-agent", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(ServeArguments),
}

/// Listen until SIGINT or SIGTERM; then save every open run and end.
///
/// Prints where it listens on standard output as soon as clients can connect, and what happens to
/// runs on standard error. Writes below the state folder and the socket's path only. Nothing beyond
/// this machine is served.
///
/// Examples:
///   hds-agent serve --state runs/agent --socket runs/hds.sock
///   hds-agent serve --state runs/agent --listen 127.0.0.1:7077 --token-file token
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct ServeArguments {
    /// Folder of the runs' checkpoints; made if needed
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Path of a Unix socket; its folder's mode says who may connect
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Loopback address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    listen: Option<SocketAddr>,
    /// File with the token that clients show, at least 16 bytes
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Runs open at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    /// Threads of each run's networks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1024))]
    threads: i32,
    /// End when standard input ends, as it does when the process that started this one dies
    #[arg(long)]
    until_stdin_ends: bool,
}

fn main() -> ExitCode {
    let Command::Serve(arguments) = Cli::parse().command;
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            hds::note!("error: {}", hds::message::with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: ServeArguments) -> Result<()> {
    let listen = match (arguments.socket, arguments.listen, arguments.token_file) {
        (Some(_), None, Some(_)) => bail!(
            "--token-file goes with --listen; who may connect to a socket is a matter of its folder's mode"
        ),
        (Some(path), None, None) => Listen::Socket(path),
        (None, Some(address), Some(token_file)) => Listen::Loopback {
            address,
            token_file,
        },
        _ => bail!(
            "nowhere to listen: give --socket PATH, or --listen ADDRESS:PORT with --token-file FILE"
        ),
    };
    tch::set_num_threads(arguments.threads);
    let interrupt = Interrupt::listen().context("cannot listen to SIGINT and SIGTERM")?;
    let server = Server::bind(&ServerConfig {
        listen,
        state: arguments.state,
        connections: arguments.connections as usize,
    })?;
    if arguments.until_stdin_ends {
        let interrupt = interrupt.clone();
        thread::spawn(move || {
            // Whatever comes is dropped; an end or an error of standard input both end the agent.
            let mut buffer = [0; 4096];
            while matches!(std::io::stdin().read(&mut buffer), Ok(n) if n > 0) {}
            interrupt.ask();
        });
    }
    hds::message::print(&format!("{}\n", server.place()))?;
    let unsaved = server
        .serve(&interrupt)
        .context("the listening socket failed")?;
    if unsaved > 0 {
        bail!("{unsaved} of the open runs could not be saved; see above");
    }
    Ok(())
}
