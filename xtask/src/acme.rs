//! Certificates by ACME against Pebble: the tests in `tests/tests/pebble.rs`, which take minutes.

use crate::option;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs them one after the other.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let pebble = option(&mut arguments, "--pebble")?.ok_or("--pebble PATH is missing")?;
    let binary = option(&mut arguments, "--binary")?;
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    let pebble = std::path::absolute(&pebble).map_err(|error| format!("{pebble}: {error}"))?;
    let missing = missing(&pebble);
    if !missing.is_empty() {
        return Err(missing.join("\n"));
    }
    let words = "test -p blackbox --test pebble -- --ignored --nocapture --test-threads=1";
    let mut command = Command::new(env!("CARGO"));
    command
        .args(words.split(' '))
        .env("ACME_PEBBLE", pebble)
        .current_dir(project);
    if let Some(binary) = binary {
        command.env("FREEWHEEL_TEST_BINARY", binary);
    }
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("a certificate did not come as it should".to_owned()),
    }
}

/// What is needed and not there, in sentences.
fn missing(pebble: &Path) -> Vec<String> {
    let module = "go install github.com/letsencrypt/pebble/v2/cmd";
    let mut missing = Vec::new();
    for (path, name) in [
        (pebble.to_owned(), "pebble"),
        (
            pebble.with_file_name("pebble-challtestsrv"),
            "pebble-challtestsrv",
        ),
    ] {
        if !path.is_file() {
            missing.push(format!(
                "{} is not there: {module}/{name}@latest",
                path.display()
            ));
        }
    }
    for name in ["openssl", "faketime"] {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let mut files =
            std::env::split_paths(&directories).map(|directory: PathBuf| directory.join(name));
        if !files.any(|file| file.is_file()) {
            missing.push(format!("{name} is not there: apt-get install {name}"));
        }
    }
    missing
}
