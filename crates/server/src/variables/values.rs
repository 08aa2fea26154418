//! The values of the core variables and of the families.
//!
//! Each function appends to a buffer and tells whether there is a value: nginx distinguishes "not found" from
//! "empty".

use std::io::Write as _;
use std::net::IpAddr;

use message::{Framing, HeaderId, credentials, uri};

use crate::after::{slice, ssi};
use crate::before::auth_basic;
use crate::content::proxy::variables as proxy;
use crate::limits::limited;
use crate::path;
use crate::request::Request;
use crate::request_body::Stored;
use crate::server_tokens::NGINX_VERSION;

use super::names::{Core, Family};
use super::{connections, figures};

/// Appends a core variable's value.
pub fn core(request: &Request, core: Core, out: &mut Vec<u8>) -> bool {
    match core {
        Core::Args | Core::QueryString => request.has_args && put(&request.args, out),
        Core::BinaryRemoteAddr => binary_remote_addr(request, out),
        Core::BodyBytesSent => body_bytes_sent(request, out),
        Core::BytesSent => number(request.sent.get().bytes, out),
        Core::Connection => number(request.client.number, out),
        Core::ConnectionRequests => number(request.client.requests.get(), out),
        Core::ConnectionTime => milliseconds(request.client.age_ms(), out),
        Core::ContentLength => content_length(request, out),
        Core::ContentType => request_header(request, b"content_type", out),
        Core::DocumentRoot => {
            path::root(request, out);
            true
        }
        Core::DocumentUri | Core::Uri => path_of(request, out),
        Core::Host => host(request, out),
        Core::Hostname => put(&request.settings().hostname, out),
        Core::Https => put(
            if request.client.scheme().is_secure() {
                b"on"
            } else {
                b""
            },
            out,
        ),
        Core::Tls => false,
        Core::IsArgs => put(if request.args.is_empty() { b"" } else { b"?" }, out),
        Core::IsRequestPort => put(request.head.port.map_or(b"", |_| b":"), out),
        Core::LimitConnStatus => limited::append_counted(request, out),
        Core::LimitReqStatus => limited::append_paced(request, out),
        Core::LimitRate => limit_rate(request, out),
        Core::NginxVersion => put(NGINX_VERSION.as_bytes(), out),
        Core::Pid => number(u64::from(std::process::id()), out),
        Core::Pipe => put(if request.is_pipelined { b"p" } else { b"." }, out),
        Core::RealpathRoot => path::real_root(request, out),
        Core::RemoteAddr => {
            request.client.append_remote_addr(out);
            true
        }
        Core::RemotePort => port(request.client.port(), out),
        Core::Request => put(request.head.line(), out),
        Core::RemoteUser => remote_user(request, out),
        Core::RequestBody => request_body(request, out),
        Core::RequestBodyFile => request_body_file(request, out),
        Core::RequestCompletion => put(if request.is_complete { b"OK" } else { b"" }, out),
        Core::RequestFilename => request_filename(request, out),
        Core::RequestId => request_id(request, out),
        Core::RequestLength => number(request.length(), out),
        Core::RequestMethod => put_if_any(request.main_method_text(), out),
        Core::RequestPort => port(request.head.port, out),
        Core::RequestTime => request_time(request, out),
        Core::RequestUri => {
            let target = request.head.target();
            !target.is_empty() && put(target, out)
        }
        Core::Scheme => put(request.client.scheme().name(), out),
        Core::ServerAddr => {
            request.client.append_server_addr(out);
            true
        }
        Core::ServerName => put(&request.server().name, out),
        Core::ServerPort => port(request.client.server_port(), out),
        Core::ServerProtocol => protocol(request, out),
        Core::SliceRange => slice::append_range(request, out),
        Core::Status => status(request, out),
        Core::TcpinfoRcvSpace | Core::TcpinfoRtt | Core::TcpinfoRttvar | Core::TcpinfoSndCwnd => {
            tcp_info(request, core, out)
        }
        // What is told of the servers that it was passed on to.
        _ => figures::core(request, core, out)
            .or_else(|| connections::core(request, core, out))
            .or_else(|| time(request, core, out))
            .unwrap_or_else(|| proxy::core(request, core, out)),
    }
}

/// Appends the current time in one of its forms; `None` if the variable is none of them.
fn time(request: &Request, core: Core, out: &mut Vec<u8>) -> Option<bool> {
    let clock = request.client.loop_.feed.clock();
    Some(match core {
        Core::DateGmt => ssi::append_date(request, true, out),
        Core::DateLocal => ssi::append_date(request, false, out),
        Core::Msec => {
            clock.tick().append_msec(out);
            true
        }
        Core::TimeIso8601 => put(&clock.time_iso8601(), out),
        Core::TimeLocal => put(&clock.time_local(), out),
        _ => return None,
    })
}

fn put(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text);
    true
}

/// Like [`put`], but an empty text counts as "not found", which logs show as `-`.
fn put_if_any(text: &[u8], out: &mut Vec<u8>) -> bool {
    put(text, out) && !text.is_empty()
}

/// An unknown version is empty; a request line without one has no value.
fn protocol(request: &Request, out: &mut Vec<u8>) -> bool {
    let is_said = || memchr::memmem::find(request.head.line(), b" HTTP/").is_some();
    put(request.head.protocol(), out) && (!request.head.protocol().is_empty() || is_said())
}

/// A bad URI is empty; a request without one has no value.
fn path_of(request: &Request, out: &mut Vec<u8>) -> bool {
    put(&request.uri, out) && !request.head.target().is_empty()
}

fn number(value: u64, out: &mut Vec<u8>) -> bool {
    put(itoa::Buffer::new().format(value).as_bytes(), out)
}

/// Seconds with three decimals.
fn milliseconds(value: u64, out: &mut Vec<u8>) -> bool {
    // Writing to memory cannot fail.
    write!(out, "{}.{:03}", value / 1000, value % 1000).is_ok()
}

pub(super) fn port(port: Option<u16>, out: &mut Vec<u8>) -> bool {
    match port {
        Some(port) => number(u64::from(port), out),
        None => put(b"", out),
    }
}

fn body_bytes_sent(request: &Request, out: &mut Vec<u8>) -> bool {
    let sent = request.sent.get();
    number(sent.bytes - sent.head_bytes, out)
}

fn request_time(request: &Request, out: &mut Vec<u8>) -> bool {
    milliseconds(request.elapsed_ms(), out)
}

fn request_id(request: &Request, out: &mut Vec<u8>) -> bool {
    for byte in request.id() {
        out.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
    true
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

fn header(request: &Request, id: HeaderId, out: &mut Vec<u8>) -> bool {
    request.head.get(id).is_some_and(|value| put(value, out))
}

/// The length of a chunked body is known once the body was read.
fn content_length(request: &Request, out: &mut Vec<u8>) -> bool {
    let read = request.body.stored();
    match read.filter(|body| body.came_as() == Framing::Chunked) {
        Some(body) => number(body.len(), out),
        None => header(request, HeaderId::ContentLength, out),
    }
}

fn request_body(request: &Request, out: &mut Vec<u8>) -> bool {
    let memory = request.body.stored().and_then(Stored::memory);
    memory.is_some_and(|body| put(body, out))
}

fn request_body_file(request: &Request, out: &mut Vec<u8>) -> bool {
    let path = request.body.stored().and_then(Stored::path);
    path.is_some_and(|path| put(path, out))
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

fn binary_remote_addr(request: &Request, out: &mut Vec<u8>) -> bool {
    match request.client.ip() {
        Some(IpAddr::V4(ip)) => put(&ip.octets(), out),
        Some(IpAddr::V6(ip)) => put(&ip.octets(), out),
        None => put(b"unix:", out),
    }
}

fn remote_user(request: &Request, out: &mut Vec<u8>) -> bool {
    let header = auth_basic::header(request);
    header
        .and_then(credentials::basic_user)
        .is_some_and(|user| put(&user, out))
}

/// What was set; what the location says only from then on when the answer is sent, as in nginx.
fn limit_rate(request: &Request, out: &mut Vec<u8>) -> bool {
    let set = || {
        if request.sent.get().bytes == 0 {
            return None;
        }
        let rate = request.location().settings.sending.limit_rate.as_ref()?;
        Some(rate.bytes(request))
    };
    number(request.limit_rate().or_else(set).unwrap_or(0), out)
}

fn request_filename(request: &Request, out: &mut Vec<u8>) -> bool {
    let mut mapped = path::Mapped::default();
    path::map(request, &mut mapped).is_ok() && put(&mapped.path, out)
}

fn status(request: &Request, out: &mut Vec<u8>) -> bool {
    write!(out, "{:03}", request.status()).is_ok()
}

fn tcp_info(request: &Request, which: Core, out: &mut Vec<u8>) -> bool {
    let Some(socket) = request.wire.get().and_then(|wire| wire.stream.tcp_socket()) else {
        return false;
    };
    let Ok(info) = sys::tcp_info(socket) else {
        return false;
    };
    let value = match which {
        Core::TcpinfoRtt => info.rtt,
        Core::TcpinfoRttvar => info.rttvar,
        Core::TcpinfoSndCwnd => info.snd_cwnd,
        _ => info.rcv_space,
    };
    number(u64::from(value), out)
}

/// Appends the value of a family's variable; `rest` is its name without the prefix.
pub fn family(request: &Request, family: Family, rest: &[u8], out: &mut Vec<u8>) -> bool {
    match family {
        // An argument without a name is none.
        Family::Arg if rest.is_empty() => false,
        Family::Arg => uri::arg(&request.args, rest).is_some_and(|value| put(value, out)),
        Family::Cookie => request
            .head
            .cookie(rest)
            .is_some_and(|value| put(value, out)),
        Family::Http => request_header(request, rest, out),
        Family::ProxyProtocolTlv => connections::tlv(request, rest, out),
        Family::SentHttp => sent_header(request, rest, out),
        Family::UpstreamCookie => proxy::cookie(request, rest, out),
        Family::UpstreamHttp => proxy::header(request, |name| is_name(name, rest), out),
        Family::UpstreamTrailer => proxy::trailer(request, |name| is_name(name, rest), out),
        Family::SentTrailer => match &request.response {
            Some(response) => joined(
                response
                    .trailers
                    .iter()
                    .map(|h| (&h.name[..], &h.value[..])),
                rest,
                b", ",
                out,
            ),
            None => false,
        },
    }
}

/// `$http_x_y` is the header `X-Y`; lines are joined (nginx-drop-in 11).
fn request_header(request: &Request, rest: &[u8], out: &mut Vec<u8>) -> bool {
    let separator: &[u8] = if rest == b"cookie" { b"; " } else { b", " };
    joined(
        request.head.iter().map(|(name, value, _)| (name, value)),
        rest,
        separator,
        out,
    )
}

fn sent_header(request: &Request, rest: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(response) = &request.response else {
        return false;
    };
    match rest {
        b"connection" => put(
            match request.keepalive {
                _ if response.status == 101 => b"upgrade",
                true => b"keep-alive",
                false => b"close",
            },
            out,
        ),
        b"keep_alive" => match request.location().settings.keepalive.keepalive_timeout.told {
            Some(seconds) if request.keepalive => put(b"timeout=", out) && number(seconds, out),
            _ => false,
        },
        b"transfer_encoding" => request.is_chunked && put(b"chunked", out),
        _ => {
            let name: Vec<u8> = rest
                .iter()
                .map(|c| if *c == b'_' { b'-' } else { *c })
                .collect();
            match response.header(&name) {
                Some(_) if response.headers.get_all(&name).nth(1).is_some() => joined(
                    response.headers.iter().map(|h| (&h.name[..], &h.value[..])),
                    rest,
                    b", ",
                    out,
                ),
                Some(value) => put(&value, out),
                None => false,
            }
        }
    }
}

/// Joins the values of the lines whose name, lower-cased and with `_` for `-`, is `rest`.
fn joined<'a>(
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    rest: &[u8],
    separator: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut is_found = false;
    for (_, value) in lines.filter(|(name, _)| is_name(name, rest)) {
        if is_found {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
        is_found = true;
    }
    is_found
}

fn is_name(name: &[u8], rest: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| {
        (if *a == b'-' {
            b'_'
        } else {
            a.to_ascii_lowercase()
        }) == *b
    };
    name.len() == rest.len() && name.iter().zip(rest).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_name_are_joined() {
        let lines = [(&b"X-A"[..], &b"1"[..]), (b"x-a", b"2"), (b"X-B", b"3")];
        let mut out = Vec::new();
        assert!(joined(lines.into_iter(), b"x_a", b", ", &mut out));
        assert_eq!(out, b"1, 2");
        assert!(!joined(lines.into_iter(), b"x_c", b", ", &mut out));
    }

    #[test]
    fn times_have_three_digits() {
        let mut out = Vec::new();
        assert!(milliseconds(1005, &mut out));
        assert_eq!(out, b"1.005");
    }
}
