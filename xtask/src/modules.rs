//! One module, one place: the files outside of a module's own that name it.
//!
//! A file names a module by its path, by its settings, by the type of its settings, or by a directive of it in a string. Its
//! declaration (`mod geo;`) does not count, nor do tests, documents, nginx's grammar, which has all directives of nginx
//! whether they are built or not, and the table of the lines that docs/differences.md is about. Limits: [`FILES_MAX`]; modules over it may not get worse ([`NOT_YET`]).

use std::path::Path;

use crate::{layers, source, tidy};

/// Maximum number of files outside of a module's own that name it.
const FILES_MAX: usize = 3;

/// A module that is looked for.
struct Module {
    /// Its name in paths, and the beginning of its directives' names.
    name: &'static str,
    /// The beginning of its types' names; the whole of it where it is also a word of HTTP.
    kind: &'static str,
    /// Its folder, where that has another name.
    own: Option<&'static str>,
    /// Whether its name is also a word of HTTP, so that a string may have it for another reason.
    is_word_of_http: bool,
}

/// Modules of every kind.
const MODULES: &[Module] = &[
    module("auth_basic", "AuthBasic"),
    Module {
        is_word_of_http: true,
        ..module("charset", "Charset")
    },
    module("geo", "Geo"),
    Module {
        own: Some("compression"),
        is_word_of_http: true,
        ..module("gzip", "Gzip")
    },
    Module {
        own: Some("limits"),
        ..module("limit_req", "LimitReq")
    },
    module("mirror", "Mirror"),
    module("mp4", "Mp4"),
    module("ssi", "Ssi"),
    module("sub_filter", "SubFilter"),
    module("userid", "UserId"),
];

/// Modules over the limit, with the number of files when it was last counted: no more than that.
const NOT_YET: &[(&str, usize)] = &[];

/// What names directives as a document does: the grammar of nginx, and the table of docs/differences.md.
const DOCUMENTS: [&str; 2] = [
    "crates/config/src/known",
    "crates/server/src/migrate/rows.rs",
];
/// Directives of other modules that begin in the same way.
const OTHERS: &[&str] = &["gzip_static"];

const fn module(name: &'static str, kind: &'static str) -> Module {
    Module {
        name,
        kind,
        own: None,
        is_word_of_http: false,
    }
}

/// Prints who names each module; fails where there are too many.
pub fn run(project: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    for path in tidy::files(project)? {
        let is_code = path.starts_with("crates/") && path.contains("/src/");
        if !is_code || !path.ends_with(".rs") || layers::is_test(&path) {
            continue;
        }
        // Removed, and not yet committed so.
        if let Ok(text) = std::fs::read_to_string(project.join(&path)) {
            files.push(File::new(&path, &text));
        }
    }
    let mut faults = Vec::new();
    for module in MODULES {
        let naming: Vec<&str> = files
            .iter()
            .filter(|file| module.is_named_by(file))
            .map(|file| &*file.path)
            .collect();
        println!(
            "{:<11} {:>2}  {}",
            module.name,
            naming.len(),
            naming.join(" ")
        );
        faults.extend(module.fault(naming.len()));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n")),
    }
}

impl Module {
    fn fault(&self, count: usize) -> Option<String> {
        let known = NOT_YET.iter().find(|(name, _)| *name == self.name);
        let limit = known.map_or(FILES_MAX, |(_, count)| *count);
        let name = self.name;
        (count > limit)
            .then(|| format!("{name}: {count} files outside of it name it, allowed {limit}"))
    }

    fn is_named_by(&self, file: &File) -> bool {
        !self.owns(&file.path)
            && (self.is_in_code(&file.words)
                || file.strings.iter().any(|text| self.is_directive(text)))
    }

    fn owns(&self, path: &str) -> bool {
        let mut parts = path.trim_end_matches(".rs").split('/');
        let is_document = DOCUMENTS.iter().any(|begin| path.starts_with(begin));
        is_document || parts.any(|part| part == self.name || Some(part) == self.own)
    }

    fn is_directive(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.name) else {
            return false;
        };
        let is_name = rest
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match rest {
            "" => !self.is_word_of_http,
            _ => rest.starts_with('_') && is_name && !OTHERS.contains(&text),
        }
    }

    /// Whether one of the words is the module's path, settings or type.
    fn is_in_code(&self, words: &[String]) -> bool {
        let mut is_in_use = false;
        words.iter().enumerate().any(|(at, word)| {
            let before = |back: usize| at.checked_sub(back).map_or("", |at| &words[at]);
            let behind = words.get(at + 1).map_or("", String::as_str);
            match &**word {
                "use" => is_in_use = true,
                ";" => is_in_use = false,
                _ => {}
            }
            if *word == self.name {
                let is_path = is_in_use || behind == "::" || before(1) == "::";
                return is_path || (before(1) == "." && before(2) == "settings");
            }
            match self.is_word_of_http {
                // `Coding::Gzip` is no more than the word.
                true => *word == self.kind && before(1) != "::",
                false => word.starts_with(self.kind),
            }
        })
    }
}

/// A file without its tests.
struct File {
    path: String,
    /// Its code in words: identifiers, `::`, and signs.
    words: Vec<String>,
    /// The texts of its strings.
    strings: Vec<String>,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let code = source::code_of(text);
        let tested = layers::without_tests(&code);
        // A string of a test stands behind a sign of the code that was blanked with the tests.
        let is_kept = |start: usize| {
            let sign = code.as_bytes()[..start]
                .iter()
                .rposition(|byte| !byte.is_ascii_whitespace());
            sign.is_none_or(|at| tested.as_bytes()[at] != b' ')
        };
        let strings = source::strings(text).into_iter();
        Self {
            path: path.to_owned(),
            words: words(&tested),
            strings: strings
                .filter(|(start, _)| is_kept(*start))
                .map(|(_, text)| text.to_owned())
                .collect(),
        }
    }
}

fn words(code: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        words.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that name a module, of those of a made-up layout.
    fn naming(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let module = MODULES.iter().find(|module| module.name == name).unwrap();
        let files = files.iter().map(|(path, text)| File::new(path, text));
        files
            .filter(|file| module.is_named_by(file))
            .map(|file| file.path)
            .collect()
    }

    #[test]
    fn paths_settings_types_and_directives_name_a_module() {
        let files = [
            ("crates/a/src/own/geo/mod.rs", "use crate::geo::Geo;"),
            ("crates/a/src/lib.rs", "pub mod geo;"),
            ("crates/a/src/list.rs", "use crate::{\n    geo, map};"),
            ("crates/a/src/path.rs", "fn f() { crate::geo::read() }"),
            ("crates/a/src/settings.rs", "fn f() { x.settings.geo.y() }"),
            ("crates/a/src/kind.rs", "fn f() { own::<GeoLines>() }"),
            ("crates/a/src/text.rs", "fn f() { is(\"geo\") }"),
            (
                "crates/a/src/other.rs",
                "// geo::x\nfn f() { geo(\"a geo\"); x.geo }",
            ),
            (
                "crates/a/src/tested.rs",
                "#[cfg(test)]\nmod tests { use a::geo; fn f() { (\"geo\") } }",
            ),
            ("crates/config/src/known/http.rs", "row(\"geo\")"),
        ];
        let stems = ["list", "path", "settings", "kind", "text"];
        let expected = stems.map(|stem| format!("crates/a/src/{stem}.rs"));
        assert_eq!(naming("geo", &files), expected);
    }

    #[test]
    fn words_of_http_and_of_other_modules_do_not_count() {
        let files = [
            (
                "crates/a/src/a.rs",
                "fn f() { coding(b\"gzip\"); (\"gzip_static\") }",
            ),
            ("crates/a/src/compression/mod.rs", "fn f() { gzip::g() }"),
            ("crates/a/src/b.rs", "fn f() { (\"gzip_vary\") }"),
            ("crates/a/src/c.rs", "fn f() { Coding::Gzip; GzipTest }"),
            ("crates/a/src/d.rs", "fn f() { own::<Gzip>() }"),
        ];
        let expected = ["crates/a/src/b.rs", "crates/a/src/d.rs"];
        assert_eq!(naming("gzip", &files), expected);
    }

    #[test]
    fn a_module_that_too_many_files_name_is_a_fault() {
        let geo = MODULES.iter().find(|module| module.name == "geo").unwrap();
        assert_eq!(geo.fault(FILES_MAX), None);
        let fault = geo.fault(FILES_MAX + 1).unwrap();
        assert_eq!(fault, "geo: 4 files outside of it name it, allowed 3");
    }
}
