//! The program `freewheel`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::main(&[])
}
