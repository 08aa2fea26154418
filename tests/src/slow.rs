//! Slow clients, and a server behind the server under test that says how much was taken from it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{RcvBuf, SndBuf};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket,
};

use crate::{Connection, PATIENCE, Reply, Server};

/// Far more than all sockets on the way hold.
const LENGTH: usize = 2 << 20;
/// More than the sockets on the way hold and servers keep in memory.
pub const HELD_MAX: u64 = 1 << 20;

/// A server behind the one under test that counts what was taken from it.
pub struct Source {
    /// Where it listens.
    pub port: u16,
    /// Bytes that were taken from it.
    pub sent: Arc<AtomicU64>,
    /// Answers that it got rid of.
    pub answers: Arc<AtomicU64>,
    /// Connections that came to it.
    pub connections: Arc<AtomicU64>,
}

impl Source {
    /// Gives these bytes to everybody who asks, and closes behind them if it is said so.
    pub fn start(bytes: Vec<u8>, closes: bool) -> Source {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        setsockopt(&listener, SndBuf, &4096).expect("any size is rounded up");
        let source = Source {
            port: listener.local_addr().expect("it listens").port(),
            sent: Arc::default(),
            answers: Arc::default(),
            connections: Arc::default(),
        };
        let (sent, answers) = (Arc::clone(&source.sent), Arc::clone(&source.answers));
        let (connections, bytes) = (Arc::clone(&source.connections), Arc::new(bytes));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, SeqCst);
                let (sent, answers) = (Arc::clone(&sent), Arc::clone(&answers));
                let bytes = Arc::clone(&bytes);
                std::thread::spawn(move || give(stream, &bytes, closes, &sent, &answers));
            }
        });
        source
    }

    /// HTTP with a length.
    pub fn of(body: &[u8]) -> Source {
        Source::with("", body)
    }

    /// The same with header lines.
    pub fn with(lines: &str, body: &[u8]) -> Source {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n",
            body.len()
        );
        Source::start([head.as_bytes(), body].concat(), false)
    }

    /// Waits until it has got rid of so many answers.
    pub fn wait(&self, answers: u64, server: &Server) {
        let begun = Instant::now();
        while self.answers.load(SeqCst) < answers {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} bytes taken:\n{}",
                self.sent.load(SeqCst),
                server.error_log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many bytes are taken from it, once it is no more.
    pub fn held_at(&self) -> u64 {
        let mut last = u64::MAX;
        loop {
            let sent = self.sent.load(SeqCst);
            if sent == last {
                return sent;
            }
            last = sent;
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

fn give(mut stream: TcpStream, bytes: &[u8], closes: bool, sent: &AtomicU64, answers: &AtomicU64) {
    let mut buffer = [0; 65_536];
    // Requests are small here, and come one after the other.
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
        for piece in bytes.chunks(4096) {
            if stream.write_all(piece).is_err() {
                return;
            }
            sent.fetch_add(piece.len() as u64, SeqCst);
        }
        answers.fetch_add(1, SeqCst);
        if closes {
            return;
        }
    }
}

/// Bytes that tell their place.
pub fn body() -> Vec<u8> {
    (0..LENGTH as u32 / 8)
        .flat_map(|number| format!("{number:07}\n").into_bytes())
        .collect()
}

/// A client whose socket takes little.
pub fn slow(server: &Server, path: &str) -> Connection {
    slow_with(server, path, "")
}

/// The same with header lines.
pub fn slow_with(server: &Server, path: &str, lines: &str) -> Connection {
    let mut connection = narrow(server);
    connection.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"
    ));
    connection
}

/// A connection whose socket takes little.
pub fn narrow(server: &Server) -> Connection {
    let address = server.connect().stream().peer_addr().expect("connected");
    let socket = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::empty(),
        None,
    )
    .expect("a socket can be made");
    setsockopt(&socket, RcvBuf, &1).expect("any size is rounded up");
    let port = SockaddrIn::new(127, 0, 0, 1, address.port());
    connect(socket.as_raw_fd(), &port).expect("the server listens");
    Connection::new(TcpStream::from(socket))
}

/// The rest of an answer, as fast as it comes now.
pub fn whole(client: &mut Connection) -> Reply {
    setsockopt(client.stream(), RcvBuf, &(1 << 20)).expect("the system bounds it");
    client.reply()
}
