//! `rewrite`: a pattern, the replacement for a URI that matches it, and the next step. nginx-drop-in 40 and 41.

use bytes::Bytes;
use config::{Problem, Scope, Template, VariableSet, Word};
use logs::Level;
use logs::template::{self, Quoting};
use message::escape::{Unescape, unescape};

use httpcore::Failure;
use httpcore::regex::Regex;
use httpcore::request::Request;

use super::machine::quoting;

/// A `rewrite` line.
#[derive(Debug)]
pub struct Rewrite {
    /// The pattern that the URI is matched with.
    pub regex: Regex,
    /// The replacement up to the first `?`; for a redirect all of it.
    uri: Template,
    /// The text after the first `?`.
    args: Option<Template>,
    /// Whether the request's arguments are kept, after the new ones.
    keeps_args: bool,
    /// The next step.
    pub then: Then,
}

/// The step after a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next instruction.
    Next,
    /// `last`: the search for the new URI's location.
    Last,
    /// `break`: the later steps, at the same location.
    Break,
    /// `redirect`, `permanent`: an answer with this status.
    Redirect(u16),
}

impl Rewrite {
    /// Whether the value of one of these variables is used.
    #[must_use]
    pub fn uses(&self, variables: &VariableSet) -> bool {
        let args = self.args.as_ref();
        variables.is_in(&self.uri) || args.is_some_and(|args| variables.is_in(args))
    }

    /// Parses the arguments.
    ///
    /// # Errors
    /// nginx's.
    pub fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let [pattern, replacement, flags @ ..] = args else {
            return Err(Problem::argument_count("rewrite"));
        };
        let text = replacement.bytes();
        if text.is_empty() {
            return Err(Problem::new("empty replacement").at(1));
        }
        let regex = Regex::of_configuration(pattern.bytes(), false, pattern, scope);
        let regex = regex.map_err(|problem| problem.at(0))?;
        let (text, keeps_args) = match text.strip_suffix(b"?") {
            Some(kept) => (text.slice(..kept.len()), false),
            None => (text.clone(), true),
        };
        let then = then(&text, flags)?;
        let mut template = |part: Bytes| {
            let parsed = Template::parse(&part, &replacement.place(), scope);
            parsed.map_err(|problem| problem.at(1))
        };
        let question = memchr::memchr(b'?', &text);
        let (uri, args) = match (then, question) {
            // Its `?` is only looked for, to know whether it has arguments.
            (Then::Redirect(_), Some(_)) => {
                (template(text)?, Some(Template::from_literal(Bytes::new())))
            }
            (_, Some(at)) => (
                template(text.slice(..at))?,
                Some(template(text.slice(at + 1..))?),
            ),
            (_, None) => (template(text)?, None),
        };
        Ok(Self {
            regex,
            uri,
            args,
            keeps_args,
            then,
        })
    }

    /// The URL of a redirect, made from the captures of the match.
    pub fn url(&self, request: &Request) -> Bytes {
        let mut made = Vec::with_capacity(128);
        template::evaluate_quoted(&self.uri, request, quoting(request), &mut made);
        let (mut url, read) = unescape(&made, Unescape::Redirect);
        url.extend_from_slice(&made[read..]);
        if self.keeps_args && !request.args().is_empty() {
            url.push(if self.args.is_some() { b'&' } else { b'?' });
            url.extend_from_slice(request.args());
        }
        url.into()
    }

    /// Gives the request its new URI and arguments, made from the captures of the match.
    ///
    /// # Errors
    /// 500 if the new URI is empty, or if it or its arguments are too long.
    pub fn replace(&self, request: &mut Request, is_logged: bool) -> Result<(), Failure> {
        let mut uri = Vec::with_capacity(128);
        template::evaluate_quoted(&self.uri, request, Quoting::Plain, &mut uri);
        match &self.args {
            None if self.keeps_args => {}
            None => request.args = request.args.as_ref().map(|_| Bytes::new()),
            Some(template) => {
                let mut args = Vec::with_capacity(128);
                template::evaluate_quoted(template, request, quoting(request), &mut args);
                if self.keeps_args && !request.args().is_empty() {
                    args.push(b'&');
                    args.extend_from_slice(request.args());
                }
                request.args = Some(args.into());
            }
        }
        request.uri = uri.into();
        if request.is_too_long(&request.uri) || request.is_too_long(request.args()) {
            return Err(Failure::new(500));
        }
        if is_logged {
            log_data(request);
        }
        if request.uri.is_empty() {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(b"the rewritten URI has a zero length");
            });
            return Err(Failure::new(500));
        }
        Ok(())
    }
}

/// The step that a flag, or else the beginning of the replacement, demands.
fn then(replacement: &[u8], flags: &[Word]) -> Result<Then, Problem> {
    let is_url = [&b"http://"[..], b"https://", b"$scheme"]
        .iter()
        .any(|start| replacement.starts_with(start));
    let usual = match is_url {
        true => Then::Redirect(302),
        false => Then::Next,
    };
    let Some(flag) = flags.first() else {
        return Ok(usual);
    };
    match &flag.bytes()[..] {
        // A URL redirects the client, whatever the flag.
        b"last" | b"break" if is_url => Ok(usual),
        b"last" => Ok(Then::Last),
        b"break" => Ok(Then::Break),
        b"redirect" => Ok(Then::Redirect(302)),
        b"permanent" => Ok(Then::Redirect(301)),
        _ => {
            let sentence = format!("invalid parameter \"{}\"", flag.display());
            Err(Problem::new(sentence).at(2))
        }
    }
}

fn log_data(request: &Request) {
    request.log(Level::Notice, &|out| {
        out.extend_from_slice(b"rewritten data: \"");
        out.extend_from_slice(&request.uri);
        out.extend_from_slice(b"\", args: \"");
        out.extend_from_slice(request.args());
        out.push(b'"');
    });
}
