//! Opening connections to upstreams, over TCP and unix sockets, without waiting for the other side.
//!
//! Not here: which server is asked, and whether a kept connection is used instead. Limit: the kernel looks up a
//! unix socket's path in `connect(2)` itself, which could wait for a disk; so a caller on a loop opens the path by `disk`
//! (O_PATH) and gives `/proc/self/fd/N`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{IpBindAddressNoPort, IpTransparent};
use rustix::net::sockopt;
use tokio::net::{TcpSocket, UnixStream};

use crate::clock;
use crate::event_loop::Loop;
use crate::exchange::UpstreamConnection;
use crate::stream::Stream;

/// Where to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// TCP.
    Inet(SocketAddr),
    /// A unix socket.
    Unix(&'a Path),
}

/// How a connection is to be. Nothing of it matters for unix sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The address to come from (`proxy_bind`); port 0: any.
    pub from: Option<SocketAddr>,
    /// That address need not be this machine's (IP_TRANSPARENT, `proxy_bind … transparent`).
    pub is_transparent: bool,
    /// SO_KEEPALIVE (`proxy_socket_keepalive`).
    pub probes: bool,
    /// Bytes of the kernel's receive buffer (`proxy_socket_rcvbuf`); 0: as it is.
    pub receive_bytes: u32,
    /// Bytes of the kernel's send buffer (`proxy_socket_sndbuf`); 0: as it is.
    pub send_bytes: u32,
}

/// Why there is no connection, in nginx's words.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server did not answer in time.
    #[error("upstream timed out (110: Connection timed out)")]
    Timeout,
    /// The address to come from is not to be had.
    #[error("bind({from}) failed {}", numbered(.error))]
    Bind {
        /// What the kernel says.
        error: io::Error,
        /// The address.
        from: SocketAddr,
    },
    /// Nobody may come from foreign addresses here: that needs CAP_NET_RAW or CAP_NET_ADMIN.
    #[error("setsockopt(IP_TRANSPARENT) failed {}", numbered(.0))]
    Transparent(io::Error),
    /// The server refused, or there is no way to it.
    #[error("connect() failed {}", numbered(.0))]
    Refused(io::Error),
}

impl ConnectError {
    /// Was there no descriptor to be had?
    #[must_use]
    pub fn lacks_descriptor(&self) -> bool {
        let Self::Refused(error) = self else {
            return false;
        };
        let errno = rustix::io::Errno::from_io_error(error);
        matches!(
            errno,
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        )
    }
}

/// Connects, in at most `timeout` (`proxy_connect_timeout`).
///
/// # Errors
/// The server cannot be reached, or not in time.
pub async fn connect(
    to: Destination<'_>,
    options: &Options,
    timeout: Duration,
    owner: &Rc<Loop>,
) -> Result<UpstreamConnection, ConnectError> {
    let opened_ms = clock::monotonic_ms();
    let mut timer = owner.wheel.timer();
    let stream = timer
        .guard(timeout, open(to, options))
        .await
        .unwrap_or(Err(ConnectError::Timeout))?;
    Ok(UpstreamConnection::new(stream, owner, timer, opened_ms))
}

async fn open(to: Destination<'_>, options: &Options) -> Result<Stream, ConnectError> {
    let address = match to {
        Destination::Inet(address) => address,
        Destination::Unix(path) => {
            let stream = UnixStream::connect(path).await;
            return stream.map(Stream::Unix).map_err(ConnectError::Refused);
        }
    };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
    .map_err(ConnectError::Refused)?;
    if options.receive_bytes > 0 {
        let outcome = socket.set_recv_buffer_size(options.receive_bytes);
        outcome.map_err(ConnectError::Refused)?;
    }
    if options.send_bytes > 0 {
        let outcome = socket.set_send_buffer_size(options.send_bytes);
        outcome.map_err(ConnectError::Refused)?;
    }
    if options.probes {
        let outcome = sockopt::set_socket_keepalive(&socket, true);
        outcome.map_err(|error| ConnectError::Refused(error.into()))?;
    }
    if let Some(from) = options.from {
        bind(&socket, from, options.is_transparent)?;
    }
    let stream = socket.connect(address).await;
    let stream = Stream::Tcp(stream.map_err(ConnectError::Refused)?);
    let _ = stream.set_nodelay(true); // a socket that is gone says so when it is used
    Ok(stream)
}

fn bind(socket: &TcpSocket, from: SocketAddr, is_transparent: bool) -> Result<(), ConnectError> {
    if is_transparent {
        let outcome = setsockopt(socket, IpTransparent, &true);
        outcome.map_err(|error| ConnectError::Transparent(error.into()))?;
    }
    if from.port() == 0 {
        // The port is chosen with the way to the server, not for all servers together. Where that cannot be had, it is as it was.
        let _ = setsockopt(socket, IpBindAddressNoPort, &true);
    }
    let outcome = socket.bind(from);
    outcome.map_err(|error| ConnectError::Bind { error, from })
}

/// `(111: Connection refused)`, as nginx writes what the kernel says.
pub(crate) fn numbered(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or("");
            format!("({code}: {text})")
        }
        None => format!("({text})"),
    }
}
