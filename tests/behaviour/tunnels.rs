//! CONNECT: `tunnel_pass`.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
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
         server {{ listen 127.0.0.1:%PORT%; error_log %DIR%/logs/other.log; {locations} }}"
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
