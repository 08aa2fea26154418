//! The `X-Accel-…` lines of an upstream's response that redirect the request or limit its rate.
//!
//! Not here: `X-Accel-Expires` (the cache's).

use bytes::Bytes;
use logs::Level;
use message::{Header, HeaderId, Method, ResponseHead, uri};

use crate::outcome::{Outcome, Target};
use crate::request::Request;
use crate::settings::Location;
use crate::{Failure, Response};

use super::directives::IgnoreHeaders;
use super::{cookies, variables};

/// The lines kept of a response that redirected the request internally.
#[derive(Debug, Default)]
pub struct Kept {
    content_type: Bytes,
    lines: Vec<Header>,
}

/// Whether this line of a response has no effect.
#[must_use]
pub fn ignores(request: &Request, line: IgnoreHeaders) -> bool {
    let ignored = request
        .location()
        .settings
        .proxy_answers
        .proxy_ignore_headers;
    ignored.is_some_and(|ignored| ignored.contains(line))
}

/// `X-Accel-Charset`: the charset that the last response names; `None`: none.
#[must_use]
pub fn charset(request: &Request) -> Option<Bytes> {
    let mut name = Vec::new();
    let is_charset = |field: &[u8]| field.eq_ignore_ascii_case(b"X-Accel-Charset");
    let passed = request.passed.as_ref()?;
    let is_told = variables::lines(request, is_charset, &mut name) && !name.is_empty();
    (is_told && !passed.record.ignores_charset.get()).then(|| name.into())
}

/// The place of the content, and the response's lines that go along.
#[derive(Debug)]
pub struct Elsewhere {
    /// `None`: there is none.
    target: Option<Target>,
    kept: Kept,
}

/// Whether the content of a response is elsewhere, by the headers that a location obeys.
#[must_use]
pub fn leads_elsewhere(location: &Location, head: &ResponseHead) -> bool {
    let ignored = location.settings.proxy_answers.proxy_ignore_headers;
    head.get(HeaderId::XAccelRedirect).is_some()
        && !ignored.is_some_and(|ignored| ignored.contains(IgnoreHeaders::X_ACCEL_REDIRECT))
}

/// Whether a response may be read ahead of its client, by the location and the response (`X-Accel-Buffering`).
#[must_use]
pub fn is_buffered(location: &Location, head: &ResponseHead) -> bool {
    let settings = &location.settings.proxy_answers;
    let ignored = settings.proxy_ignore_headers;
    match head.get(HeaderId::XAccelBuffering) {
        Some(value)
            if !ignored
                .is_some_and(|ignored| ignored.contains(IgnoreHeaders::X_ACCEL_BUFFERING)) =>
        {
            let says = |word: &[u8]| value.eq_ignore_ascii_case(word);
            says(b"yes") || !says(b"no") && settings.proxy_buffering
        }
        _ => settings.proxy_buffering,
    }
}

/// `X-Accel-Redirect`: whether the content is elsewhere.
#[must_use]
pub fn elsewhere(request: &Request, head: &ResponseHead) -> Option<Elsewhere> {
    let mut fields = head.fields.iter();
    let field = fields.find(|field| field.id == HeaderId::XAccelRedirect)?;
    if ignores(request, IgnoreHeaders::X_ACCEL_REDIRECT) {
        return None;
    }
    let place = head.part(field.value);
    let target = if place.starts_with(b"@") {
        Some(Target::Named(place))
    } else if let Some((path, args)) = uri::safe(&place) {
        Some(Target::Uri(path.into(), Bytes::copy_from_slice(args)))
    } else {
        request.log(Level::Error, &|out| {
            out.extend_from_slice(b"unsafe URI \"");
            out.extend_from_slice(&place);
            out.extend_from_slice(b"\" was detected");
        });
        None
    };
    Some(Elsewhere {
        target,
        kept: kept(request, head),
    })
}

/// Redirects the request to the content.
pub fn follow(request: &mut Request, mut elsewhere: Elsewhere, cookie: Option<Bytes>) -> Outcome {
    let cookie = cookie.map(|cookie| Header::new("Set-Cookie", cookie));
    elsewhere.kept.lines.splice(0..0, cookie);
    request.kept = Some(Box::new(elsewhere.kept));
    let Some(target) = elsewhere.target else {
        return Outcome::Failed(Failure::new(404));
    };
    if let Target::Uri(_, args) = &target {
        request.has_args = !args.is_empty();
        if request.method != Method::Head {
            request.method = Method::Get;
        }
    }
    Outcome::Redirect(target)
}

impl Kept {
    /// A failure replaces the content: nothing is said of its type, nor, where its page is our own, of ranges.
    pub fn forget_content(&mut self, is_page_own: bool) {
        self.content_type = Bytes::new();
        self.lines
            .retain(|line| !is_page_own || !line.is(b"Accept-Ranges"));
    }
}

fn kept(request: &Request, head: &ResponseHead) -> Kept {
    let rewrites = &request.location().settings.proxy_rewrites;
    let mut kept = Kept::default();
    for field in &head.fields {
        match field.id {
            HeaderId::ContentType if kept.content_type.is_empty() => {
                kept.content_type = head.part(field.value);
            }
            HeaderId::SetCookie => {
                let value = head.part(field.value);
                let moved = cookies::rewrite(request, rewrites, &value);
                let line = Header::new(head.part(field.name), moved.unwrap_or(value));
                kept.lines.push(line);
            }
            HeaderId::ContentDisposition
            | HeaderId::CacheControl
            | HeaderId::Expires
            | HeaderId::AcceptRanges => {
                let line = Header::new(head.part(field.name), head.part(field.value));
                kept.lines.push(line);
            }
            _ => {}
        }
    }
    kept
}

/// Puts the lines kept of an earlier response into the one that replaced it.
pub fn give(kept: Kept, response: &mut Response, is_passed_on: bool) {
    if !kept.content_type.is_empty() && !is_passed_on && response.status < 300 {
        response.content_type = kept.content_type;
    }
    let mut lines = kept.lines;
    // The current response's own lines take precedence.
    lines.retain(|line| line.is(b"Set-Cookie") || response.headers.get(&line.name).is_none());
    // No ranges of a redirect or a failure's page.
    if response.status >= 300 {
        lines.retain(|line| !line.is(b"Accept-Ranges"));
    }
    response.headers.prepend(lines);
}

/// `X-Accel-Limit-Rate`.
pub fn obey(request: &Request, head: &ResponseHead) {
    if let Some(rate) = head.get(HeaderId::XAccelLimitRate)
        && !ignores(request, IgnoreHeaders::X_ACCEL_LIMIT_RATE)
        && let Some(rate) = std::str::from_utf8(rate)
            .ok()
            .and_then(|text| text.parse().ok())
    {
        request.rare().limit_rate.set(Some(rate));
    }
}
