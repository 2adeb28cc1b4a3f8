//! The progress bar; where nobody watches, notes alone.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hds_indexer::build::{Advance, Progress};
use indicatif::{ProgressBar, ProgressStyle};

/// Shows a build's progress on stderr: a bar on a terminal, else only what a user should know.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    started: Instant,
    last_shown: AtomicU64,
}

/// Between two updates of the bar.
const EVERY: Duration = Duration::from_millis(100);

impl Shown {
    pub(crate) fn new(quiet: bool) -> Self {
        let watched = !quiet && std::io::stderr().is_terminal();
        Self {
            bar: watched.then(|| ProgressBar::new(0)),
            started: Instant::now(),
            last_shown: AtomicU64::new(0),
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Shown {
    fn begins(&self, input_bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(input_bytes);
            bar.set_style(style(input_bytes > 0));
            bar.enable_steady_tick(EVERY);
        }
    }

    fn advances(&self, advance: Advance) {
        let Some(bar) = &self.bar else { return };
        let now = self.started.elapsed();
        let last = Duration::from_millis(self.last_shown.load(Ordering::Relaxed));
        if now < last + EVERY {
            return;
        }
        self.last_shown
            .store(now.as_millis() as u64, Ordering::Relaxed);
        bar.set_position(advance.input_bytes);
        let rate = advance.text_bytes as f64 / 1e6 / now.as_secs_f64();
        let documents = hds_indexer::inspect::grouped(advance.documents);
        bar.set_message(format!("{documents} documents, {rate:.1} MB of text/s"));
    }

    fn finishes(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message("writing the document tables");
        }
    }

    fn note(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.println(message),
            None => hds::note!("{message}"),
        }
    }
}

/// With a known amount a bar and the time left, else what is behind.
fn style(known: bool) -> ProgressStyle {
    let template = if known {
        "{bar:30} {bytes} of {total_bytes} read, {msg}, {eta} left"
    } else {
        "{spinner} {bytes} read, {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
