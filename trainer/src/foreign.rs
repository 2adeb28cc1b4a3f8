//! What calls of the C interfaces in `trainer/bridge/` have in common.
//!
//! In: a function that takes a buffer for a message. Out: the message, where the function gave one. Leaves the
//! declarations to the modules that have them ([`crate::distributed`], [`crate::model`]).

use std::ffi::{CStr, c_char, c_int};

/// Longest message taken over.
const MESSAGE_BYTES: usize = 2048;

/// Calls a function that takes a buffer and its size, and gives 0, or something else with a message in the buffer.
///
/// # Errors
/// The message's first line.
pub fn call(function: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), String> {
    let mut text = [0u8; MESSAGE_BYTES];
    if function(text.as_mut_ptr().cast(), text.len()) == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    // The rest of torch's messages is where in its sources they come from.
    let text = text.to_string_lossy();
    let first = text.lines().next().unwrap_or_default();
    Err(first.trim().to_owned())
}
