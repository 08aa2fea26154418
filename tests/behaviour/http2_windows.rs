//! HTTP/2: the room that clients get for their bodies, and what goes on without room for a response.

use blackbox::http2_origin::{Http2Origin, Windows};
use blackbox::{Http2Client, Server, echo, echo_ahead};

/// A client that has taken in the server's settings.
fn settled(server: &Server) -> Http2Client {
    let mut client = server.connect_http2();
    assert!(client.read());
    client
}

#[test]
fn a_body_that_may_not_be_sent_ahead_is_given_room_when_it_is_read() {
    let port = echo();
    for (preread, lines) in [
        ("0", ""),
        ("0", "proxy_request_buffering off;"),
        ("1", ""),
        ("1", "proxy_request_buffering off;"),
    ] {
        let server = Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; http2 on; http2_body_preread_size {preread}; client_max_body_size 0;
                location / {{ proxy_http_version 1.1; {lines} proxy_pass http://127.0.0.1:{port}; }} }}"
        ));
        let mut client = settled(&server);
        for size in [1, 10, 60_000, 1 << 20] {
            let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let length = size.to_string();
            let stream = client.begin("POST", "/", &[("content-length", &length)], false);
            client.body(stream, &body, true);
            let reply = client.reply(stream);
            let outcome = (reply.status, reply.body.len(), reply.reset);
            assert_eq!(outcome, (200, size, None), "{preread} {lines}");
            assert!(reply.body == body);
        }
    }
}

/// Where the response is not read ahead of its client, or its buffers are full, the request goes on all the same.
#[test]
fn a_request_goes_on_whether_its_response_is_taken_or_not() {
    let http1 = format!(
        "proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://127.0.0.1:{};",
        echo_ahead()
    );
    let http2 = Http2Origin::start(Windows(65_535));
    let grpc = format!("grpc_pass grpc://{};", http2.address());
    for (lines, pass) in [
        ("proxy_buffering off;", &http1),
        ("proxy_max_temp_file_size 0;", &http1),
        ("", &grpc),
    ] {
        let server = Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; http2 on; client_max_body_size 0; location / {{ {lines} {pass} }} }}"
        ));
        let mut client = server.connect_http2();
        client.consumes = false;
        let body: Vec<u8> = (0..4 << 20).map(|at| (at % 251) as u8).collect();
        let length = body.len().to_string();
        let stream = client.begin("POST", "/echo-ahead", &[("content-length", &length)], false);
        client.body(stream, &body, true);
        client.consumes = true;
        client.catch_up(stream);
        let reply = client.reply(stream);
        let outcome = (reply.status, reply.body.len(), reply.reset);
        assert_eq!(outcome, (200, body.len(), None), "{lines} {pass}");
        assert!(reply.body == body);
    }
}
