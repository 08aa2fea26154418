//! Texts on standard output.
//!
//! Not here: errors, which go to standard error. Invariant: a text that was not written is a failure of the program.

use std::io::Write as _;
use std::process::ExitCode;

/// Prints a text, which is all that was asked for.
pub(super) fn tell(text: impl AsRef<str>) -> ExitCode {
    match std::io::stdout().write_all(text.as_ref().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
