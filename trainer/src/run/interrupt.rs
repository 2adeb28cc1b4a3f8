//! SIGINT, SIGTERM and SIGHUP: the first asks the run to save and end, a second SIGINT ends it at once.
//!
//! In: signals. Out: whether to end. Always holds: a hang-up that is ignored, as under `nohup`, stays so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the run was asked to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens to the signals from now on.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        let this = Self::default();
        // The order matters: the shutdown of the second signal is armed by the first.
        flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&this.asked))?;
        flag::register(SIGINT, Arc::clone(&this.asked))?;
        flag::register(SIGTERM, Arc::clone(&this.asked))?;
        if !hang_ups_are_ignored() {
            flag::register(SIGHUP, Arc::clone(&this.asked))?;
        }
        Ok(this)
    }

    /// Asks as a signal would when the process that started this one is gone; at once if it is gone already.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn end_with_parent(&self, parent: u32) -> std::io::Result<()> {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // Gone before the system was told: somebody else is the parent then, or nobody.
        let now = getppid().map(|pid| pid.as_raw_nonzero().get());
        if now.and_then(|pid| u32::try_from(pid).ok()) != Some(parent) {
            self.ask();
        }
        Ok(())
    }

    /// Asks the run to save and end, as a signal would.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Whether SIGHUP was set to be ignored before this program began; `false` where the system does not say.
fn hang_ups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, SIGHUP.
    mask.is_some_and(|mask| mask & 1 == 1)
}
