//! What may stand twice at one level, compared with nginx: every directive that is built, two lines of it in each of its contexts.
//!
//! The test of what is recorded (`crates/server/tests/repeats.rs`) is asked to ask the peer too, so that xtask need not be built with
//! the server. Not here: the configurations.

use crate::{flag, option, passes};
use std::path::Path;

/// Runs the test with the peer's name, and with the word that makes it write.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let nginx = option(&mut arguments, "--nginx")?.ok_or("not measured: --nginx PATH is needed")?;
    let is_recorded = flag(&mut arguments, "--record");
    if let Some(other) = arguments.first() {
        return Err(format!("\"{other}\" is not known"));
    }
    let nginx =
        std::fs::canonicalize(&nginx).map_err(|error| format!("not measured: {nginx}: {error}"))?;
    let mut variables = vec![("FREEWHEEL_REPEATS_NGINX", nginx.as_os_str())];
    if is_recorded {
        variables.push(("FREEWHEEL_REPEATS_RECORD", "1".as_ref()));
    }
    match passes(project, "repeats", &variables)? {
        true => Ok(()),
        false => Err("what may stand twice is not what may in nginx".to_owned()),
    }
}
