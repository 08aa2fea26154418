//! `add_header` and `add_trailer`. nginx-drop-in 30 and 32.

use std::rc::Rc;

use bytes::Bytes;
use config::{List, Problem, Scope, Section, Template, Value, Word, directives};
use message::ETag;

use httpcore::Response;
use httpcore::request::Request;

use super::expires::Expires;
use crate::after::expires;

/// One `add_header` or `add_trailer` line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The name as written.
    pub name: Bytes,
    /// The value; empty adds nothing.
    pub value: Template,
    /// Whether it is added whatever the status.
    pub is_always: bool,
}

impl Value for Line {
    const SYNTAX: &'static str = "name value [always]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let value = Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?;
        let is_always = match args.get(2) {
            None => false,
            Some(word) if *word == "always" => true,
            Some(word) => {
                return Err(
                    Problem::new(format!("invalid parameter \"{}\"", word.display())).at(2),
                );
            }
        };
        Ok(Self {
            name: args[0].bytes().clone(),
            value,
            is_always,
        })
    }
}

config::choices! {
    /// The way a level inherits the lines of the one around it.
    pub enum Inheritance {
        /// They count where the level has none of its own.
        On = "on",
        /// They do not count.
        Off = "off",
        /// They count beside its own.
        Merge = "merge",
    }
}

directives! {
    /// Response headers and trailers.
    pub struct Lines in Location {
        /// Adds a header field to responses with status 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308, with
        /// `always` to all. A level with lines of its own inherits none (see `add_header_inherit`).
        add_header: List<Line> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 2..=3;
        /// Sets how `add_header` lines of the outer level are inherited.
        add_header_inherit: Inheritance = "on", [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        /// Adds a trailer field after the body, under the same conditions as `add_header`. Requires HTTP/1.1, where the
        /// body is then chunked.
        add_trailer: List<Line> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 2..=3;
        /// Sets how `add_trailer` lines of the outer level are inherited.
        add_trailer_inherit: Inheritance = "on", [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        /// Sets `Expires` and `Cache-Control`: a time from now or, with `modified`, from the last modification; a time
        /// of day (`@15h30m`); a negative time means `no-cache`.
        expires: Option<Expires> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 1..=2;
    }
}

/// The lines in effect.
#[derive(Debug, Clone)]
pub struct HeaderLines {
    /// As the directives say.
    pub lines: Lines,
}

config::own!(HeaderLines);

/// Implemented by hand, since `add_header_inherit` decides how `add_header` is inherited.
impl Section for HeaderLines {
    type Raw = <Lines as Section>::Raw;

    fn tables() -> Vec<&'static config::DirectiveTable> {
        Lines::tables()
    }

    fn set(
        raw: &mut Self::Raw,
        directive: &config::Directive,
        scope: &mut Scope,
    ) -> Result<bool, config::Error> {
        Lines::set(raw, directive, scope)
    }

    fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
        let headers = (
            child.add_header.value.clone(),
            child
                .add_header_inherit
                .value
                .or(parent.add_header_inherit.value),
        );
        let trailers = (
            child.add_trailer.value.clone(),
            child
                .add_trailer_inherit
                .value
                .or(parent.add_trailer_inherit.value),
        );
        let mut merged = Lines::merge(parent, child);
        merged.add_header.value = inherited(parent.add_header.value.as_ref(), headers);
        merged.add_trailer.value = inherited(parent.add_trailer.value.as_ref(), trailers);
        merged
    }

    fn fill(raw: &mut Self::Raw, scope: &mut Scope) -> Result<(), config::Error> {
        Lines::fill(raw, scope)
    }

    fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, config::Error> {
        Ok(Self {
            lines: Lines::finish(raw, scope)?,
        })
    }
}

fn inherited(
    parent: Option<&List<Line>>,
    child: (Option<List<Line>>, Option<Inheritance>),
) -> Option<List<Line>> {
    match child {
        (own, Some(Inheritance::Off)) => own,
        (Some(own), Some(Inheritance::Merge)) => {
            let above = parent.map(|lines| lines.0.clone()).unwrap_or_default();
            Some(List(own.0.into_iter().chain(above).collect()))
        }
        (own, _) => own.or_else(|| parent.cloned()),
    }
}

impl HeaderLines {
    /// Whether there is anything to add to a head.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.lines.expires.is_some() || !self.lines.add_header.is_empty()
    }
}

/// Adds the location's lines to the request's response, which must be present.
pub fn apply(request: &mut Request, settings: &HeaderLines) {
    let lines = &settings.lines;
    let is_safe = request.response.as_ref().is_some_and(|r| is_safe(r.status));
    if let Some(expires) = lines.expires.as_ref().filter(|_| is_safe) {
        expires::apply(request, expires);
    }
    let mut added_expires = 0;
    for line in lines
        .add_header
        .iter()
        .filter(|line| is_safe || line.is_always)
    {
        let value = request.evaluate(&line.value);
        let is_expires = line.name.eq_ignore_ascii_case(b"Expires") && !value.is_empty();
        added_expires += usize::from(is_expires);
        if let Some(response) = &mut request.response {
            add(response, line, value);
        }
    }
    // The request came through a proxy: `gzip_proxied` asks whether the answer itself expires.
    if let Some(response) = &mut request.response {
        response.added_expires = added_expires;
    }
}

/// Whether lines without `always` apply to this status.
#[must_use]
pub fn is_safe(status: u16) -> bool {
    matches!(
        status,
        200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308
    )
}

fn add(response: &mut Response, line: &Line, value: Bytes) {
    if line.name.eq_ignore_ascii_case(b"Last-Modified") {
        response.headers.remove(b"Last-Modified");
        response.set_last_modified(line.name.clone(), value);
    } else if line.name.eq_ignore_ascii_case(b"ETag") {
        response.etag = (!value.is_empty()).then_some(ETag::Text(value));
    } else if !value.is_empty() {
        response.headers.push(line.name.clone(), value);
    }
}

/// Has trailers added after the body, where lines apply to this status.
pub fn plan_trailers(request: &mut Request, settings: &HeaderLines, status: u16) {
    let is_safe = is_safe(status);
    let mut lines = settings.lines.add_trailer.iter();
    let is_any = lines.any(|line| is_safe || line.is_always);
    request.late_trailers = is_any.then_some(add_trailers);
}

/// Adds the trailers after the body, evaluated now: each may refer to those before it (`$sent_trailer_…`).
fn add_trailers(request: &mut Request) {
    let generation = Rc::clone(&request.generation);
    let settings = generation.settings.location(request.location).groups();
    let is_safe = is_safe(request.status());
    let lines = settings.own::<HeaderLines>().lines.add_trailer.iter();
    for line in lines.filter(|line| is_safe || line.is_always) {
        let value = request.evaluate(&line.value);
        if let Some(response) = &mut request.response
            && !value.is_empty()
        {
            response.trailers.push(line.name.clone(), value);
        }
    }
}
