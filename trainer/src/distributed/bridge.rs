//! The bridge to torch's c10d: declarations of trainer/bridge/c10d.cpp, and a safe type over them.
//!
//! In: contiguous tensors on the CPU. Out: the same tensors with what the operation left in them, or c10d's message. Always
//! holds: no C++ exception comes through; nothing is going on in the background when a function returns. Leaves the
//! order of operations, the same on all ranks, to [`super::Group`].

// The workspace denies unsafe code; calling C++ is not to be had without.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use tch::{Device, Tensor};

use crate::foreign::call;

/// What this program says of itself.
pub const SUPPORT: &str = "several processes: yes, by c10d over Gloo";

unsafe extern "C" {
    fn hds_c10d_meet(
        host: *const c_char,
        port: u16,
        serves: c_int,
        prefix: *const c_char,
        timeout_ms: i64,
        out: *mut *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_add(
        group: *mut c_void,
        key: *const c_char,
        amount: i64,
        sum: *mut i64,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_announced(
        group: *mut c_void,
        key: *const c_char,
        present: *mut c_int,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_connect(
        group: *mut c_void,
        rank: c_int,
        world: c_int,
        timeout_ms: i64,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_all_reduce(
        group: *mut c_void,
        values: *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_broadcast(
        group: *mut c_void,
        values: *mut c_void,
        root: c_int,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_send(
        group: *mut c_void,
        values: *mut c_void,
        to: c_int,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_receive(
        group: *mut c_void,
        values: *mut c_void,
        from: c_int,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_c10d_close(group: *mut c_void);
}

/// A store where ranks meet, and once connected the operations between them.
///
/// Not `Send`: the operations of a rank have an order, so they stay on one thread.
pub struct Link {
    group: NonNull<c_void>,
}

impl Link {
    /// Opens the store at `host`:`port`, which this process serves or waits for.
    ///
    /// # Errors
    /// c10d's message, among others after `timeout`.
    pub fn meet(
        host: &str,
        port: u16,
        serves: bool,
        prefix: &str,
        timeout: Duration,
    ) -> Result<Self, String> {
        let (host, prefix) = (c_text(host)?, c_text(prefix)?);
        let mut group = std::ptr::null_mut();
        call(|text, size| {
            // SAFETY: both texts end in NUL and outlive the call; `group` is a place for one pointer; `text` has
            // `size` bytes.
            unsafe {
                hds_c10d_meet(
                    host.as_ptr(),
                    port,
                    c_int::from(serves),
                    prefix.as_ptr(),
                    milliseconds(timeout),
                    &raw mut group,
                    text,
                    size,
                )
            }
        })?;
        let group = NonNull::new(group).ok_or("c10d gave no group")?;
        Ok(Self { group })
    }

    /// Adds to the number under `key` in the store, 0 where there is none; gives the sum.
    ///
    /// # Errors
    /// c10d's message.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, String> {
        let key = c_text(key)?;
        let mut sum = 0;
        // SAFETY: the group is open until `self` is dropped; the key ends in NUL and outlives the call; `sum` is a place for
        // one number.
        call(|text, size| unsafe {
            hds_c10d_add(
                self.group.as_ptr(),
                key.as_ptr(),
                amount,
                &raw mut sum,
                text,
                size,
            )
        })?;
        Ok(sum)
    }

    /// Whether some rank has put a number under `key`.
    ///
    /// # Errors
    /// c10d's message.
    pub fn announced(&self, key: &str) -> Result<bool, String> {
        let key = c_text(key)?;
        let mut present = 0;
        // SAFETY: as in `add`; `present` is a place for one int.
        call(|text, size| unsafe {
            hds_c10d_announced(
                self.group.as_ptr(),
                key.as_ptr(),
                &raw mut present,
                text,
                size,
            )
        })?;
        Ok(present != 0)
    }

    /// Connects this rank with all others; `timeout` is that of every operation from now on.
    ///
    /// # Errors
    /// c10d's message.
    pub fn connect(&self, rank: usize, world: usize, timeout: Duration) -> Result<(), String> {
        let (rank, world) = (c_number(rank)?, c_number(world)?);
        // SAFETY: the group is open until `self` is dropped.
        call(|text, size| unsafe {
            hds_c10d_connect(
                self.group.as_ptr(),
                rank,
                world,
                milliseconds(timeout),
                text,
                size,
            )
        })
    }

    /// Leaves the sum over all ranks in the tensor.
    ///
    /// # Errors
    /// c10d's message.
    pub fn all_reduce(&self, values: &Tensor) -> Result<(), String> {
        let values = checked(values)?;
        // SAFETY: the group is open; `values` is an at::Tensor that lives through the call, on the CPU and contiguous.
        call(|text, size| unsafe { hds_c10d_all_reduce(self.group.as_ptr(), values, text, size) })
    }

    /// Copies the tensor of rank `root` into that of every rank.
    ///
    /// # Errors
    /// c10d's message.
    pub fn broadcast(&self, values: &Tensor, root: usize) -> Result<(), String> {
        let (values, root) = (checked(values)?, c_number(root)?);
        // SAFETY: as in `all_reduce`.
        call(|text, size| unsafe {
            hds_c10d_broadcast(self.group.as_ptr(), values, root, text, size)
        })
    }

    /// Sends the tensor to rank `to`.
    ///
    /// # Errors
    /// c10d's message.
    pub fn send(&self, values: &Tensor, to: usize) -> Result<(), String> {
        let (values, to) = (checked(values)?, c_number(to)?);
        // SAFETY: as in `all_reduce`.
        call(|text, size| unsafe { hds_c10d_send(self.group.as_ptr(), values, to, text, size) })
    }

    /// Fills the tensor with what rank `from` sends.
    ///
    /// # Errors
    /// c10d's message.
    pub fn receive(&self, values: &Tensor, from: usize) -> Result<(), String> {
        let (values, from) = (checked(values)?, c_number(from)?);
        // SAFETY: as in `all_reduce`.
        call(|text, size| unsafe {
            hds_c10d_receive(self.group.as_ptr(), values, from, text, size)
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `hds_c10d_meet` and is given back once.
        unsafe { hds_c10d_close(self.group.as_ptr()) }
    }
}

/// What the bridge takes: `at::Tensor*`, as tch holds it.
fn checked(values: &Tensor) -> Result<*mut c_void, String> {
    if !values.defined() || values.device() != Device::Cpu || !values.is_contiguous() {
        return Err("a tensor that is not contiguous on the CPU".into());
    }
    Ok(values.as_ptr().cast_mut().cast())
}

fn c_text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("{text:?} has a zero byte"))
}

fn c_number(number: usize) -> Result<c_int, String> {
    c_int::try_from(number).map_err(|_| format!("{number} is too large a rank"))
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
