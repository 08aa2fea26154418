//! Parses the lines of [`super`]: options and headers, in any order.
//!
//! Not here: their effect. Invariant: for a line that would change the framing of a message, the log says that it has
//! no effect.

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Template, Word};
use message::HeaderId;

use super::{Change, Command, Mode};

/// Which of the directives a line is.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    clears: bool,
    is_input: bool,
}

impl Kind {
    pub(super) const SET: Self = Self {
        clears: false,
        is_input: false,
    };
    pub(super) const CLEAR: Self = Self {
        clears: true,
        is_input: false,
    };
    pub(super) const SET_INPUT: Self = Self {
        clears: false,
        is_input: true,
    };
    pub(super) const CLEAR_INPUT: Self = Self {
        clears: true,
        is_input: true,
    };
}

/// Reads a line.
///
/// # Errors
/// An option that there is not, a status that is no number, no name; at its place.
pub(super) fn command(
    directive: &Directive,
    kind: Kind,
    scope: &mut Scope,
) -> Result<Command, Error> {
    let mut command = Command {
        types: Vec::new(),
        statuses: Vec::new(),
        changes: Vec::new(),
    };
    let mut mode = Mode::Replace;
    let mut words = directive.args.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let fail = |problem: Problem| directive.error(&problem.at(at));
        match (&word.bytes()[..], kind.is_input) {
            (b"", _) => {}
            (b"-t", _) => {
                let (_, list) = words
                    .next()
                    .ok_or_else(|| fail(wants_value(directive, "-t")))?;
                command.types.extend(split(list, |byte| byte == b';'));
            }
            (b"-s", false) => {
                let (at, list) = words
                    .next()
                    .ok_or_else(|| fail(wants_value(directive, "-s")))?;
                for status in split(list, |_| false) {
                    let status =
                        number(&status).ok_or_else(|| not_a_status(directive, list, at))?;
                    command.statuses.push(status);
                }
            }
            (b"-a", false) if !kind.clears => mode = Mode::Append,
            (b"-r", true) => mode = Mode::ReplaceOnly,
            ([b'-', ..], _) => {
                let sentence = format!(
                    "{}: invalid option name: \"{}\"",
                    directive.name.display(),
                    word.display()
                );
                return Err(fail(Problem::new(sentence).hint_that(options(kind))));
            }
            _ => {
                let change = change(directive, word, kind, scope);
                command.changes.push(change.map_err(fail)?);
            }
        }
    }
    for change in &mut command.changes {
        change.mode = match HeaderId::find(&change.name) {
            // What there is one of only is replaced whatever the option.
            id if mode == Mode::Append && is_single(id) => Mode::Replace,
            _ => mode,
        };
        warn_of_framing(directive, change, kind, scope);
    }
    Ok(command)
}

fn options(kind: Kind) -> &'static str {
    match (kind.is_input, kind.clears) {
        (true, _) => "its options are -r and -t",
        (false, true) => "its options are -s and -t",
        (false, false) => "its options are -a, -s and -t",
    }
}

fn wants_value(directive: &Directive, option: &str) -> Problem {
    let name = directive.name.display();
    Problem::new(format!("{name}: option {option} takes an argument"))
}

fn not_a_status(directive: &Directive, list: &Word, at: usize) -> Error {
    let sentence = format!(
        "{}: the list of statuses \"{}\" has what is no number",
        directive.name.display(),
        list.display()
    );
    directive.error(&Problem::new(sentence).at(at))
}

/// The words of a list.
fn split(list: &Word, also: impl Fn(u8) -> bool) -> Vec<Bytes> {
    let text = list.bytes();
    text.split(|byte| byte.is_ascii_whitespace() || also(*byte))
        .filter(|word| !word.is_empty())
        .map(|word| text.slice_ref(word))
        .collect()
}

fn number(text: &[u8]) -> Option<u16> {
    u16::try_from(config::parse_number(text)?).ok()
}

/// `Name: value`, `Name:` or `Name`.
fn change(
    directive: &Directive,
    word: &Word,
    kind: Kind,
    scope: &mut Scope,
) -> Result<Change, Problem> {
    let text = word.bytes().trim_ascii_start();
    let is_end = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let end = text.iter().position(is_end).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let begin = rest.iter().position(|byte| !is_end(byte));
    let value = begin.map_or(&b""[..], |begin| &rest[begin..]);
    let whose = directive.name.display();
    if name.is_empty() {
        let word = word.display();
        return Err(Problem::new(format!(
            "{whose}: no key found in the header argument: {word}"
        )));
    }
    let (name, is_prefix) = match name.strip_suffix(b"*") {
        Some(b"") => {
            let word = word.display();
            return Err(Problem::new(format!(
                "{whose}: wildcard key too short: {word}"
            )));
        }
        Some(prefix) => (prefix, true),
        None => (name, false),
    };
    let value = match kind.clears || value.is_empty() {
        true => None,
        false => Some(Template::parse(
            &Bytes::copy_from_slice(value),
            &word.place(),
            scope,
        )?),
    };
    Ok(Change {
        name: Bytes::copy_from_slice(name),
        is_prefix,
        value,
        mode: Mode::Replace,
    })
}

/// Headers of which an answer has one.
fn is_single(id: HeaderId) -> bool {
    matches!(
        id,
        HeaderId::Server
            | HeaderId::Date
            | HeaderId::ContentEncoding
            | HeaderId::Location
            | HeaderId::Refresh
            | HeaderId::LastModified
            | HeaderId::ContentRange
            | HeaderId::AcceptRanges
            | HeaderId::WwwAuthenticate
            | HeaderId::Expires
            | HeaderId::ETag
            | HeaderId::ContentLength
            | HeaderId::ContentType
            | HeaderId::CacheControl
    )
}

/// Whether a line about responses has no effect, because the header is one of framing or of the connection.
pub(super) fn is_of_framing(change: &Change) -> bool {
    match HeaderId::find(&change.name) {
        HeaderId::TransferEncoding | HeaderId::Connection | HeaderId::KeepAlive => true,
        HeaderId::ContentLength => change.value.is_some(),
        _ => false,
    }
}

fn warn_of_framing(directive: &Directive, change: &Change, kind: Kind, scope: &mut Scope) {
    if kind.is_input || !is_of_framing(change) {
        return;
    }
    let name = String::from_utf8_lossy(&change.name);
    let why = format!("\"{name}\" of an answer says how it is sent, and no line changes that");
    scope.warn(directive.warning(&Problem::ignored(&why)));
}
