//! Turns a failure into a response: by the location's error pages, else by the built-in page.
//!
//! This happens nowhere else. Not here: the directives ([`crate::settings::error_pages`]). nginx-drop-in 33 and 43.

use std::rc::Rc;

use bytes::Bytes;
use message::escape::Escape;
use message::{Body, HeaderId, Method};

use crate::error_text;
use crate::outcome::Target;
use crate::request::Request;
use crate::settings::error_pages::{Overwrite, Page};
use crate::user_agent::Browser;
use crate::{Failure, Response};

/// The result of a failure.
pub enum Cover {
    /// An error page of the configuration.
    Redirect(Target),
    /// The built-in page.
    Answer(Box<Response>),
    /// Nothing: the connection is closed, and logs show this status.
    Close(u16),
}

/// Turns a failure into a response or a redirect to an error page.
pub fn cover(request: &mut Request, failure: Failure) -> Cover {
    let status = failure.status;
    // Also of a part that would be closed: its page goes on, as in nginx.
    if let Some(stub) = request.take_stub() {
        return Cover::Answer(stub);
    }
    if matches!(status, 408 | 444 | 499) {
        return Cover::Close(status);
    }
    request.error_status = Some(error_text::on_the_wire(status));
    if matches!(status, 400 | 413 | 414 | 495 | 496 | 497 | 500 | 501) {
        request.transport.close_after_response();
    }
    let page = chosen(request, status);
    request.tell_covered(page.is_none());
    if let Some(page) = page {
        return show(request, &page, failure);
    }
    if status == 304 || status == 204 {
        return Cover::Answer(Response::boxed(status));
    }
    Cover::Answer(built_in(request, failure))
}

/// The configured page for `status`, if the request may still take one.
fn chosen(request: &mut Request, status: u16) -> Option<Page> {
    if request.error_page_taken {
        return None;
    }
    let settings = &request.location().settings.error_pages;
    let pages = settings.error_page.as_ref()?;
    let page = pages.0.iter().find(|page| page.status == status).cloned();
    if !settings.recursive_error_pages {
        request.error_page_taken = true;
    }
    page
}

fn show(request: &mut Request, page: &Page, failure: Failure) -> Cover {
    match page.overwrite {
        Overwrite::Keep => {}
        Overwrite::Answer => request.error_status = None,
        Overwrite::Code(code) => request.error_status = Some(code),
    }
    // Before the target is evaluated, which may name them (`$sent_http_location`).
    request.keep_lines(failure);
    let target = request.evaluate(&page.target);
    match target.first() {
        Some(b'/') => {
            if request.method != Method::Head {
                request.method = Method::Get;
            }
            let (uri, args) = split_args(&target);
            if page.target.literal().is_none() || target.contains(&b'?') {
                request.args.get_or_insert_default();
            } else {
                request.args = None;
            }
            Cover::Redirect(Target::Uri(uri, args))
        }
        Some(b'@') => Cover::Redirect(Target::Named(target)),
        _ => {
            let status = match page.overwrite {
                Overwrite::Code(code @ (301 | 302 | 303 | 307 | 308)) => code,
                _ => 302,
            };
            request.error_status = Some(status);
            let kept = request.take_kept_lines();
            let away = Failure {
                headers: kept.headers,
                varies: kept.varies,
                ..Failure::redirect(status, target)
            };
            // As in nginx, whatever the redirect's status.
            Cover::Answer(match refreshed(request, &away) {
                Some(page) => page,
                None => built_in(request, away),
            })
        }
    }
}

/// Cuts a target at its first `?`.
#[must_use]
pub fn split_args(target: &Bytes) -> (Bytes, Bytes) {
    match memchr::memchr(b'?', target) {
        Some(at) => (target.slice(..at), target.slice(at + 1..)),
        None => (target.clone(), Bytes::new()),
    }
}

fn built_in(request: &mut Request, failure: Failure) -> Box<Response> {
    let generation = Rc::clone(&request.generation);
    let settings = &generation.settings.location(request.location).settings;
    if matches!(failure.status, 301 | 302)
        && let Some(page) = refreshed(request, &failure)
    {
        return page;
    }
    let is_padded = settings.error_pages.msie_padding
        && matches!(
            browser(request),
            Browser::Msie | Browser::Msie6 | Browser::Chrome
        );
    let page = error_text::page(failure.status, settings.identity.signature(), is_padded);
    let mut response = Response::boxed(error_text::on_the_wire(failure.status));
    if let Some(page) = page {
        response.content_type = Bytes::from_static(b"text/html");
        response.content_length = Some(page.len() as u64);
        response.body = Body::bytes(page);
    } else {
        response.content_length = Some(0);
    }
    response.location = failure.location;
    response.vary_accept_encoding = failure.varies;
    for header in failure.headers {
        response.headers.push(header.name, header.value);
    }
    response
}

fn browser(request: &Request) -> Browser {
    Browser::of(request.head.get(HeaderId::UserAgent).unwrap_or_default())
}

/// The page that stands in for a redirect, if its client gets one (`msie_refresh`).
fn refreshed(request: &mut Request, failure: &Failure) -> Option<Box<Response>> {
    let location = failure.location.as_ref()?;
    let is_wanted = request.location().settings.error_pages.msie_refresh;
    if !is_wanted || !browser(request).is_msie() {
        return None;
    }
    // It is a page like any other.
    request.error_status = None;
    Some(Box::new(refresh(location)))
}

/// The page for MSIE that stands in for a redirect (`msie_refresh`).
fn refresh(location: &Bytes) -> Response {
    let mut page = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    Escape::Refresh.write(location, &mut page);
    page.extend_from_slice(b"\"></head><body></body></html>\r\n");
    Response::text(200, Bytes::from_static(b"text/html"), page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_cut_at_the_question_mark() {
        assert_eq!(
            split_args(&Bytes::from_static(b"/a?b?c")),
            ("/a".into(), "b?c".into())
        );
        assert_eq!(
            split_args(&Bytes::from_static(b"/a")),
            ("/a".into(), Bytes::new())
        );
    }
}
