//! What SIGINT and SIGTERM do to a command that writes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Ended by a signal, as shells report it for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// A flag that the first signal sets; a second one ends the program at once, as what is published is whole at any moment.
///
/// # Errors
/// If the system refuses.
pub(crate) fn interrupted() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            INTERRUPTED.into(),
            interrupted.clone(),
        )?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    // A file beyond the limit of `ulimit -f` is then an error of the write, which names the file.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(interrupted)
}
