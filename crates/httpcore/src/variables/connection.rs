//! The variables of the connection that a request came on, and of its client.
//!
//! Not here: those of TLS ([`super::tls`]).

use std::net::IpAddr;

use logs::Level;

use crate::client::proxy_protocol::{End, ProxyProtocol};
use crate::request::Request;

use super::append::{milliseconds, number, port, put};

crate::variables! {
    /// The client's address as 4 or 16 bytes (unix sockets: `unix:`).
    "binary_remote_addr" => fresh(binary_remote_addr);
    /// The connection's serial number.
    "connection" => fresh(|request, out| number(request.client.number, out));
    /// Requests made through the connection so far.
    "connection_requests" => fresh(|request, out| number(request.number, out));
    /// The connection's age in seconds with milliseconds.
    "connection_time" => fresh(|request, out| milliseconds(request.client.age_ms(), out));
    /// `h2` over TLS, `h2c` in clear, where the request came over HTTP/2; otherwise empty.
    "http2" => fresh(http2);
    /// `on` over TLS, otherwise empty.
    "https" => fresh(https);
    /// The client's address from the PROXY protocol.
    "proxy_protocol_addr" => fresh(|request, out| address(request, |said| &said.source, out));
    /// The client's port from the PROXY protocol.
    "proxy_protocol_port" => fresh(|request, out| port_of(request, |said| &said.source, out));
    /// The server's address from the PROXY protocol.
    "proxy_protocol_server_addr" => fresh(|request, out| address(request, |said| &said.destination, out));
    /// The server's port from the PROXY protocol.
    "proxy_protocol_server_port" => fresh(|request, out| port_of(request, |said| &said.destination, out));
    /// The client's address.
    "remote_addr" => fresh(remote_addr);
    /// The client's port.
    "remote_port" => fresh(|request, out| port(request.client.port(), out));
    /// `http` or `https`.
    "scheme" => fresh(|request, out| put(request.client.scheme().name(), out));
    /// The address that accepted the request.
    "server_addr" => fresh(server_addr);
    /// The port that accepted the request.
    "server_port" => fresh(|request, out| port(request.client.server_port(), out));
    /// The kernel's `tcpi_rcv_space` of the connection.
    "tcpinfo_rcv_space" => fresh(|request, out| tcp_info(request, |info| info.rcv_space, out));
    /// The kernel's `tcpi_rtt` of the connection.
    "tcpinfo_rtt" => fresh(|request, out| tcp_info(request, |info| info.rtt, out));
    /// The kernel's `tcpi_rttvar` of the connection.
    "tcpinfo_rttvar" => fresh(|request, out| tcp_info(request, |info| info.rttvar, out));
    /// The kernel's `tcpi_snd_cwnd` of the connection.
    "tcpinfo_snd_cwnd" => fresh(|request, out| tcp_info(request, |info| info.snd_cwnd, out));
    /// What the PROXY protocol says more: `alpn`, `authority`, `unique_id`, `ssl`, `netns`, `ssl_verify`, `ssl_version`, `ssl_cn`,
    /// `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, or a number as `0x…`, `ssl_0x…`.
    "proxy_protocol_tlv_" => family(tlv);
}

fn binary_remote_addr(request: &Request, out: &mut Vec<u8>) -> bool {
    match request.client.ip() {
        Some(IpAddr::V4(ip)) => put(&ip.octets(), out),
        Some(IpAddr::V6(ip)) => put(&ip.octets(), out),
        None => put(b"unix:", out),
    }
}

fn http2(request: &Request, out: &mut Vec<u8>) -> bool {
    let is_http2 = request.head.version == message::Version::HTTP_2;
    match (is_http2, request.client.scheme().is_secure()) {
        (false, _) => put(b"", out),
        (true, true) => put(b"h2", out),
        (true, false) => put(b"h2c", out),
    }
}

fn https(request: &Request, out: &mut Vec<u8>) -> bool {
    let is_secure = request.client.scheme().is_secure();
    put(if is_secure { b"on" } else { b"" }, out)
}

fn remote_addr(request: &Request, out: &mut Vec<u8>) -> bool {
    request.client.append_remote_addr(out);
    true
}

fn server_addr(request: &Request, out: &mut Vec<u8>) -> bool {
    request.client.append_server_addr(out);
    true
}

fn tcp_info(request: &Request, which: fn(&sys::TcpInfo) -> u32, out: &mut Vec<u8>) -> bool {
    let Some(socket) = request.transport.tcp_socket() else {
        return false;
    };
    let info = sys::tcp_info(socket);
    info.is_ok_and(|info| number(u64::from(which(&info)), out))
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
fn tlv(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
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
