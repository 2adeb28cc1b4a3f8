//! Runs others' code on what anyone may have made: where it panics, that is told as a fault of the file, not as one of the program.
//!
//! In: a call. Out: its value, or `None` where it panicked. Always holds: a panic inside says nothing on standard error; one anywhere else
//! is told as ever, by the hook that was in force before the first call.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use hds::index::IndexError;

thread_local! {
    /// Whether this thread is inside a guarded call.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Sets the mark, and on its way out what was there before.
struct Inside(bool);

impl Inside {
    fn enter() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                if !INSIDE.get() {
                    told(panic);
                }
            }));
        });
        Self(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// The call's value, or `None` where it panicked. What the call changed may then be half done: it is for dropping.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    let _inside = Inside::enter();
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Reads a table of an index.
///
/// # Errors
/// Those of the call; and where it panics, that the table cannot be read.
pub(crate) fn guarded_table<T, E: From<IndexError>>(
    path: &Path,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    guarded(read).unwrap_or_else(|| {
        let why = IndexError::Content {
            path: path.to_owned(),
            reason: "a table is malformed so badly that its reader gave up".into(),
        };
        Err(why.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_no_value_and_the_mark_goes_back() {
        assert_eq!(guarded(|| 1), Some(1));
        assert!(!INSIDE.get());
        let inner = guarded(|| {
            assert_eq!(guarded(|| panic!("inner")), None::<()>);
            assert!(INSIDE.get(), "still inside the outer call");
            2
        });
        assert_eq!(inner, Some(2));
        assert_eq!(guarded(|| panic!("outer")), None::<()>);
        assert!(!INSIDE.get());
    }
}
