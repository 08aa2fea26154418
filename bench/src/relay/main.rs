//! `relay`: passes bytes between its clients and one server, each client over a connection of its own, and understands none of them.
//!
//! The floor of proxying: one receive and one send for a request, the same for its answer, nothing else. What it costs is the
//! kernel's part, which no server that speaks HTTP over these calls can be without. Not a proxy: it takes small messages for granted
//! (what a socket does not take at once ends the pair), and connects while everybody waits. One thread; ends when it is killed.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::ExitCode;

const EVENTS: usize = 512;
const BACKLOG: i32 = 1024;
const BUFFER: usize = 65_536;
/// Pairs of connections at once.
const PAIRS_MAX: usize = 4096;
/// What the listening socket's events are marked with; no descriptor has this number.
const LISTENER: u64 = u64::MAX;

fn main() -> ExitCode {
    let addresses: Option<Vec<SocketAddr>> = std::env::args()
        .skip(1)
        .map(|text| text.parse().ok())
        .collect();
    let Some([own, server]) = addresses.as_deref() else {
        eprintln!("usage: relay ADDRESS:PORT SERVER:PORT");
        return ExitCode::FAILURE;
    };
    match run(*own, *server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(own: SocketAddr, server: SocketAddr) -> io::Result<()> {
    let listener = Socket::new(Domain::for_address(own), Type::STREAM.nonblocking(), None)?;
    listener.set_reuse_address(true)?;
    listener.bind(&SockAddr::from(own))?;
    listener.listen(BACKLOG)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    // By descriptor: from here, to there.
    let mut ways: HashMap<u64, (Socket, u64)> = HashMap::new();
    let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
    let mut buffer = vec![0; BUFFER];
    loop {
        let (ready, _) = epoll::wait(&epoll, &mut events, None)?;
        for event in ready {
            let from = event.data.u64();
            if from == LISTENER {
                while let Ok((client, _)) = listener.accept() {
                    if ways.len() >= 2 * PAIRS_MAX {
                        break;
                    }
                    let behind = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
                    behind.connect(&SockAddr::from(server))?;
                    let (here, there) = (number(&client), number(&behind));
                    for (socket, to) in [(client, there), (behind, here)] {
                        socket.set_nonblocking(true)?;
                        socket.set_tcp_nodelay(true)?;
                        let mark = EventData::new_u64(number(&socket));
                        epoll::add(&epoll, &socket, mark, EventFlags::IN | EventFlags::ET)?;
                        ways.insert(number(&socket), (socket, to));
                    }
                }
                continue;
            }
            let Some((socket, to)) = ways.get(&from) else {
                continue;
            };
            let to = *to;
            if !pass(socket, ways.get(&to).map(|(socket, _)| socket), &mut buffer) {
                ways.remove(&from);
                ways.remove(&to);
            }
        }
    }
}

fn number(socket: &Socket) -> u64 {
    u64::try_from(socket.as_raw_fd()).expect("an open descriptor is not negative")
}

/// Passes what has come; false at the end.
fn pass(from: &Socket, to: Option<&Socket>, buffer: &mut [u8]) -> bool {
    let Some(to) = to else { return false };
    match rustix::net::recv(from, &mut *buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => false,
        Ok((len, _)) => {
            rustix::net::send(
                to,
                &buffer[..len],
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) == Ok(len)
        }
        Err(error) => error == rustix::io::Errno::AGAIN,
    }
}
