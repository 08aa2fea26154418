//! The `X-Accel-…` lines of an upstream's response that redirect the request or limit its rate.
//!
//! Not here: `X-Accel-Expires` (the cache's).

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use bytes::Bytes;
use logs::Level;
use message::{Header, HeaderId, Method, ResponseHead, uri};

use crate::response::set_cookie;
use crate::settings::directives::{IgnoreHeaders, ProxyAnswers, ProxyRewrites};
use crate::settings::family::Family;
use crate::settings::header_set::SINGLE_LINES;
use crate::settings::proxy_pass::PassSettings;
use crate::state::upstream_state::UpstreamState;
use crate::upstream_request::log_context::{LogContext, READING_HEAD};
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;
use httpcore::request::state::State;
use httpcore::settings::Location;
use httpcore::{Failure, Response};

/// The lines kept of a response that redirected the request internally.
#[derive(Debug, Default)]
struct KeptLines {
    content_type: RefCell<Bytes>,
    lines: RefCell<Vec<Header>>,
}

/// Whether this line of a response has no effect.
#[must_use]
pub fn ignores(passing: &PassSettings, line: IgnoreHeaders) -> bool {
    let ignored = passing.groups.answers.proxy_ignore_headers;
    ignored.is_some_and(|ignored| ignored.contains(line))
}

/// The place of the content, and the response's lines that go along.
#[derive(Debug)]
pub struct AccelRedirect {
    /// `None`: there is none.
    target: Option<Target>,
    kept: KeptLines,
}

/// Whether the content of a response is elsewhere, by the headers that a location obeys.
#[must_use]
pub fn has_redirect(passing: &PassSettings, head: &ResponseHead) -> bool {
    head.get(HeaderId::XAccelRedirect).is_some()
        && !ignores(passing, IgnoreHeaders::X_ACCEL_REDIRECT)
}

/// Whether a response may be read ahead of its client, by the location and the response (`X-Accel-Buffering`).
#[must_use]
pub fn is_buffered(location: &Location, head: &ResponseHead) -> bool {
    let settings = location.own::<ProxyAnswers>();
    let ignored = settings.proxy_ignore_headers;
    if ignored.is_some_and(|ignored| ignored.contains(IgnoreHeaders::X_ACCEL_BUFFERING)) {
        return settings.proxy_buffering;
    }
    // As in nginx, the last line that says one of the two words counts.
    let lines = head.get_each(HeaderId::XAccelBuffering);
    lines.fold(settings.proxy_buffering, |is_buffered, value| {
        let says = |word: &[u8]| value.eq_ignore_ascii_case(word);
        says(b"yes") || is_buffered && !says(b"no")
    })
}

/// Lifts every rate from a response that is not buffered, as nginx does: what a server says is passed on at once. Called
/// for the response that the client gets, after [`obey`]: where an error page or another location has the content, a
/// rate of the server holds.
pub fn free_unbuffered(request: &Request, passing: &PassSettings, head: &ResponseHead) {
    if passing.family == Family::Grpc || !is_buffered(request.location(), head) {
        request.limit_rate.set(Some(0));
    }
}

/// `X-Accel-Redirect`: whether the content is elsewhere. `is_cached`: the response belongs to a cache.
#[must_use]
pub fn redirect(
    request: &Request,
    passing: &PassSettings,
    head: &ResponseHead,
    is_cached: bool,
) -> Option<AccelRedirect> {
    let mut fields = head.fields.iter();
    let field = fields.find(|field| field.id == HeaderId::XAccelRedirect)?;
    if ignores(passing, IgnoreHeaders::X_ACCEL_REDIRECT) {
        return None;
    }
    let place = head.part(field.value);
    let target = if place.starts_with(b"@") {
        Some(Target::Named(place))
    } else if let Some((path, args)) = uri::safe(&place) {
        Some(Target::Uri(path.into(), Bytes::copy_from_slice(args)))
    } else {
        tell_unsafe(request, &place);
        None
    };
    Some(AccelRedirect {
        target,
        kept: kept(request, head, is_cached),
    })
}

/// Tells of a place that leads out of the site, with the server that named it, unless a cache did.
fn tell_unsafe(request: &Request, place: &[u8]) {
    let what = format!(
        "unsafe URI \"{}\" was detected",
        String::from_utf8_lossy(place)
    );
    let context = LogContext::new(request);
    let state = request.states.get::<UpstreamState>();
    match state.and_then(|state| state.redirected_by.take()) {
        Some(upstream) => context.log(Level::Error, &what, READING_HEAD, &upstream),
        None => context.log_alone(Level::Error, &what),
    }
}

/// Redirects the request to the content.
pub fn follow(
    request: &mut Request,
    mut redirect: AccelRedirect,
    cookie: Option<Bytes>,
) -> Outcome {
    let cookie = cookie.map(|cookie| Header::new("Set-Cookie", cookie));
    redirect.kept.lines.get_mut().splice(0..0, cookie);
    if let Some(before) = request.states.take::<KeptLines>() {
        redirect.kept.follow(&before);
    }
    request.states.put(Rc::new(redirect.kept));
    let Some(target) = redirect.target else {
        return Outcome::Failed(Failure::new(404));
    };
    if let Target::Uri(..) = &target {
        request.args = None;
        if request.method != Method::Head {
            request.method = Method::Get;
        }
    }
    Outcome::Redirect(target)
}

impl KeptLines {
    /// Adds those of an earlier response, which led to this one: of what stands once the later one's counts.
    fn follow(&mut self, before: &KeptLines) {
        if self.content_type.get_mut().is_empty() {
            self.content_type = before.content_type.take().into();
        }
        let lines = self.lines.get_mut();
        let mut earlier = before.lines.take();
        earlier.retain(|line| adds_up(line) || !lines.iter().any(|own| own.is(&line.name)));
        lines.splice(0..0, earlier);
    }
}

/// Whether all lines of several responses are sent: what one of them forbids is forbidden.
fn adds_up(line: &Header) -> bool {
    line.is(b"Set-Cookie") || line.is(b"Cache-Control")
}

impl State for KeptLines {
    /// Nothing is said of the content's type, nor, where its page is our own, of ranges.
    fn covered(&self, is_own: bool) {
        self.content_type.take();
        self.lines
            .borrow_mut()
            .retain(|line| !is_own || !line.is(b"Accept-Ranges"));
    }
}

fn kept(request: &Request, head: &ResponseHead, is_cached: bool) -> KeptLines {
    let rewrites = request.location().own::<ProxyRewrites>();
    let forces_ranges = request.location().own::<ProxyAnswers>().proxy_force_ranges;
    let (mut content_type, mut lines) = (Bytes::new(), Vec::new());
    let mut seen = 0;
    for field in &head.fields {
        // It is in the log already that a further line is ignored.
        if seen & field.id.bit() & SINGLE_LINES != 0 {
            continue;
        }
        seen |= field.id.bit();
        match field.id {
            // As in nginx: where ranges are made here, they are the content's own.
            HeaderId::AcceptRanges if forces_ranges || is_cached => {}
            HeaderId::ContentType => content_type = head.part(field.value),
            HeaderId::SetCookie => {
                let value = head.part(field.value);
                let moved = set_cookie::rewrite(request, rewrites, &value);
                let line = Header::new(head.part(field.name), moved.unwrap_or(value));
                lines.push(line);
            }
            HeaderId::ContentDisposition
            | HeaderId::CacheControl
            | HeaderId::Expires
            | HeaderId::AcceptRanges => {
                let line = Header::new(head.part(field.name), head.part(field.value));
                lines.push(line);
            }
            _ => {}
        }
    }
    KeptLines {
        content_type: content_type.into(),
        lines: lines.into(),
    }
}

/// Puts the lines kept of an earlier response into the one that replaced it.
pub fn give(request: &mut Request, response: &mut Response) {
    let Some(kept) = request.states.take::<KeptLines>() else {
        return;
    };
    let content_type = kept.content_type.take();
    let is_passed_on = request.location().made::<PassSettings>().is_some();
    // Another server's own type takes precedence.
    let is_its = match is_passed_on {
        true => response.content_type.is_empty(),
        false => response.status < 300,
    };
    if !content_type.is_empty() && is_its {
        give_type(response, content_type);
    }
    let mut lines = kept.lines.take();
    // The current response's own lines take precedence.
    lines.retain(|line| adds_up(line) || response.headers.get(&line.name).is_none());
    // No ranges of a redirect or a failure's page.
    if response.status >= 300 {
        lines.retain(|line| !line.is(b"Accept-Ranges"));
    }
    // A range that the content does not have makes another response of it, with the same lines.
    if response.status == 200 && request.head.get(HeaderId::Range).is_some() {
        request.states.put(Rc::new(KeptLines {
            content_type: RefCell::default(),
            lines: lines.clone().into(),
        }));
    }
    response.headers.prepend(lines);
}

/// Gives a response the type kept of an earlier one. As in nginx, where the content's maker names the type, only the charset
/// is taken.
fn give_type(response: &mut Response, content_type: Bytes) {
    let own = mem::replace(&mut response.content_type, content_type);
    let declares = mem::replace(&mut response.type_declares_charset, true);
    if !response.names_type {
        return;
    }
    let charset = response.declared_charset();
    response.content_type = own;
    response.type_declares_charset = declares;
    if response.declared_charset().is_empty() {
        response.charset = charset;
    }
}

/// `X-Accel-Limit-Rate`.
pub fn obey(request: &Request, passing: &PassSettings, head: &ResponseHead) {
    if let Some(rate) = head.get(HeaderId::XAccelLimitRate)
        && !ignores(passing, IgnoreHeaders::X_ACCEL_LIMIT_RATE)
        && let Some(rate) = config::parse_number(rate)
    {
        request.limit_rate.set(Some(rate));
    }
}
