//! Uploads whose clients give them up midway, over HTTP/1 and HTTP/2: what came is never taken for all of it.

use blackbox::{Answer, Connection, Origin, Server};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// Begins an upload, with or without an announced length, sends a part of it, and gives it up.
fn give_up(server: &Server, method: &str, path: &str, part: usize, announced: Option<usize>) {
    let part = vec![b'x'; part];
    let length = announced.map(|length| length.to_string());
    let fields = length.iter().map(|length| ("content-length", &**length));
    let mut client = server.connect_http2();
    let fields: Vec<_> = fields.collect();
    let stream = client.begin(method, path, &fields, false);
    client.body(stream, &part, false);
    client.cancel(stream);
    // The connection goes on.
    let after = client.get("/ready");
    assert_eq!(client.reply(after).text(), "ready");

    let mut client = server.connect();
    let chunk = format!("{:x}\r\n", part.len());
    let (framing, before) = match &length {
        Some(length) => (format!("Content-Length: {length}"), ""),
        None => ("Transfer-Encoding: chunked".to_owned(), &*chunk),
    };
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{before}"
    ));
    client.send(&part);
}

const WAYS: [(usize, Option<usize>); 4] = [
    (0, None),
    (5_000, None),
    (0, Some(90_000)),
    (50_000, Some(90_000)),
];

#[test]
fn a_buffered_upload_that_is_given_up_does_not_reach_the_server() {
    let origin = Origin::start(|_| Answer::ok("taken"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; client_body_buffer_size 16k;
         location = /ready {{ access_log off; return 200 ready; }}
         location / {{ proxy_pass http://{0}; }}
         location /ignored {{ proxy_pass http://{0}; proxy_ignore_client_abort on; }}
         location /fastcgi {{ fastcgi_pass {0}; }}
         location /uwsgi {{ uwsgi_pass {0}; }}
         location /copied {{ mirror /mirror; proxy_pass http://{0}; }}
         location = /mirror {{ internal; proxy_pass http://{0}; }}
         location /cached {{ proxy_pass http://{0}; proxy_http_version 2; }} }}",
        origin.address()
    ));
    let mut logged = 0;
    for path in ["/", "/ignored", "/fastcgi", "/uwsgi", "/copied", "/cached"] {
        for (part, announced) in WAYS {
            give_up(&server, "POST", path, part, announced);
            logged += 2;
            let log = server.access_log(logged);
            let last: Vec<&str> = log.lines().rev().take(2).collect();
            assert!(
                last.iter().all(|line| line.contains("\" 400 0 ")),
                "{path} {part} {announced:?}: {last:?}"
            );
        }
    }
    assert_eq!(origin.received().len(), 0);
}

/// The origin sees that it is not whole.
#[test]
fn a_streamed_upload_that_is_given_up_has_no_end() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; proxy_request_buffering off;
         location = /ready {{ return 200 ready; }}
         location / {{ proxy_pass http://{}; proxy_http_version 1.1; }} }}",
        origin.local_addr().unwrap()
    ));
    let part = vec![b'x'; 5_000];
    for fields in [&[][..], &[("content-length", "90000")]] {
        let mut client = server.connect_http2();
        let stream = client.begin("POST", "/", fields, false);
        client.body(stream, &part, false);
        let mut seen = Connection::new(origin.accept().unwrap().0);
        assert!(seen.until("xxx").starts_with("POST / HTTP/1.1"));
        client.cancel(stream);
        let seen = seen.rest();
        assert!(!seen.ends_with(b"0\r\n\r\n"), "{fields:?}");
        assert!(seen.len() < 6_000, "{}", seen.len());
        let after = client.get("/ready");
        assert_eq!(client.reply(after).text(), "ready");
    }
    let framings = [
        "Transfer-Encoding: chunked\r\n\r\n1388\r\n",
        "Content-Length: 90000\r\n\r\n",
    ];
    for framing in framings {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{framing}"));
        client.send(&part);
        let mut seen = Connection::new(origin.accept().unwrap().0);
        assert!(seen.until("xxx").starts_with("POST / HTTP/1.1"));
        drop(client);
        assert!(!seen.rest().ends_with(b"0\r\n\r\n"), "{framing}");
    }
}

#[test]
fn a_file_is_not_replaced_by_a_part() {
    let server = Server::start(
        "client_body_temp_path %DIR%/bodies; client_body_buffer_size 4k;
         server { listen 127.0.0.1:%PORT%; http2 on;
         location = /ready { access_log off; return 200 ready; } location / { dav_methods PUT; } }",
    );
    server.file("kept", "all of it");
    let html = server.site().path("html");
    std::fs::set_permissions(html, PermissionsExt::from_mode(0o777)).expect("it is ours");
    let mut logged = 0;
    for (part, announced) in WAYS {
        for path in ["/kept", "/new"] {
            give_up(&server, "PUT", path, part, announced);
            logged += 2;
            server.access_log(logged);
        }
    }
    assert_eq!(server.get("/kept").text(), "all of it");
    assert_eq!(server.get("/new").status, 404);
    // A whole one is taken.
    let mut client = server.connect_http2();
    let stream = client.begin("PUT", "/new", &[], false);
    client.body(stream, b"whole", true);
    assert_eq!(client.reply(stream).status, 201);
    assert_eq!(server.get("/new").text(), "whole");
}
