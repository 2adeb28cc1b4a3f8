//! The compiled part of the Python package `hds`: what needs speed, or the Rust crates' rules.
//!
//! In: an index folder and plain values. Out: NumPy arrays that share memory with Rust, states as JSON, and
//! weights for other processes. Always holds: Python's lock is released while an index is read or weights
//! are waited for; every error of the crates becomes a Python exception with the same words. Leaves torch,
//! `DataLoader` and defaults to the Python files beside it (`hds/`).

mod arrays;
mod core;
mod error;
mod history;
mod interrupt;
mod options;
mod packing;
mod stream;
mod writer;

use pyo3::prelude::*;

/// The module `hds._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::error::{DomainEnded, HdsError};
    #[pymodule_export]
    use super::packing::{pack_arrays, unpack_arrays};
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::writer::WeightsWriter;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::interrupt::listen();
        // Here, where an interrupt is an error: inside the first batch the package numpy would panic.
        module.py().import("numpy")?;
        numpy::PyArray1::<i64>::zeros(module.py(), 0, false);
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
