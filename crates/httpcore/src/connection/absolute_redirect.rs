//! Absolute redirects: scheme, host and port for a `Location` that begins with a slash. nginx-drop-in 15 and 16.

use bytes::Bytes;
use message::Header;

use crate::Response;
use crate::request::Request;

/// Makes a relative `Location` absolute, where the location's settings ask for that. One that stays relative is
/// written with the other header lines: nginx writes only a completed one before `Connection`.
pub fn complete(request: &Request, response: &mut Response) {
    let settings = &request.location().settings.redirects;
    let Some(target) = response.location.take() else {
        return;
    };
    if !settings.absolute_redirect || !target.starts_with(b"/") {
        let line = Header::new("Location", target);
        response.headers.prepend(vec![line]);
        return;
    }
    let scheme = request.client.scheme();
    let mut absolute = [scheme.name(), b"://"].concat();
    match request.head.host() {
        _ if settings.server_name_in_redirect => absolute.extend_from_slice(&request.server().name),
        Some(host) if !host.is_empty() => absolute.extend_from_slice(host),
        _ => request.client.append_server_addr(&mut absolute),
    }
    match request.client.server_port() {
        Some(port) if settings.port_in_redirect && port != scheme.default_port() => {
            absolute.extend_from_slice(format!(":{port}").as_bytes());
        }
        _ => {}
    }
    absolute.extend_from_slice(&target);
    response.location = Some(Bytes::from(absolute));
}
