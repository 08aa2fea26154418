//! HTTP/2 without TLS, by prior knowledge.

use blackbox::{Answer, Connection, Origin, Server};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;
use wire::http2::hpack::encode;
use wire::http2::{Session, SessionConfig};

const BASE: &str = "server { listen 127.0.0.1:%PORT%; http2 on;
    location /ret { return 200 \"$http2 $server_protocol $connection_requests\"; } location / { } }";

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn both_protocols_are_spoken_at_one_address() {
    let server = Server::start(BASE);
    server.file("a.txt", b"hello");
    assert_eq!(server.get("/a.txt").text(), "hello");
    let mut client = server.connect_http2();
    let (one, other, none) = (
        client.get("/a.txt"),
        client.get("/ret"),
        client.get("/none"),
    );
    let reply = client.reply(one);
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello"));
    assert_eq!(reply.header("content-length"), Some("5"));
    assert!(reply.header("connection").is_none(), "{}", reply.head);
    assert_eq!(client.reply(other).text(), "h2c HTTP/2.0 2");
    assert_eq!(client.reply(none).status, 404);
    assert_eq!(client.reply(none).reset, None);
}

/// What is read together with the preface is not left for the next read.
#[test]
fn a_request_that_comes_with_the_preface_is_answered() {
    let server = Server::start(BASE);
    let mut session = Session::client(SessionConfig::default());
    let request = session.open(b"GET", true, |out| {
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/ret"),
            (":authority", "a"),
        ] {
            encode::field(out, name.as_bytes(), value.as_bytes());
        }
    });
    assert!(request.is_ok());
    let mut connection = server.connect();
    connection.send(session.output());
    connection.until("h2c HTTP/2.0 1");
}

/// It has a dash in the log.
#[test]
fn a_request_without_a_method_has_no_line() {
    let server = Server::start(
        "log_format line '[$request][$http2]';
         server { listen 127.0.0.1:%PORT%; http2 on; access_log logs/access.log line; }",
    );
    let mut client = server.connect_http2();
    let fields: [(&[u8], &[u8]); 2] = [(b":scheme", b"http"), (b":path", b"/")];
    let stream = client.begin_raw(&fields, true);
    assert_eq!(client.reply(stream).status, 400);
    assert_eq!(server.access_log(1), "[-][h2c]\n");
}

/// Its bodies are not waited for.
#[test]
fn a_connection_that_is_closed_ends_its_uploads() {
    let server = Server::start(
        "client_body_timeout 1h;
         server { listen 127.0.0.1:%PORT%; http2 on; location / { proxy_pass http://127.0.0.1:1; } }",
    );
    let mut client = server.connect_http2();
    client.begin("POST", "/", &[], false);
    client.read();
    drop(client);
    assert!(server.access_log(1).contains("\"POST / HTTP/2.0\" 400 0"));
}

/// Streams wait for each other's turn to send; with the connection, all are over, whichever had it.
#[test]
fn a_connection_that_is_closed_ends_its_downloads() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; location /file { } location /proxied { proxy_pass http://127.0.0.1:%PORT%/file; } }",
    );
    server.file("file", bytes(2 << 20));
    for turn in 0..60 {
        let mut client = server.connect_http2_with_window(1 << 20);
        let streams: Vec<u32> = (0..16)
            .map(|number| client.get(["/file", "/proxied"][(turn + number / 8) % 2]))
            .collect();
        client.read_until(streams[turn % 16], 1 + turn * 5000);
        drop(client);
        assert_eq!(server.get_with("/file", "Range: bytes=0-1\r\n").status, 206);
    }
}

/// A client that is far away sends no more than its window in a round trip.
#[test]
fn an_upload_that_is_taken_as_fast_as_it_comes_gets_a_wide_window() {
    let server = Server::start(
        "client_max_body_size 0;
         server { listen 127.0.0.1:%PORT%; http2 on; location / { proxy_pass http://127.0.0.1:%PORT%/taken; } location = /taken { return 204; } }",
    );
    let mut client = server.connect_http2();
    let stream = client.begin("POST", "/", &[], false);
    let most = client.most_at_once(stream, 32 << 20);
    client.body(stream, b"", true);
    assert_eq!(client.reply(stream).status, 204);
    assert!(most >= 1 << 20, "{most}");
}

#[test]
fn a_first_byte_that_is_the_preface_s_decides_nothing() {
    let server = Server::start(BASE);
    let mut connection = server.connect();
    connection
        .send("P")
        .send("UT /ret HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.reply().text(), " HTTP/1.1 1");
}

/// RFC 9113 §3.4; a request line with a version stays one of HTTP/1.
#[test]
fn a_first_line_of_neither_protocol_ends_the_connection() {
    let server = Server::start(BASE);
    assert_eq!(server.raw(b"INVALID CONNECTION PREFACE\r\n\r\n"), "");
    server.wait_for("client sent neither a request", "the line about it");
    let text = server.raw(b"GET / HTTP/x.y\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

#[test]
fn without_the_directive_the_preface_is_no_request() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; location / { } }");
    let text = server.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 4"), "{text}");
}

#[test]
fn the_log_shows_a_request_as_over_http_1() {
    let server = Server::start(
        "log_format all '$request|$status|$body_bytes_sent|$http2|$request_length|$host';
         server { listen 127.0.0.1:%PORT%; http2 on; access_log logs/access.log all; location / { return 200 abc; } }",
    );
    let mut client = server.connect_http2();
    let stream = client.get("/x?y=%20");
    assert_eq!(client.reply(stream).text(), "abc");
    let log = server.access_log(1);
    assert!(log.starts_with("GET /x?y=%20 HTTP/2.0|200|3|h2c|"), "{log}");
    assert!(log.trim_end().ends_with("|localhost"), "{log}");
}

#[test]
fn large_answers_come_whole_however_small_the_window() {
    let server = Server::start(BASE);
    let (large, middle) = (bytes(3 << 20), bytes(20_000));
    server.file("large", &large);
    server.file("middle", &middle);
    let mut client = server.connect_http2();
    let streams = [
        client.get("/large"),
        client.get("/middle"),
        client.get("/large"),
    ];
    assert!(client.reply(streams[1]).body == middle);
    assert!(client.reply(streams[0]).body == large);
    assert!(client.reply(streams[2]).body == large);
}

#[test]
fn a_stream_that_does_not_read_holds_back_no_other() {
    let server = Server::start(BASE);
    server.file("large", bytes(1 << 20));
    server.file("small", b"x");
    let mut client = server.connect_http2();
    client.consumes = false;
    let stuck = client.get("/large");
    client.read_until(stuck, 65_535);
    let small = client.get("/small");
    assert_eq!(client.reply(small).text(), "x");
    assert!(!client.so_far(stuck).is_whole);
}

#[test]
fn bodies_are_passed_on_stored_and_streamed() {
    for buffering in ["on", "off"] {
        let origin = Origin::start(|request| Answer::ok(request.body.len().to_string()));
        let server = Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; http2 on; client_max_body_size 1m;
             location / {{ proxy_pass http://127.0.0.1:{}; proxy_request_buffering {buffering}; proxy_http_version 1.1; }} }}",
            origin.port()
        ));
        let mut client = server.connect_http2();
        let body = bytes(700_000);
        let announced = client.begin("POST", "/", &[("content-length", "700000")], false);
        client.body(announced, &body, true);
        assert_eq!(client.reply(announced).text(), "700000", "{buffering}");
        let open = client.begin("POST", "/", &[], false);
        client.body(open, &body[..1000], false);
        client.body(open, &body[1000..100_000], true);
        assert_eq!(client.reply(open).text(), "100000", "{buffering}");
        let large = client.begin("POST", "/", &[("content-length", "2000000")], false);
        assert_eq!(client.reply(large).status, 413);
        let growing = client.begin("POST", "/", &[], false);
        client.body(growing, &bytes(1_200_000), true);
        assert_eq!(client.reply(growing).status, 413, "{buffering}");
        let after = client.begin("POST", "/", &[("content-length", "1")], false);
        client.body(after, b"x", true);
        assert_eq!(client.reply(after).text(), "1", "the connection goes on");
    }
}

/// An origin of HTTP/1 may answer while it reads the body.
#[test]
fn a_body_goes_on_beside_its_answer() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on;
         location / {{ proxy_pass http://{}; proxy_request_buffering off; }} }}",
        origin.local_addr().unwrap()
    ));
    let mut client = server.connect_http2();
    let stream = client.begin("POST", "/", &[("content-length", "200000")], false);
    client.body(stream, b"first", false);
    let mut request = Connection::new(origin.accept().unwrap().0);
    assert!(request.until("first").starts_with("POST / HTTP/1.1"));
    request.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nan");
    client.read_until(stream, 2);
    let reading = std::thread::spawn(move || {
        let body = request.read(199_995);
        request.send("sw");
        body.len()
    });
    client.body(stream, &bytes(199_995), true);
    assert_eq!(client.reply(stream).text(), "answ");
    assert_eq!(reading.join().unwrap(), 199_995);
}

#[test]
fn a_streamed_body_of_known_length_does_not_wait_for_its_end() {
    let origin = Origin::start(|request| Answer::ok(request.body.len().to_string()));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; proxy_request_buffering off;
         location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1; }} }}",
        origin.port()
    ));
    let mut client = server.connect_http2();
    for length in [0, 1, 100_000] {
        let fields = [("content-length", &*length.to_string())];
        let stream = client.begin("POST", "/", &fields, false);
        client.body(stream, &bytes(length), false);
        assert_eq!(client.reply(stream).text(), length.to_string());
        client.body(stream, b"", true);
    }
}

#[test]
fn a_body_of_another_length_is_refused() {
    let origin = Origin::start(|_| Answer::ok("reached"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port()
    ));
    let mut client = server.connect_http2();
    let stream = client.begin("POST", "/", &[("content-length", "5")], false);
    client.body(stream, b"toolong", true);
    let reply = client.reply(stream);
    assert_eq!((reply.status, origin.received().len()), (400, 0));
}

#[test]
fn the_number_of_requests_ends_a_connection() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; keepalive_requests 2; location / { return 200 ok; } }",
    );
    let mut client = server.connect_http2();
    let (one, other) = (client.get("/"), client.get("/"));
    assert_eq!(client.reply(one).text(), "ok");
    assert_eq!(client.reply(other).text(), "ok");
    client.read_to_end();
    let (last, code) = client.goaway.expect("it was told");
    assert_eq!((last, code.0), (other, 0));
}

/// A request that a client sent before it read of the end is not lost to it: not each client sends one again.
#[test]
fn what_comes_across_the_end_of_a_connection_is_answered() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; keepalive_requests 2;
         location / { return 200 ok; } location /upload { proxy_pass http://127.0.0.1:1; } }",
    );
    let mut client = server.connect_http2();
    // Two at a time.
    client.begin("POST", "/upload", &[], false);
    let late = client.get("/") + 2;
    client.is_silent = true;
    while client.goaway.is_none() {
        assert!(client.read());
    }
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/late"),
        (":authority", "localhost"),
    ] {
        encode::field(&mut block, name.as_bytes(), value.as_bytes());
    }
    let length = u8::try_from(block.len()).expect("a short head");
    let head = [0, 0, length, 1, 5, 0, 0, 0, u8::try_from(late).unwrap()];
    let end_of_upload = [0, 0, 0, 0, 1, 0, 0, 0, 1];
    let pong = *b"\0\0\x08\x06\x01\0\0\0\0\0goaway\0";
    let frames = [&head[..], &block, &end_of_upload, &pong].concat();
    let mut stream = client.stream();
    stream.write_all(&frames).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let log = server.access_log(3);
    assert!(log.contains("\"GET /late HTTP/2.0\" 200 "), "{log}");
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    assert!(rest.windows(goaway.len()).any(|it| it == goaway));
}

#[test]
fn an_idle_connection_is_told_to_go() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; keepalive_timeout 200ms; location / { return 200 ok; } }",
    );
    let mut client = server.connect_http2();
    let stream = client.get("/");
    assert_eq!(client.reply(stream).text(), "ok");
    client.read_to_end();
    assert_eq!(
        client.goaway.map(|(last, code)| (last, code.0)),
        Some((1, 0))
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test")]
fn a_connection_that_is_used_is_not_idle() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; keepalive_timeout 1s; client_header_timeout 1s; location / { return 200 ok; } }",
    );
    let mut client = server.connect_http2();
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(150));
        let stream = client.get("/");
        assert_eq!(client.reply(stream).text(), "ok");
        assert!(client.goaway.is_none());
    }
}

#[test]
fn a_server_that_leaves_finishes_what_it_has_begun() {
    let server = Server::start(BASE);
    server.file("large", bytes(1 << 20));
    let mut client = server.connect_http2();
    client.consumes = false;
    let stream = client.get("/large");
    client.read_until(stream, 1);
    let mut idle = server.connect_http2();
    let small = idle.get("/ret");
    assert_eq!(idle.reply(small).status, 200);
    server.signal(nix::sys::signal::Signal::SIGQUIT);
    idle.read_to_end();
    assert!(idle.goaway.is_some());
    client.consumes = true;
    client.catch_up(stream);
    assert_eq!(client.reply(stream).body.len(), 1 << 20);
    client.read_to_end();
}

/// A client may have sent its next request before it reads that the server leaves.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test")]
fn a_server_that_leaves_answers_a_client_that_has_just_had_a_response() {
    let server = Server::start(BASE);
    let mut client = server.connect_http2();
    let first = client.get("/ret");
    assert_eq!(client.reply(first).status, 200);
    server.signal(nix::sys::signal::Signal::SIGQUIT);
    std::thread::sleep(Duration::from_millis(200));
    let second = client.get("/ret");
    assert_eq!(client.reply(second).status, 200);
    client.read_to_end();
    let goaway = client.goaway.map(|(last, code)| (last, code.0));
    assert_eq!(goaway, Some((second, 0)));
}

#[test]
fn old_forms_are_warned_of() {
    let server = Server::start(
        "http2_idle_timeout 3m; server { listen 127.0.0.1:%PORT% http2; http2_push off; location / { return 200 $http2; } }",
    );
    let (_, told) = server.site().run(&["-t"]);
    for sentence in [
        "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead",
        "the \"http2_idle_timeout\" directive is obsolete, use the \"keepalive_timeout\" directive instead",
        "the \"http2_push\" directive is obsolete, ignored",
    ] {
        assert!(told.contains(sentence), "{told}");
    }
    let mut client = server.connect_http2();
    let stream = client.get("/");
    assert_eq!(client.reply(stream).text(), "h2c");
}

#[test]
fn a_body_ends_with_the_frame_that_says_so() {
    let origin = Origin::start(|request| Answer::ok(&request.body));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; client_body_buffer_size 10;
         location / {{ add_header In-File \"-$request_body_file\"; proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port()
    ));
    let mut client = server.connect_http2();
    let stream = client.begin("POST", "/", &[("content-length", "10")], false);
    client.body(stream, b"01234", false);
    client.body(stream, b"56789", false);
    client.body(stream, b"", true);
    let reply = client.reply(stream);
    assert_eq!(
        (reply.text().as_str(), reply.header("in-file")),
        ("0123456789", Some("-"))
    );
}

#[test]
fn a_flood_ends_its_connection_alone() {
    let server = Server::start(BASE);
    // Many more frames than are of use.
    let priority = b"\0\0\x05\x02\0\0\0\0\x05\0\0\0\0\x01".as_slice();
    let empty = b"\0\0\0\0\0\0\0\0\x01";
    let mut client = server.connect_http2();
    client.send(&priority.repeat(200));
    client.read_to_end();
    assert_eq!(client.goaway.expect("it was told").1.0, 11);
    let mut client = server.connect_http2();
    let stream = client.begin("POST", "/ret", &[], false);
    client.send(&empty.repeat(200));
    client.read_to_end();
    assert_eq!(client.goaway.expect("it was told").1.0, 11);
    let _ = client.reply(stream);
    let mut client = server.connect_http2();
    client.consumes = true;
    let stream = client.get("/ret");
    assert_eq!(client.reply(stream).status, 200);
    server.wait_for("client sent too many frames without use", "the flood");
}

#[test]
fn rapid_resets_end_their_connection() {
    let origin = Origin::start(|_| Answer::ok("late"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port()
    ));
    let mut client = server.connect_http2();
    client.read();
    for _ in 0..150 {
        let stream = client.get("/");
        client.cancel(stream);
    }
    client.read_to_end();
    assert_eq!(client.goaway.expect("it was told").1.0, 11);
    server.wait_for("client had too many streams reset", "the resets");
}

#[test]
fn a_malformed_request_that_is_not_answered_is_reset_for_that() {
    const PROTOCOL_ERROR: u32 = 1;
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; error_page 400 = /closed; return 444; }",
    );
    let mut client = server.connect_http2();
    let malformed: [(&str, &[(&str, &str)]); 4] = [
        ("no-slash", &[]),
        ("/", &[("connection", "close")]),
        ("/", &[("te", "gzip")]),
        ("/", &[(":late", "x")]),
    ];
    for (path, fields) in malformed {
        let stream = client.begin("GET", path, fields, true);
        let reply = client.reply(stream);
        assert_eq!(
            (reply.status, reply.reset),
            (0, Some(PROTOCOL_ERROR)),
            "{path} {fields:?}"
        );
    }
    let stream = client.get("/");
    let reply = client.reply(stream);
    assert_eq!(
        (reply.status, reply.reset),
        (0, Some(PROTOCOL_ERROR)),
        "as nginx"
    );
}

#[test]
fn of_a_body_that_is_larger_than_its_buffer_a_file_is_made() {
    let origin = Origin::start(|_| Answer::ok("seen"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; http2 on; client_body_buffer_size 512;
             location / {{ add_header In-File \"-$request_body_file\"; proxy_pass http://{}; }} }}",
        origin.address()
    ));
    // A quarter more than the buffer stays in memory over HTTP/1 alone, as in nginx.
    for (length, has_file) in [(512, false), (600, true)] {
        let mut client = server.connect_http2();
        let body = bytes(length);
        let stream = client.begin(
            "POST",
            "/",
            &[("content-length", &length.to_string())],
            false,
        );
        client.body(stream, &body, true);
        let reply = client.reply(stream);
        let file = reply.header("in-file").map(str::to_owned);
        assert_eq!(
            file.is_some_and(|file| file.len() > 1),
            has_file,
            "{length}"
        );
    }
}

#[test]
fn connect_is_refused() {
    let server = Server::start(BASE);
    let mut client = server.connect_http2();
    let stream = client.begin("CONNECT", "/", &[], true);
    let reply = client.reply(stream);
    assert!(
        reply.status == 405 || reply.status == 400,
        "{}",
        reply.status
    );
}

#[test]
fn a_request_with_too_many_fields_is_logged_with_its_host() {
    let server = Server::start(
        "log_format host '$status $host';
         server { listen 127.0.0.1:%PORT%; http2 on; max_headers 2; access_log logs/access.log host; location / { return 200 ok; } }",
    );
    let mut client = server.connect_http2();
    let fields = [("x-a", "1"), ("x-b", "2"), ("x-c", "3")];
    let stream = client.begin("GET", "/", &fields, true);
    assert_eq!(client.reply(stream).status, 400);
    assert_eq!(server.access_log(1).trim(), "400 localhost");
}

#[test]
fn a_server_that_speaks_no_http_2_is_not_reached_by_it() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; http2 on; location / { return 200 ok; } }
         server { listen 127.0.0.1:%PORT%; server_name localhost; location / { return 200 secret; } }",
    );
    let mut client = server.connect_http2();
    let stream = client.get("/");
    assert_eq!(client.reply(stream).status, 421);
}

#[test]
fn a_client_that_gives_no_room_before_its_body_is_sent_gets_all_of_its_echo() {
    let port = blackbox::echo();
    for lines in ["", "proxy_request_buffering off;"] {
        let server = Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; http2 on; client_max_body_size 0;
                location / {{ proxy_http_version 1.1; {lines} proxy_pass http://127.0.0.1:{port}; }} }}"
        ));
        let mut client = server.connect_http2();
        client.consumes = false;
        let body = bytes(4 << 20);
        let length = body.len().to_string();
        let stream = client.begin("POST", "/", &[("content-length", &length)], false);
        client.body(stream, &body, true);
        client.consumes = true;
        client.catch_up(stream);
        let reply = client.reply(stream);
        let outcome = (reply.status, reply.body.len(), reply.reset);
        assert_eq!(outcome, (200, body.len(), None), "{lines}");
        assert!(reply.body == body);
    }
}
