//! The variables of a response: its head, and what was sent of it.

use std::io::Write as _;

use bytes::Bytes;
use logs::Level;

use crate::Failure;
use crate::request::Request;
use crate::transport::Transport;

use super::append::{is_name, joined, nanoseconds, number, put};

crate::variables! {
    /// Bytes sent to the client without the response head.
    "body_bytes_sent" => fresh(body_bytes_sent);
    /// Bytes sent to the client.
    "bytes_sent" => fresh(|request, out| number(request.sent.get().bytes, out));
    /// The time from the arrival of the request until the first byte of the response was sent, in seconds with
    /// microseconds.
    "first_byte_time" => fresh(first_byte_time);
    /// The response's rate limit in bytes per second; settable.
    "limit_rate" => fresh(limit_rate).set_by(set_limit_rate);
    /// `OK` if the request was answered completely, otherwise empty.
    "request_completion" => fresh(|request, out| put(if request.is_complete { b"OK" } else { b"" }, out));
    /// The status of the response.
    "status" => fresh(status);
    /// A header of the response: lower case, `_` for `-`.
    "sent_http_" => family(header);
    /// A trailer of the response: lower case, `_` for `-`.
    "sent_trailer_" => family(trailer);
}

fn status(request: &Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{:03}", request.status()).is_ok()
}

fn body_bytes_sent(request: &Request, out: &mut Vec<u8>) -> bool {
    let sent = request.sent.get();
    // As in nginx the heads of frames are no part of the body; the sizes of chunks are.
    let framing = match &request.transport {
        Transport::Http2(stream) => stream.framing(),
        _ => 0,
    };
    number(sent.bytes.saturating_sub(sent.head_bytes + framing), out)
}

fn first_byte_time(request: &Request, out: &mut Vec<u8>) -> bool {
    let first = request.first_byte.get();
    first > 0 && nanoseconds(first.saturating_sub(request.moment), out)
}

/// The rate that was set; that of the location only once the response is being sent, as in nginx.
fn limit_rate(request: &Request, out: &mut Vec<u8>) -> bool {
    let configured = || {
        if request.sent.get().bytes == 0 {
            return None;
        }
        let rate = request.location().settings.sending.limit_rate.as_ref()?;
        rate.bytes(request).ok()
    };
    number(
        request.limit_rate.get().or_else(configured).unwrap_or(0),
        out,
    )
}

/// An invalid size is logged and changes nothing.
fn set_limit_rate(request: &mut Request, value: Bytes) {
    match config::parse_size(&value) {
        Some(rate) => request.limit_rate.set(Some(rate)),
        None => request.log(Level::Error, &|out| {
            out.extend_from_slice(b"invalid $limit_rate \"");
            out.extend_from_slice(&value);
            out.push(b'"');
        }),
    }
}

fn header(request: &Request, rest: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(response) = &request.response else {
        let covered = request.covered();
        return covered.is_some_and(|failure| line_of(failure, rest, out));
    };
    match rest {
        b"connection" => put(
            match request.transport.is_persistent() {
                _ if response.status == 101 => b"upgrade",
                true => b"keep-alive",
                false => b"close",
            },
            out,
        ),
        b"keep_alive" => match request.location().settings.keepalive.keepalive_timeout.told {
            Some(seconds) if request.transport.is_persistent() => {
                put(b"timeout=", out) && number(seconds, out)
            }
            _ => false,
        },
        b"transfer_encoding" => request.transport.is_chunked() && put(b"chunked", out),
        _ => {
            let name: Vec<u8> = rest
                .iter()
                .map(|c| if *c == b'_' { b'-' } else { *c })
                .collect();
            let lines = response.headers.iter().map(|h| (&h.name[..], &h.value[..]));
            let has_several = lines
                .clone()
                .filter(|(name, _)| is_name(name, rest))
                .nth(1)
                .is_some();
            match response.header(&name) {
                Some(value) if !has_several => put(&value, out),
                _ => joined(lines, rest, b", ", out),
            }
        }
    }
}

/// A header line of a failure, for the page that is shown in its place.
fn line_of(failure: &Failure, rest: &[u8], out: &mut Vec<u8>) -> bool {
    match (rest, &failure.location) {
        (b"location", Some(location)) => put(location, out),
        _ => {
            let lines = failure.headers.iter();
            joined(lines.map(|h| (&h.name[..], &h.value[..])), rest, b", ", out)
        }
    }
}

fn trailer(request: &Request, rest: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(response) = &request.response else {
        return false;
    };
    let lines = response.trailers.iter();
    joined(lines.map(|h| (&h.name[..], &h.value[..])), rest, b", ", out)
}
