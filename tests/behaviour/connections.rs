//! Kept connections, pipelining, bodies that nobody reads.

use std::io::Write as _;
use std::time::Duration;

use blackbox::Server;

const ECHO: &str = "server { listen 127.0.0.1:%PORT%; location / { return 200 $uri; } }";

#[test]
fn http_1_1_is_kept_and_http_1_0_closed_unless_asked() {
    let server = Server::start(ECHO);
    let mut kept = server.connect();
    for target in ["/a", "/b"] {
        let reply = kept
            .send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .reply();
        assert_eq!(
            (reply.text().as_str(), reply.header("connection")),
            (target, Some("keep-alive"))
        );
    }
    let mut old = server.connect();
    let reply = old
        .send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .reply();
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    assert_eq!(
        old.send("GET /b HTTP/1.0\r\n\r\n")
            .reply()
            .header("connection"),
        Some("close")
    );
    assert!(old.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    let requests: String = (0..50)
        .map(|at| format!("GET /{at} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    connection.send(requests);
    for at in 0..50 {
        assert_eq!(connection.reply().text(), format!("/{at}"));
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    for byte in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" {
        connection.send([*byte]);
    }
    assert_eq!(connection.reply().text(), "/slow");
}

#[test]
fn an_unread_body_is_thrown_away_before_the_next_request() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    connection.send(format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}",
        "x".repeat(100_000)
    ));
    connection.send(
        "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    connection.send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
    let texts = [
        connection.reply().text(),
        connection.reply().text(),
        connection.reply().text(),
    ];
    assert_eq!(texts, ["/a", "/b", "/c"]);
}

#[test]
fn ambiguous_bodies_are_refused_and_the_connection_closed() {
    let server = Server::start(ECHO);
    for (headers, status) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        ("Content-Length: x\r\n", 400),
        ("Content-Length: -1\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 501),
        ("Transfer-Encoding: chunked, chunked\r\n", 501),
    ] {
        let reply = server.raw(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{headers}: {reply}"
        );
        assert!(!reply.contains("smuggled"), "{headers}: {reply}");
    }
}

#[test]
fn keepalive_requests_and_timeout_are_limits() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; keepalive_requests 2; keepalive_timeout 60s 20s; location / { return 200 x; } }
         server { listen 127.0.0.1:%PORT1%; keepalive_timeout 0; location / { return 200 x; } }",
    );
    let mut connection = server.connect();
    let first = connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!(
        (first.header("connection"), first.header("keep-alive")),
        (Some("keep-alive"), Some("timeout=20"))
    );
    assert_eq!(
        connection
            .send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .reply()
            .header("connection"),
        Some("close")
    );
    assert!(connection.is_closed());
    let none = server
        .connect_to(1)
        .send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .reply();
    assert_eq!(none.header("connection"), Some("close"));
}

#[test]
fn silent_connections_make_place_for_those_that_ask() {
    let text = "daemon off; pid nginx.pid; worker_processes 1; error_log logs/error.log info;
        events { worker_connections 32; } http { server { listen 127.0.0.1:%PORT%; return 200 x; } }";
    let server = Server::try_start(text).unwrap();
    let silent: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "x");
    }
    server.wait_for(
        "worker_connections are not enough, reusing connections",
        "the line about it",
    );
    drop(silent);
}

#[test]
fn who_closes_and_asks_at_once_is_alone() {
    let server = Server::start_with(
        "worker_processes 1;",
        "access_log %DIR%/logs/access.log; server { listen 127.0.0.1:%PORT%;
            location /status { stub_status; } location /refused { deny all; } location / { return 200 x; } }",
    );
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\naaa",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /",
    ] {
        // Who connects while the loop is accepting may still come before what it learns next.
        let is_alone = |_: &usize| {
            let mut client = server.connect();
            client.send(request).reply();
            drop(client);
            let status = server.get("/status").text();
            status.starts_with("Active connections: 1 \n")
                && status.ends_with("Reading: 0 Writing: 1 Waiting: 0 \n")
        };
        let alone = (0..50).filter(is_alone).count();
        assert!(alone >= 45, "{request:?}: {alone} of 50");
    }
}

#[test]
fn who_has_seen_a_connection_end_is_alone_on_whatever_loop_he_asks() {
    let server = Server::start_with(
        "worker_processes 4;",
        "server { listen 127.0.0.1:%PORT%;
            location /status { stub_status; } location /refused { deny all; } location / { return 200 x; } }",
    );
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET /refused HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ] {
        for _ in 0..200 {
            // Up to the end of the connection, as that of the page is.
            server.raw(request);
            let status = server.raw("GET /status HTTP/1.0\r\n\r\n");
            assert!(
                status.contains("Active connections: 1 \n")
                    && status.ends_with("Reading: 0 Writing: 1 Waiting: 0 \n"),
                "{request:?}: {status}"
            );
        }
    }
}

/// One loop with few places.
fn crowded(servers: &str) -> Server {
    let text = format!(
        "daemon off; pid nginx.pid; worker_processes 1; error_log logs/error.log info;
         events {{ worker_connections 32; }} http {{ server {{ listen 127.0.0.1:%PORT%; {servers} }} }}"
    );
    Server::try_start(&text).expect("it starts")
}

const REUSING: &str = "worker_connections are not enough, reusing connections";

#[test]
fn heads_that_do_not_come_to_their_end_make_place_for_those_that_ask() {
    let server = crowded("return 200 x;");
    let begin = |_| {
        let mut connection = server.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
        connection
    };
    let mut begun: Vec<_> = (0..60).map(begin).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "x");
    }
    server.wait_for(REUSING, "the line about it");
    let why = "reusing connection while reading client request headers";
    server.wait_for(why, "the line about one");
    // The oldest has gone, the newest has not.
    assert!(begun[0].is_closed());
    let last = begun.last_mut().unwrap();
    assert_eq!(last.send("y\r\n\r\n").reply().text(), "x");
}

/// A first byte that may be that of HTTP/2's preface.
#[test]
fn clients_that_do_not_say_what_they_speak_make_place_for_those_that_ask() {
    let server = crowded("http2 on; return 200 x;");
    let begin = |_| {
        let mut connection = server.connect();
        connection.send("P");
        connection
    };
    let mut begun: Vec<_> = (0..60).map(begin).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "x");
    }
    server.wait_for(REUSING, "the line about it");
    assert!(begun[0].is_closed());
    let last = begun.last_mut().unwrap();
    last.send("OST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(last.reply().text(), "x");
}

#[test]
fn bodies_that_stand_still_make_place_and_those_that_go_on_do_not() {
    let server = crowded(
        "location / { return 200 x; } location /body { proxy_pass http://127.0.0.1:%PORT%/; }",
    );
    let begin = || {
        let mut connection = server.connect();
        connection.send(
            "POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n",
        );
        connection
    };
    let begun_and_read = |_| {
        let mut connection = begin();
        connection.until("100 Continue\r\n\r\n");
        connection.send("x");
        connection
    };
    let mut begun: Vec<_> = (0..24).map(begun_and_read).collect();
    let mut others = Vec::new();
    let ask = || {
        let mut other = server.connect();
        other.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        other.rest()
    };
    let why = "reusing connection while reading client request body";
    let until = std::time::Instant::now() + blackbox::PATIENCE;
    // One goes on: all that stand still go before it.
    while !server.error_log().contains(why) {
        assert!(std::time::Instant::now() < until, "nobody gave way");
        begun[0].send("x");
        others.push(begin());
        ask();
    }
    server.wait_for(why, "the line about one");
    assert!(begun[1].is_closed());
    drop(others);
    while ask().is_empty() {
        assert!(std::time::Instant::now() < until, "there is no place");
    }
    // Until the first had stood still for long enough, there was no place.
    server.forget_log();
}

#[test]
fn connections_that_only_linger_make_place_for_those_that_ask() {
    let server = crowded(
        "lingering_timeout 60s; client_max_body_size 1; location / { return 200 x; } location /body { proxy_pass http://127.0.0.1:%PORT%/; }",
    );
    let linger = |_| {
        let mut connection = server.connect();
        connection.send("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx");
        assert_eq!(connection.reply().status, 413);
        connection
    };
    let lingering: Vec<_> = (0..60).map(linger).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "x");
    }
    server.wait_for(REUSING, "the line about it");
    drop(lingering);
}

/// What a client sends behind its last answer does not take the answers before it away: it is read, and not reset.
#[expect(clippy::disallowed_methods, reason = "the pause is the client's")]
#[test]
fn the_close_behind_pipelined_requests_and_malformed_heads_lingers() {
    let server = Server::start(
        "lingering_timeout 60s; server { listen 127.0.0.1:%PORT%; keepalive_requests 3; location / { return 200 x; } }",
    );
    let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for asks in [
        &ask.repeat(3),
        "POST /a b HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA b: c\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nbegun",
    ] {
        let mut client = server.connect();
        assert!(!client.send(asks).rest().is_empty());
        for _ in 0..10 {
            client.stream().write_all(b"more").expect("it is taken");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// As nginx: a reset between two requests is not told.
#[test]
fn a_client_that_closes_without_a_request_is_told() {
    let server = Server::start_with("worker_processes 1;", ECHO);
    drop(server.connect());
    server.wait_for(
        "client closed connection while waiting for request, client: 127.0.0.1, server: 127.0.0.1:",
        "the end of one without requests",
    );
    let asking = || {
        let mut connection = server.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        connection
    };
    // What is not read of the response makes the close a reset.
    let unread = asking();
    unread.stream().peek(&mut [0]).expect("a response");
    drop(unread);
    let mut read = asking();
    assert_eq!(read.reply().status, 200);
    drop(read);
    server.wait_for(
        "client 127.0.0.1 closed keepalive connection\n",
        "the end of one with requests",
    );
    let log = server.error_log();
    assert!(!log.contains("recv() failed"), "{log}");
}
