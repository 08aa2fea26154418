//! How connections of HTTP/2 end: nothing of a response is lost, however slowly its client reads.

#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::thread::sleep;
use std::time::Duration;

use blackbox::slow::narrow;
use blackbox::{Http2Client, Server, is_nginx};
use nix::sys::signal::Signal;

const PING: &[u8; 17] = b"\0\0\x08\x06\0\0\0\0\0abcdefgh";

fn server(listen: &str, keepalive: &str) -> (Server, Vec<u8>) {
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT% {listen}; http2 on; keepalive_timeout {keepalive}; location / {{ }} }}"
    ));
    let body: Vec<u8> = (0..100_000).map(|at| (at * 7 % 251) as u8).collect();
    server.file("large", &body);
    (server, body)
}

/// A client that has asked for all of the file, and has read nothing.
fn ask(server: &Server) -> (Http2Client, u32) {
    let stream = narrow(server).stream().try_clone();
    let mut client = Http2Client::with_window(stream.expect("it is open"), 1 << 20);
    let stream = client.get("/large");
    match is_nginx() {
        // It logs a request once the kernel has its response.
        true => sleep(Duration::from_millis(200)),
        false => drop(server.access_log(1)),
    }
    (client, stream)
}

/// The last stream and the code of its end.
fn goaway(client: &Http2Client) -> Option<(u32, u32)> {
    client.goaway.map(|(last, code)| (last, code.0))
}

fn expect_whole(mut client: Http2Client, stream: u32, body: &[u8], what: &str) {
    let reply = client.reply(stream);
    assert!(reply.is_whole, "{what}: {} bytes", reply.body.len());
    assert!(reply.body == body, "{what}");
    client.read_to_end();
    assert_eq!(goaway(&client), Some((stream, 0)), "{what}");
}

/// The time between two requests begins when the kernel has the end of the response.
#[test]
fn a_connection_is_not_idle_before_its_response_is_written() {
    for keepalive in ["0", "100ms"] {
        let (server, body) = server("sndbuf=4k", keepalive);
        let (client, stream) = ask(&server);
        sleep(Duration::from_millis(400));
        expect_whole(client, stream, &body, keepalive);
    }
}

#[test]
fn a_server_that_leaves_waits_for_who_reads_slowly() {
    let (server, body) = server("sndbuf=4k", "1h");
    let (client, stream) = ask(&server);
    server.signal(Signal::SIGQUIT);
    // Longer than the next request is waited for.
    sleep(Duration::from_millis(1500));
    expect_whole(client, stream, &body, "SIGQUIT");
}

/// A reset would take what the kernel still has.
#[test]
fn what_comes_behind_the_end_is_read() {
    // nginx loses the rest in the second case.
    let cases = ["0", "100ms"];
    for keepalive in &cases[..if is_nginx() { 1 } else { 2 }] {
        let (server, body) = server("sndbuf=200k", keepalive);
        let (mut client, stream) = ask(&server);
        sleep(Duration::from_millis(300));
        client.send(PING);
        sleep(Duration::from_millis(100));
        expect_whole(client, stream, &body, keepalive);
    }
}

/// As over HTTP/1: the client is told with the first response.
#[test]
fn without_a_time_between_requests_the_first_is_the_last() {
    let (server, _) = server("", "0");
    let mut client = server.connect_http2();
    let stream = client.get("/none");
    let reply = client.reply(stream);
    assert_eq!((reply.status, reply.reset), (404, None));
    assert_eq!(goaway(&client), Some((stream, 0)));
    client.read_to_end();
}

/// The header block is never ended. nginx also resets its stream, which this client has not opened.
#[test]
fn a_client_that_is_late_with_a_frame_is_told_once() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; client_header_timeout 200ms; location / { return 200 ok; } }",
    );
    let mut client = server.connect_http2();
    let stream = client.get("/");
    assert_eq!(client.reply(stream).text(), "ok");
    client.send(b"\0\0\x01\x01\x01\0\0\0\x03\x82");
    client.read_to_end();
    assert_eq!(goaway(&client), Some((stream, 1)));
}

/// The clients of a proxy share a connection. nginx answers any number of these.
#[test]
fn many_malformed_requests_end_a_connection_and_nothing_on_it() {
    let (server, body) = server("", "1h");
    let mut client = server.connect_http2();
    client.consumes = false;
    let large = client.get("/large");
    client.read_until(large, 1);
    let refused: Vec<u32> = (0..110)
        .map(|_| client.begin("GET", "nothing", &[], true))
        .collect();
    while !client.so_far(refused[109]).is_whole {
        assert!(client.read());
    }
    assert!(!client.so_far(large).is_whole, "it waits for room");
    client.consumes = true;
    client.catch_up(large);
    let reply = client.reply(large);
    assert!(reply.is_whole && reply.body == body);
    assert_eq!(client.reply(refused[109]).status, 400);
    if !is_nginx() {
        client.read_to_end();
        assert_eq!(goaway(&client), Some((refused[109], 0)));
    }
}
