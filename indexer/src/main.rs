//! The program `hds-index`: reads the command line, calls the library, shows what came of it.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
