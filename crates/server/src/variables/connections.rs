//! Variables of the connection that a request came on; `real_ip_header` does not change them.

use logs::Level;

use crate::before::real_ip;
use crate::connection::proxy_protocol::{End, ProxyProtocol};
use crate::request::Request;

use super::names::Core;
use super::values::port;

/// Appends a variable of the connection; `None`: `core` is none of them.
pub(super) fn core(request: &Request, core: Core, out: &mut Vec<u8>) -> Option<bool> {
    Some(match core {
        Core::RealipRemoteAddr => {
            real_ip::connected(request).append_remote_addr(out);
            true
        }
        Core::RealipRemotePort => port(real_ip::connected(request).port(), out),
        Core::ProxyProtocolAddr => address(request, |said| &said.source, out),
        Core::ProxyProtocolPort => port_of(request, |said| &said.source, out),
        Core::ProxyProtocolServerAddr => address(request, |said| &said.destination, out),
        Core::ProxyProtocolServerPort => port_of(request, |said| &said.destination, out),
        _ => return None,
    })
}

fn address(request: &Request, which: fn(&ProxyProtocol) -> &End, out: &mut Vec<u8>) -> bool {
    let Some(said) = request.client.proxied() else {
        return false;
    };
    out.extend_from_slice(&which(said).address);
    true
}

fn port_of(request: &Request, which: fn(&ProxyProtocol) -> &End, out: &mut Vec<u8>) -> bool {
    let Some(said) = request.client.proxied() else {
        return false;
    };
    port(Some(which(said).port).filter(|port| *port > 0), out)
}

/// `$proxy_protocol_tlv_NAME`.
pub(super) fn tlv(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let said = request.client.proxied().map(|said| said.tlv(name));
    match said {
        None | Some(Ok(None)) => false,
        Some(Ok(Some(value))) => {
            out.extend_from_slice(&value);
            true
        }
        Some(Err(why)) => {
            request.log(Level::Error, &|out| out.extend_from_slice(why.as_bytes()));
            false
        }
    }
}
