//! Sub-requests: requests that a request makes to the same server on its way to a response.
//!
//! A sub-request is a [`Request`] without a connection. It takes the same steps, but access rules do not apply to it,
//! nothing is added to its head, and it is logged only where `log_subrequest` says so. Not here: the modules that
//! make them (`auth_request`, `mirror`, `slice`, `addition`, `ssi`).

pub mod include;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use disk::OpenFile;
use logs::Level;
use message::Body;

use crate::Response;
use crate::outcome::Start;
use crate::request::Request;
use crate::request_body::RequestBody;
use crate::responder::{Asked, Calls};

pub use crate::responder::{Kind, METRICS};
use crate::variables::Values;

/// Maximum number of bytes read from a body that is discarded.
const TAKEN_MAX: u64 = 64 << 10;
/// Maximum depth of sub-requests of sub-requests, as in nginx.
pub const DEPTH_MAX: u32 = 51;

/// Makes a sub-request for a URI (decoded, as it is) and arguments: a GET with this body.
///
/// # Errors
/// The depth is [`DEPTH_MAX`] already; that is logged.
pub fn make(
    parent: &Request,
    uri: Bytes,
    args: Bytes,
    body: RequestBody,
) -> Result<Box<Request>, TooDeep> {
    make_with(parent, uri, |uri| parent.child(uri, args, body))
}

fn make_with(
    parent: &Request,
    uri: Bytes,
    child: impl FnOnce(Bytes) -> Box<Request>,
) -> Result<Box<Request>, TooDeep> {
    if parent.depth_of_subrequests() >= DEPTH_MAX {
        parent.log(Level::Error, &|out| {
            out.extend_from_slice(b"subrequests cycle while processing \"");
            out.extend_from_slice(&uri);
            out.push(b'"');
        });
        return Err(TooDeep);
    }
    Ok(child(uri))
}

/// The error for sub-requests nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooDeep;

/// Runs a sub-request up to its response. Nothing of the body has been read yet.
#[must_use]
pub fn ask(request: Box<Request>, by: &'static Kind) -> Asked {
    (Calls::of(&request.client.loop_).ask)(request, Start::Fresh, by)
}

/// Like [`ask`], for a sub-request that begins at its content: the point that its parent has reached.
#[must_use]
pub fn ask_for_content(request: Box<Request>, by: &'static Kind) -> Asked {
    (Calls::of(&request.client.loop_).ask)(request, Start::Content, by)
}

/// Runs a sub-request whose body is discarded, and logs it.
#[must_use]
pub fn ask_for_head(
    request: Box<Request>,
    by: &'static Kind,
) -> Pin<Box<dyn Future<Output = Box<Request>>>> {
    Box::pin(async move {
        let (mut request, response) = ask(request, by).await;
        if let Some(mut response) = response {
            take_what_came(std::mem::take(&mut response.body)).await;
            request.response = Some(response);
        }
        log(&request).await;
        request
    })
}

/// Like [`ask_for_head`], for a sub-request that its parent waits for: a request that is passed on to another server
/// is cancelled when the client leaves, unless its location says otherwise (`proxy_ignore_client_abort`).
pub async fn ask_for_head_below(
    parent: &Request,
    request: Box<Request>,
    by: &'static Kind,
) -> Box<Request> {
    let leave = request.transport.leave();
    let mut asked = ask_for_head(request, by);
    let mut left = pin!(parent.transport.peer_closed());
    let first = poll_fn(|cx| match asked.as_mut().poll(cx) {
        Poll::Ready(request) => Poll::Ready(Some(request)),
        Poll::Pending => left.as_mut().poll(cx).map(|()| None),
    });
    if let Some(request) = first.await {
        return request;
    }
    if let Some(leave) = leave {
        leave.tell();
    }
    asked.await
}

/// A request that `by` asked for was answered; `None`: without a response.
pub fn count(request: &Request, by: &Kind, response: Option<&Response>) {
    let status = response.map(|response| response.status);
    by.count(&request.client.loop_.figures, status);
}

/// Reads the part of a discarded body that has arrived: mostly all of it, so that the upstream connection can be
/// reused.
pub async fn take_what_came(mut body: Body<Rc<OpenFile>>) {
    let mut left = TAKEN_MAX;
    poll_fn(|cx| {
        while let Poll::Ready(Some(Ok(chunk))) = body.poll_next(cx) {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
        Poll::Ready(())
    })
    .await;
}

/// Writes the log lines of a finished sub-request, if it is to be logged.
pub async fn log(request: &Request) {
    let location = request.location();
    if !location.settings.subrequests.log_subrequest {
        return;
    }
    let feed = &request.client.loop_.feed;
    let logs = location.access_logs();
    logs.log(feed, &Values::of(request), |out| {
        crate::files::path::root(request, out)
    })
    .await;
}
