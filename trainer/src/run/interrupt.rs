//! SIGINT and SIGTERM: the first asks the run to save and end, a second SIGINT ends it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
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
        Ok(this)
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
