//! Variables that tell of the connection that a request came on, whoever its client is said to be.

use crate::before::real_ip;
use crate::request::Request;

use super::names::Core;
use super::values::port;

/// Appends one of them; `None`: it is none of them.
pub(super) fn core(request: &Request, core: Core, out: &mut Vec<u8>) -> Option<bool> {
    Some(match core {
        Core::RealipRemoteAddr => {
            real_ip::connected(request).append_remote_addr(out);
            true
        }
        Core::RealipRemotePort => port(real_ip::connected(request).port(), out),
        Core::ProxyProtocolAddr
        | Core::ProxyProtocolPort
        | Core::ProxyProtocolServerAddr
        | Core::ProxyProtocolServerPort => false,
        _ => return None,
    })
}
