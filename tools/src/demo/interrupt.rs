//! Waits for a program that ends in its own time when told to stop.
//!
//! In: a command that handles SIGINT and SIGTERM. Out: its status, and whether a signal came. A terminal sends
//! SIGINT to both; this program must outlive the other to say how to go on. SIGTERM is passed on.

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs `command` to its end; whether it was told to stop comes with its status.
pub(super) fn run(command: &mut Command) -> io::Result<(ExitStatus, bool)> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let terminated = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&terminated))?;
    let mut child = command.spawn()?;
    let mut passed_on = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if terminated.load(Ordering::Relaxed) && !passed_on {
            passed_on = true;
            // Without `kill` the program is simply waited for.
            let _ = Command::new("kill")
                .arg("-TERM")
                .arg(child.id().to_string())
                .status();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    Ok((
        status,
        interrupted.load(Ordering::Relaxed) || terminated.load(Ordering::Relaxed),
    ))
}
