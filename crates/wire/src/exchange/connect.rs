//! Opens connections to upstreams, over TCP and Unix sockets, without blocking.
//!
//! Not here: the choice of the server, and the reuse of kept connections. Limit: the kernel looks up a Unix socket's
//! path within `connect(2)` itself, which could wait for a disk; a caller on a loop therefore opens the path with
//! `disk` (O_PATH) and passes `/proc/self/fd/N`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{IpBindAddressNoPort, IpTransparent};
use rustix::net::sockopt;
use tokio::net::{TcpSocket, UnixStream};

use super::UpstreamConnection;
use crate::call_error::numbered;
use crate::event_loop::Loop;
use crate::loop_clock;
use crate::stream::Stream;

/// The address to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectTo<'a> {
    /// TCP.
    Inet(SocketAddr),
    /// A unix socket.
    Unix(&'a Path),
}

/// Socket options of a connection. They have no effect on Unix sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The local address (`proxy_bind`); port 0 lets the kernel choose.
    pub from: Option<SocketAddr>,
    /// Whether the local address may be one that is not this machine's (IP_TRANSPARENT, `proxy_bind … transparent`).
    pub is_transparent: bool,
    /// SO_KEEPALIVE (`proxy_socket_keepalive`).
    pub probes: bool,
    /// The kernel's receive buffer in bytes (`proxy_socket_rcvbuf`); 0 leaves the default.
    pub receive_bytes: u32,
    /// The kernel's send buffer in bytes (`proxy_socket_sndbuf`); 0 leaves the default.
    pub send_bytes: u32,
}

/// Why a connection failed, in nginx's words.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server did not answer in time.
    #[error("upstream timed out (110: Connection timed out)")]
    Timeout,
    /// The local address is not available.
    #[error("bind({from}) failed {}", numbered(.error))]
    Bind {
        /// The kernel's error.
        error: io::Error,
        /// The address.
        from: SocketAddr,
    },
    /// This process may not use foreign addresses: that needs CAP_NET_RAW or CAP_NET_ADMIN.
    #[error("setsockopt(IP_TRANSPARENT) failed {}", numbered(.0))]
    Transparent(io::Error),
    /// This machine or this process has no descriptor or no memory for it: no other server would help.
    #[error("{call} failed {}", numbered(.error))]
    Local {
        /// The call, with its parentheses.
        call: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The server refused, or is unreachable.
    #[error("connect() failed {}", numbered(.0))]
    Refused(io::Error),
}

impl ConnectError {
    /// The log's sentence about the server of this name, and whether it is critical. As in nginx an error of connect(2)
    /// itself names the server, and is critical unless it is one of a server that is down or a network that is not there.
    #[must_use]
    pub fn sentence(&self, name: &str) -> (String, bool) {
        use rustix::io::Errno;
        let Self::Refused(error) = self else {
            let is_critical = matches!(self, Self::Bind { .. } | Self::Local { .. });
            return (self.to_string(), is_critical);
        };
        let errno = Errno::from_io_error(error);
        let is_at_once = name.starts_with("unix:")
            || matches!(
                errno,
                Some(
                    Errno::NETUNREACH
                        | Errno::ADDRNOTAVAIL
                        | Errno::ACCESS
                        | Errno::PERM
                        | Errno::INVAL
                )
            );
        if !is_at_once {
            return (self.to_string(), false);
        }
        let is_down = matches!(
            errno,
            Some(
                Errno::CONNREFUSED
                    | Errno::AGAIN
                    | Errno::CONNRESET
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
            )
        );
        let sentence = format!("connect() to {name} failed {}", numbered(error));
        (sentence, !is_down)
    }

    /// Whether no file descriptor was available.
    #[must_use]
    pub fn lacks_descriptor(&self) -> bool {
        let Self::Local { error, .. } = self else {
            return false;
        };
        let errno = rustix::io::Errno::from_io_error(error);
        matches!(
            errno,
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        )
    }

    /// The error of a call that a connection needs first: a lack of descriptors or memory is this machine's, anything else
    /// (a family of addresses that is not there, a path) the server's, and another server may do without it.
    #[must_use]
    pub fn of_call(call: &'static str, error: io::Error) -> ConnectError {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                ConnectError::Local { call, error }
            }
            _ => ConnectError::Refused(error),
        }
    }

    /// The error of `setsockopt()`.
    fn of_option(error: io::Error) -> ConnectError {
        let call = "setsockopt()";
        ConnectError::Local { call, error }
    }
}

/// Connects within `timeout` (`proxy_connect_timeout`).
///
/// # Errors
/// The server cannot be reached, or not in time.
pub async fn connect(
    to: ConnectTo<'_>,
    options: &ConnectOptions,
    timeout: Duration,
    owner: &Rc<Loop>,
) -> Result<UpstreamConnection, ConnectError> {
    let opened_ms = loop_clock::monotonic_ms();
    let mut timer = owner.wheel.timer();
    let stream = timer
        .guard(timeout, open(to, options))
        .await
        .unwrap_or(Err(ConnectError::Timeout))?;
    Ok(UpstreamConnection::new(stream, owner, timer, opened_ms))
}

async fn open(to: ConnectTo<'_>, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let of_socket = |error| ConnectError::of_call("socket()", error);
    let address = match to {
        ConnectTo::Inet(address) => address,
        ConnectTo::Unix(path) => {
            let stream = UnixStream::connect(path).await;
            // connect(2) has no descriptor to make: an error of that kind is socket()'s.
            return stream.map(Stream::from).map_err(of_socket);
        }
    };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
    .map_err(of_socket)?;
    if options.receive_bytes > 0 {
        let outcome = socket.set_recv_buffer_size(options.receive_bytes);
        outcome.map_err(ConnectError::of_option)?;
    }
    if options.send_bytes > 0 {
        let outcome = socket.set_send_buffer_size(options.send_bytes);
        outcome.map_err(ConnectError::of_option)?;
    }
    if options.probes {
        let outcome = sockopt::set_socket_keepalive(&socket, true);
        outcome.map_err(|error| ConnectError::of_option(error.into()))?;
    }
    if let Some(from) = options.from {
        bind(&socket, from, options.is_transparent)?;
    }
    let stream = socket.connect(address).await;
    let stream = Stream::from(stream.map_err(ConnectError::Refused)?);
    let _ = stream.set_nodelay(true); // a socket that is gone says so when it is used
    Ok(stream)
}

fn bind(socket: &TcpSocket, from: SocketAddr, is_transparent: bool) -> Result<(), ConnectError> {
    if is_transparent {
        let outcome = setsockopt(socket, IpTransparent, &true);
        outcome.map_err(|error| ConnectError::Transparent(error.into()))?;
    }
    if from.port() == 0 {
        // The port is chosen at connect(2), when the destination is known, and so need not be unique among all of them.
        // Best effort: without the option the port is chosen here.
        let _ = setsockopt(socket, IpBindAddressNoPort, &true);
    }
    let outcome = socket.bind(from);
    outcome.map_err(|error| ConnectError::Bind { error, from })
}
