//! HTTP/2: the room that clients get for their bodies, and that responses share.

use blackbox::{Server, echo};

/// A client that has taken in the server's settings.
fn settled(server: &Server) -> blackbox::Http2Client {
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

/// What the client says of no stream's priority is no order: all of its streams share.
#[test]
fn a_large_response_holds_up_no_small_one() {
    const SIZE: usize = 64 << 20;
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; location / { } location /said { return 200 said; } }",
    );
    server.file("large", vec![b'l'; SIZE]);
    server.file("small", "small");
    let mut client = server.connect_http2_with_window(1 << 24);
    let large = client.get("/large");
    client.read_until(large, 1 << 20);
    for (target, text) in [("/small", "small"), ("/said", "said")] {
        let small = client.get(target);
        assert_eq!(client.reply(small).text(), text);
    }
    assert!(!client.so_far(large).is_whole, "it came first");
    assert_eq!(client.reply(large).body.len(), SIZE);
}
