//! Maps a URI to a path: `root` and `alias`.
//!
//! Pure but for the request's variables. Not here: symbolic links (`realpath_root`). nginx-drop-in 18 (alias in regex locations).

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use config::{Directive, DirectiveTable, Error, Problem, Scope, Section, Template, Value, blocks};
use logs::Level;

use crate::Failure;
use crate::request::Request;

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

crate::variables! {
    /// The root directory of the request: the value of `root` or `alias`.
    "document_root" => fresh(document_root);
    /// The file that the request maps to.
    "request_filename" => fresh(filename);
}

/// Bytes reserved for a path's root; a longer root grows the buffer.
const PATH_TYPICAL: usize = 64;
/// Maximum capacity, in bytes, of the buffer that is kept for the next path.
const PATH_KEPT: usize = 4096;

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
            && !literal.starts_with(b"/")
        {
            let absolute = [prefix.as_os_str().as_bytes(), literal].concat();
            self.path = Some(Template::from_literal(absolute.into()));
        }
    }
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
        let mut path = <Template as Value>::parse(&directive.args, scope).map_err(at)?;
        if !is_alias
            && let Some(literal) = path.literal()
            && let Some(cut) = literal.strip_suffix(b"/")
        {
            path = Template::from_literal(Bytes::copy_from_slice(cut));
        }
        raw.path = Some(path);
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

thread_local! {
    /// Buffer for the next path of this loop.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A URI's path: the first bytes are the root.
#[derive(Debug)]
pub struct Mapped {
    /// The whole path.
    pub path: Vec<u8>,
    /// Length in bytes of the part that comes from `root` or `alias`.
    pub root: usize,
}

impl Default for Mapped {
    fn default() -> Self {
        Self {
            path: SPARE.try_with(Cell::take).unwrap_or_default(),
            root: 0,
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.path.capacity() <= PATH_KEPT {
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.path)));
        }
    }
}

impl Mapped {
    /// The whole path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.path))
    }
}

/// Appends the root's (or alias') path.
pub fn root(request: &Request, out: &mut Vec<u8>) {
    let settings = &request.location().settings.root;
    match settings.path.literal() {
        Some(literal) => out.extend_from_slice(literal),
        None => {
            let start = out.len();
            request.evaluate_into(&settings.path, out);
            if out.get(start) != Some(&b'/') {
                let prefix = request.settings().prefix.as_os_str().as_bytes();
                out.splice(start..start, prefix.iter().copied());
            }
        }
    }
}

fn document_root(request: &Request, out: &mut Vec<u8>) -> bool {
    root(request, out);
    true
}

fn filename(request: &Request, out: &mut Vec<u8>) -> bool {
    let mut mapped = Mapped::default();
    let is_mapped = map(request, &mut mapped).is_ok();
    if is_mapped {
        out.extend_from_slice(&mapped.path);
    }
    is_mapped
}

/// The path of the request's URI.
///
/// # Errors
/// 500 if an `alias` cannot be applied because the URI was rewritten.
pub fn map(request: &Request, mapped: &mut Mapped) -> Result<(), Failure> {
    mapped.path.clear();
    mapped.path.reserve(PATH_TYPICAL + request.uri.len());
    let alias = request.location().settings.root.alias;
    if alias.is_some() && !request.is_location_valid {
        request.log(Level::Alert, &|out| {
            out.extend_from_slice(b"\"alias\" cannot be used in location \"");
            out.extend_from_slice(&request.location().name);
            out.extend_from_slice(b"\" where URI was rewritten");
        });
        return Err(Failure::new(500));
    }
    root(request, &mut mapped.path);
    mapped.root = mapped.path.len();
    match alias {
        None => mapped.path.extend_from_slice(&request.uri),
        Some(Alias::Prefix(length)) => mapped
            .path
            .extend_from_slice(&request.uri[length.min(request.uri.len())..]),
        Some(Alias::Whole) if request.add_uri_to_alias => {
            mapped.path.extend_from_slice(&request.uri)
        }
        Some(Alias::Whole) => {}
    }
    Ok(())
}
