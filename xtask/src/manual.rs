//! Writes the generated part of the manual, `docs/reference/`.
//!
//! The test that finds stale pages is asked to write them instead, so that xtask need not be built with the server. Not here: what
//! stands in the pages.

use std::path::Path;
use std::process::Command;

/// Runs the test with the word that makes it write.
pub fn run(project: &Path) -> Result<(), String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "test",
            "--quiet",
            "--package",
            "freewheel",
            "--test",
            "manual",
        ])
        .env("FREEWHEEL_WRITE_MANUAL", "1")
        .current_dir(project);
    let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the pages could not be written".to_owned())
    }
}
