//! From the head of a response, as an upstream server or a cache gives it, to our response.
//!
//! Not here: where the head came from. Invariant: how a response ends is said by its own body; no line of a single hop
//! is passed on.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use disk::OpenFile;
use message::response::{ClientAbort, Ranges};
use message::{Body, ETag, Header, HeaderId, HopByHop, ResponseFraming, ResponseHead};

use crate::response::{accel, set_cookie};
use crate::settings::directives::IgnoreHeaders;
use crate::settings::family::Family;
use crate::settings::header_set::SINGLE_LINES;
use crate::settings::proxy_pass::PassSettings;
use crate::settings::proxy_redirect;
use crate::state::upstream_state::{self, UpstreamState};
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::{Failure, Response};

/// The origin of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A server; the response is not cached.
    Server,
    /// A server; the response goes into a cache: conditions and single ranges are evaluated here.
    Fill,
    /// A server that was not sent the client's conditions, and whose response is for this client alone: they are
    /// evaluated here.
    Private,
    /// A cache: conditions and ranges are evaluated here.
    Cache,
}

/// Makes the response for the client, or returns where else its content is.
pub(crate) fn shape(
    request: &mut Request,
    passing: &PassSettings,
    head: Arc<ResponseHead>,
    body: Body<Rc<OpenFile>>,
    origin: Origin,
) -> Outcome {
    upstream_state::of(request);
    let state = request.states.share::<UpstreamState>().unwrap_or_default();
    *state.head.borrow_mut() = Some(head);
    let cookie = state.take_bound(request);
    // From here on `$upstream_http_…` has a value.
    let asked: &Request = request;
    let head = state.head.borrow();
    let Some(head) = &*head else {
        return Outcome::Failed(Failure::new(500));
    };
    accel::obey(asked, passing, head);
    let ignores_charset = accel::ignores(passing, IgnoreHeaders::X_ACCEL_CHARSET);
    state.ignores_charset.set(ignores_charset);
    if let Some(mut failure) = intercepted(asked, passing, head) {
        drop(body);
        state.forget_body();
        let cookie = cookie.map(|cookie| Header::new("Set-Cookie", cookie));
        failure.headers.splice(0..0, cookie);
        return Outcome::Failed(failure);
    }
    if let Some(redirect) = accel::redirect(asked, passing, head, origin != Origin::Server) {
        drop(body);
        state.forget_body();
        return accel::follow(request, redirect, cookie);
    }
    if origin != Origin::Cache {
        accel::free_unbuffered(asked, passing, head);
    }
    let response = copy(asked, passing, head, body, origin, cookie);
    Outcome::Answer(response)
}

/// The response that a head becomes, without its body.
fn preview(request: &Request, passing: &PassSettings, head: &ResponseHead) -> Box<Response> {
    copy(request, passing, head, Body::Empty, Origin::Fill, None)
}

/// Adds the lines of the last response, from a server or the cache, to the failure of its range. As in nginx they stay: what an
/// application says of other sites' access holds for failures, too.
pub fn keep_lines(request: &Request, failure: &mut Failure) {
    const OF_CONTENT: [&[u8]; 4] = [
        b"Accept-Ranges",
        b"Content-Encoding",
        b"Content-Range",
        b"Last-Modified",
    ];
    let Some(passing) = request.location().made::<PassSettings>() else {
        return;
    };
    upstream_state::read_last_head(request, |head| {
        let response = preview(request, passing, head);
        let lines = response.headers.iter();
        let lines = lines.filter(|line| !OF_CONTENT.iter().any(|name| line.is(name)));
        failure.headers.extend(lines.cloned());
        true
    });
}

/// Looks at a response's head before the response is the request's. Both have their values meanwhile: the variables of the
/// server's response (`$upstream_http_…`), and those of the client's (`$sent_http_…`).
pub(crate) fn with_head<R>(
    request: &mut Request,
    passing: &PassSettings,
    head: &Arc<ResponseHead>,
    look: impl FnOnce(&mut Request) -> R,
) -> R {
    let shown = preview(request, passing, head);
    let state = upstream_state::of(request);
    let before = state.head.replace(Some(Arc::clone(head)));
    let response = request.response.replace(shown);
    let seen = look(request);
    request.response = response;
    *upstream_state::of(request).head.borrow_mut() = before;
    seen
}

/// Whether an error page, or content that is elsewhere, is to replace the response with this head.
pub(crate) fn is_replaced(request: &Request, passing: &PassSettings, head: &ResponseHead) -> bool {
    intercepted(request, passing, head).is_some() || accel::has_redirect(passing, head)
}

/// A response that an error page is to replace (`proxy_intercept_errors`).
fn intercepted(request: &Request, passing: &PassSettings, head: &ResponseHead) -> Option<Failure> {
    let location = request.location();
    if head.status < 300 || !passing.groups.answers.proxy_intercept_errors {
        return None;
    }
    let pages = location.settings.error_pages.error_page.as_ref()?;
    if !pages.0.iter().any(|page| page.status == head.status) {
        return None;
    }
    let mut failure = Failure::new(head.status);
    if head.status == 401 {
        let challenges = head.fields.iter();
        let challenges = challenges.filter(|field| field.id == HeaderId::WwwAuthenticate);
        let lines =
            challenges.map(|field| Header::new(head.part(field.name), head.part(field.value)));
        failure.headers.extend(lines);
    }
    Some(failure)
}

fn copy(
    request: &Request,
    passing: &PassSettings,
    head: &ResponseHead,
    body: Body<Rc<OpenFile>>,
    origin: Origin,
    cookie: Option<Bytes>,
) -> Box<Response> {
    let mut response = Response::boxed(head.status);
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
    let ignores_abort = passing.groups.asking.proxy_ignore_client_abort;
    // A fill goes on for the cache.
    let goes_on = matches!(origin, Origin::Fill | Origin::Cache);
    response.client_abort = match goes_on || ignores_abort {
        true => ClientAbort::Ignored,
        false => ClientAbort::EndsBody,
    };
    let forces_ranges = passing.groups.answers.proxy_force_ranges;
    if forces_ranges {
        response.ranges = ranges(origin);
    }
    let hop_by_hop = HopByHop::new(head.get_each(HeaderId::Connection));
    let mut copy = HeadCopy {
        request,
        passing,
        origin,
        forces_ranges,
        response: &mut response,
    };
    // A gateway's program speaks for this server, which names itself where the program does not.
    if matches!(passing.family, Family::Proxy | Family::Grpc) {
        copy.response.omits_server = !passing.hidden.has(b"Server", HeaderId::Server);
        copy.response.omits_date = !passing.hidden.has(b"Date", HeaderId::Date);
    }
    let mut seen = 0;
    for field in &head.fields {
        let name = field.name.of(&head.bytes);
        if seen & field.id.bit() & SINGLE_LINES != 0 {
            continue;
        }
        seen |= field.id.bit();
        let is_hidden = passing.hidden.has(name, field.id);
        // An upgrade, or a request for one, concerns the client.
        let is_upgrade = field.id == HeaderId::Upgrade && matches!(head.status, 101 | 426);
        if !is_hidden && (is_upgrade || !hop_by_hop.contains(name, field.id)) {
            copy.line(field.id, head.part(field.name), head.part(field.value));
        }
    }
    response
}

/// The ranges that a response of this origin may be cut into.
pub(crate) fn ranges(origin: Origin) -> Ranges {
    match origin {
        Origin::Cache => Ranges::Allowed,
        Origin::Server | Origin::Fill | Origin::Private => Ranges::Single,
    }
}

struct HeadCopy<'a> {
    request: &'a Request,
    passing: &'a PassSettings,
    forces_ranges: bool,
    origin: Origin,
    response: &'a mut Response,
}

impl HeadCopy<'_> {
    fn line(&mut self, id: HeaderId, name: Bytes, value: Bytes) {
        let response = &mut *self.response;
        match id {
            HeaderId::ContentLength => {}
            // With its charset, if it names one, unchanged.
            HeaderId::ContentType => {
                response.content_type = value;
                response.type_declares_charset = true;
            }
            HeaderId::LastModified => response.set_last_modified(name, value),
            HeaderId::ETag => response.etag = Some(ETag::Text(value)),
            // Of several lines the last one counts for filters, as in nginx.
            HeaderId::ContentEncoding => {
                if let Some(before) = response.content_encoding.replace(value) {
                    response.headers.push("Content-Encoding", before);
                }
            }
            HeaderId::AcceptRanges if self.forces_ranges => {}
            HeaderId::AcceptRanges if self.origin != Origin::Server => {
                response.ranges = ranges(self.origin);
            }
            HeaderId::Location => self.location(name, value),
            HeaderId::Refresh => {
                let moved = proxy_redirect::refresh(self.request, &self.passing.redirects, &value);
                response.headers.push(name, moved.unwrap_or(value));
            }
            HeaderId::SetCookie => {
                let settings = &self.passing.groups.rewrites;
                let moved = set_cookie::rewrite(self.request, settings, &value);
                response.headers.push(name, moved.unwrap_or(value));
            }
            _ => response.headers.push(name, value),
        }
    }

    /// A redirect within the server is completed only where a rule led to it; all others keep their place.
    fn location(&mut self, name: Bytes, value: Bytes) {
        let rules = &self.passing.redirects;
        match proxy_redirect::location(self.request, rules, &value) {
            Some(moved) if moved.starts_with(b"/") => self.response.location = Some(moved),
            moved => self.response.headers.push(name, moved.unwrap_or(value)),
        }
    }
}
