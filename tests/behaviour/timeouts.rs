//! Clients that take too long, and how connections end. Times are short where something must happen, and long where not.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they may sleep"
)]

use crate::sick_disks::metric;
use blackbox::{Connection, PATIENCE, Server, is_nginx};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SHORT: &str = "300ms";
const LARGE: usize = 16 << 20;

#[test]
fn a_head_that_does_not_come_closes_the_connection_and_is_logged_as_408() {
    let server = Server::start(&format!(
        "client_header_timeout {SHORT}; server {{ listen 127.0.0.1:%PORT%; }}"
    ));
    let mut silent = server.connect();
    let mut half = server.connect();
    half.send("GET /half HTTP/1.1\r\nHost: a\r\n");
    assert!(silent.is_closed());
    assert!(half.is_closed());
    let log = server.access_log(1);
    assert!(log.contains("\"GET /half HTTP/1.1\" 408 0 "), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    server.wait_for(
        "client timed out (110: Connection timed out) while reading client request headers",
        "the reason",
    );
}

#[test]
fn the_time_for_a_head_is_not_begun_anew_by_each_byte() {
    let server = Server::start("client_header_timeout 1s; server { listen 127.0.0.1:%PORT%; }");
    let mut slow = server.connect();
    slow.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let begun = Instant::now();
    slow.stream()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    while slow
        .stream()
        .read(&mut [0])
        .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    {
        slow.send("x");
        assert!(begun.elapsed() < PATIENCE, "it still listens");
    }
}

/// The time of a new connection's first head begins when it is accepted: one whose first byte comes late ends before one
/// that was opened just before that byte.
#[test]
fn the_time_for_the_first_head_is_not_begun_anew_by_its_first_byte() {
    let server = Server::start("client_header_timeout 1s; server { listen 127.0.0.1:%PORT%; }");
    let mut late = server.connect();
    std::thread::sleep(Duration::from_millis(600));
    let mut silent = server.connect();
    late.send("G");
    assert!(silent.is_closed());
    assert!(late.is_closed());
    let (begun, unbegun) = (
        "timed out (110: Connection timed out) while reading client request",
        "timed out (110: Connection timed out) while waiting for request",
    );
    server.wait_for(begun, "the end of one");
    server.wait_for(unbegun, "the end of the other");
    let log = server.error_log();
    assert!(log.find(begun) < log.find(unbegun), "{log}");
}

/// A client that asks for much and reads nothing.
fn stuck(server: &Server, index: usize) -> Connection {
    let mut connection = server.connect_to(index);
    connection.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    connection
}

#[test]
fn a_client_that_does_not_read_is_left_by_a_close_or_a_reset() {
    let server = Server::start(&format!(
        "send_timeout {SHORT}; server {{ listen 127.0.0.1:%PORT%; }}
         server {{ listen 127.0.0.1:%PORT1%; reset_timedout_connection on; }}"
    ));
    server.file("large", vec![b'x'; LARGE]);
    let mut closed = stuck(&server, 0);
    server.wait_for(
        "client timed out (110: Connection timed out) while sending response to client",
        "the first timeout",
    );
    let sent = closed.rest().len();
    assert!(sent > 0 && sent < LARGE, "{sent}");
    let reset = stuck(&server, 1);
    let mut sent = 0;
    std::thread::sleep(Duration::from_secs(1));
    let error = loop {
        match reset.stream().read(&mut [0; 65_536]) {
            Ok(0) => panic!("closed in the ordinary way after {sent} bytes"),
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_client_that_does_not_send_the_rest_while_it_is_answered_is_reset() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(&format!(
        "client_body_timeout {SHORT}; reset_timedout_connection on;
         server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_request_buffering off;
             proxy_http_version 1.1; proxy_pass http://{}; }} }}",
        origin.local_addr().unwrap()
    ));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegun");
    let mut upstream = Connection::new(origin.accept().unwrap().0);
    upstream.until("begun");
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nanswe");
    client.until("answe");
    let error = client.stream().read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_idle_connection_is_closed_when_its_time_is_over() {
    let server = Server::start(&format!(
        "keepalive_timeout {SHORT}; server {{ listen 127.0.0.1:%PORT%; return 200 x; }}"
    ));
    let mut kept = server.connect();
    let reply = kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    assert!(kept.is_closed());
}

#[test]
fn an_old_connection_ends_with_the_request_at_hand() {
    let server = Server::start(
        "keepalive_time 2s; server { listen 127.0.0.1:%PORT%; location / { return 200 x; } }",
    );
    let mut kept = server.connect();
    let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    kept.send(ask).reply();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(kept.send(ask).reply().header("connection"), Some("close"));
    assert!(kept.is_closed());
}

#[test]
fn a_body_that_does_not_come_ends_the_connection_behind_the_answer() {
    let server = Server::start(&format!(
        "lingering_timeout {SHORT}; server {{ listen 127.0.0.1:%PORT%; return 200 x; }}"
    ));
    let mut connection = server.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome");
    assert_eq!(connection.reply().text(), "x");
    assert!(connection.is_closed());
}

#[test]
fn a_body_whose_framing_does_not_end_is_not_read_for_longer_than_lingering_time() {
    let server = Server::start(&format!(
        "lingering_time {SHORT}; lingering_timeout 60s; server {{ listen 127.0.0.1:%PORT%; return 200 x; }}"
    ));
    let mut connection = server.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    assert_eq!(connection.reply().text(), "x");
    let begun = Instant::now();
    while connection.stream().write_all(b"a").is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is still read");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lingering_close_takes_what_still_comes_and_another_does_not() {
    let server = Server::start(
        "lingering_timeout 60s; server { listen 127.0.0.1:%PORT%; lingering_close always; return 200 x; }
         server { listen 127.0.0.1:%PORT1%; lingering_close off; return 200 x; }",
    );
    let ask = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut lingering = server.connect();
    assert!(lingering.send(ask).rest().ends_with(b"x"));
    for _ in 0..10 {
        lingering.stream().write_all(b"more").expect("it is taken");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut gone = server.connect_to(1);
    assert!(gone.send(ask).rest().ends_with(b"x"));
    let begun = Instant::now();
    while gone.stream().write_all(b"more").is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is still taken");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(lingering);
}

#[test]
fn a_rate_is_a_limit_behind_the_first_bytes() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; limit_rate 20k; location /after { limit_rate_after 1m; } location /var { limit_rate $arg_rate; } }",
    );
    for name in ["slow", "after", "var"] {
        server.file(name, vec![b'x'; 60_000]);
    }
    let time = |target: &str| {
        let begun = Instant::now();
        assert_eq!(server.get(target).body.len(), 60_000);
        begun.elapsed()
    };
    let (slow, after) = (time("/slow"), time("/after"));
    assert!(slow > Duration::from_secs(1), "{slow:?}");
    assert!(after < slow, "{after:?} {slow:?}");
    assert!(time("/var?rate=0") < slow);
    assert!(time("/var?rate=20k") > Duration::from_secs(1));
}

/// A wait that ended before more was due would be one of a thousand in a second.
#[test]
fn a_response_that_waits_for_its_rate_keeps_no_loop_busy() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location = /metrics { metrics; } location / { limit_rate 20k; } }",
    );
    server.file("slow", vec![b'x'; 60_000]);
    let polls = || metric(&server, "freewheel_loop_poll_seconds_count{loop=\"0\"}");
    let before = polls();
    assert_eq!(server.get("/slow").body.len(), 60_000);
    let polls = polls() - before;
    assert!(polls < 300, "{polls} polls in two seconds");
}
