//! Ctrl-C while a server is waited for.
//!
//! In: Python's pending signals. Out: whether to give up, and then the exception that a signal's handler raised. Always holds:
//! only the thread that loaded the module runs handlers, as Python has it; no other thread waits for Python's lock here.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use pyo3::prelude::*;

static MAIN: OnceLock<ThreadId> = OnceLock::new();
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// Remembers the calling thread as the one that signals come to.
pub(crate) fn listen() {
    let _ = MAIN.set(std::thread::current().id());
    #[cfg(feature = "remote")]
    hds_loader::give_up_when(is_raised);
}

/// Whether a signal's handler raises an exception, such as KeyboardInterrupt.
#[cfg_attr(not(feature = "remote"), allow(dead_code))]
fn is_raised() -> bool {
    if MAIN.get() != Some(&std::thread::current().id()) {
        return false;
    }
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let Some(raised) = raised else {
        return false;
    };
    *RAISED.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
    true
}

/// The exception that made waiting end, once.
pub(crate) fn take() -> Option<PyErr> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).take()
}
