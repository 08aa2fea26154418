//! From an answer's head, as a server or a cache gives it, to our response.
//!
//! Not here: how the answer was had. Invariant: what a response says of its end is its body's own; no line that was for this hop
//! alone is passed on.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use disk::OpenFile;
use message::response::Ranges;
use message::{Body, ETag, HeaderId, Hops, ResponseFraming, ResponseHead, date};

use crate::Response;
use crate::request::Request;
use crate::respond::Outcome;

use super::passing::Passing;
use super::record::Passed;

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From a server, and it is not cached.
    Server,
    /// From a server, and it goes into a cache: conditions and single ranges are answered here.
    Fill,
    /// From a cache: conditions and ranges are answered here.
    Cache,
}

/// Lines of which only the first one counts.
const SINGLE_LINES: u64 = HeaderId::ContentType.bit()
    | HeaderId::Date.bit()
    | HeaderId::LastModified.bit()
    | HeaderId::ETag.bit()
    | HeaderId::Server.bit()
    | HeaderId::Location.bit()
    | HeaderId::Refresh.bit()
    | HeaderId::Expires.bit()
    | HeaderId::XAccelExpires.bit()
    | HeaderId::XAccelRedirect.bit();

/// Makes the response for the client.
pub fn shape(
    request: &mut Request,
    head: Box<ResponseHead>,
    body: Body<Rc<OpenFile>>,
    origin: Origin,
) -> Outcome {
    let Some(passing) = request.location().passing.clone() else {
        return Outcome::Failed(crate::Failure::new(500));
    };
    let passed = request.passed.get_or_insert_with(Box::<Passed>::default);
    let record = Rc::clone(&passed.record);
    let bond = record.bond.take();
    let cookie = bond.as_ref().and_then(|bond| bond.cookie(request));
    let response = copy(&passing, &head, body, origin, cookie);
    if let Some(passed) = &mut request.passed {
        passed.head = Some(head);
    }
    if let Some(bond) = bond {
        bond.learn(request, &record);
    }
    Outcome::Answer(response)
}

fn copy(
    passing: &Arc<Passing>,
    head: &ResponseHead,
    body: Body<Rc<OpenFile>>,
    origin: Origin,
    cookie: Option<Bytes>,
) -> Box<Response> {
    let mut response = Box::new(Response::new(head.status));
    if let Some(cookie) = cookie {
        response.headers.push("Set-Cookie", cookie);
    }
    response.status_line = (!head.status_line.is_empty()).then(|| head.part(head.status_line));
    response.content_length = match head.framing {
        ResponseFraming::Length(length) => Some(length),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
    };
    response.body = body;
    response.conditional = origin != Origin::Server;
    let hops = Hops::new(head.get_each(HeaderId::Connection));
    let mut copying = Copying {
        origin,
        response: &mut response,
    };
    let mut seen = 0;
    for field in &head.fields {
        let name = field.name.of(&head.bytes);
        if seen & field.id.bit() & SINGLE_LINES != 0 {
            continue;
        }
        seen |= field.id.bit();
        let is_hidden = passing.hidden.has(name, field.id);
        if !is_hidden && !hops.ends_here(name, field.id) {
            copying.line(field.id, head.part(field.name), head.part(field.value));
        }
    }
    response
}

struct Copying<'a> {
    origin: Origin,
    response: &'a mut Response,
}

impl Copying<'_> {
    fn line(&mut self, id: HeaderId, name: Bytes, value: Bytes) {
        let response = &mut *self.response;
        match id {
            HeaderId::ContentLength => {}
            // With its charset, if it names one, as it came.
            HeaderId::ContentType => response.content_type = value,
            HeaderId::LastModified => self.last_modified(name, value),
            HeaderId::ETag => response.etag = Some(ETag::Text(value)),
            HeaderId::ContentEncoding if response.content_encoding.is_none() => {
                response.content_encoding = Some(value);
            }
            HeaderId::AcceptRanges if self.origin != Origin::Server => {
                response.ranges = match self.origin {
                    Origin::Cache => Ranges::Allowed,
                    _ => Ranges::Single,
                };
            }
            _ => response.headers.push(name, value),
        }
    }

    /// One that is written as it came has a place of its own, since conditions and ranges ask for it.
    fn last_modified(&mut self, name: Bytes, value: Bytes) {
        let parsed = date::parse(&value);
        let is_plain = parsed.is_some_and(|time| date::format(time)[..] == value[..]);
        if is_plain && matches!(self.response.status, 200 | 206 | 304) {
            self.response.last_modified = parsed;
        } else {
            self.response.headers.push(name, value);
        }
    }
}
