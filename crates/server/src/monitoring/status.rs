//! `stub_status`, `metrics`, `status_json`, `dashboard`: the server's figures as the content of a location.
//!
//! Not here: the directives themselves ([`super::directives`]), the metrics ([`super::gather`]). Invariant: these respond whatever the pools and the other loops are
//! doing.

use std::sync::Arc;

use bytes::Bytes;
use message::{Body, Chunk, HeaderId, Method};
use runtime::loops::sums::{self, LoopSum};

use super::directives::Shown;
use crate::dashboard::document::document;
use crate::dashboard::stream;
use crate::monitoring::accept;
use crate::monitoring::thread::{self, PageFormat};
use httpcore::Response;
use httpcore::failure::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use modules::after::compression::accept::names_gzip;

/// Answers with figures.
pub(crate) async fn make(request: &Request, shown: Shown) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Outcome::Failed(Failure::new(405));
    }
    let ledger = Arc::clone(&request.client.loop_.ledger);
    let (shape, media_type) = match shown {
        Shown::Stub => {
            let text = stub(&sums::all(&ledger));
            let mut response = response("text/plain", vec![text.into()]);
            // nginx judges conditions by any 200 of its own.
            response.conditional = true;
            return Outcome::Answer(response);
        }
        Shown::Dashboard if request.args() == b"stream" => return stream(request),
        Shown::Dashboard => return page(request),
        Shown::Json => (PageFormat::Json, "application/json"),
        Shown::Metrics => {
            let format = accept::format(request.head.get(HeaderId::Accept).unwrap_or_default());
            (PageFormat::Text(format), format.media_type())
        }
    };
    match thread::written(&ledger, shape).await {
        Some(pieces) => Outcome::Answer(response(media_type, pieces)),
        None => {
            let failure = Failure::new(503).with_header("Retry-After", Bytes::from_static(b"1"));
            Outcome::Failed(failure)
        }
    }
}

/// The dashboard's page.
fn page(request: &Request) -> Outcome {
    let document = document();
    let mut response = Response::boxed(200);
    let accepted = request.head.get(HeaderId::AcceptEncoding);
    let is_compressed = accepted.is_some_and(names_gzip);
    let body = if is_compressed {
        response.content_encoding = Some(Bytes::from_static(b"gzip"));
        &document.gzip
    } else {
        &document.plain
    };
    response.content_type = Bytes::from_static(b"text/html; charset=utf-8");
    response.type_declares_charset = true;
    response.names_type = true;
    response.content_length = Some(body.len() as u64);
    response.body = Body::bytes(body.clone());
    let headers = &mut response.headers;
    headers.push("Vary", "Accept-Encoding");
    headers.push("Cache-Control", "no-cache");
    headers.push("Content-Security-Policy", document.policy.clone());
    headers.push("X-Content-Type-Options", "nosniff");
    headers.push("Referrer-Policy", "no-referrer");
    Outcome::Answer(response)
}

/// The event stream of the dashboard.
fn stream(request: &Request) -> Outcome {
    let mut response = Response::boxed(200);
    if request.method != Method::Head {
        let Some(body) = stream::open(&request.client) else {
            let failure = Failure::new(503).with_header("Retry-After", Bytes::from_static(b"10"));
            return Outcome::Failed(failure);
        };
        response.body = body;
    }
    response.content_type = Bytes::from_static(b"text/event-stream");
    response.names_type = true;
    response.headers.push("Cache-Control", "no-store");
    // nginx, where it stands before, is not to hold it back.
    response.headers.push("X-Accel-Buffering", "no");
    Outcome::Answer(response)
}

fn response(media_type: &'static str, mut pieces: Vec<Bytes>) -> Box<Response> {
    let mut response = Response::boxed(200);
    response.content_type = Bytes::from_static(media_type.as_bytes());
    response.type_declares_charset = true;
    response.names_type = true;
    let length: usize = pieces.iter().map(Bytes::len).sum();
    response.content_length = Some(length as u64);
    response.body = if pieces.len() == 1 {
        Body::bytes(pieces.remove(0))
    } else {
        Body::chunks(pieces.into_iter().map(Chunk::Bytes).collect())
    };
    response
}

/// nginx's words, to the space at the end of each line.
fn stub(sum: &LoopSum) -> String {
    let (active, accepted) = (sum.connections, sum.accepted);
    // nginx counts a request with its first byte.
    let requests = sum.requests + sum.reading();
    format!(
        "Active connections: {active} \nserver accepts handled requests\n {accepted} {accepted} {requests} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        sum.reading(),
        sum.answering,
        sum.waiting()
    )
}
