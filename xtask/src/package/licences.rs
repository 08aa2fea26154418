//! The licences of the libraries in the program, in one text.
//!
//! Invariant: each library that is linked into the program is named, with its licence and with the texts that it comes with.

use super::output;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beginnings of names of files with licences, in small letters.
const NAMES: &[&str] = &[
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];
/// Maximum depth of folders below a library's own in which such files are looked for: libraries of C lie there.
const DEPTH_MAX: usize = 2;
/// Maximum size of such a file, in bytes.
const SIZE_MAX: u64 = 256 * 1024;

const HEAD: &str = "\
Freewheel is licensed under MIT OR Apache-2.0. The program contains the libraries below, each under its own licence.
The texts, as they come with the libraries, stand behind the list; equal ones once.

";

/// A library in the program.
struct Library {
    /// Its name and version.
    name: String,
    licence: String,
    texts: Vec<String>,
}

/// The text.
pub fn text(project: &Path) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &host()?])
        .current_dir(project);
    let metadata = output(&mut command)?.stdout;
    let metadata =
        serde_json::from_slice(&metadata).map_err(|error| format!("metadata: {error}"))?;
    let libraries = libraries(&metadata);
    match libraries.is_empty() {
        true => Err("cargo metadata names no library".to_owned()),
        false => Ok(written(&libraries)),
    }
}

/// The machine that the program is built for.
fn host() -> Result<String, String> {
    let text = output(Command::new("rustc").arg("-vV"))?.stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc names no host".to_owned())
}

/// The packages that others have made and that the program is linked with, by name.
fn libraries(metadata: &Value) -> Vec<Library> {
    let packages: HashMap<&str, &Value> = list(metadata, "packages")
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: HashMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let program = packages
        .iter()
        .find(|(_, package)| package["name"] == "freewheel");
    let mut todo: Vec<&str> = program.map(|(id, _)| *id).into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if seen.insert(id) {
            let node = nodes.get(id).copied().unwrap_or(&Value::Null);
            let linked = list(node, "deps").filter(|dependency| {
                list(dependency, "dep_kinds").any(|kind| kind["kind"].is_null())
            });
            todo.extend(linked.filter_map(|dependency| dependency["pkg"].as_str()));
        }
    }
    let mut all: Vec<Library> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .filter(|package| !package["source"].is_null())
        .map(|package| library(package))
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn library(package: &Value) -> Library {
    let word = |name: &str| package[name].as_str().unwrap_or_default();
    let directory = Path::new(word("manifest_path")).parent();
    let mut files = Vec::new();
    if let Some(directory) = directory {
        find(directory, 0, &mut files);
    }
    files.sort();
    let texts = files.iter().filter_map(|file| std::fs::read(file).ok());
    Library {
        name: format!("{} {}", word("name"), word("version")),
        licence: package["license"]
            .as_str()
            .unwrap_or("see its text")
            .to_owned(),
        texts: texts
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
            .collect(),
    }
}

/// The files with licences in a directory.
fn find(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy().to_lowercase();
        let Ok(data) = entry.metadata() else {
            continue;
        };
        if data.is_dir() && depth < DEPTH_MAX {
            find(&path, depth + 1, files);
        }
        let is_source = [".rs", ".c", ".h", ".toml"]
            .iter()
            .any(|end| name.ends_with(end));
        let is_named = NAMES.iter().any(|start| name.starts_with(start));
        if data.is_file() && data.len() <= SIZE_MAX && is_named && !is_source {
            files.push(path);
        }
    }
}

fn written(libraries: &[Library]) -> String {
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut page = HEAD.to_owned();
    for library in libraries {
        page.push_str(&format!("{}: {}\n", library.name, library.licence));
        if library.texts.is_empty() {
            page.push_str("    (comes without a text: https://spdx.org/licenses/)\n");
        }
        for text in &library.texts {
            let of = texts.entry(text).or_default();
            if of.last() != Some(&&library.name[..]) {
                of.push(&library.name);
            }
        }
    }
    let mut texts: Vec<(&str, Vec<&str>)> = texts.into_iter().collect();
    texts.sort_by(|one, other| one.1.cmp(&other.1).then(one.0.cmp(other.0)));
    for (text, of) in texts {
        page.push_str(&format!(
            "\n{}\n{}\n\n{text}\n",
            "=".repeat(79),
            of.join(", ")
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_stand_once_and_every_library_is_named() {
        let library = |name: &str, texts: &[&str]| Library {
            name: name.to_owned(),
            licence: "MIT".to_owned(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        let page = written(&[
            library("a 1", &["Permission"]),
            library("b 2", &["Permission"]),
            library("c 3", &[]),
        ]);
        assert_eq!(page.matches("Permission").count(), 1);
        assert!(page.contains("\na 1, b 2\n"), "{page}");
        assert!(page.contains("c 3: MIT\n    (comes without"), "{page}");
    }

    #[test]
    fn the_program_s_libraries_have_licences_that_are_known() {
        let page = text(&crate::project()).unwrap();
        for name in ["tokio 1.", "rustls 0.", "aws-lc-sys 0.", "pcre2-sys 0."] {
            assert!(page.contains(&format!("\n{name}")), "{name}");
        }
        let list = page.split("=====").next().unwrap();
        assert!(!list.contains("see its text"), "{list}");
        assert!(!list.contains("proptest"), "only tests need it");
    }
}
