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
use config::{Flag, Size, directives};
use disk::OpenFile;
use message::Body;

use crate::Response;
use crate::log::Level;
use crate::metrics::By;
use crate::outcome::Start;
use crate::request::Request;
use crate::request_body::RequestBody;
use crate::respond;

/// Bytes that are taken of a body that nobody wants.
const TAKEN_MAX: u64 = 64 << 10;
/// How deep sub-requests may be of sub-requests, as nginx.
pub const DEPTH_MAX: u32 = 51;

directives! {
    /// Sub-requests.
    pub struct Subrequests in Location {
        /// Writes sub-requests to the access log too.
        log_subrequest: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits the body of a sub-request's answer that is kept in memory to become the value of a variable (`set` of `ssi`'s
        /// `include`).
        subrequest_output_buffer_size: Size = "4k", [HTTP | SERVER | LOCATION] 1;
    }
}

/// A sub-request that was answered, with its body still to come; no answer: it was closed without one.
pub type Answered = (Box<Request>, Option<Box<Response>>);

/// Makes a sub-request for a URI (decoded, as it is) and arguments: a GET with this body.
///
/// # Errors
/// They are [`DEPTH_MAX`] deep already; that is logged.
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

/// Too many sub-requests of sub-requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooDeep;

/// Answers a sub-request. Nothing of its answer's body has been asked for yet.
#[must_use]
pub fn ask(mut request: Box<Request>, by: By) -> Pin<Box<dyn Future<Output = Answered>>> {
    // Boxed and named, since requests answer sub-requests on their way.
    Box::pin(async move {
        let response = respond::respond(&mut request, Start::Fresh).await;
        count(&request, by, response.as_deref());
        (request, response)
    })
}

/// As [`ask`], for one that begins where the request that it was made of has come to: at its content.
#[must_use]
pub fn ask_for_content(
    mut request: Box<Request>,
    by: By,
) -> Pin<Box<dyn Future<Output = Answered>>> {
    Box::pin(async move {
        let response = respond::respond(&mut request, Start::Content).await;
        count(&request, by, response.as_deref());
        (request, response)
    })
}

/// Answers a sub-request of which nobody wants the body, and logs it.
#[must_use]
pub fn ask_for_head(request: Box<Request>, by: By) -> Pin<Box<dyn Future<Output = Box<Request>>>> {
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

/// As [`ask_for_head`], for a sub-request that its parent waits for: what passes it on to another server gives up when the client
/// leaves, unless its location says otherwise (`proxy_ignore_client_abort`).
pub async fn ask_for_head_below(parent: &Request, request: Box<Request>, by: By) -> Box<Request> {
    let leave = request.wire.leave();
    let mut asked = ask_for_head(request, by);
    let mut left = pin!(parent.wire.peer_closed());
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
pub fn count(request: &Request, by: By, response: Option<&Response>) {
    let status = response.map(|response| response.status);
    let modules = &request.client.loop_.figures.modules;
    modules.count_subrequest(by, status);
}

/// Takes what has come of a body that nobody wants: mostly all of it, so that the connection that it came over can be used again.
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

/// Writes the lines of a sub-request that is over, where it is to have any.
pub async fn log(request: &Request) {
    let location = request.location();
    if !location.settings.subrequests.log_subrequest {
        return;
    }
    let feed = &request.client.loop_.feed;
    let logs = location.access_logs();
    logs.log(feed, request, |out| crate::path::root(request, out))
        .await;
}
