//! Turns a failure into a response: by the location's error pages, else by the built-in page.
//!
//! This happens nowhere else. nginx-drop-in 33 and 43.

use std::rc::Rc;

use bytes::Bytes;
use config::{Flag, Problem, Scope, Template, Value, Word, directives};
use message::escape::Escape;
use message::{Body, HeaderId, Method};

use crate::error_text;
use crate::outcome::Target;
use crate::request::Request;
use crate::user_agent::Browser;
use crate::{Failure, Response};

/// Maximum number of codes of one `error_page` line.
pub const CODES_MAX: usize = 300;

/// One code of an `error_page` line.
#[derive(Debug, Clone)]
pub struct Page {
    /// The status that it covers.
    pub status: u16,
    /// Status of the response. `=CODE`: that status; `=`: the status of the error page's own response (`None`
    /// inside); without: the failure's.
    pub overwrite: Overwrite,
    /// A URI, `@name`, or a URL.
    pub target: Template,
}

/// The status of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// The failure's own.
    Keep,
    /// `=`: the status of the error page's own response.
    Answer,
    /// `=CODE`.
    Code(u16),
}

/// All pages of a level, in order.
#[derive(Debug, Clone, Default)]
pub struct Pages(pub Vec<Page>);

impl Value for Pages {
    const SYNTAX: &'static str = "code … [=[response]] uri";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let [words @ .., target] = args else {
            return Err(Problem::argument_count("error_page"));
        };
        let (codes, overwrite) = overwrite(words)?;
        let target = Template::of_word(target, scope).map_err(|problem| problem.at(words.len()))?;
        let mut pages = Vec::with_capacity(codes.len());
        for (i, word) in codes.iter().enumerate() {
            // 499 means that the client has gone: no page would be seen.
            let status = number(word.bytes()).filter(|status| *status != 499);
            let status = status.ok_or_else(|| invalid(word, i))?;
            if !(300..=599).contains(&status) {
                return Err(Problem::new(format!(
                    "value \"{status}\" must be between 300 and 599"
                ))
                .at(i));
            }
            let overwrite = match (overwrite, status) {
                (Overwrite::Keep, 494..=497) => Overwrite::Code(400),
                (other, _) => other,
            };
            pages.push(Page {
                status,
                overwrite,
                target: target.clone(),
            });
        }
        Ok(Self(pages))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let pages = slot.get_or_insert_with(Self::default);
        pages.0.extend(line.0);
        if pages.0.len() > CODES_MAX {
            return Err(Problem::new(format!(
                "more than {CODES_MAX} error pages at one level"
            )));
        }
        Ok(())
    }
}

/// Takes `=` or `=CODE` off the end of the codes.
fn overwrite(words: &[Word]) -> Result<(&[Word], Overwrite), Problem> {
    let [codes @ .., last] = words else {
        return Ok((words, Overwrite::Keep));
    };
    let Some(code) = last.bytes().strip_prefix(b"=") else {
        return Ok((words, Overwrite::Keep));
    };
    if codes.is_empty() {
        return Err(invalid(last, 0));
    }
    let overwrite = match code {
        b"" => Overwrite::Answer,
        _ => Overwrite::Code(number(code).ok_or_else(|| invalid(last, codes.len()))?),
    };
    Ok((codes, overwrite))
}

fn invalid(word: &Word, at: usize) -> Problem {
    Problem::new(format!("invalid value \"{}\"", word.display())).at(at)
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

directives! {
    /// Error pages.
    pub struct ErrorPages in Location {
        /// Handles requests that fail with one of the codes by a URI, a named location, or a URL (with 302). `=CODE`
        /// changes the status, `=` takes the status of the page's response.
        error_page: Option<Pages> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 2..;
        /// Lets an error page that fails have error pages itself.
        recursive_error_pages: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Pads built-in 4xx and 5xx pages to over 512 bytes for MSIE and Chrome, which hide shorter ones.
        msie_padding: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Responds to MSIE with a page that refreshes instead of a redirect.
        msie_refresh: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

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
    if matches!(status, 408 | 444 | 499) {
        return Cover::Close(status);
    }
    if let Some(stub) = request.take_stub() {
        return Cover::Answer(stub);
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
    let target = request.evaluate(&page.target);
    match target.first() {
        Some(b'/') => {
            if request.method != Method::Head {
                request.method = Method::Get;
            }
            let (uri, args) = split_args(&target);
            request.has_args = page.target.literal().is_none() || target.contains(&b'?');
            request.keep_lines(failure);
            Cover::Redirect(Target::Uri(uri, args))
        }
        Some(b'@') => {
            request.keep_lines(failure);
            Cover::Redirect(Target::Named(target))
        }
        _ => {
            let status = match page.overwrite {
                Overwrite::Code(code @ (301 | 302 | 303 | 307 | 308)) => code,
                _ => 302,
            };
            request.error_status = Some(status);
            let away = Failure {
                headers: failure.headers,
                ..Failure::redirect(status, target)
            };
            Cover::Answer(built_in(request, away))
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
    let browser = || Browser::of(request.head.get(HeaderId::UserAgent).unwrap_or_default());
    if settings.error_pages.msie_refresh
        && matches!(failure.status, 301 | 302)
        && browser().is_msie()
        && let Some(location) = &failure.location
    {
        let page = Box::new(refresh(location));
        // It is a page like any other.
        request.error_status = None;
        return page;
    }
    let is_padded = settings.error_pages.msie_padding
        && matches!(browser(), Browser::Msie | Browser::Msie6 | Browser::Chrome);
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
    for header in failure.headers {
        response.headers.push(header.name, header.value);
    }
    response
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
