//! `more_set_headers` and its kin: replace or remove headers of responses and requests, whatever module set them.
//!
//! These are the directives of headers-more-nginx-module, which is not part of nginx. The lines of one level take
//! effect in the order in which they stand, after those of the outer levels. [`output`] runs between the evaluation
//! of conditions and `add_header`, as that module's filter does; [`input`] runs at the end of a location's rewriting.
//!
//! Not here: the framing of a message (`Content-Length` and `Transfer-Encoding` of responses, the length of a
//! request's body), which no line changes. Invariant: a location without a line pays one comparison.

pub mod input;
pub mod output;
mod parse;

use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, DirectiveTable, Error, Scope, Section, Template, blocks};

blocks! {
    /// Setting and removing headers (headers-more).
    pub fn lines in Location {
        /// Sets header fields of responses, in place of those with the same names; without a value a field is removed.
        /// Applies to any status unless `-s` names some (`-s '404 500'`), and to any media type unless `-t` names some.
        /// With `-a` a field is added to those that exist. `add_header` lines come after these.
        "more_set_headers": [HTTP | SERVER | LOCATION | LOCATION_IF] 1.., syntax "[-t types]... [-s statuses]... [-a] 'name: value'...";
        /// Removes header fields from responses; a `*` at the end matches any rest of a name. `-s` and `-t` work as in
        /// `more_set_headers`. A response without its `Content-Length` is sent in chunks.
        "more_clear_headers": [HTTP | SERVER | LOCATION | LOCATION_IF] 1.., syntax "[-t types]... [-s statuses]... name...";
        /// Sets header fields of the request, in place of those with the same names, after rewriting of the location:
        /// variables and upstream servers see them. With `-r` only existing fields are replaced; `-t` restricts it to
        /// requests whose bodies have one of these types. The body's length is not changed.
        "more_set_input_headers": [HTTP | SERVER | LOCATION | LOCATION_IF] 1.., syntax "[-r] [-t types]... 'name: value'...";
        /// Removes header fields from the request; a `*` at the end matches any rest of a name. `-t` works as in
        /// `more_set_input_headers`.
        "more_clear_input_headers": [HTTP | SERVER | LOCATION | LOCATION_IF] 1.., syntax "[-t types]... name...";
    }
}

/// The lines of one level.
pub const COMMANDS_MAX: usize = 10_000;

/// One line.
#[derive(Debug, Clone)]
pub struct Command {
    /// The media types that it is for; none: all.
    types: Vec<Bytes>,
    /// The statuses that it is for; none: all.
    statuses: Vec<u16>,
    /// The action.
    changes: Vec<Change>,
}

/// A change of one header.
#[derive(Debug, Clone)]
struct Change {
    /// The name, or its beginning.
    name: Bytes,
    /// Whether a `*` stands for the rest of the name.
    is_prefix: bool,
    /// The value. None: it is removed.
    value: Option<Template>,
    mode: Mode,
}

/// The way in which a header gets its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Replaces the header or adds it.
    Replace,
    /// Replaces the header if it exists.
    ReplaceOnly,
    /// Adds the header beside existing ones.
    Append,
}

/// The lines that hold.
#[derive(Debug, Clone, Default)]
pub struct HeadersMore {
    /// About answers.
    output: Arc<Vec<Command>>,
    /// About requests.
    input: Arc<Vec<Command>>,
}

impl HeadersMore {
    /// Whether there is a line about responses.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether there is a line about requests.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }
}

config::own!(HeadersMore);

/// By hand, since the order of different directives counts.
impl Section for HeadersMore {
    type Raw = Self;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Self, directive: &Directive, scope: &mut Scope) -> Result<bool, Error> {
        let (kind, commands) = match &directive.name.bytes()[..] {
            b"more_set_headers" => (parse::Kind::SET, &mut raw.output),
            b"more_clear_headers" => (parse::Kind::CLEAR, &mut raw.output),
            b"more_set_input_headers" => (parse::Kind::SET_INPUT, &mut raw.input),
            b"more_clear_input_headers" => (parse::Kind::CLEAR_INPUT, &mut raw.input),
            _ => return Ok(false),
        };
        let command = parse::command(directive, kind, scope)?;
        if commands.len() == COMMANDS_MAX {
            let sentence = format!("more than {COMMANDS_MAX} lines at one level");
            return Err(directive.error(&config::Problem::new(sentence)));
        }
        Arc::make_mut(commands).push(command);
        Ok(true)
    }

    fn merge(parent: &Self, child: Self) -> Self {
        Self {
            output: joined(&parent.output, child.output),
            input: joined(&parent.input, child.input),
        }
    }

    fn fill(_: &mut Self, _: &mut Scope) -> Result<(), Error> {
        Ok(())
    }

    fn finish(raw: Self, _: &mut Scope) -> Result<Self, Error> {
        Ok(raw)
    }
}

/// Those of the level around, then a level's own. Levels without any share them.
fn joined(parent: &Arc<Vec<Command>>, child: Arc<Vec<Command>>) -> Arc<Vec<Command>> {
    match (parent.is_empty(), child.is_empty()) {
        (_, true) => Arc::clone(parent),
        (true, false) => child,
        (false, false) => Arc::new(parent.iter().chain(child.iter()).cloned().collect()),
    }
}
