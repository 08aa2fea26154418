//! Changes response headers.
//!
//! Not here: when this is done (see [`crate::after`]). Invariant: a field that a response keeps in a place of its own
//! is in that place only, not in the list.

use bytes::Bytes;
use message::response::Ranges;
use message::{ETag, HeaderId};

use super::{Change, Command, HeadersMore, Mode, parse};
use httpcore::Response;
use httpcore::request::Request;

/// Obeys the lines, in their order, for the request's response, which is there: values may look at what was changed before.
pub fn apply(request: &mut Request, settings: &HeadersMore) {
    for command in settings.output.iter() {
        if !request
            .response
            .as_ref()
            .is_some_and(|response| command.is_for(response))
        {
            continue;
        }
        for change in &command.changes {
            let value = change.value.as_ref().map(|value| request.evaluate(value));
            if let Some(response) = &mut request.response {
                change.obey(response, value.unwrap_or_default());
            }
        }
    }
}

impl Command {
    fn is_for(&self, response: &Response) -> bool {
        let bare = response.media_type();
        let is_type = self.types.is_empty() || self.types.iter().any(|known| known[..] == *bare);
        is_type && (self.statuses.is_empty() || self.statuses.contains(&response.status))
    }
}

impl Change {
    /// Gives a response the value; an empty one removes.
    fn obey(&self, response: &mut Response, value: Bytes) {
        if self.is_prefix {
            return self.obey_prefix(response, value);
        }
        if parse::is_of_framing(self) {
            return;
        }
        if self.mode == Mode::Append {
            if !value.is_empty() {
                response.headers.push(self.name.clone(), value);
            }
            return;
        }
        match HeaderId::find(&self.name) {
            HeaderId::ContentType => set_type(response, value),
            HeaderId::ContentLength => response.content_length = None,
            HeaderId::LastModified => {
                response.headers.remove(b"Last-Modified");
                response.set_last_modified(Bytes::from_static(b"Last-Modified"), value);
            }
            HeaderId::ETag => response.etag = (!value.is_empty()).then_some(ETag::Text(value)),
            HeaderId::ContentEncoding => {
                response.content_encoding = (!value.is_empty()).then_some(value);
            }
            HeaderId::AcceptRanges => set_accept_ranges(response, value),
            HeaderId::Location => {
                response.headers.remove(b"Location");
                response.location = (!value.is_empty()).then_some(value);
            }
            id => {
                response.omits_server |= id == HeaderId::Server && value.is_empty();
                response.omits_date |= id == HeaderId::Date && value.is_empty();
                self.replace(response, value);
            }
        }
    }

    /// In the list: the first of the name gets the value, the others go.
    fn replace(&self, response: &mut Response, value: Bytes) {
        if value.is_empty() {
            response.headers.remove(&self.name);
        } else {
            response.headers.replace(self.name.clone(), value);
        }
    }

    /// Every header whose name begins so; of several the first keeps a value.
    fn obey_prefix(&self, response: &mut Response, value: Bytes) {
        let fits = |name: &[u8]| {
            let start = name.get(..self.name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(&self.name))
        };
        let mut value = Some(value).filter(|value| !value.is_empty());
        response.headers.retain_mut(|header| {
            !fits(&header.name) || value.take().map(|value| header.value = value).is_some()
        });
        if fits(b"ETag") {
            response.etag = None;
        }
        if fits(b"Last-Modified") {
            response.last_modified = None;
        }
        if fits(b"Location") {
            response.location = None;
        }
        if fits(b"Content-Encoding") {
            response.content_encoding = None;
        }
    }
}

/// The media type; a charset in it takes the place of the one that there is, which else stays.
fn set_type(response: &mut Response, value: Bytes) {
    response.headers.remove(b"Content-Type");
    let (bare, charset) = parts(&value);
    let known = response.declared_charset();
    response.charset = charset.map_or(known, |charset| value.slice_ref(charset));
    response.content_type = value.slice_ref(bare);
    response.type_declares_charset = true;
}

/// A media type without its charset, and that; other parameters are part of the type.
fn parts(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    const NAME: &[u8] = b"charset=";
    let Some(at) = text.iter().position(|byte| *byte == b';') else {
        return (text, None);
    };
    let rest = text[at + 1..].trim_ascii_start();
    match rest.get(..NAME.len()) {
        Some(name) if name.eq_ignore_ascii_case(NAME) => {
            let charset = &rest[NAME.len()..];
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            let charset = charset.strip_suffix(b"\"").unwrap_or(charset);
            (&text[..at], Some(charset))
        }
        _ => (text, None),
    }
}

/// Sets `Accept-Ranges`: `bytes` is left to the step for ranges, any other value refuses them.
fn set_accept_ranges(response: &mut Response, value: Bytes) {
    if !value.eq_ignore_ascii_case(b"bytes") || response.ranges == Ranges::Refused {
        response.refuse_ranges();
        if !value.is_empty() {
            response.headers.push("Accept-Ranges", value);
        }
    }
}
