//! The end of what a worker still serves when `worker_shutdown_timeout` is over.
//!
//! The clients' connections are shut down, so that each request ends as one whose client leaves: with its line in the access log. What does
//! not end then within [`PATIENCE`] is dropped.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, SockaddrStorage, getpeername, getsockname, shutdown};
use runtime::listen::Address;

use super::bundle::Bundle;
use super::directives::Main;

/// For the ends of requests and their lines: one that waits for its `limit_rate` looks at its connection within about a second.
const PATIENCE: Duration = Duration::from_millis(1500);
const TICK: Duration = Duration::from_millis(5);

/// `worker_shutdown_timeout`; `None`, as also 0 in nginx: there is no limit.
pub(super) fn shutdown_timeout(main: &Main) -> Option<Duration> {
    let timeout = main.processes.worker_shutdown_timeout?.duration();
    (!timeout.is_zero()).then_some(timeout)
}

/// When what is in progress ends, and how clients' connections are told from others: by the addresses that are listened
/// on.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    timeout: Option<Duration>,
    ports: Vec<u16>,
    paths: Vec<PathBuf>,
}

impl Deadline {
    /// That of a configuration.
    pub(super) fn of(main: &Main, bundle: &Bundle) -> Self {
        let addresses = bundle.sockets.iter().map(|(address, _)| address);
        Self::new(shutdown_timeout(main), addresses)
    }

    fn new<'a>(timeout: Option<Duration>, addresses: impl Iterator<Item = &'a Address>) -> Self {
        let mut deadline = Self {
            timeout,
            ..Self::default()
        };
        for address in addresses {
            match address {
                Address::Inet(address) => deadline.ports.push(address.port()),
                Address::Unix(path) => deadline.paths.push(path.clone()),
            }
        }
        deadline
    }

    /// The end of a shutdown that begins now; `None`: what is in progress may take as long as it does.
    pub(super) fn begin(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Shuts the clients' connections down, and waits a moment for the ends of their requests.
    pub(super) fn end(&self, mut is_running: impl FnMut() -> bool) {
        if !is_running() {
            return;
        }
        for descriptor in descriptors().filter(|descriptor| self.is_clients(*descriptor)) {
            // One that has been closed meanwhile has ended.
            let _ = shutdown(descriptor, Shutdown::Both);
        }
        let begun = Instant::now();
        while is_running() && begun.elapsed() < PATIENCE {
            std::thread::park_timeout(TICK);
        }
    }

    fn is_clients(&self, descriptor: RawFd) -> bool {
        // One that listens has no peer: other processes may have it, too, and it would listen for none of them any more.
        let (Ok(own), Ok(_)) = (
            getsockname::<SockaddrStorage>(descriptor),
            getpeername::<SockaddrStorage>(descriptor),
        ) else {
            return false;
        };
        let port = (own.as_sockaddr_in().map(|inet| inet.port()))
            .or_else(|| own.as_sockaddr_in6().map(|inet| inet.port()));
        let path = own.as_unix_addr().and_then(|unix| unix.path());
        port.is_some_and(|port| self.ports.contains(&port))
            || path.is_some_and(|path| self.paths.iter().any(|one| one == path))
    }
}

/// All descriptors of this process.
fn descriptors() -> impl Iterator<Item = RawFd> {
    #[expect(
        clippy::disallowed_methods,
        reason = "/proc, and no loop runs on this thread"
    )]
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_timeout_of_zero_is_none() {
        let of = |line: &str| {
            let text = format!("{line} events {{ }}");
            let tree = config::parse_bytes(text.as_bytes()).unwrap();
            shutdown_timeout(&Main::read(&tree, &mut config::Scope::new()).unwrap())
        };
        assert_eq!(of(""), None);
        assert_eq!(of("worker_shutdown_timeout 0;"), None);
        assert_eq!(of("worker_shutdown_timeout 0s;"), None);
        let second = Some(Duration::from_secs(1));
        assert_eq!(of("worker_shutdown_timeout 1s;"), second);
    }

    #[test]
    fn connections_of_clients_are_shut_down_and_others_are_not() {
        let [ours, other] = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let connect = |listener: &TcpListener| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let ((mut client, _accepted), (to_other, _kept)) = (connect(&ours), connect(&other));
        let address = Address::Inet(ours.local_addr().unwrap());
        let mut asked = 0;
        Deadline::new(None, [&address].into_iter()).end(|| {
            asked += 1;
            asked < 3
        });
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        to_other.set_nonblocking(true).unwrap();
        let error = (&to_other).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        // It listens as before.
        connect(&ours);
    }
}
