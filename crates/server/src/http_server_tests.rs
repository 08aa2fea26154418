//! The counters of a connection at the moment when its client sees its end.
//!
//! The sockets here close with a delay (SO_LINGER, socket(7)): the loop stays inside close(2) while the client does not
//! read, so whatever is counted then is what another client would find that has seen the end.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Recorded;
use runtime::listen::{Address, BACKLOG_DEFAULT, SocketOptions, bind};
use runtime::loops::accept::Source;
use runtime::loops::{loop_threads, sums};
use runtime::{Listener, Shared, SocketType};
use socket2::{Domain, SockRef, Socket, Type};

use crate::http_server::{self, HttpServer};
use crate::memory::directives::MemoryBudget;
use crate::process::load::{Origin, load};
use crate::settings::circumstances::Circumstances;
use httpcore::settings::Settings;

/// Time that close(2) waits: longer than the tests.
const LINGER: Duration = Duration::from_secs(600);
/// Maximum time that a test waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// A window that does not hold the response.
const WINDOW: usize = 2304;
/// A buffer that does.
const BUFFER: usize = 1 << 20;
/// Number of repetitions in the response.
const TIMES: usize = 50;
/// Bytes of each repetition.
const PIECE: usize = 2000;

/// A configuration with one server.
fn settings(address: &Address, lines: &str) -> Arc<Settings> {
    let piece = "x".repeat(PIECE);
    let answer = "$piece".repeat(TIMES);
    let text = format!(
        "events {{}} http {{ access_log off; server {{ listen {address}; set $piece {piece}; {lines} return 200 {answer}; }} }}"
    );
    let root = PathBuf::from("/nowhere/nginx.conf");
    let mut source = Recorded {
        files: HashMap::from([(root.clone(), text.into())]),
        ..Recorded::default()
    };
    let origin = Origin {
        prefix: "/nowhere/".into(),
        root,
        globals: None,
    };
    let loaded = load(&origin, &Circumstances::here(), &mut source, &[]);
    loaded.expect("it is right").settings
}

/// One loop that serves, with its log discarded.
struct Site {
    server: HttpServer,
    address: SocketAddr,
}

fn open(lines: &str) -> Site {
    let any = Address::Inet("127.0.0.1:0".parse().unwrap());
    let socket = bind::open(&any, &SocketOptions::default()).unwrap();
    let address = SockRef::from(&socket).local_addr().unwrap();
    let address = address.as_socket().unwrap();
    let listener = Arc::new(Listener {
        address: Address::Inet(address),
        socket_type: SocketType::Stream,
    });
    // Accepted sockets inherit the listening socket's options.
    let options = SockRef::from(&socket);
    options.set_linger(Some(LINGER)).unwrap();
    options.set_send_buffer_size(BUFFER).unwrap();
    let settings = settings(&listener.address, lines);
    let source = Source {
        listener,
        socket: Arc::new(socket),
        backlog: BACKLOG_DEFAULT,
    };
    let plan = http_server::Plan {
        loops: loop_threads::Plan {
            stall_ns: 0,
            number: 1,
            configuration: Arc::clone(&settings) as _,
            loops: 1,
            connections_max: 10_000,
            sources: vec![source],
            cpus: Vec::new(),
        },
        settings,
        begun_ns: 0,
        memory_budget: MemoryBudget::Auto,
    };
    let logs = logs::Logs::start().unwrap();
    let disk = disk::Disk::new(disk::Disk::prepare());
    let ledger = crate::monitoring::begin(logs.clone(), Arc::clone(&disk), &[]);
    let mut server = HttpServer::new(Shared { logs, disk, ledger });
    server.apply(&plan).unwrap();
    Site { server, address }
}

impl Site {
    /// A client that takes only a little of the response.
    fn ask(&self, lines: &str) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(WINDOW).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        (&socket).write_all(request.as_bytes()).unwrap();
        socket
    }

    /// Connections as `stub_status` would show them: active, reading, writing.
    fn counts(&self) -> [u64; 3] {
        let sum = sums::all(self.server.ledger());
        [sum.connections, sum.reading(), sum.answering]
    }

    /// Waits until an accepted connection is no longer counted.
    fn wait_until_none_is_counted(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.accepted() == 0 || self.counts() != [0; 3] {
            assert!(Instant::now() < deadline, "still {:?}", self.counts());
            std::thread::yield_now();
        }
    }

    fn accepted(&self) -> u64 {
        sums::all(self.server.ledger()).accepted
    }
}

/// Reads the response to its end, and to the connection's end.
fn read_all(mut socket: &Socket) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > TIMES * PIECE, "{} bytes", answer.len());
}

#[test]
fn behind_its_last_answer_a_connection_is_counted_no_more_when_it_closes() {
    let site = open("");
    let client = site.ask("Connection: close\r\n");
    site.wait_until_none_is_counted();
    read_all(&client);
}

#[test]
fn a_kept_connection_is_counted_no_more_when_it_closes() {
    let site = open("");
    let client = site.ask("");
    client.shutdown(Shutdown::Write).unwrap();
    site.wait_until_none_is_counted();
    read_all(&client);
}

#[test]
fn a_connection_that_lingered_is_counted_no_more_when_it_closes() {
    let site = open("lingering_close always; lingering_timeout 600s;");
    let client = site.ask("Connection: close\r\n");
    client.shutdown(Shutdown::Write).unwrap();
    site.wait_until_none_is_counted();
    read_all(&client);
}

#[test]
fn one_that_nobody_can_read_is_counted_no_more_when_it_closes() {
    let site = open("");
    let client = site.ask("");
    // After the response, the start of a head that is never completed.
    (&client).write_all(b"GET ").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    site.wait_until_none_is_counted();
    read_all(&client);
}
