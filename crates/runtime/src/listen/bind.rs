//! Listening sockets: made by the master, one per loop and address.
//!
//! Not here: when to bind, and accepting. Invariant: the first socket of an address is bound *without* SO_REUSEPORT, so
//! that a second instance gets EADDRINUSE as with nginx and does not silently take half of the connections; only then
//! is the option set and are the others bound.
#![expect(
    clippy::disallowed_methods,
    reason = "the master binds, before or beside any loop"
)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use wire::numbered;

use super::{Address, KeepaliveProbes, SocketOptions};

/// Seconds that TCP_DEFER_ACCEPT waits for data, as nginx sets it.
const DEFER_ACCEPT_SECONDS: i32 = 1;

/// The step of making a socket that failed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// socket(2) or an option that it cannot do without.
    #[error("socket() {address} failed {}", numbered(.error))]
    Socket {
        /// The address.
        address: Address,
        /// The kernel's error.
        error: io::Error,
    },
    /// bind(2).
    #[error("bind() to {address} failed {}", numbered(.error))]
    Bind {
        /// The address.
        address: Address,
        /// The kernel's error.
        error: io::Error,
    },
    /// listen(2).
    #[error("listen() to {address}, backlog {backlog} failed {}", numbered(.error))]
    Listen {
        /// The address.
        address: Address,
        /// The backlog that was asked for.
        backlog: i32,
        /// The kernel's error.
        error: io::Error,
    },
}

impl BindError {
    /// Whether another socket has the address: then the caller tries again, as nginx does.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Bind { error, .. } | Self::Listen { error, .. } => {
                error.raw_os_error() == Some(rustix::io::Errno::ADDRINUSE.raw_os_error())
            }
            Self::Socket { .. } => false,
        }
    }
}

/// Binds the first socket of an address and lets it listen.
///
/// # Errors
/// The step that failed; [`BindError::is_in_use`] tells whether to try again.
pub fn open(address: &Address, options: &SocketOptions) -> Result<OwnedFd, BindError> {
    let socket = bound(address, options, false)?;
    if matches!(address, Address::Inet(_)) {
        let reuse = socket.set_reuse_port(true);
        reuse.map_err(|error| BindError::Socket {
            address: address.clone(),
            error,
        })?;
    }
    listen(&socket, address, options.backlog)?;
    Ok(socket.into())
}

/// Binds one more socket of a TCP address that [`open`] has bound. It gets no connections before it listens. Unix sockets
/// cannot share an address; theirs is served by one loop, which hands connections on.
///
/// # Errors
/// The step that failed.
pub fn reserve(address: &Address, options: &SocketOptions) -> Result<OwnedFd, BindError> {
    Ok(bound(address, options, true)?.into())
}

/// Makes a listening socket that another process bound usable like one of [`open`], and returns its address. The other
/// process may go on to use it.
///
/// # Errors
/// It is no socket of TCP or of a path, or an option cannot be set.
pub fn adopt(socket: &OwnedFd) -> io::Result<Address> {
    let options = SockRef::from(socket);
    if options.r#type()? != Type::STREAM {
        return Err(io::Error::other("not a stream socket"));
    }
    let name = options.local_addr()?;
    let address = match (name.as_socket(), name.as_pathname()) {
        (Some(inet), _) => Address::Inet(inet),
        (None, Some(path)) => Address::Unix(path.to_owned()),
        (None, None) => return Err(io::Error::other("a socket without an address")),
    };
    options.set_nonblocking(true)?;
    if address.inet().is_some() {
        options.set_reuse_port(true)?;
        // ENOENT where its former owner had not steered its connections.
        let _ = sys::process::end_steering(socket);
    }
    Ok(address)
}

/// Sets the options that can change while a socket listens (on reload).
///
/// # Errors
/// The step that failed.
pub fn set_options(
    socket: impl AsFd,
    address: &Address,
    options: &SocketOptions,
) -> Result<(), BindError> {
    tune(&SockRef::from(&socket), address, options);
    listen(&socket, address, options.backlog)
}

/// Whether the address can be bound at all, for `-t`: an address in use is fine there.
///
/// # Errors
/// The step that failed, but never [`BindError::is_in_use`].
pub fn test(address: &Address, options: &SocketOptions) -> Result<(), BindError> {
    match bound(address, options, false) {
        Err(error) if error.is_in_use() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            if let Some(path) = address.unix_path() {
                let _ = std::fs::remove_file(path);
            }
            Ok(())
        }
    }
}

fn bound(address: &Address, options: &SocketOptions, shared: bool) -> Result<Socket, BindError> {
    let failed = |error| BindError::Socket {
        address: address.clone(),
        error,
    };
    let (domain, protocol, name) = match address {
        Address::Inet(inet) => (
            Domain::for_address(*inet),
            Some(Protocol::TCP),
            SockAddr::from(*inet),
        ),
        Address::Unix(path) => (Domain::UNIX, None, SockAddr::unix(path).map_err(failed)?),
    };
    let socket =
        Socket::new(domain, Type::STREAM.nonblocking().cloexec(), protocol).map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    if shared {
        socket.set_reuse_port(true).map_err(failed)?;
    }
    if domain == Domain::IPV6 {
        socket.set_only_v6(options.ipv6only).map_err(failed)?;
    }
    tune(&socket, address, options);
    let bound = bind_open_to_all(&socket, &name, address);
    bound.map_err(|error| BindError::Bind {
        address: address.clone(),
        error,
    })?;
    Ok(socket)
}

/// Every user may connect to a unix socket, as with nginx; access to its path is up to its directory. The umask sets
/// that while the socket is made: with a later chmod another user could have put a different file there in between.
fn bind_open_to_all(socket: &Socket, name: &SockAddr, address: &Address) -> io::Result<()> {
    if address.unix_path().is_none() {
        return socket.bind(name);
    }
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o111));
    let bound = socket.bind(name);
    rustix::process::umask(mask);
    bound
}

/// Lets a socket listen, or gives one that does another backlog.
///
/// # Errors
/// That of listen(2).
pub fn listen(socket: impl AsFd, address: &Address, backlog: i32) -> Result<(), BindError> {
    let done = SockRef::from(&socket).listen(backlog);
    done.map_err(|error| BindError::Listen {
        address: address.clone(),
        backlog,
        error,
    })
}

/// Options that nginx sets "or ignores": a refusal by the kernel changes speed, not meaning.
fn tune(socket: &Socket, address: &Address, options: &SocketOptions) {
    if let Some(size) = options.rcvbuf {
        let _ = socket.set_recv_buffer_size(size);
    }
    if let Some(size) = options.sndbuf {
        let _ = socket.set_send_buffer_size(size);
    }
    if address.unix_path().is_some() {
        return;
    }
    // Accepted sockets have it too, and so none needs a call of its own (`tcp_nodelay off` switches it off per answer).
    let _ = socket.set_tcp_nodelay(true);
    match options.so_keepalive {
        KeepaliveProbes::Unset => {}
        KeepaliveProbes::Off => drop(socket.set_keepalive(false)),
        KeepaliveProbes::On {
            idle,
            interval,
            count,
        } => {
            let _ = socket.set_keepalive(true);
            let none = TcpKeepalive::new;
            let each = [
                idle.map(|idle| none().with_time(idle)),
                interval.map(|interval| none().with_interval(interval)),
                count.map(|count| none().with_retries(count)),
            ];
            // One that the kernel refuses leaves the others.
            for probes in each.iter().flatten() {
                let _ = socket.set_tcp_keepalive(probes);
            }
        }
    }
    if let Some(queue) = options.fastopen {
        let _ = sys::process::set_fastopen(socket, queue);
    }
    let seconds = if options.deferred {
        DEFER_ACCEPT_SECONDS
    } else {
        0
    };
    let _ = sys::process::set_defer_accept(socket, seconds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    fn local(socket: &OwnedFd) -> Address {
        let address = SockRef::from(socket).local_addr().unwrap();
        Address::Inet(address.as_socket().unwrap())
    }

    fn any_port() -> Address {
        Address::Inet("127.0.0.1:0".parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn options_stand_at_the_socket() {
        let options = SocketOptions {
            rcvbuf: Some(40_000),
            sndbuf: Some(50_000),
            fastopen: Some(7),
            deferred: true,
            so_keepalive: KeepaliveProbes::On {
                idle: Some(Duration::from_secs(600)),
                interval: Some(Duration::from_secs(20)),
                count: Some(5),
            },
            ..SocketOptions::default()
        };
        let listening = open(&any_port(), &options).unwrap();
        let socket = SockRef::from(&listening);
        // The kernel doubles the value that is set (socket(7)).
        assert_eq!(socket.recv_buffer_size().unwrap(), 80_000);
        assert_eq!(socket.send_buffer_size().unwrap(), 100_000);
        assert!(socket.keepalive().unwrap());
        assert_eq!(
            socket.tcp_keepalive_time().unwrap(),
            Duration::from_secs(600)
        );
        assert_eq!(
            socket.tcp_keepalive_interval().unwrap(),
            Duration::from_secs(20)
        );
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 5);
    }

    #[test]
    fn accepted_sockets_send_small_packets_at_once() {
        let listening = open(&any_port(), &SocketOptions::default()).unwrap();
        let Address::Inet(address) = local(&listening) else {
            unreachable!("TCP was asked for")
        };
        let _client = TcpStream::connect(address).unwrap();
        SockRef::from(&listening).set_nonblocking(false).unwrap();
        let (accepted, _) = SockRef::from(&listening).accept().unwrap();
        assert!(accepted.tcp_nodelay().unwrap());
    }

    #[test]
    fn a_second_instance_finds_the_address_in_use() {
        let first = open(&any_port(), &SocketOptions::default()).unwrap();
        let address = local(&first);
        let refused = open(&address, &SocketOptions::default()).unwrap_err();
        assert!(refused.is_in_use());
        assert_eq!(
            refused.to_string(),
            format!("bind() to {address} failed (98: Address already in use)")
        );
        assert!(test(&address, &SocketOptions::default()).is_ok());
    }

    #[test]
    fn several_sockets_share_an_address_after_the_first() {
        let options = SocketOptions::default();
        let first = open(&any_port(), &options).unwrap();
        let address = local(&first);
        let more: Vec<_> = (0..3)
            .map(|_| reserve(&address, &options).unwrap())
            .collect();
        let Address::Inet(inet) = address else {
            panic!("TCP was asked for")
        };
        let accepted_of = |sockets: &[&OwnedFd]| {
            let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(inet).unwrap()).collect();
            let mut accepted = 0;
            for socket in sockets {
                while rustix::net::accept(socket).is_ok() {
                    accepted += 1;
                }
            }
            accepted == clients.len()
        };
        assert!(accepted_of(&[&first]), "the others do not listen yet");
        for socket in &more {
            listen(socket, &address, options.backlog).unwrap();
        }
        let all: Vec<_> = more.iter().chain([&first]).collect();
        assert!(accepted_of(&all) && !accepted_of(&[&first]));
    }

    #[test]
    fn a_unix_socket_is_open_to_all_and_in_use_afterwards() {
        let directory = std::env::temp_dir().join(format!("freewheel-bind-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let address = Address::Unix(directory.join("s"));
        test(&address, &SocketOptions::default()).unwrap();
        let _socket = open(&address, &SocketOptions::default()).unwrap();
        let mode = rustix::fs::stat(directory.join("s")).unwrap().st_mode & 0o777;
        assert_eq!(mode, 0o666);
        assert!(
            open(&address, &SocketOptions::default())
                .unwrap_err()
                .is_in_use()
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
