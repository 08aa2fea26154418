//! Answers that are read ahead of slow clients (`proxy_buffering`): their servers are let go.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use blackbox::gateway::answer;
use blackbox::{Connection, PATIENCE, Reply, Server, Site, is_nginx};
use nix::sys::socket::sockopt::{RcvBuf, SndBuf};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket,
};

/// Far more than all sockets on the way hold.
const LENGTH: usize = 2 << 20;
/// More than the sockets on the way hold and servers keep in memory.
const HELD_MAX: u64 = 1 << 20;
const BUFFERED: &str = "is buffered to a temporary file";

/// A server behind the one under test that counts what was taken from it.
struct Source {
    port: u16,
    sent: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl Source {
    /// Gives these bytes to everybody who asks, and closes behind them if it is said so.
    fn start(bytes: Vec<u8>, closes: bool) -> Source {
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
    fn of(body: &[u8]) -> Source {
        Source::with("", body)
    }

    /// The same with header lines.
    fn with(lines: &str, body: &[u8]) -> Source {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n",
            body.len()
        );
        Source::start([head.as_bytes(), body].concat(), false)
    }

    /// Waits until it has got rid of so many answers.
    fn wait(&self, answers: u64, server: &Server) {
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
    fn held_at(&self) -> u64 {
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
fn body() -> Vec<u8> {
    (0..LENGTH as u32 / 8)
        .flat_map(|number| format!("{number:07}\n").into_bytes())
        .collect()
}

/// A client whose socket takes little.
fn slow(server: &Server, path: &str) -> Connection {
    slow_with(server, path, "")
}

fn slow_with(server: &Server, path: &str, lines: &str) -> Connection {
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
    let mut connection = Connection::new(TcpStream::from(socket));
    connection.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"
    ));
    connection
}

/// The rest of an answer, as fast as it comes now.
fn whole(client: &mut Connection) -> Reply {
    setsockopt(client.stream(), RcvBuf, &(1 << 20)).expect("the system bounds it");
    client.reply()
}

fn http(source: &Source, text: &str) -> String {
    let pass = format!("proxy_pass http://127.0.0.1:{}", source.port);
    let text = text
        .replace("%PASS%", &pass)
        .replace("%SOURCE%", &format!("127.0.0.1:{}", source.port));
    format!(
        "proxy_temp_path %DIR%/temporary 1 2; server {{ listen 127.0.0.1:%PORT% sndbuf=16k; proxy_socket_rcvbuf 16k; {text} }}"
    )
}

fn serve(source: &Source, locations: &str) -> Server {
    Server::start(&http(source, locations))
}

/// Files below the directory for temporary ones.
fn left(server: &Server) -> usize {
    fn count(path: PathBuf) -> usize {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries.map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count(entry.path()),
            _ => 1,
        });
        files.sum()
    }
    count(server.site().path("temporary"))
}

#[test]
fn a_server_is_let_go_while_its_client_has_taken_nothing() {
    let body = body();
    let source = Source::of(&body);
    let server = serve(&source, "location / { %PASS%; }");
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    server.wait_for(BUFFERED, "that is told");
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(BUFFERED)).unwrap();
    let told = format!("{BUFFERED} {}/", server.site().path("temporary").display());
    assert!(line.contains("[warn]") && line.contains(&told), "{line}");
    assert!(
        line.contains(" while reading upstream, client: 127.0.0.1, "),
        "{line}"
    );
    if !is_nginx() {
        assert_eq!(left(&server), 0, "it has no name");
    }
    assert!(whole(&mut client).body == body);
}

#[test]
fn its_connection_serves_others_meanwhile() {
    let body = body();
    let source = Source::of(&body);
    let server = Server::start(&format!(
        "upstream kept {{ server 127.0.0.1:{}; keepalive 4; }}
         {}",
        source.port,
        http(
            &source,
            "location / { proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ''; }"
        )
    ));
    let mut clients: Vec<Connection> = (1..=3)
        .map(|number| {
            let client = slow(&server, "/");
            source.wait(number, &server);
            // It is put back when the last byte was read, which is a moment after it was sent.
            std::thread::sleep(Duration::from_millis(100));
            client
        })
        .collect();
    assert_eq!(source.connections.load(SeqCst), 1);
    for client in &mut clients {
        assert!(whole(client).body == body);
    }
}

#[test]
fn a_client_that_keeps_up_causes_no_file() {
    let body = body();
    let source = Source::of(&body);
    let server = Server::start(&format!(
        "proxy_temp_path %DIR%/temporary; server {{ listen 127.0.0.1:%PORT%; proxy_buffers 8 8k; location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        source.port
    ));
    let mut client = server.connect();
    for _ in 0..4 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.reply().body == body);
    }
    if !is_nginx() {
        let log = server.error_log();
        assert!(!log.contains(BUFFERED), "{log}");
    }
}

#[test]
fn where_it_must_not_be_buffered_its_server_waits() {
    let body = body();
    for (lines, location, is_let_go) in [
        ("", "proxy_buffering off;", false),
        ("X-Accel-Buffering: no\r\n", "", false),
        ("X-Accel-Buffering: No\r\n", "", false),
        ("X-Accel-Buffering: never\r\n", "", true),
        ("X-Accel-Buffering: yes\r\n", "proxy_buffering off;", true),
        (
            "X-Accel-Buffering: yes\r\n",
            "proxy_buffering off; proxy_ignore_headers X-Accel-Buffering;",
            false,
        ),
        (
            "X-Accel-Buffering: no\r\n",
            "proxy_ignore_headers X-Accel-Buffering;",
            true,
        ),
        ("", "proxy_max_temp_file_size 0;", false),
        ("", "proxy_max_temp_file_size 100k;", false),
        (
            "",
            "proxy_temp_file_write_size 12k; proxy_buffers 16 4k;",
            true,
        ),
    ] {
        let source = Source::with(lines, &body);
        let server = serve(&source, &format!("location / {{ %PASS%; {location} }}"));
        let mut client = slow(&server, "/");
        match is_let_go {
            true => source.wait(1, &server),
            false => {
                let taken = source.held_at();
                assert!(taken < HELD_MAX, "{lines} {location}: {taken} bytes taken");
            }
        }
        assert!(whole(&mut client).body == body, "{lines} {location}");
        assert_eq!(source.answers.load(SeqCst), 1);
    }
}

#[test]
fn so_are_those_of_the_other_families() {
    let body = body();
    let plain = [b"Status: 200 OK\r\n\r\n", &body[..]].concat();
    for (family, bytes) in [
        ("fastcgi", answer(&plain)),
        ("uwsgi", plain.clone()),
        ("scgi", plain.clone()),
    ] {
        let source = Source::start(bytes, true);
        let server = serve(
            &source,
            &format!(
                "{family}_temp_path %DIR%/own;
                 {family}_socket_rcvbuf 16k;
                 location / {{ {family}_pass %SOURCE%; }}
                 location /off {{ {family}_pass %SOURCE%; {family}_buffering off; }}"
            ),
        );
        let mut client = slow(&server, "/");
        source.wait(1, &server);
        let own = server.site().path("own").display().to_string();
        server.wait_for(&format!("{BUFFERED} {own}/"), "that is told");
        assert!(whole(&mut client).body == body, "{family}");
        source.sent.store(0, SeqCst);
        let mut client = slow(&server, "/off");
        let taken = source.held_at();
        assert!(taken < HELD_MAX, "{family}: {taken} bytes taken");
        assert!(whole(&mut client).body == body, "{family}");
    }
}

#[test]
fn what_came_before_an_answer_broke_off_is_sent() {
    let body = body();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        body.len() + 1
    );
    let source = Source::start([head.as_bytes(), &body].concat(), true);
    let server = serve(&source, "location / { %PASS%; }");
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    client.until("\r\n\r\n");
    assert!(client.rest() == body);
}

#[test]
fn filters_limits_and_chunks_stand_before_what_is_buffered() {
    let body = body();
    let chunks: Vec<u8> = body
        .chunks(5000)
        .flat_map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
        .chain(*b"0\r\nX-Behind: yes\r\n\r\n")
        .collect();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
    let source = Source::start([&head[..], &chunks].concat(), false);
    let server = serve(
        &source,
        "default_type text/html;
         location /sub { %PASS%; sub_filter nothing something; }
         location /gzip { %PASS%; gzip on; gzip_comp_level 1; }
         location /ssi { %PASS%; ssi on; }
         location /include { ssi on; }
         location /added { add_before_body /plain; }
         location /rate { %PASS%; limit_rate 8m; limit_rate_after 1k; }
         location /trailers { %PASS%; proxy_pass_trailers on; }
         location /plain { %PASS%; }",
    );
    server.file("include", "<!--# include virtual=\"/plain\" -->");
    server.file("added", "");
    for (number, path) in [
        "/plain",
        "/sub",
        "/gzip",
        "/ssi",
        "/include",
        "/added",
        "/rate",
        "/trailers",
    ]
    .iter()
    .enumerate()
    {
        let lines = if *path == "/gzip" {
            "Accept-Encoding: gzip\r\n"
        } else {
            "TE: trailers\r\n"
        };
        let mut client = slow_with(&server, path, lines);
        source.wait(number as u64 + 1, &server);
        let reply = whole(&mut client);
        let came = match *path {
            "/gzip" => {
                let mut plain = Vec::new();
                let mut coded = flate2::read::GzDecoder::new(&reply.body[..]);
                coded.read_to_end(&mut plain).expect("it is whole");
                plain
            }
            _ => reply.body,
        };
        assert!(came == body, "{path}: {} bytes", came.len());
    }
}

#[test]
fn what_a_cache_does_not_keep_is_buffered_too() {
    let body = body();
    let source = Source::with("Accept-Ranges: bytes\r\n", &body);
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m; {}",
        http(
            &source,
            "location / { %PASS%; proxy_cache c; proxy_no_cache 1; }
             location /store/ { %PASS%; proxy_store %DIR%/html/stored; }"
        )
    ));
    if !is_nginx() {
        server.wait_for(": 0 entries known", "its cache is open");
    }
    // Whoever the worker is.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(server.site().path("html"), permissions).expect("it is ours");
    for (number, path) in ["/", "/store/"].iter().enumerate() {
        let mut client = slow(&server, path);
        source.wait(number as u64 + 1, &server);
        assert!(whole(&mut client).body == body, "{path}");
    }
}

#[test]
fn a_disk_that_refuses_holds_the_server_back_and_is_told_of_once() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let server = serve(&source, "location / { %PASS%; }");
    std::fs::remove_dir(server.site().path("temporary")).expect("it is empty");
    for _ in 0..2 {
        source.sent.store(0, SeqCst);
        let mut client = slow(&server, "/");
        let taken = source.held_at();
        assert!(taken < HELD_MAX, "{taken} bytes taken");
        assert!(whole(&mut client).body == body);
    }
    let log = server.error_log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("[crit]")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let told = "failed (2: No such file or directory), so the server waits for the client while reading upstream, client: 127.0.0.1";
    assert!(
        lines[0].contains("mkdir()") && lines[0].contains(told),
        "{log}"
    );
    server.forget_log();
}

#[test]
fn pools_that_stand_still_hold_the_server_back_and_nothing_is_lost() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let server = Server::start_on(
        site,
        "",
        &http(
            &source,
            "location / { %PASS%; } location /small { return 200 small; }",
        ),
    );
    std::fs::write(&hold, "").expect("the directory is ours");
    std::thread::sleep(Duration::from_millis(100));
    let mut client = slow(&server, "/");
    let taken = source.held_at();
    assert!(taken < HELD_MAX, "{taken} bytes taken");
    assert_eq!(server.get("/small").text(), "small", "no loop waits");
    // From memory, and then from its server.
    assert!(whole(&mut client).body == body);
    std::fs::remove_file(&hold).expect("it was made");
    let mut client = slow(&server, "/");
    source.wait(2, &server);
    assert!(whole(&mut client).body == body);
}
