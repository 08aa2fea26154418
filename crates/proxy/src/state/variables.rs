//! The variables of upstream servers (`$upstream_…`).
//!
//! Each function appends the value, or says that there is none.

use message::HeaderId;

use crate::settings::family::Family;
use crate::settings::proxy_pass::{PassSettings, PassTarget};
use crate::settings::url::Url;
use crate::state::upstream_state::{UpstreamState, join, last_head_lines, read_last_head};
use httpcore::request::Request;
use httpcore::variables::append::is_name;
use upstream::attempts::Figure;

httpcore::variables! {
    /// `X-Forwarded-For` of the request with the client's address appended.
    "proxy_add_x_forwarded_for" => fresh(forwarded_for);
    /// The host of `proxy_pass`, with its port unless that is 80.
    "proxy_host" => fresh(host).changeable();
    /// The port of `proxy_pass`.
    "proxy_port" => fresh(port).changeable();
    /// The addresses of the servers that were tried, in order; the upstream's name if none could be.
    "upstream_addr" => fresh(|request, out| figure(request, Figure::Address, out));
    /// Bytes received from each.
    "upstream_bytes_received" => fresh(|request, out| figure(request, Figure::BytesReceived, out));
    /// Bytes sent to each.
    "upstream_bytes_sent" => fresh(|request, out| figure(request, Figure::BytesSent, out));
    /// Seconds with milliseconds to connect to each.
    "upstream_connect_time" => fresh(|request, out| figure(request, Figure::ConnectTime, out));
    /// Seconds with milliseconds until the head of each response was received.
    "upstream_header_time" => fresh(|request, out| figure(request, Figure::HeaderTime, out));
    /// Bytes of the body of each response.
    "upstream_response_length" => fresh(|request, out| figure(request, Figure::ResponseLength, out));
    /// Seconds with milliseconds until each response was received.
    "upstream_response_time" => fresh(|request, out| figure(request, Figure::ResponseTime, out));
    /// The status of each response.
    "upstream_status" => fresh(|request, out| figure(request, Figure::Status, out));
    /// A cookie that the last server's answer sets.
    "upstream_cookie_" => family(cookie);
    /// A header of the last server's answer: lower case, `_` for `-`.
    "upstream_http_" => family(header);
    /// A trailer of the last server's answer: lower case, `_` for `-`.
    "upstream_trailer_" => family(trailer);
}

/// A value of each server that was asked.
fn figure(request: &Request, figure: Figure, out: &mut Vec<u8>) -> bool {
    let state = request.states.get::<UpstreamState>();
    state.is_some_and(|state| state.tries.borrow().write(figure, out))
}

/// `$proxy_host`.
fn host(request: &Request, out: &mut Vec<u8>) -> bool {
    if read_url(request, |url| out.extend_from_slice(&url.host_header)) {
        return true;
    }
    let Some(state) = of_http(request) else {
        return false;
    };
    let host = state.host.borrow();
    out.extend_from_slice(&host);
    !host.is_empty()
}

/// Reads the URL that the request is passed on to, before a server is asked as well: a cache's key may be made of it,
/// and a stored response may be the answer. False: what is known of it is in the state, if anything.
fn read_url(request: &Request, read: impl FnOnce(&Url)) -> bool {
    match target(request) {
        Some(PassTarget::Fixed { url, .. }) => {
            read(url);
            true
        }
        Some(PassTarget::Made(template)) if !is_host_known(request) => {
            let url = Url::parse(&request.evaluate(template));
            url.map(|url| read(&url)).is_ok()
        }
        _ => false,
    }
}

fn is_host_known(request: &Request) -> bool {
    of_http(request).is_some_and(|state| !state.host.borrow().is_empty())
}

/// The upstream of the location's requests, once this one reaches it; only HTTP upstreams have a host.
fn target(request: &Request) -> Option<&PassTarget> {
    let passing = request.location().made::<PassSettings>();
    let passing = passing.filter(|_| request.is_passed_on);
    let passing = passing.filter(|passing| passing.family == Family::Proxy);
    passing.map(|passing| &passing.target)
}

/// The state, unless its host is that of another family.
fn of_http(request: &Request) -> Option<&UpstreamState> {
    let passing = request.location().made::<PassSettings>();
    let is_other = passing.is_some_and(|passing| passing.family != Family::Proxy);
    (request.states.get::<UpstreamState>()).filter(|_| !is_other)
}

/// `$proxy_port`, if the host is known. For a unix socket it is set, and empty.
fn port(request: &Request, out: &mut Vec<u8>) -> bool {
    if read_url(request, |url| out.extend_from_slice(&url.port_text)) {
        return true;
    }
    let Some(state) = of_http(request) else {
        return false;
    };
    out.extend_from_slice(&state.port.borrow());
    !state.host.borrow().is_empty()
}

/// The received `X-Forwarded-For`, with the client's address appended.
fn forwarded_for(request: &Request, out: &mut Vec<u8>) -> bool {
    for value in request.head.get_each(HeaderId::XForwardedFor) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    request.client.append_remote_addr(out);
    true
}

/// `$upstream_http_NAME`
fn header(request: &Request, wanted: &[u8], out: &mut Vec<u8>) -> bool {
    last_head_lines(request, |name| is_name(name, wanted), out)
}

/// `$upstream_trailer_NAME`
fn trailer(request: &Request, wanted: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(state) = request.states.get::<UpstreamState>() else {
        return false;
    };
    let trailers = state.trailers.borrow();
    let lines = trailers.iter().filter(|line| is_name(&line.name, wanted));
    join(lines.map(|line| &line.value[..]), out)
}

/// `$upstream_cookie_NAME`: the value that the response sets.
fn cookie(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    read_last_head(request, |head| {
        let value = head.get_each(HeaderId::SetCookie).find_map(|line| {
            // Spaces alone: a tab belongs to the value, as in nginx.
            let value = skip_spaces(skip_spaces(line.get(name.len()..)?).strip_prefix(b"=")?);
            let is_same = line[..name.len()].eq_ignore_ascii_case(name);
            let end = memchr::memchr(b';', value).unwrap_or(value.len());
            is_same.then_some(&value[..end])
        });
        value.map(|value| out.extend_from_slice(value)).is_some()
    })
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}
