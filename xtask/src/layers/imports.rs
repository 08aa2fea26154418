//! The imports of a crate: which of its files names an item of which other one.
//!
//! Reads `use` trees and paths that begin with `crate`, `super` or a child module. A re-export is no import: it is
//! followed to the file that defines the item. Not a compiler: methods are not seen. Tests inside files are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;

/// Re-exports that are followed one behind the other at most.
const REEXPORTS_MAX: usize = 8;

/// A module's path inside its crate; the crate's root is empty.
pub type Module = Vec<String>;

/// A crate's files by module, as `(path below src, text)`.
pub struct Crate {
    files: BTreeMap<Module, File>,
}

struct File {
    name: String,
    /// Paths that it names, from the crate's root on.
    paths: BTreeSet<Module>,
    /// What it exports of other modules: the name, and where it comes from.
    exports: BTreeMap<String, Module>,
    /// Modules all of whose items it exports.
    globs: Vec<Module>,
}

/// A path of a `use` tree: whether it is exported, its segments, its name here.
struct Used {
    is_public: bool,
    path: Module,
    name: String,
}

impl Crate {
    /// Of files below `src`, by name and text; binaries' roots are left out.
    pub fn of(texts: &[(String, String)]) -> Crate {
        let modules: BTreeSet<Module> = texts.iter().map(|(name, _)| module_of(name)).collect();
        let file = |(name, text): &(String, String)| {
            let module = module_of(name);
            let file = read(
                name,
                without_tests(&source::code_of(text)),
                &module,
                &modules,
            );
            (module, file)
        };
        let is_library = |(name, _): &&(String, String)| name != "main.rs";
        Crate {
            files: texts.iter().filter(is_library).map(file).collect(),
        }
    }

    /// Names of the files, in order.
    pub fn names(&self) -> Vec<String> {
        self.files.values().map(|file| file.name.clone()).collect()
    }

    /// Pairs of indices into [`Crate::names`]: the first imports the second.
    pub fn arrows(&self) -> BTreeSet<(usize, usize)> {
        let order: BTreeMap<&Module, usize> = self.files.keys().zip(0..).collect();
        let mut arrows = BTreeSet::new();
        for (module, file) in &self.files {
            for path in &file.paths {
                let Some(target) = self.definition(path) else {
                    continue;
                };
                if target != *module {
                    arrows.insert((order[module], order[&target]));
                }
            }
        }
        arrows
    }

    /// The module that defines what a path names.
    fn definition(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        for _ in 0..REEXPORTS_MAX {
            let len = (0..=path.len())
                .rev()
                .find(|len| self.files.contains_key(&path[..*len]))?;
            let module = path[..len].to_vec();
            let Some(item) = path.get(len) else {
                return Some(module);
            };
            let file = &self.files[&module];
            let exported = file.exports.get(item).cloned();
            let Some(mut next) = exported.or_else(|| self.of_glob(file, item)) else {
                return Some(module);
            };
            next.extend_from_slice(&path[len + 1..]);
            if next == path {
                return Some(module);
            }
            path = next;
        }
        None
    }

    /// The only glob of a file may be followed: which of several has an item is not known.
    fn of_glob(&self, file: &File, item: &str) -> Option<Module> {
        match file.globs.as_slice() {
            [only] if item.starts_with(char::is_uppercase) => {
                Some([only.as_slice(), &[item.to_owned()]].concat())
            }
            _ => None,
        }
    }
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`.
fn module_of(name: &str) -> Module {
    let path = name.trim_end_matches(".rs");
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    if module
        .last()
        .is_some_and(|last| last == "mod" || last == "lib" || last == "main")
    {
        module.pop();
    }
    module
}

/// Cuts off the inline module of tests: it stands last, as STYLE has it. One that is only declared (`mod tests;`) is a file
/// of its own.
fn without_tests(code: &str) -> &str {
    const TESTS: &str = "#[cfg(test)]\nmod ";
    let is_inline = |at: &usize| {
        let behind = &code[at + TESTS.len()..];
        behind.find('{') < behind.find(';') && behind.contains('{')
    };
    let mut starts = code.match_indices(TESTS).map(|(at, _)| at);
    &code[..starts.find(is_inline).unwrap_or(code.len())]
}

fn read(name: &str, code: &str, module: &Module, modules: &BTreeSet<Module>) -> File {
    let mut file = File {
        name: name.to_owned(),
        paths: BTreeSet::new(),
        exports: BTreeMap::new(),
        globs: Vec::new(),
    };
    let is_child =
        |first: &str| modules.contains(&[module.as_slice(), &[first.to_owned()]].concat());
    let mut rest = code;
    while let Some((word, start)) = next_path(rest) {
        let text = &rest[start..];
        let is_use = word == "use" || word == "pub use";
        let end = match is_use {
            true => text.find(';').unwrap_or(text.len()),
            false => text
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
                .unwrap_or(text.len()),
        };
        let mut found = Vec::new();
        tree(&text[..end], &Vec::new(), word == "pub use", &mut found);
        for used in found {
            let Some(path) = absolute(&used.path, module, &is_child) else {
                continue;
            };
            match (used.is_public, used.name.as_str()) {
                (false, _) => {
                    file.paths.insert(path);
                }
                (true, "*") => file.globs.push(path),
                (true, _) => {
                    file.exports.insert(used.name, path);
                }
            }
        }
        rest = &text[end.max(1).min(text.len())..];
    }
    file.paths.extend(children(code, module, &is_child));
    file
}

/// The child modules that code names without a `use`: `child::item`.
fn children(code: &str, module: &Module, is_child: &dyn Fn(&str) -> bool) -> Vec<Module> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let imports = |line: &&str| !line.contains("use ");
    let paths = code
        .lines()
        .filter(imports)
        .flat_map(|line| line.split(|c| !is_part(c)));
    let segments = paths.map(|path| path.split("::").map(str::to_owned).collect::<Module>());
    segments
        .filter(|path| path.len() > 1 && is_child(&path[0]))
        .map(|path| [module.as_slice(), &path].concat())
        .collect()
}

/// The next `use`, or path that begins with `crate::` or `super::`: its kind, and where it begins.
fn next_path(code: &str) -> Option<(&'static str, usize)> {
    let starts = ["use ", "crate::", "super::"];
    let at = |word: &str| {
        code.match_indices(word).map(|(at, _)| at).find(|at| {
            let before = code[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
        })
    };
    let (first, word) = starts
        .iter()
        .filter_map(|word| Some((at(word)?, *word)))
        .min()?;
    if word != "use " {
        return Some(("path", first));
    }
    let line = code[..first].rsplit('\n').next().unwrap_or_default().trim();
    let kind = if line.starts_with("pub") {
        "pub use"
    } else {
        "use"
    };
    Some((kind, first + word.len()))
}

/// Takes `a::{b, c::{self, d as e}}` apart.
fn tree(text: &str, before: &Module, is_public: bool, found: &mut Vec<Used>) {
    let text = text.trim();
    let (path, inner) = match text.find('{') {
        Some(at) => (
            &text[..at],
            Some(text[at + 1..].strip_suffix('}').unwrap_or(&text[at + 1..])),
        ),
        None => (text, None),
    };
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let segments = path
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let full: Module = before
        .iter()
        .cloned()
        .chain(segments.map(str::to_owned))
        .collect();
    if let Some(inner) = inner {
        for part in parts(inner) {
            tree(part, &full, is_public, found);
        }
        return;
    }
    let mut path = full;
    let last = path.last().cloned().unwrap_or_default();
    if last == "self" || last == "*" {
        path.pop();
    }
    let name = match (alias.trim(), last.as_str()) {
        ("", "self") => path.last().cloned().unwrap_or_default(),
        ("", last) => last.to_owned(),
        (alias, _) => alias.to_owned(),
    };
    if !path.is_empty() {
        found.push(Used {
            is_public,
            path,
            name,
        });
    }
}

/// The members of a group, split at its own commas.
fn parts(inner: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// From the crate's root on; none: it leads out of the crate.
fn absolute(path: &[String], module: &Module, is_child: &dyn Fn(&str) -> bool) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module.as_slice(), rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let base = module.get(..module.len().checked_sub(ups)?)?;
            Some([base, &path[ups..]].concat())
        }
        first if is_child(first) => Some([module.as_slice(), path].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(texts: &[(&str, &str)]) -> Vec<String> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let krate = Crate::of(&texts.iter().map(owned).collect::<Vec<_>>());
        let names = krate.names();
        let arrows = krate.arrows().into_iter();
        arrows
            .map(|(from, to)| format!("{} {}", names[from], names[to]))
            .collect()
    }

    #[test]
    fn groups_aliases_and_paths_in_code_are_imports() {
        let found = arrows(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            (
                "a.rs",
                "use crate::{b::{self, One}, c::Two as Three};\nuse std::fmt;",
            ),
            (
                "b.rs",
                "fn f() { crate::c::run() }\n#[cfg(test)]\nmod tests { use crate::a::X; }",
            ),
            ("c.rs", "// use crate::a::Y;"),
            (
                "d/mod.rs",
                "#[cfg(test)]\nmod tests;\nmod inner;\nuse crate::c::Z;\nfn f() { inner::run(g, 1) }",
            ),
            ("d/inner.rs", ""),
        ]);
        let expected = [
            "a.rs b.rs",
            "a.rs c.rs",
            "b.rs c.rs",
            "d/mod.rs c.rs",
            "d/mod.rs d/inner.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_re_export_is_the_file_that_defines_the_item() {
        let found = arrows(&[
            ("lib.rs", "mod a;\nmod user;"),
            ("a/mod.rs", "mod inner;\npub use inner::Thing;"),
            ("a/inner.rs", "use super::Other;"),
            ("user.rs", "use crate::a::Thing;"),
        ]);
        let expected = ["a/inner.rs a/mod.rs", "user.rs a/inner.rs"];
        assert_eq!(found, expected);
    }
}
