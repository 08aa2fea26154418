//! The house rules that rustc and clippy do not know (STYLE.md): lengths, openings, names, where `unsafe` may stand.

use crate::source;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// The only crate with `unsafe`.
const UNSAFE_CRATE: &str = "crates/sys/";
/// File and module names that say nothing.
const NAMES_BANNED: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "manager", "misc", "shared",
];
/// Function names that say nothing.
const VERBS_BANNED: &[&str] = &["handle_", "process_"];

/// Checks every file that git knows; the message lists all faults.
pub fn run(project: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    for name in files(project)? {
        let Ok(text) = std::fs::read_to_string(project.join(&name)) else {
            continue;
        };
        if name.ends_with(".rs") {
            rust(&name, &text, &mut faults);
        } else if name.ends_with("Cargo.toml") {
            manifest(&name, &text, &mut faults);
        } else if name == "ARCHITECTURE.md" {
            paths(project, &text, &mut faults);
        } else if is_script(&name, &text) {
            length(&name, &text, &mut faults);
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// The files that git knows, or would take, by their paths in the project.
pub fn files(project: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(project);
    let output = git.output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Every path below `crates` that the text names is there.
fn paths(project: &Path, text: &str, faults: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        for path in quoted.filter(|path| path.contains("/src/")) {
            if !project.join("crates").join(path).exists() {
                let at = number + 1;
                faults.push(format!("ARCHITECTURE.md:{at}: there is no crates/{path}"));
            }
        }
    }
}

fn is_script(name: &str, text: &str) -> bool {
    name.ends_with(".py") || name.ends_with(".sh") || text.starts_with("#!")
}

fn rust(name: &str, text: &str, faults: &mut Vec<String>) {
    length(name, text, faults);
    let opening = text.lines().find(|line| !line.trim().is_empty());
    if !opening.is_some_and(|line| line.starts_with("//!")) {
        faults.push(format!("{name}:1: does not open with what it is (//!)"));
    }
    let stem = PathBuf::from(name)
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    if NAMES_BANNED.contains(&stem.as_str()) {
        faults.push(format!("{name}: the name says nothing about what is in it"));
    }
    let code = source::code_of(text);
    for (function, line, lines) in source::functions(&code) {
        if lines > FUNCTION_LINES_MAX {
            faults.push(format!(
                "{name}:{line}: {function} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
        if VERBS_BANNED.iter().any(|verb| function.starts_with(verb)) {
            faults.push(format!(
                "{name}:{line}: {function} does not say what it does"
            ));
        }
    }
    if !name.starts_with(UNSAFE_CRATE) {
        for (at, line) in code
            .lines()
            .enumerate()
            .filter(|(_, line)| has_word(line, "unsafe"))
        {
            faults.push(format!(
                "{name}:{}: unsafe outside of {UNSAFE_CRATE}: {}",
                at + 1,
                line.trim()
            ));
        }
    }
}

fn length(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
}

fn manifest(name: &str, text: &str, faults: &mut Vec<String>) {
    let is_member = text.contains("[package]") && !name.starts_with("fuzz/");
    if is_member && !text.contains("[lints]\nworkspace = true") {
        faults.push(format!("{name}: does not inherit the workspace's lints"));
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(name: &str, text: &str) -> String {
        let mut faults = Vec::new();
        rust(name, text, &mut faults);
        faults.join("\n")
    }

    #[test]
    fn a_tidy_file_has_no_fault() {
        assert_eq!(
            faults_of(
                "crates/x/src/a.rs",
                "//! What it is.\n\n/// Not unsafe.\npub fn run() {}\n"
            ),
            ""
        );
    }

    #[test]
    fn each_rule_is_checked() {
        assert!(faults_of("a.rs", "pub fn run() {}\n").contains("does not open"));
        assert!(faults_of("utils.rs", "//! A.\n").contains("says nothing"));
        assert!(faults_of("a.rs", "//! A.\nfn handle_it() {}\n").contains("handle_it"));
        assert!(
            faults_of("a.rs", "//! A.\nfn a() { unsafe { b() } }\n").contains("unsafe outside")
        );
        assert_eq!(
            faults_of("crates/sys/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n"),
            ""
        );
        assert!(
            faults_of(
                "a.rs",
                &format!("//! A.\nfn long() {{\n{}}}\n", "    x();\n".repeat(70))
            )
            .contains("72 lines")
        );
        assert!(
            faults_of("a.rs", &format!("//! A.\n{}", "//\n".repeat(600))).contains("601 lines")
        );
    }

    #[test]
    fn the_architecture_names_files_that_exist() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut faults = Vec::new();
        let text = "`sys/src/lib.rs`, `sys/src/`\n`sys/src/none.rs`, `a/b`";
        paths(project, text, &mut faults);
        assert_eq!(
            faults,
            ["ARCHITECTURE.md:2: there is no crates/sys/src/none.rs"]
        );
    }

    #[test]
    fn a_manifest_inherits_the_lints() {
        let mut faults = Vec::new();
        manifest("a/Cargo.toml", "[package]\nname = \"a\"\n", &mut faults);
        manifest(
            "b/Cargo.toml",
            "[package]\nname = \"b\"\n[lints]\nworkspace = true\n",
            &mut faults,
        );
        assert_eq!(faults.len(), 1);
    }
}
