//! CONNECT: `tunnel_pass`.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use blackbox::Server;

/// What is behind the 200 of a CONNECT is no body of it.
const HEAD_ONLY: &str = "HEAD";

/// A server that speaks first, answers in capitals, and ends at "bye". Its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                stream.write_all(b"hello ").expect("sent");
                let mut buffer = [0; 1000];
                while let Ok(count) = stream.read(&mut buffer) {
                    let said = buffer[..count].to_ascii_uppercase();
                    if count == 0 || stream.write_all(&said).is_err() || said.ends_with(b"BYE") {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn server(locations: &str) -> Server {
    Server::start(&format!(
        "upstream none {{ server 127.0.0.1:1; }}
         log_format tried '$status $upstream_addr $upstream_bytes_sent $upstream_bytes_received';
         access_log %DIR%/logs/other.log tried;
         server {{ listen 127.0.0.1:%PORT%; error_log %DIR%/logs/other.log info; {locations} }}"
    ))
}

/// Waits for this in the logs.
fn logged(server: &Server, text: &str) {
    let deadline = Instant::now() + blackbox::PATIENCE;
    while !server.read("logs/other.log").contains(text) {
        assert!(
            Instant::now() < deadline,
            "{}",
            server.read("logs/other.log")
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn connect(server: &Server, to: &str, early: &str) -> blackbox::Connection {
    let mut client = server.connect();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: a\r\n\r\n{early}"));
    client
}

#[test]
fn a_tunnel_leads_where_the_client_says() {
    let port = echo();
    let server = server("location / { tunnel_pass; add_header X-A b; }");
    let to = format!("127.0.0.1:{port}");
    let mut client = connect(&server, &to, "");
    let reply = client.reply_to(HEAD_ONLY);
    assert_eq!((reply.status, reply.header("x-a")), (200, Some("b")));
    assert_eq!(reply.header("transfer-encoding"), None);
    assert_eq!(reply.header("content-length"), None);
    assert_eq!(client.read(6), b"hello ");
    client.send("some, bye");
    assert_eq!(client.rest(), b"SOME, BYE");
    let mut client = connect(&server, &to, "early, bye");
    assert_eq!(client.reply_to(HEAD_ONLY).status, 200);
    assert_eq!(client.rest(), b"hello EARLY, BYE");
    logged(&server, &format!("200 {to} 9 15\n200 {to} 10 16\n"));
}

#[test]
fn a_tunnel_may_lead_to_one_place_only() {
    let port = echo();
    let server = server(&format!(
        "tunnel_pass 127.0.0.1:{port}; location /x {{ return 200 x; }}"
    ));
    let mut client = connect(&server, "elsewhere.test:443", "bye");
    assert_eq!(client.reply_to(HEAD_ONLY).status, 200);
    assert_eq!(client.rest(), b"hello BYE");
    assert_eq!(server.get("/").status, 405, "what is not CONNECT");
    assert_eq!(server.get("/x").text(), "x");
}

#[test]
fn what_cannot_be_reached_is_told() {
    let server = server("location / { tunnel_pass $arg_x$host:$request_port; }");
    let mut client = connect(&server, "127.0.0.1:1", "");
    let reply = client.reply();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (502, Some("close"))
    );
    let mut client = connect(&server, "a.test:1", "");
    assert_eq!(client.reply().status, 502, "there is no resolver");
    logged(&server, "while connecting to upstream");
    logged(&server, "no resolver defined to resolve a.test");
}

#[test]
fn a_place_needs_a_port() {
    let server = server("location / { tunnel_pass $host; }");
    let mut client = connect(&server, "127.0.0.1:1", "");
    assert_eq!(client.reply().status, 500);
    let mut client = connect(&server, "none:1", "");
    assert_eq!(client.reply().status, 502, "a group has ports of its own");
    logged(&server, "no port in upstream \"127.0.0.1\"");
}

/// As in nginx: what a client chooses is no error of the server.
#[test]
fn a_place_that_cannot_be_read_is_told_as_information() {
    let server = server("tunnel_pass $host:$request_port$http_to;");
    let mut client = server.connect();
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTo: x\r\n\r\n");
    assert_eq!(client.reply().status, 500);
    logged(&server, "[info] ");
    logged(&server, "invalid port in upstream \"a:1x\"");
}

#[test]
fn a_missing_socket_is_critical() {
    let server = server("tunnel_pass unix:%DIR%/none.sock;");
    assert_eq!(connect(&server, "a:1", "").reply().status, 502);
    logged(&server, "[crit] ");
    logged(
        &server,
        "none.sock failed (2: No such file or directory) while connecting to upstream",
    );
    logged(&server, "none.sock:\"");
}

#[test]
fn the_next_server_is_tried() {
    let port = echo();
    let server = Server::start(&format!(
        "upstream two {{ server 127.0.0.1:1; server 127.0.0.1:{port} backup; }}
         server {{ listen 127.0.0.1:%PORT%; error_log %DIR%/logs/other.log;
            location / {{ tunnel_pass two; }} }}
         server {{ listen 127.0.0.1:%PORT1%; error_log %DIR%/logs/other.log;
            location / {{ tunnel_pass two; tunnel_next_upstream off; }} }}"
    ));
    let mut client = server.connect_to(1);
    client.send("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().status, 502);
    let mut client = connect(&server, "a:1", "bye");
    assert_eq!(client.reply_to(HEAD_ONLY).status, 200);
    assert_eq!(client.rest(), b"hello BYE");
}

#[test]
fn without_it_there_is_no_connect() {
    let server = server("location / { return 200 x; }");
    let mut client = connect(&server, "127.0.0.1:1", "");
    assert_eq!(client.reply().status, 405);
}

#[test]
fn a_silent_tunnel_ends() {
    let port = echo();
    let server = server(&format!(
        "location / {{ tunnel_pass 127.0.0.1:{port}; tunnel_read_timeout 200ms; }}"
    ));
    let mut client = connect(&server, "a:1", "");
    assert_eq!(client.reply_to(HEAD_ONLY).status, 200);
    assert_eq!(client.rest(), b"hello ");
    logged(&server, "timed out");
}

/// nginx tells of the client then, and `reset_timedout_connection` is for it.
#[test]
fn a_tunnel_whose_client_takes_nothing_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let pushing = thread::spawn(move || {
        let mut stream = listener.accept().expect("a connection").0;
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    let server = server(&format!(
        "send_timeout 300ms; reset_timedout_connection on; tunnel_pass 127.0.0.1:{port};"
    ));
    let mut client = connect(&server, "a:1", "");
    logged(
        &server,
        "client timed out (110: Connection timed out) while proxying upgraded connection",
    );
    pushing.join().expect("it is closed");
    assert_eq!(client.reply_to(HEAD_ONLY).status, 200);
    let mut buffer = vec![0; 65_536];
    let error = loop {
        match client.stream().read(&mut buffer) {
            Ok(0) => panic!("closed in the ordinary way"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// A server that takes the upgrade to another protocol, which answers in capitals and ends at "bye"; its port. The heads
/// that it gets go to the channel.
fn upgrading() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (heads, seen) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let heads = heads.clone();
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).expect("text");
                let is_asked =
                    head.contains("Upgrade: websocket") || head.contains("upgrade: websocket");
                heads.send(head).expect("the test runs");
                let answer = match is_asked {
                    true => {
                        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
                         Sec-WebSocket-Accept: x\r\nX-Chat: yes\r\n\r\nhello "
                    }
                    false => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
                };
                stream.write_all(answer.as_bytes()).expect("sent");
                let mut buffer = [0; 65_536];
                while let Ok(count) = stream.read(&mut buffer) {
                    let said = buffer[..count].to_ascii_uppercase();
                    if count == 0 || stream.write_all(&said).is_err() || said.ends_with(b"BYE") {
                        return;
                    }
                }
            });
        }
    });
    (port, seen)
}

const SOCKET: [(&str, &str); 2] = [(":protocol", "websocket"), ("sec-websocket-version", "13")];

/// RFC 8441: what a browser does for wss:// where it has an HTTP/2 connection to the site.
#[test]
fn websocket_over_http2_is_an_upgrade_to_the_server() {
    for preread in ["64k", "1", "0"] {
        expect_websocket(preread);
    }
}

/// `preread`: the room that a client has before anything is read.
fn expect_websocket(preread: &str) {
    let (port, heads) = upgrading();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; http2_body_preread_size {preread};
         location / {{ return 200 \"$request_method $http_upgrade\"; }}
         location /chat {{ proxy_pass http://127.0.0.1:{port}; proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection upgrade; }}
         location /plain {{ proxy_pass http://127.0.0.1:{port}; }} }}"
    ));
    let mut client = server.connect_http2();
    assert!(client.read(), "its settings");
    let chat = client.begin("CONNECT", "/chat", &SOCKET, false);
    client.read_until(chat, 6);
    let begun = client.so_far(chat);
    assert_eq!((begun.status, begun.text().as_str()), (200, "hello "));
    assert_eq!(begun.header("x-chat"), Some("yes"));
    assert_eq!(begun.header("sec-websocket-accept"), None);
    let head = heads.recv_timeout(blackbox::PATIENCE).expect("a request");
    assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("sec-websocket-version: 13") && head.contains("sec-websocket-key: "),
        "{head}"
    );
    // Another request of the connection goes on beside it.
    let other = client.get("/");
    assert_eq!(client.reply(other).text(), "GET ");
    client.body(chat, b"some words", false);
    client.read_until(chat, 16);
    let long = "y".repeat(300_000);
    client.body(chat, long.as_bytes(), false);
    client.read_until(chat, 16 + long.len());
    client.body(chat, b" bye", false);
    let ended = client.reply(chat);
    assert!(
        ended.is_whole && ended.reset.is_none(),
        "the stream has an end"
    );
    assert_eq!(
        ended.text(),
        format!("hello SOME WORDS{} BYE", long.to_uppercase())
    );
    let mut log = server.access_log(2);
    log.retain(|c| c != '\n');
    assert!(log.contains("\"GET /chat HTTP/2.0\" 200"), "{log}");
}

#[test]
fn a_tunnel_that_speaks_keeps_no_other_stream_from_its_turn() {
    const SIZE: usize = 30 << 20;
    let (port, _heads) = upgrading();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on;
         location /chat {{ proxy_pass http://127.0.0.1:{port}; proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection upgrade; }} }}"
    ));
    server.file("large", vec![b'l'; SIZE]);
    let mut client = server.connect_http2_with_window(1 << 30);
    let chat = client.begin("CONNECT", "/chat", &SOCKET, false);
    let mut said = "hello ".len();
    client.read_until(chat, said);
    let large = client.get("/large");
    for _ in 0..300 {
        client.body(chat, b"some words", false);
        said += "some words".len();
        client.read_until(chat, said);
    }
    assert_eq!(client.reply(large).body.len(), SIZE);
}

/// A 2xx would say that the protocol was switched.
#[test]
fn an_extended_connect_that_nothing_switches_for_is_no_success() {
    let (port, _heads) = upgrading();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; location / {{ return 200 here; }} location /no {{ return 403; }}
         location /plain {{ proxy_pass http://127.0.0.1:{port}; }} }}"
    ));
    let mut client = server.connect_http2();
    for (path, status) in [("/", 501), ("/no", 403), ("/plain", 501)] {
        let stream = client.begin("CONNECT", path, &SOCKET, false);
        assert_eq!(client.reply(stream).status, status, "{path}");
    }
}

/// A client that ends its side ends the tunnel; one that resets it, too.
#[test]
fn the_end_of_a_stream_ends_its_tunnel() {
    let port = echo();
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; http2 on; location / { tunnel_pass; } }");
    let mut client = server.connect_http2();
    let to = format!("127.0.0.1:{port}");
    let first = client.connect(&to);
    client.read_until(first, 6);
    client.body(first, b"words", false);
    client.read_until(first, 11);
    assert_eq!(client.so_far(first).text(), "hello WORDS");
    client.body(first, b"", true);
    assert!(client.reply(first).is_whole);
    let second = client.connect(&to);
    client.read_until(second, 6);
    client.cancel(second);
    let log = server.access_log(2);
    let line = format!("\"CONNECT {to} HTTP/2.0\" 200");
    assert_eq!(log.matches(&line).count(), 2, "{log}");
}

#[test]
fn a_tunnel_that_is_taken_as_fast_as_it_comes_gets_a_wide_window() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; http2 on; location / { tunnel_pass; } }");
    let mut client = server.connect_http2();
    let stream = client.connect(&to);
    let most = client.most_at_once(stream, 32 << 20);
    assert!(most >= 1 << 20, "{most}");
}

/// A browser ends its stream with its last frame (of WebSocket: Close), and waits for the answer to it.
#[test]
fn what_is_answered_to_the_last_bytes_of_a_stream_comes() {
    let (port, _heads) = upgrading();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on;
         location / {{ proxy_pass http://127.0.0.1:{port}; proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection upgrade; }} }}"
    ));
    let mut client = server.connect_http2();
    for words in ["good bye", "the end"] {
        let chat = client.begin("CONNECT", "/", &SOCKET, false);
        client.read_until(chat, 6);
        client.body(chat, words.as_bytes(), true);
        let ended = client.reply(chat);
        assert!(ended.is_whole && ended.reset.is_none(), "{words}");
        assert_eq!(ended.text(), format!("hello {}", words.to_uppercase()));
    }
}

#[test]
fn a_client_that_leaves_behind_its_last_bytes_ends_the_tunnel() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = silent.local_addr().expect("an address").to_string();
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; http2 on; location / { tunnel_pass; } }");
    let mut client = server.connect_http2();
    let stream = client.connect(&to);
    client.body(stream, b"words", true);
    let (mut far, _) = silent.accept().expect("the server connects");
    let mut said = String::new();
    far.read_to_string(&mut said).expect("the end is passed on");
    assert_eq!(said, "words");
    client.cancel(stream);
    assert!(server.access_log(1).contains("CONNECT"));
}

/// `max_conns` counts it, and so do `least_conn` and its kin.
#[test]
fn a_switched_connection_has_its_server_until_it_ends() {
    let (port, _heads) = upgrading();
    let server = server(&format!(
        "location / {{ proxy_pass http://one; proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade; }} }}
         upstream one {{ zone one 1m; server 127.0.0.1:{port} max_conns=1;"
    ));
    let asked = || {
        let mut client = server.connect();
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        let status = client.reply_to(HEAD_ONLY).status;
        (client, status)
    };
    let (mut first, status) = asked();
    assert_eq!(status, 101);
    assert_eq!(first.read(6), b"hello ");
    assert_eq!(asked().1, 502, "it is full");
    first.send("bye");
    assert_eq!(first.rest(), b"BYE");
    let deadline = Instant::now() + blackbox::PATIENCE;
    while asked().1 != 101 {
        assert!(Instant::now() < deadline, "there is place again");
        thread::sleep(Duration::from_millis(20));
    }
}
