//! Sub-requests whose responses become part of another response: of its body, or the value of a variable (`ssi`,
//! `addition`).
//!
//! Each part goes through the filters of its own location before it is inserted. Not here: the places where parts are
//! inserted.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Context;

use bytes::Bytes;
use disk::OpenFile;
use logs::Level;
use message::{Body, BodyError, Chunk};

use crate::Response;
use crate::body_filter::{AnswerBody, Inside};
use crate::request::Request;
use crate::responder::{Calls, Kind};

use super::{TooDeep, make_with};

/// Maximum number of sub-requests for the parts of one response, as many as nginx counts at once.
pub const INCLUSIONS_MAX: u32 = 64_535;

pub use crate::request::whole::{Inclusion, WHOLE, Whole};

/// The whole that an answer's parts are put into: that of the page above it, or a new one.
#[must_use]
pub fn whole_of(request: &Request, response: &Response) -> Rc<Whole> {
    request
        .whole()
        .map_or_else(|| Rc::new(Whole::new(response)), Rc::clone)
}

/// Makes a sub-request for a part.
///
/// # Errors
/// There are too many, or they are too deep, or it is of one whose body becomes a value: that is logged.
pub fn make(
    parent: &Request,
    uri: Bytes,
    args: Bytes,
    inclusion: Inclusion,
) -> Result<Box<Request>, TooDeep> {
    let asked = &inclusion.whole.asked;
    if asked.get() >= INCLUSIONS_MAX {
        let text = "request reference counter overflow while processing";
        complain(parent, Level::Crit, text, &uri);
        return Err(TooDeep);
    }
    if parent.is_value() {
        complain(parent, Level::Error, "nested in-memory subrequest", &uri);
        return Err(TooDeep);
    }
    asked.set(asked.get() + 1);
    make_with(parent, uri, |uri| parent.included(uri, args, inclusion))
}

fn complain(request: &Request, level: Level, text: &str, uri: &[u8]) {
    request.log(level, &|out| {
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b" \"");
        out.extend_from_slice(uri);
        out.push(b'"');
    });
}

/// The body of a part. The request starts when the body is first polled.
#[must_use]
pub fn body(child: Box<Request>, by: &'static Kind) -> AnswerBody {
    Body::unfold_ahead(Part::Asked(child, by), Part::step, Part::poll_ahead)
}

/// A part on its way.
enum Part {
    Asked(Box<Request>, &'static Kind),
    Coming {
        request: Box<Request>,
        body: AnswerBody,
        is_empty: bool,
    },
}

type Piece = Chunk<Rc<OpenFile>>;

impl Part {
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Self::Coming { body, .. } = self {
            body.poll_ahead(cx);
        }
    }

    async fn step(self) -> Result<Option<(Piece, Self)>, BodyError> {
        let (mut request, mut body, mut is_empty) = match self {
            Self::Asked(child, by) => {
                let (request, body) = answer(child, by).await?;
                (request, body, true)
            }
            Self::Coming {
                request,
                body,
                is_empty,
            } => (request, body, is_empty),
        };
        loop {
            match body.next().await.transpose() {
                Ok(Some(piece)) if piece.is_empty() => {}
                Ok(Some(piece)) => {
                    is_empty = false;
                    let rest = Self::Coming {
                        request,
                        body,
                        is_empty,
                    };
                    return Ok(Some((piece, rest)));
                }
                Ok(None) if is_empty && let Some(stub) = request.take_stub() => {
                    body = show_empty(&mut request, stub);
                }
                Ok(None) => break,
                // As in nginx: a body that another server left unfinished is shown as far as it came, and the
                // response continues.
                Err(BodyError::Logged) if request.is_of_upstream() => break,
                Err(error @ (BodyError::Truncated | BodyError::Timeout)) => {
                    log(&request, &error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        super::log(&request).await;
        Ok(None)
    }
}

/// Shows a stub in the place of an answer that had nothing in it: as that, and as it is where that was known to be empty, so that no
/// filter wanted it.
fn show_empty(request: &mut Request, mut stub: Box<Response>) -> AnswerBody {
    let Some(response) = request.response.as_ref() else {
        return Body::Empty;
    };
    if response.content_length != Some(0) {
        stub.take_type_of(response);
        if let Ok(filtered) = (Calls::of(&request.client.loop_).finish)(request, stub) {
            return filtered.body;
        }
        return Body::Empty;
    }
    stub.body
}

/// Has a part answered.
async fn answer(
    child: Box<Request>,
    by: &'static Kind,
) -> Result<(Box<Request>, AnswerBody), BodyError> {
    let (mut request, response) = super::ask(child, by).await;
    // Closed without a response, and so is the whole.
    let mut response = response.ok_or(BodyError::Logged)?;
    let body = std::mem::take(&mut response.body);
    request.response = Some(response);
    Ok((request, body))
}

fn log(request: &Request, error: &BodyError) {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(error.to_string().as_bytes());
    });
}

/// The body of a part that becomes a value; `None`: it failed.
///
/// # Errors
/// It is too long, or it broke off: the whole cannot go on.
pub async fn value(child: Box<Request>, by: &'static Kind) -> Result<Option<Bytes>, BodyError> {
    let (request, body) = answer(child, by).await?;
    let max = request
        .location()
        .settings
        .subrequests
        .subrequest_output_buffer_size
        .0;
    let response = request.response.as_ref().ok_or(BodyError::Logged)?;
    let is_good = response.status < 300;
    if let Some(length) = response.content_length.filter(|length| *length > max) {
        return Err(too_big(&request, &format!(": {length}")));
    }
    let mut inside = Inside::new(&request, body);
    let mut value = Vec::new();
    while let Some(bytes) = poll_fn(|cx| inside.poll_bytes(cx)).await {
        value.extend_from_slice(&bytes?);
        if value.len() as u64 > max {
            return Err(too_big(&request, ""));
        }
    }
    super::log(&request).await;
    Ok(is_good.then(|| value.into()))
}

fn too_big(request: &Request, length: &str) -> BodyError {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"too big subrequest response");
        out.extend_from_slice(length.as_bytes());
    });
    BodyError::Logged
}
