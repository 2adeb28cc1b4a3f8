//! Whether to give up waiting for a server: a process may want to end.
//!
//! In: a question that the process sets once, such as whether a signal has come. Out: its answer, asked some times a
//! second by whoever waits. The only state of the whole process: signals are the process's too.

use std::sync::OnceLock;
use std::time::Duration;

/// Between two questions.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

static QUESTION: OnceLock<fn() -> bool> = OnceLock::new();

/// Has everything that waits for the server of a remote index give up once `question` says so, with an error. The first
/// question set stays. It is asked on any thread, while locks of the loader are held.
pub fn give_up_when(question: fn() -> bool) {
    let _ = QUESTION.set(question);
}

/// Whether to give up.
pub(super) fn is_asked() -> bool {
    QUESTION.get().is_some_and(|question| question())
}
