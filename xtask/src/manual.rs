//! Writes the generated part of the manual, `docs/reference/`.
//!
//! The test that finds stale pages is asked to write them instead, so that xtask need not be built with the server. Not here: what
//! stands in the pages.

use crate::passes;
use std::path::Path;

/// Runs the test with the word that makes it write.
pub fn run(project: &Path) -> Result<(), String> {
    match passes(
        project,
        "manual",
        &[("FREEWHEEL_WRITE_MANUAL", "1".as_ref())],
    )? {
        true => Ok(()),
        false => Err("the pages could not be written".to_owned()),
    }
}
