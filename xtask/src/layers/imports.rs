//! The imports of a crate: which of its files names an item of which other one.
//!
//! A re-export is no import: it is followed to the file that defines the item, and so is a module's name with a path
//! behind it. Not here: reading a file (`file`).

use std::collections::{BTreeMap, BTreeSet};

use super::file::{File, Module};
use crate::source;

/// Re-exports that are followed one behind the other at most.
const REEXPORTS_MAX: usize = 8;

/// A crate's files by module, as `(path below src, text)`.
pub struct Crate {
    files: BTreeMap<Module, File>,
    /// The modules that define macros; none of two of the same name.
    macros: BTreeMap<String, Option<Module>>,
}

impl Crate {
    /// Of files below `src`, by name and text; binaries' roots are left out.
    pub fn of(texts: &[(String, String)]) -> Crate {
        let modules: BTreeSet<Module> = texts.iter().map(|(name, _)| module_of(name)).collect();
        let file = |(name, text): &(String, String)| {
            let module = module_of(name);
            let file = File::read(name, &source::code_of(text), &module, &modules);
            (module, file)
        };
        let is_library = |(name, _): &&(String, String)| name != "main.rs";
        let files: BTreeMap<Module, File> = texts.iter().filter(is_library).map(file).collect();
        let mut macros = BTreeMap::new();
        for (module, file) in &files {
            for name in &file.macros {
                let own = Some(module.clone());
                let known = macros.entry(name.clone()).or_insert_with(|| own.clone());
                if *known != own {
                    *known = None;
                }
            }
        }
        Crate { files, macros }
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
            let called = file.calls.iter().filter_map(|name| self.macro_in(name));
            let named = file.paths.iter().filter_map(|path| self.definition(path));
            for target in named.chain(called) {
                if target != *module {
                    arrows.insert((order[module], order[&target]));
                }
            }
        }
        arrows
    }

    fn macro_in(&self, name: &str) -> Option<Module> {
        self.macros.get(name).cloned().flatten()
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
                // `#[macro_export]` puts a macro into the root.
                let exported = self.macro_in(item).filter(|_| len == 0);
                return Some(exported.unwrap_or(module));
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
    fn a_module_is_followed_to_what_is_named_of_it() {
        let found = arrows(&[
            ("lib.rs", "mod a;\nmod user;\nmod reuser;"),
            (
                "a/mod.rs",
                "pub mod inner;\npub use inner::Thing;\nfn f() -> Thing { Thing }",
            ),
            ("a/inner.rs", "pub struct Thing;"),
            ("user.rs", "use crate::a;\nfn f(a: u8) { a::inner::run(a) }"),
            (
                "reuser.rs",
                "use crate::user::Trait as _;\nfn f() { let reuse = crate::a::Thing; }",
            ),
        ]);
        let expected = [
            "a/mod.rs a/inner.rs",
            "reuser.rs a/inner.rs",
            "reuser.rs user.rs",
            "user.rs a/inner.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_macro_is_an_import_of_the_file_that_defines_it() {
        let found = arrows(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
            (
                "a.rs",
                "#[macro_export]\nmacro_rules! table { ($x:expr) => { $crate::d::Row($x) }; }",
            ),
            ("b.rs", "crate::table! { 1 }"),
            ("c.rs", "table!(2); println!();"),
            ("d.rs", ""),
        ]);
        assert_eq!(found, ["a.rs d.rs", "b.rs a.rs", "c.rs a.rs"]);
    }

    #[test]
    fn the_parent_of_an_inline_module_is_its_file() {
        let found = arrows(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "pub struct One;"),
            (
                "a/b.rs",
                "mod kind { use super::Two; }\n#[cfg(test)]\n#[expect(x)]\nmod tests { use super::super::One; }\nfn f() {}",
            ),
            ("a/c.rs", "mod kind { use super::super::One; }"),
        ]);
        assert_eq!(found, ["a/c.rs a/mod.rs"]);
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
