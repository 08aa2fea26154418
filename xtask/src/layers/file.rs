//! One file of a crate: the paths that it names, what it exports, and the macros that it defines.
//!
//! Reads `use` trees, paths in code that begin with `crate`, `self`, `super`, a child module or an imported name, and
//! macros by their names. Not a compiler: methods are not seen, and inline modules of tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A module's path inside its crate; the crate's root is empty.
pub type Module = Vec<String>;

/// What is known of a file.
#[derive(Default)]
pub struct File {
    /// Its path below `src`.
    pub name: String,
    /// Paths that it names, from the crate's root on.
    pub paths: BTreeSet<Module>,
    /// Macros that it calls by name alone.
    pub calls: BTreeSet<String>,
    /// Macros that it defines.
    pub macros: Vec<String>,
    /// What it exports of other modules: the name, and where it comes from.
    pub exports: BTreeMap<String, Module>,
    /// Modules all of whose items it exports.
    pub globs: Vec<Module>,
}

/// A path of a `use` tree: whether it is exported, its segments, its name here.
struct Used {
    is_public: bool,
    path: Module,
    name: String,
}

/// Where the code of a file stands.
struct Scope<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    /// Inline modules: where, and their names.
    inline: Vec<(Range<usize>, String)>,
}

impl File {
    /// Of a file's code, without comments and literals.
    pub fn read(name: &str, code: &str, module: &Module, modules: &BTreeSet<Module>) -> File {
        let code = without_tests(code);
        let scope = Scope {
            module,
            modules,
            inline: inline_modules(&code),
        };
        let (statements, body) = statements(&code);
        let mut file = File {
            name: name.to_owned(),
            macros: macros(&body),
            ..File::default()
        };
        let mut names = BTreeMap::new();
        for (at, used) in &statements {
            let Some(path) = scope.absolute(&used.path, *at) else {
                continue;
            };
            match (used.is_public, used.name.as_str()) {
                (true, "*") => file.globs.push(path),
                (false, "*" | "_") => drop(file.paths.insert(path)),
                (is_public, name) => {
                    if is_public {
                        file.exports.insert(name.to_owned(), path.clone());
                    }
                    names.insert(name.to_owned(), path);
                }
            }
        }
        // `use Kind::*` behind `use super::Kind`.
        let again = statements
            .iter()
            .filter_map(|(_, used)| expanded(&used.path, &names));
        file.paths.extend(again);
        let named = file.name_paths(&body, &scope, &names);
        // An import that the code never names is a trait.
        let is_unnamed = |(name, _): &(&String, &Module)| {
            !named.contains(*name) && !file.exports.contains_key(*name)
        };
        let unnamed: Vec<Module> = names
            .iter()
            .filter(is_unnamed)
            .map(|(_, path)| path.clone())
            .collect();
        file.paths.extend(unnamed);
        file
    }

    /// Adds the paths and macros in the code outside of `use`; returns the imported names that occur.
    fn name_paths(
        &mut self,
        body: &str,
        scope: &Scope<'_>,
        names: &BTreeMap<String, Module>,
    ) -> BTreeSet<String> {
        let mut named = BTreeSet::new();
        for (at, text) in words(body) {
            let path: Module = text.split("::").map(str::to_owned).collect();
            let behind = &body.as_bytes()[at + text.len()..];
            if behind.first() == Some(&b'!') && behind.get(1) != Some(&b'=') && path.len() == 1 {
                self.calls.insert(path[0].clone());
            }
            if path.len() > 1
                && let Some(path) = scope.absolute(&path, at)
            {
                self.paths.insert(path);
                continue;
            }
            if let Some(full) = expanded(&path, names) {
                // A module's name alone is no use of it: a variable, perhaps.
                if path.len() > 1 || !scope.modules.contains(&full) {
                    self.paths.insert(full);
                    named.insert(path[0].clone());
                }
            }
        }
        named
    }
}

impl Scope<'_> {
    /// The module in which the byte at `at` stands.
    fn module_at(&self, at: usize) -> Module {
        let around = self.inline.iter().filter(|(range, _)| range.contains(&at));
        let names = around.map(|(_, name)| name.clone());
        self.module.iter().cloned().chain(names).collect()
    }

    /// From the crate's root on; none: it leads out of the crate, or begins with an imported name.
    fn absolute(&self, path: &[String], at: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([&self.module_at(at), rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let module = self.module_at(at);
                let base = module.get(..module.len().checked_sub(ups)?)?;
                Some([base, &path[ups..]].concat())
            }
            first => {
                let child = [self.module.as_slice(), &[first.to_owned()]].concat();
                let is_child = self.modules.contains(&child);
                is_child.then(|| [self.module.as_slice(), path].concat())
            }
        }
    }
}

/// A path whose first segment is an imported name.
fn expanded(path: &[String], names: &BTreeMap<String, Module>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    Some([names.get(first)?, rest].concat())
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

/// The identifiers and paths of code, by where they begin; a metavariable of a macro is none, `$crate` is `crate`.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + code[at..].find(is_part)?;
            let rest = &code[start..];
            let len = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            at = start + len;
            let text = rest[..len].trim_start_matches(':');
            let start = at - text.len();
            let text = text.trim_end_matches(':');
            let before = code[..start].chars().next_back();
            let is_metavariable = before == Some('$') && !text.starts_with("crate::");
            if !text.is_empty() && before != Some('.') && !is_metavariable {
                return Some((start, text));
            }
        }
    })
}

/// The `use` statements, by where they stand, and the code without them and without declarations of modules.
fn statements(code: &str) -> (Vec<(usize, Used)>, String) {
    let mut found = Vec::new();
    let mut body = code.to_owned();
    for (at, word) in words(code) {
        let behind = &code[at + word.len()..];
        if !matches!(word, "use" | "mod") || !behind.starts_with(' ') {
            continue;
        }
        let end = behind.find(';').unwrap_or(behind.len());
        let text = &behind[..end];
        if word == "mod" && text.contains('{') {
            continue;
        }
        if word == "use" {
            let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
            let mut used = Vec::new();
            tree(text, &Vec::new(), line.starts_with("pub"), &mut used);
            found.extend(used.into_iter().map(|used| (at, used)));
        }
        let range = at..at + word.len() + end;
        let blank = " ".repeat(range.len());
        body.replace_range(range, &blank);
    }
    (found, body)
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

/// The names behind `macro_rules!`.
fn macros(code: &str) -> Vec<String> {
    let definitions = code.split("macro_rules!").skip(1);
    let name = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
        text[..end].to_owned()
    };
    definitions.map(name).collect()
}

/// Modules with a body, `mod name { … }`, by where they stand.
fn inline_modules(code: &str) -> Vec<(Range<usize>, String)> {
    let module = |(at, word): (usize, &str)| {
        let behind = code[at + word.len()..].strip_prefix(' ')?;
        let end = behind.find(|c: char| !is_part(c))?;
        let is_inline = word == "mod" && behind[end..].trim_start().starts_with('{');
        is_inline.then(|| (at..block_end(code, at), behind[..end].to_owned()))
    };
    words(code).filter_map(module).collect()
}

/// The end of the first block that opens at `start` or behind it.
fn block_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return start + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks the inline modules of tests. One that is only declared (`mod tests;`) is a file of its own.
pub fn without_tests(code: &str) -> String {
    const BEGINNINGS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test"];
    let mut out = code.to_owned();
    for (range, _) in inline_modules(code) {
        let before = code[..range.start].trim_end();
        let attributes = before
            .rsplit('\n')
            .map(str::trim)
            .take_while(|line| line.starts_with("#["));
        let mut attributes = attributes;
        if attributes.any(|line| BEGINNINGS.iter().any(|begin| line.starts_with(begin))) {
            let blank = " ".repeat(range.len());
            out.replace_range(range, &blank);
        }
    }
    out
}
