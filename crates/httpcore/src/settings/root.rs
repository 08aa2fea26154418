//! `root` and `alias`: how a location maps URIs to paths.
//!
//! Not here: the mapping of a request's URI ([`path`](crate::files::path)).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use config::{Directive, DirectiveTable, Error, Problem, Scope, Section, Template, blocks};

blocks! {
    /// Paths of files.
    pub fn lines in Location {
        /// Sets the root directory: the request's URI is appended to it. A relative path starts at the prefix.
        "root" = "html": [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "path";
        /// Replaces the location's part of the URI by a path. In a location with a regular expression it is the whole
        /// path and should use captures.
        "alias": [LOCATION] 1, syntax "path";
    }
}

/// How a location maps URIs to paths.
#[derive(Debug, Clone)]
pub struct Root {
    /// The directory, absolute where it has no variables.
    pub path: Template,
    /// For an `alias`: the part of the URI that it replaces.
    pub alias: Option<Alias>,
}

/// The part of the URI that an `alias` replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// The location's name: this many bytes of the URI.
    Prefix(usize),
    /// Everything (in a location with a regular expression).
    Whole,
}

/// The settings of one level: the path, and whether it is an `alias`; the builder of locations adds the length.
#[derive(Debug, Clone, Default)]
pub struct Raw {
    path: Option<Template>,
    is_alias: bool,
    /// Whether it began with a slash: of `root /` nothing is left.
    is_absolute: bool,
    /// Set by the builder of locations if `is_alias`.
    pub alias: Option<Alias>,
}

impl Raw {
    /// Whether this level itself has an `alias`.
    #[must_use]
    pub fn has_alias(&self) -> bool {
        self.is_alias
    }

    /// Makes a path without variables absolute.
    pub fn anchor(&mut self, prefix: &Path) {
        if let Some(literal) = self.path.as_ref().and_then(Template::literal)
            && !self.is_absolute
        {
            let absolute = [prefix.as_os_str().as_bytes(), literal].concat();
            self.path = Some(Template::from_literal(absolute.into()));
            self.is_absolute = true;
        }
    }
}

/// The directory of a path from `root`: nothing is left of `root /`, since the URI begins with a slash.
#[must_use]
pub fn directory(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

config::own!(Root);

/// By hand, since `root` and `alias` are one value that is inherited as one.
impl Section for Root {
    type Raw = Raw;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Raw, directive: &Directive, scope: &mut Scope) -> Result<bool, Error> {
        let is_alias = directive.name == "alias";
        if !is_alias && directive.name != "root" {
            return Ok(false);
        }
        if raw.path.is_some() {
            let problem = if raw.is_alias == is_alias {
                Problem::duplicate()
            } else {
                let earlier = if raw.is_alias { "alias" } else { "root" };
                Problem::directive(format!(
                    "is duplicate, \"{earlier}\" directive was specified earlier"
                ))
            };
            return Err(directive.error(&problem));
        }
        let at = |problem: Problem| directive.error(&problem.at(0));
        let word = &directive.args[0];
        for itself in ["document_root", "realpath_root"] {
            let forms = [format!("${itself}"), format!("${{{itself}}}")];
            let is_in =
                |form: &String| memchr::memmem::find(word.bytes(), form.as_bytes()).is_some();
            if forms.iter().any(is_in) {
                let name = directive.name.display();
                return Err(at(Problem::new(format!(
                    "the ${itself} variable cannot be used in the \"{name}\" directive"
                ))));
            }
        }
        if word.bytes().contains(&0) {
            return Err(at(Problem::directive("has a path with a zero byte")));
        }
        // As in nginx one slash at the end of a `root` is cut off before anything else: the URI begins with one.
        let text = match word.bytes() {
            text if !is_alias && text.ends_with(b"/") => text.slice(..text.len() - 1),
            text => text.clone(),
        };
        raw.path = Some(Template::parse(&text, &word.place(), scope).map_err(at)?);
        raw.is_absolute = word.bytes().starts_with(b"/");
        raw.is_alias = is_alias;
        Ok(true)
    }

    fn merge(parent: &Raw, child: Raw) -> Raw {
        if child.path.is_some() {
            child
        } else {
            Raw {
                is_alias: false,
                ..parent.clone()
            }
        }
    }

    fn fill(raw: &mut Raw, _: &mut Scope) -> Result<(), Error> {
        raw.path
            .get_or_insert_with(|| Template::from_literal(Bytes::from_static(b"html")));
        Ok(())
    }

    fn finish(mut raw: Raw, scope: &mut Scope) -> Result<Self, Error> {
        Self::fill(&mut raw, scope)?;
        let path = raw
            .path
            .unwrap_or_else(|| Template::from_literal(Bytes::from_static(b"html")));
        Ok(Self {
            path,
            alias: raw.alias,
        })
    }
}
