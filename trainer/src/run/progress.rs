//! What a person sees while a run goes on: a bar on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows steps on stderr.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    quiet: bool,
    total: u64,
    started: Instant,
    first_step: u64,
    last_line: Option<Instant>,
}

impl Progress {
    /// For a run of `total` steps that goes on after `done`; one that is `quiet` shows nothing.
    pub fn new(total: u64, done: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let template = "{elapsed_precise} [{wide_bar}] {pos}/{len} steps, {eta} left\n{msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_position(done);
        bar.reset_eta();
        Self {
            bar,
            terminal,
            quiet,
            total,
            started: Instant::now(),
            first_step: done,
            last_line: None,
        }
    }

    /// Shows the state after `done` steps.
    pub fn step(&mut self, done: u64, message: impl FnOnce() -> String) {
        if self.quiet {
            return;
        }
        if self.terminal {
            self.bar.set_message(message());
            self.bar.set_position(done);
            return;
        }
        let due = self
            .last_line
            .is_none_or(|last| last.elapsed() >= LINE_INTERVAL);
        if !due && done != self.total {
            return;
        }
        self.last_line = Some(Instant::now());
        let per_step =
            self.started.elapsed().as_secs_f64() / (done - self.first_step).max(1) as f64;
        let left = Duration::from_secs_f64(per_step * (self.total - done.min(self.total)) as f64);
        hds::note!(
            "step {done}/{}  {}  {} left",
            self.total,
            message(),
            show_duration(left)
        );
    }

    /// Prints a line of its own.
    pub fn line(&self, text: &str) {
        if self.terminal {
            self.bar.println(text)
        } else if !self.quiet {
            hds::note!("{text}")
        }
    }

    /// Leaves the last state on the screen.
    pub fn finish(&self) {
        self.bar.abandon();
    }
}

/// `1h02m`, `3m05s` or `12s`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(show_duration(Duration::from_secs(59)), "59s");
        assert_eq!(show_duration(Duration::from_secs(185)), "3m05s");
        assert_eq!(show_duration(Duration::from_secs(3725)), "1h02m");
    }
}
