//! The protocol of a gateway: how a request is sent, and how its response is read.
//!
//! Not here: which server (`upstream_exchange`), what is sent (`upstream_request::gateway_params`), and the bytes of the
//! protocols (crate `wire`).

use crate::response::response_body::READING;
use crate::settings::directives::ProxyAnswers;
use crate::settings::family::Family;
use crate::settings::params::ParamsFormat;
use crate::upstream_request::log_context::READING_HEAD;
use crate::upstream_request::request::{UpstreamRequest, shown};
use std::rc::Rc;
use std::sync::Arc;

use logs::Level;
use message::{ResponseFraming, ResponseHead};
use wire::UpstreamConnection;
use wire::exchange::BodyWriter;
use wire::exchange::Exchange;
use wire::exchange::{AnswerReader, RequestKind};
use wire::fastcgi::{NoticeSink, RecordReader, StderrNotice};

/// Begins a request of a gateway's protocol; the response's head has at most `head_bytes_max` bytes.
pub(super) fn begin(
    upstream_request: &Rc<UpstreamRequest>,
    name: &Arc<str>,
    connection: UpstreamConnection,
    head_bytes_max: usize,
) -> Exchange {
    let head = upstream_request.head.clone();
    if upstream_request.family != Family::Fastcgi {
        let reader = AnswerReader::of_gateway(upstream_request.asked, head_bytes_max);
        return connection.begin_with(head, BodyWriter::new(upstream_request.framing), reader);
    }
    let answers_head = upstream_request.asked == RequestKind::Head;
    let keeps_connection = matches!(
        packing(upstream_request),
        Some(ParamsFormat::Fastcgi {
            keeps_connection: true,
            ..
        })
    );
    let tell = teller(upstream_request, name);
    let records = RecordReader::new(answers_head, head_bytes_max, keeps_connection, tell);
    let body = BodyWriter::in_records(upstream_request.framing);
    connection.begin_with(head, body, AnswerReader::of_records(records))
}

/// Whether the available part of a body is read before it is asked for, since that may be all of it. Not where its rate
/// is limited, nor after a 101.
pub(super) fn is_whole_wanted(upstream_request: &UpstreamRequest, head: &ResponseHead) -> bool {
    let rate = &upstream_request
        .context
        .location()
        .own::<ProxyAnswers>()
        .proxy_limit_rate;
    let may_be_whole = match upstream_request.family {
        _ if upstream_request.passing.is_http2() => true,
        Family::Proxy => matches!(head.framing, ResponseFraming::Length(_)),
        // Its end may have come with it, whatever the head says.
        Family::Fastcgi | Family::Grpc => true,
        Family::Uwsgi | Family::Scgi => false,
    };
    rate.is_none() && head.status >= 200 && may_be_whole
}

fn packing(upstream_request: &UpstreamRequest) -> Option<&ParamsFormat> {
    Some(&upstream_request.passing.params.as_ref()?.packing)
}

/// Writes a server's error output to the error log.
fn teller(upstream_request: &Rc<UpstreamRequest>, name: &Arc<str>) -> NoticeSink {
    let (upstream_request, name) = (Rc::clone(upstream_request), Arc::clone(name));
    Box::new(move |told| {
        let upstream = shown(&name, &upstream_request);
        let (level, text, action) = match told {
            StderrNotice::Stderr(text) => (Level::Error, stderr(text), READING_HEAD),
            StderrNotice::LateStderr(text) => (Level::Error, stderr(text), READING),
            StderrNotice::TooLong => {
                let text = "upstream sent more data than specified in \"Content-Length\" header";
                (Level::Warn, text.to_owned(), READING)
            }
        };
        upstream_request
            .context
            .log(level, &text, action, &upstream);
        !matches!(told, StderrNotice::Stderr(text) if is_caught(&upstream_request, text))
    })
}

/// The server's text without its line ends, as nginx has it.
fn stderr(text: &[u8]) -> String {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'.' | b' ');
    let len = text
        .iter()
        .rposition(|byte| !is_end(byte))
        .map_or(1, |at| at + 1);
    let text = String::from_utf8_lossy(&text[..len.min(text.len())]);
    format!("FastCGI sent in stderr: \"{text}\"")
}

/// Whether it stands for a failure (`fastcgi_catch_stderr`).
fn is_caught(upstream_request: &UpstreamRequest, text: &[u8]) -> bool {
    let Some(ParamsFormat::Fastcgi { caught, .. }) = packing(upstream_request) else {
        return false;
    };
    caught
        .iter()
        .any(|one| !one.is_empty() && memchr::memmem::find(text, one).is_some())
}
