//! Upgrades under load, beside nginx: the tests in `tests/tests/upgrade/handovers.rs`, which take minutes.

use crate::option;
use std::path::Path;
use std::process::Command;

/// Runs them one after the other.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let nginx = option(&mut arguments, "--nginx")?.ok_or("--nginx PATH is missing")?;
    let binary = option(&mut arguments, "--binary")?;
    let rounds = option(&mut arguments, "--rounds")?.unwrap_or_else(|| "20".to_owned());
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root: the workers are to be another user".to_owned());
    }
    let words = "test -p blackbox --test upgrade -- --ignored --nocapture --test-threads=1";
    let mut command = Command::new(env!("CARGO"));
    command
        .args(words.split(' '))
        .env("UPGRADE_NGINX", nginx)
        .env("UPGRADE_ROUNDS", rounds)
        .current_dir(project);
    if let Some(binary) = binary {
        command.env("FREEWHEEL_TEST_BINARY", binary);
    }
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("an upgrade has lost something".to_owned()),
    }
}
