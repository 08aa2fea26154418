//! Certificates by ACME against Pebble: the tests in `tests/tests/pebble.rs`, which take minutes.

use crate::blackbox::{TEST_BINARY, ignored_tests};
use crate::option;
use std::path::{Path, PathBuf};

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
    let environment = [
        ("ACME_PEBBLE", Some(pebble.display().to_string())),
        (TEST_BINARY, binary),
    ];
    match ignored_tests(project, "pebble", environment)? {
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
