//! The variables of a request: its head, URI, body and times.
//!
//! Not here: those of its response ([`super::response`]) and of its client ([`super::connection`]).

use bytes::Bytes;
use message::{Framing, HeaderId, Version, uri as uris};
use runtime::timing::current_request;

use crate::request::Request;
use crate::request::body::Stored;

use super::append::{joined, milliseconds, nanoseconds, number, port, put, put_if_any};

crate::variables! {
    /// The arguments of the current URI.
    "args" => fresh(args).set_by(set_args);
    /// The request's `Content-Length`.
    "content_length" => fresh(content_length);
    /// The request's `Content-Type`.
    "content_type" => fresh(|request, out| lines_of(request, HeaderId::ContentType, out));
    /// How long the request has waited for disks, in seconds with microseconds.
    "disk_wait" => fresh(|_, out| nanoseconds(current_request::waited().disk_ns, out));
    /// The same as `$uri`.
    "document_uri" => fresh(uri);
    /// The host of the request line, else of the `Host` field, else the server's name; lower case, without port.
    "host" => fresh(host);
    /// `?` if the URI has arguments, otherwise empty.
    "is_args" => fresh(|request, out| put(if request.args().is_empty() { b"" } else { b"?" }, out));
    /// `:` if `$request_port` is not empty, otherwise empty.
    "is_request_port" => fresh(|request, out| put(request.head.port.map_or(b"", |_| b":"), out));
    /// `p` when the request was pipelined, else `.`.
    "pipe" => fresh(|request, out| put(if request.transport.is_pipelined() { b"p" } else { b"." }, out));
    /// How long the request has waited for a thread of a pool, in seconds with microseconds. It is part of
    /// `$disk_wait`, except for work that needs no disk (formatting a listing, checking a password).
    "pool_wait" => fresh(|_, out| nanoseconds(current_request::waited().pool_ns, out));
    /// The same as `$args`.
    "query_string" => fresh(args);
    /// The request line as received.
    "request" => fresh(line);
    /// The request's body, if it was read and is in memory.
    "request_body" => fresh(body);
    /// The file that holds the request's body.
    "request_body_file" => fresh(body_file);
    /// A random identifier of the request: 32 hexadecimal digits.
    "request_id" => fresh(id);
    /// The request's length: request line, header and body.
    "request_length" => fresh(|request, out| number(request.length(), out));
    /// The request's method.
    "request_method" => fresh(|request, out| put_if_any(request.main_method_text(), out));
    /// The port of the request's host, as given.
    "request_port" => fresh(|request, out| port(request.head.port, out));
    /// Seconds with milliseconds since the first byte of the request.
    "request_time" => fresh(|request, out| milliseconds(request.elapsed_ms(), out));
    /// The URI with arguments as received.
    "request_uri" => fresh(target);
    /// The name of the server that accepted the request.
    "server_name" => fresh(|request, out| put(&request.server().name, out));
    /// `HTTP/1.0`, `HTTP/1.1`.
    "server_protocol" => fresh(protocol);
    /// The current URI, decoded and normalised.
    "uri" => fresh(uri);
    /// An argument of the URI.
    "arg_" => family(arg);
    /// A cookie of the request.
    "cookie_" => family(cookie);
    /// A header of the request: lower case, `_` for `-`.
    "http_" => family(header_lines);
}

/// Over HTTP/2 there is none before its parts have come.
fn line(request: &Request, out: &mut Vec<u8>) -> bool {
    let line = request.head.line();
    put(line, out) && (!line.is_empty() || request.head.version != Version::HTTP_2)
}

fn args(request: &Request, out: &mut Vec<u8>) -> bool {
    request.args.as_ref().is_some_and(|args| put(args, out))
}

fn set_args(request: &mut Request, value: Bytes) {
    request.args = Some(value);
    request.uri_origin = request.uri_origin.changed();
}

/// A bad URI is empty; a request without one has no value, until an error page takes over.
fn uri(request: &Request, out: &mut Vec<u8>) -> bool {
    put(&request.uri, out) && !(request.uri.is_empty() && request.head.target().is_empty())
}

fn target(request: &Request, out: &mut Vec<u8>) -> bool {
    let target = request.head.target();
    !target.is_empty() && put(target, out)
}

/// An unknown version is empty; a request line without one has no value. Over HTTP/2 it is known before the line is.
fn protocol(request: &Request, out: &mut Vec<u8>) -> bool {
    let head = &request.head;
    match head.protocol() {
        [] if head.version == Version::HTTP_2 => put(b"HTTP/2.0", out),
        [] => memchr::memmem::find(head.line(), b" HTTP/").is_some(),
        protocol => put(protocol, out),
    }
}

fn host(request: &Request, out: &mut Vec<u8>) -> bool {
    match request.head.host() {
        Some(host) if !host.is_empty() => put(host, out),
        _ => put(&request.server().name, out),
    }
}

/// The value of `Host` in requests that are passed on: `$host$is_request_port$request_port`.
pub fn host_and_port(request: &Request, out: &mut Vec<u8>) {
    host(request, out);
    if request.head.port.is_some() {
        out.push(b':');
        port(request.head.port, out);
    }
}

fn id(request: &Request, out: &mut Vec<u8>) -> bool {
    for byte in request.id() {
        out.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
    true
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

/// The length of a chunked body is known once the body was read.
fn content_length(request: &Request, out: &mut Vec<u8>) -> bool {
    let read = request.body.stored();
    match read.filter(|body| body.came_as() == Framing::Chunked) {
        Some(body) => number(body.len(), out),
        None => {
            let length = request.head.get(HeaderId::ContentLength);
            length.is_some_and(|value| put(value, out))
        }
    }
}

fn body(request: &Request, out: &mut Vec<u8>) -> bool {
    let memory = request.body.stored().and_then(Stored::memory);
    memory.is_some_and(|body| put(body, out))
}

fn body_file(request: &Request, out: &mut Vec<u8>) -> bool {
    let path = request.body.stored().and_then(Stored::path);
    path.is_some_and(|path| put(path, out))
}

/// An argument without a name is none.
fn arg(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    !name.is_empty() && uris::arg(request.args(), name).is_some_and(|value| put(value, out))
}

fn cookie(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let value = request.head.cookie(name);
    value.is_some_and(|value| put(value, out))
}

/// `$http_x_y` is the header `X-Y`, or `X_Y` where such names are let in; lines are joined (nginx-drop-in 11).
fn header_lines(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    match name {
        // As in nginx: a client cannot stand in with an underscore for a line that a proxy sets.
        b"user_agent" => return lines_of(request, HeaderId::UserAgent, out),
        b"x_forwarded_for" => return lines_of(request, HeaderId::XForwardedFor, out),
        _ => {}
    }
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b", " };
    let lines = request.head.iter().map(|(name, value, _)| (name, value));
    joined(lines, name, separator, out)
}

/// The lines of exactly this name, joined.
fn lines_of(request: &Request, id: HeaderId, out: &mut Vec<u8>) -> bool {
    let mut is_found = false;
    for value in request.head.get_each(id) {
        if is_found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        is_found = true;
    }
    is_found
}
