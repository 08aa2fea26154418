//! The same once more, from a copy of the source in another directory: whether the bytes are the same.
//!
//! Invariant: nothing of the first run is used by the second, but the time that everything gets.

use super::{Order, build, make, output, read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What finds more about two programs than that they differ.
const TOOL: &str = "diffoscope";

/// Makes all packages once more, and compares their checksums.
pub fn packages(order: &Order) -> Result<(), String> {
    let (again, copy) = elsewhere(order)?;
    make(&again)?;
    let sums = |order: &Order| read(&order.output.join("SHA256SUMS"));
    let (first, second) = (sums(order)?, sums(&again)?);
    let mut differing = first
        .lines()
        .filter(|line| !second.lines().any(|other| other == *line));
    match differing.next() {
        None => {
            println!(
                "reproducible: {} files have the same bytes twice",
                first.lines().count()
            );
            Ok(())
        }
        Some(line) => Err(format!(
            "not reproducible: {line}; the second is in {}",
            copy.keep().display()
        )),
    }
}

/// Builds the program twice, and compares the bytes, symbols included.
pub fn program(order: &Order) -> Result<(), String> {
    let start = Instant::now();
    let first = build::program(order)?;
    let (again, copy) = elsewhere(order)?;
    let second = build::program(&again)?;
    let bytes =
        |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let (one, other) = (bytes(&first)?, bytes(&second)?);
    match difference(&one, &other) {
        None => {
            println!(
                "reproducible: {} and {} have the same {} bytes; {} s",
                first.display(),
                second.display(),
                one.len(),
                start.elapsed().as_secs()
            );
            Ok(())
        }
        Some(at) => {
            let copy = copy.keep();
            Err(format!(
                "not reproducible: different from byte {at} on; {TOOL} {} {}; the copy is {}",
                first.display(),
                second.display(),
                copy.display()
            ))
        }
    }
}

/// The place of the first byte that is not the same in both.
fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let both = one.iter().zip(other);
    let first = both.into_iter().position(|(one, other)| one != other);
    let shorter = one.len().min(other.len());
    first.or_else(|| (one.len() != other.len()).then_some(shorter))
}

/// The order for a copy of the files that git knows, and the directory of the copy.
fn elsewhere(order: &Order) -> Result<(Order, tempfile::TempDir), String> {
    let copy = tempfile::Builder::new()
        .prefix("freewheel-again.")
        .tempdir()
        .map_err(|error| error.to_string())?;
    let mut list = Command::new("git");
    list.args(["ls-files", "-z"]).current_dir(&order.project);
    let names = output(&mut list)?.stdout;
    let names = String::from_utf8_lossy(&names);
    for name in names.split_terminator('\0') {
        let to = copy.path().join(name);
        put(&order.project.join(name), &to).map_err(|error| format!("{name}: {error}"))?;
    }
    let again = Order {
        project: copy.path().to_owned(),
        output: copy.path().join("target/package"),
        formats: order.formats.clone(),
        binary: order.binary.clone(),
        is_quick: order.is_quick,
        // What a program does under load is not the same twice.
        profile: order.own_profile(),
        revision: order.revision.clone(),
        epoch: order.epoch,
        version: order.version.clone(),
    };
    Ok((again, copy))
}

/// Copies a file, or a link as such.
fn put(from: &Path, to: &PathBuf) -> std::io::Result<()> {
    if let Some(directory) = to.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::read_link(from) {
        Ok(target) => std::os::unix::fs::symlink(target, to),
        Err(_) => std::fs::copy(from, to).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_found() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"axx"), Some(1));
        assert_eq!(difference(b"abc", b"ab"), Some(2));
        assert_eq!(difference(b"", b"a"), Some(0));
    }

    #[test]
    fn links_stay_links_in_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), b"text").unwrap();
        std::os::unix::fs::symlink("../file", at("link")).unwrap();
        put(&at("file"), &at("a/b/file")).unwrap();
        put(&at("link"), &at("a/link")).unwrap();
        assert_eq!(std::fs::read(at("a/b/file")).unwrap(), b"text");
        assert_eq!(
            std::fs::read_link(at("a/link")).unwrap(),
            Path::new("../file")
        );
    }
}
