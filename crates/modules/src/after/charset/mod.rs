//! `charset`: the charset of answers, declared in their heads; an answer in another charset is recoded.
//!
//! All parts of an answer are recoded into its charset, whatever their own locations say.

pub mod maps;
mod recode;

use std::borrow::Cow;

use bytes::Bytes;
use config::{Error, Flag, Problem, Scope, TextPlace, Value, VariableIndex, Word, directives};
use logs::Level;
use message::BodyError;

use httpcore::Response;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;

use super::media_types::MediaTypes;
use httpcore::body_filter::{self, Filter, Out, Steps};
pub use maps::Charsets;
use recode::{Recoder, Way};

/// The name of a charset.
#[derive(Debug, Clone)]
pub enum Name {
    /// As written.
    Known(Bytes, TextPlace),
    /// The value of a variable.
    Variable(VariableIndex),
}

impl Value for Name {
    const SYNTAX: &'static str = "charset";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        match word.bytes().strip_prefix(b"$") {
            None => Ok(Self::Known(word.bytes().clone(), word.place())),
            Some([]) => Err(Problem::new("invalid variable name").at(0)),
            Some(name) => {
                let name = String::from_utf8_lossy(name);
                scope.intern(&name, Some(&word.place())).map(Self::Variable)
            }
        }
    }
}

/// The name of a charset, or `off`.
#[derive(Debug, Clone)]
pub struct NameOrOff(pub Option<Name>);

impl Value for NameOrOff {
    const SYNTAX: &'static str = "charset | off";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args[0] == "off" {
            true => Ok(Self(None)),
            false => Name::parse(args, scope).map(|name| Self(Some(name))),
        }
    }
}

directives! {
    /// Charsets of responses.
    pub struct Charset in Location {
        /// Adds this charset to the `Content-Type` of responses, and recodes responses in another charset, for which
        /// there must be a `charset_map`.
        charset: NameOrOff = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        /// Sets the charset of responses that do not name one.
        source_charset: Option<Name> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        /// Also recodes responses of upstream servers that name their charset.
        override_charset: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Sets the media types to which `charset` applies, besides `text/html`; `*` means all.
        charset_types: MediaTypes = "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml",
            [HTTP | SERVER | LOCATION] 1..;
    }
}

impl Charset {
    /// The literal names, each with its place.
    fn names(&self) -> impl Iterator<Item = (&Bytes, &TextPlace)> {
        let names = self.charset.0.iter().chain(&self.source_charset);
        names.filter_map(|name| match name {
            Name::Known(name, place) => Some((name, place)),
            Name::Variable(_) => None,
        })
    }
}

/// Registers the charsets of all locations, and checks that there are maps between those that need one.
///
/// # Errors
/// A map is missing, at the place of the charset.
pub fn settle(charsets: &mut Charsets, locations: &[Location]) -> Result<(), Error> {
    for location in locations {
        for (name, _) in location.own::<Charset>().names() {
            charsets.add(name);
        }
        check(charsets, location.own::<Charset>())?;
    }
    Ok(())
}

fn check(charsets: &Charsets, settings: &Charset) -> Result<(), Error> {
    let (Some(Name::Known(target, place)), Some(Name::Known(source, _))) =
        (&settings.charset.0, &settings.source_charset)
    else {
        return Ok(());
    };
    if source.eq_ignore_ascii_case(target) || charsets.way(source, target).is_some() {
        return Ok(());
    }
    let (source, target) = (
        String::from_utf8_lossy(source),
        String::from_utf8_lossy(target),
    );
    let sentence = format!("no \"charset_map\" between the charsets \"{source}\" and \"{target}\"");
    Err(Error::at(sentence, place))
}

/// The charset that pages made here declare; `None`: none.
#[must_use]
pub fn of_pages(request: &Request) -> Option<Bytes> {
    match request.location().own::<Charset>().charset.0.as_ref()? {
        Name::Known(name, _) => Some(name.clone()),
        Name::Variable(index) => {
            let mut name = Vec::new();
            request
                .append_variable(*index, &mut name)
                .then(|| name.into())
        }
    }
}

/// Whether answers may be recoded at a location.
#[must_use]
pub fn is_on(charsets: &Charsets, location: &Location) -> bool {
    // A part of an answer is recoded whatever server it comes from, and an upstream may name a charset itself.
    charsets.is_any() || location.own::<Charset>().charset.0.is_some()
}

/// Declares the charset of an answer in its head, and has it recoded if necessary.
///
/// # Errors
/// The charset is that of a variable without a value: the connection ends, as in nginx.
pub fn begin(
    request: &mut Request,
    response: &mut Response,
    steps: &mut Steps,
) -> Result<(), Outcome> {
    if !request.settings().made::<Charsets>().is_any()
        && !has_variables(request.location().own::<Charset>())
    {
        tell_hinted(request, response);
        return Ok(());
    }
    let Some(target) = target(request, response)? else {
        return Ok(());
    };
    let own = response.declared_charset();
    let source = match &request.location().own::<Charset>().source_charset {
        _ if !own.is_empty() => own,
        None => {
            say(request, response, target);
            return Ok(());
        }
        Some(name) => value(request, response, &name.clone())?,
    };
    if source.eq_ignore_ascii_case(&target) {
        say(request, response, target);
        return Ok(());
    }
    let charsets = request.settings().made::<Charsets>();
    let is_coded = response
        .content_encoding
        .as_ref()
        .is_some_and(|coding| !coding.is_empty());
    if is_coded && charsets.knows(&source) && charsets.knows(&target) {
        return Ok(());
    }
    let Some(way) = charsets.way(&source, &target).cloned() else {
        log_no_way(request, &source, &target);
        return Ok(());
    };
    say(request, response, target);
    if !matches!(way, Way::Bytes(_)) && !request.is_subrequest() {
        response.content_length = None;
    }
    steps.filter(Recoding(Recoder::new(way)));
    Ok(())
}

/// Tells of the charset that a server names, where the configuration knows none.
pub fn tell_hinted(request: &Request, response: &Response) {
    if let Some(name) = hinted(request, response) {
        log_unknown(request, &name);
    }
}

/// The charset that the server of an answer names (`X-Accel-Charset`); not of a part of another answer.
fn hinted(request: &Request, response: &Response) -> Option<Bytes> {
    let hint = request.charset_hint?;
    match request.is_subrequest() || response.content_type.is_empty() {
        true => None,
        false => hint(request),
    }
}

fn has_variables(settings: &Charset) -> bool {
    matches!(settings.charset.0, Some(Name::Variable(_)))
}

/// The charset for an answer; `None`: it stays as it is.
fn target(request: &mut Request, response: &mut Response) -> Result<Option<Bytes>, Outcome> {
    if request.is_subrequest() {
        let charset = request.whole().map(|whole| whole.charset.clone());
        return Ok(charset.filter(|charset| !charset.is_empty()));
    }
    if response.content_type.is_empty() {
        return Ok(None);
    }
    if let Some(name) = hinted(request, response) {
        if request.settings().made::<Charsets>().knows(&name) {
            return Ok(Some(name));
        }
        log_unknown(request, &name);
        return Ok(None);
    }
    let settings = request.location().own::<Charset>();
    let Some(name) = &settings.charset.0 else {
        return Ok(None);
    };
    let is_meant = match response.declared_charset().is_empty() {
        true => settings.charset_types.has(response),
        false => settings.override_charset,
    };
    if !is_meant {
        return Ok(None);
    }
    let name = name.clone();
    value(request, response, &name).map(Some)
}

fn value(request: &mut Request, response: &Response, name: &Name) -> Result<Bytes, Outcome> {
    match name {
        Name::Known(name, _) => Ok(request
            .settings()
            .made::<Charsets>()
            .name(name)
            .unwrap_or(name)
            .clone()),
        Name::Variable(index) => {
            let mut out = Vec::new();
            let is_set = body_filter::with_head(request, response, |request| {
                request.append_variable(*index, &mut out)
            });
            match is_set {
                true => Ok(out.into()),
                // As in nginx: nothing is declared, and the log has the status that would have been sent.
                false => Err(Outcome::Close(response.status)),
            }
        }
    }
}

/// Declares the charset in the head of the client's answer; not in redirects, as in nginx, since browsers took it for
/// that of the next page.
fn say(request: &Request, response: &mut Response, charset: Bytes) {
    if request.is_subrequest() {
        return;
    }
    let kind = response.media_type().len();
    response.content_type.truncate(kind);
    response.charset = match response.status {
        301 | 302 => Bytes::new(),
        _ => charset,
    };
}

fn log_unknown(request: &Request, name: &[u8]) {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"unknown charset \"");
        out.extend_from_slice(name);
        out.extend_from_slice(b"\" to override");
    });
}

fn log_no_way(request: &Request, source: &[u8], target: &[u8]) {
    let (source, target) = (lossy(source), lossy(target));
    request.log(Level::Error, &|out| {
        let text = "no \"charset_map\" between the charsets";
        out.extend_from_slice(format!("{text} \"{source}\" and \"{target}\"").as_bytes());
    });
}

fn lossy(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

struct Recoding(Recoder);

impl Filter for Recoding {
    fn feed(&mut self, bytes: Bytes, out: &mut Out) -> Result<(), BodyError> {
        out.push(self.0.recode(bytes));
        Ok(())
    }

    fn end(&mut self, _: &mut Out) -> Result<(), BodyError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_of_answers() {
        for (text, charset) in [
            ("text/html", ""),
            ("text/html; charset=utf-8", "utf-8"),
            ("text/html;charset=\"utf-8\"", "utf-8"),
            ("text/html; a=b; Charset=x", "x"),
            ("text/html; a=b", ""),
            ("text/html; charset=", ""),
        ] {
            let mut response = Response::new(200);
            response.content_type = Bytes::from_static(text.as_bytes());
            response.type_declares_charset = true;
            assert_eq!(response.declared_charset(), charset, "{text}");
        }
        let mut response = Response::new(200);
        response.charset = Bytes::from_static(b"y");
        assert_eq!(response.declared_charset(), "y");
    }
}
