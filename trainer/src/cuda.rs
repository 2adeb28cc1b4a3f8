//! CUDA at run time: one program for machines with a GPU and without.
//!
//! In: nothing. Out: libtorch's CUDA half in the process, or why it is not. Always holds: it is looked for once, where
//! the rest of libtorch is. Leaves to others which GPU is used.
//!
//! Why at run time: the linker drops a library that nothing refers to, and libtorch's CUDA half announces itself to the
//! other half when it is loaded.

use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const LIBRARY: &str = "libtorch_cuda.so";

/// Loads libtorch's CUDA half, if that has not been done.
///
/// # Errors
/// The loader's own words, and what to do.
#[allow(unsafe_code)]
pub fn load() -> Result<(), &'static str> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // SAFETY: what runs at its loading is libtorch's own registration of CUDA operators, meant to be run so; the
        // library stays loaded until the process ends.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) };
        library.map_err(|error| {
            format!(
                "{LIBRARY} cannot be loaded ({error}); `cargo xtask setup --cuda` gets the libraries that it needs, or let \
                 LD_LIBRARY_PATH name torch/lib of an installed PyTorch 2.11.0 for CUDA"
            )
        })
    });
    match loaded {
        Ok(_) => Ok(()),
        Err(reason) => Err(reason),
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout)] // says why it is skipped
mod tests {
    #[test]
    fn without_cuda_the_reason_names_the_library_and_the_way_out() {
        match super::load() {
            Ok(()) => println!("skipped: libtorch's CUDA half is here"),
            Err(reason) => {
                assert!(reason.contains("libtorch_cuda.so"), "{reason}");
                assert!(reason.contains("setup --cuda"), "{reason}");
            }
        }
    }
}
