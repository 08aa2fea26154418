//! Upgrades under load, beside nginx: the tests in `tests/tests/upgrade/handovers.rs`, which take minutes.

use crate::blackbox::{TEST_BINARY, ignored_tests};
use crate::option;
use std::path::Path;

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
    let environment = [
        ("UPGRADE_NGINX", Some(nginx)),
        ("UPGRADE_ROUNDS", Some(rounds)),
        (TEST_BINARY, binary),
    ];
    match ignored_tests(project, "upgrade", environment)? {
        true => Ok(()),
        false => Err("an upgrade has lost something".to_owned()),
    }
}
