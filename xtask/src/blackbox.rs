//! The black-box tests that an ordinary run ignores, since they take minutes or need another program.

use std::path::Path;
use std::process::Command;

/// The variable that names the program under test.
pub const TEST_BINARY: &str = "FREEWHEEL_TEST_BINARY";

/// Runs those of a test target one after the other, with these variables. Whether all have passed.
pub fn ignored_tests<const N: usize>(
    project: &Path,
    target: &str,
    environment: [(&str, Option<String>); N],
) -> Result<bool, String> {
    let set = environment.into_iter();
    let set = set.filter_map(|(name, value)| Some((name, value?)));
    let status = Command::new(env!("CARGO"))
        .args(["test", "--package", "blackbox", "--test", target, "--"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .envs(set)
        .current_dir(project)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    Ok(status.success())
}
