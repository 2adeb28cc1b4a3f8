//! The program `hds-index`: reads the command line, calls the library, shows what came of it.

mod cli;

use std::process::ExitCode;

/// The engines allocate and free a few buffers for every document and word; with the system's allocator of glibc a build takes
/// about a fifth more processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
