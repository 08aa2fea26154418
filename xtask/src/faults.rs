//! The cache's tests that need root: they mount file systems of their own and make them fail.

use std::path::Path;
use std::process::Command;

/// Runs them one after the other.
pub fn run(project: &Path) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root: it mounts file systems".to_owned());
    }
    let arguments =
        "test -p freewheel-cache --test faults -- --ignored --nocapture --test-threads=1";
    let status = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .current_dir(project)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the cache did not stand a failing disk".to_owned())
    }
}
