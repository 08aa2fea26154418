//! HTTP/1 requests whose bytes are wrong or ambiguous: each is refused as nginx refuses it, and nothing behind it is taken for a
//! request. Also what must not be refused.

use blackbox::{Server, statuses_of, text_of};
use std::net::Shutdown;

/// Says what was understood of a request.
const ECHO: &str = "client_header_timeout 2s; lingering_time 1s; lingering_timeout 300ms;
    server { listen 127.0.0.1:%PORT%; server_name h.test;
        location / { return 200 \"uri=$uri args=$args host=$host n=$request_length x=$http_x\\n\"; } }";

/// A request that must never be answered: whoever answers it has taken a body for a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h.test\r\n\r\n";

/// All answers of a connection over which `bytes` went, then the client's end of the connection: their statuses, and the text.
fn ask(server: &Server, bytes: impl AsRef<[u8]>) -> (Vec<u16>, String) {
    let mut connection = server.connect();
    connection.send(bytes);
    let _ = connection.stream().shutdown(Shutdown::Write);
    let text = text_of(&connection.rest());
    (statuses_of(&text), text)
}

/// Each case alone, and with its bytes one by one.
fn each(cases: &[(&str, &[u16])]) {
    let server = Server::start(ECHO);
    for (bytes, expected) in cases {
        let (statuses, text) = ask(&server, bytes);
        assert_eq!(&statuses, expected, "{bytes:?}: {text}");
        assert!(!text.contains("uri=/smuggled"), "{bytes:?}: {text}");
        if *expected != [200] {
            assert!(text.contains("Connection: close\r\n"), "{bytes:?}: {text}");
        }
    }
}

fn with(headers: &str, behind: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h.test\r\n{headers}\r\n{behind}")
}

#[test]
fn request_lines_that_are_refused() {
    each(&[
        ("GET / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[200]),
        ("GET   /  HTTP/1.1\r\nHost: h.test\r\n\r\n", &[200]),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[200]),
        ("GET / HTTP/1.1\nHost: h.test\n\n", &[200]),
        ("GET /a b HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        (" GET / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("get / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.1  \r\nHost: h.test\r\n\r\n", &[200]),
        ("GET / HTTP/1.1\t\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET\t/ HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.01\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.10\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /\tHTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("G=T / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET a HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET ?a HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET * HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\rHost: h.test\r\n\r\n", &[400]),
        ("GET /\x0b HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / http/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/2.0\r\nHost: h.test\r\n\r\n", &[505]),
        ("GET / HTTP/1.2\r\nHost: h.test\r\n\r\n", &[200]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400]),
        ("TRACE / HTTP/1.1\r\nHost: h.test\r\n\r\n", &[405]),
        (
            "CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n\r\n",
            &[405],
        ),
        ("CONNECT h.test HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("{\"json\": 1}\r\n\r\n", &[400]),
    ]);
}

#[test]
fn paths_that_are_refused_and_paths_that_are_not() {
    each(&[
        ("GET /% HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /%1 HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /%zz HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /a%00b HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /a\x01 HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        ("GET /../a HTTP/1.1\r\nHost: h.test\r\n\r\n", &[400]),
        (
            "GET /a/%2e%2e/../b HTTP/1.1\r\nHost: h.test\r\n\r\n",
            &[400],
        ),
        ("GET /a%02 HTTP/1.1\r\nHost: h.test\r\n\r\n", &[200]),
    ]);
    let server = Server::start(ECHO);
    for (target, understood) in [
        ("/a/../b", "uri=/b args= "),
        ("//a///b", "uri=/a/b args= "),
        ("/a/.?x=%20", "uri=/a/ args=x=%20 "),
        ("/a#b?c", "uri=/a args= "),
        ("/a/..?b#c", "uri=/ args=b "),
        ("/%61%2Fb", "uri=/a/b args= "),
        ("http://Other.test:80?q", "uri=/ args=q host=other.test "),
        ("http://other.test/c", "uri=/c args= host=other.test "),
    ] {
        let (_, text) = ask(
            &server,
            format!("GET {target} HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        );
        assert!(text.contains(understood), "{target}: {text}");
    }
}

#[test]
fn a_path_above_the_root_is_logged_without_uri() {
    let server = Server::start(
        "log_format uri '$status \"$request\" [$uri]'; 
         server { listen 127.0.0.1:%PORT%; access_log logs/uri.log uri; }",
    );
    assert_eq!(
        ask(&server, "GET /../a HTTP/1.1\r\nHost: a\r\n\r\n").0,
        [400]
    );
    drop(server.connect());
    let server = {
        let mut server = server;
        server.quit();
        server
    };
    assert_eq!(
        server.read("logs/uri.log"),
        "400 \"GET /../a HTTP/1.1\" []\n"
    );
}

#[test]
fn hosts_that_are_refused() {
    let server = Server::start(ECHO);
    for host in [
        "",
        ".",
        "a..b",
        "a/b",
        "a\\b",
        "a b",
        "a\x01",
        "a:b",
        "a:1:2",
        "a:65536",
        "a:1.2",
        "a[::1]",
        "[::1",
        "a\0b",
        "[a]",
        "[]",
        "[1.2.3.4]",
        "a%zz",
        "a%4",
    ] {
        let (statuses, text) = ask(&server, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(statuses, [400], "{host:?}: {text}");
    }
    for (host, known) in [
        ("H.Test:80", "h.test"),
        ("h.test.", "h.test"),
        ("[::1]:8080", "[::1]"),
        ("[v1.a]", "[v1.a]"),
    ] {
        let (_, text) = ask(&server, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(text.contains(&format!("host={known} ")), "{host}: {text}");
    }
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(ask(&server, head).0, [400], "{head:?}");
    }
    assert_eq!(ask(&server, "GET / HTTP/1.0\r\n\r\n").0, [200]);
}

#[test]
fn header_lines() {
    each(&[
        ("GET / HTTP/1.1\r\nHost: h.test\r\n: a\r\n\r\n", &[400]),
        (
            "GET / HTTP/1.1\r\nHost: h.test\r\nA: b\r\n folded\r\n\r\n",
            &[400],
        ),
        ("GET / HTTP/1.1\r\n Host: h.test\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\r\nHost: h.test\r\nA: b\0c\r\n\r\n", &[400]),
        ("GET / HTTP/1.1\r\nHost: h.test\r\nA\x01: b\r\n\r\n", &[400]),
    ]);
    let server = Server::start(ECHO);
    for (headers, value) in [
        ("X: a\r\nX: b\r\n", "x=a, b\n"),
        ("X:   a  \r\n", "x=a\n"),
        ("x_y: 1\r\nX: c\r\n", "x=c\n"),
        ("X:\r\n", "x=\n"),
    ] {
        let (_, text) = ask(
            &server,
            format!("GET / HTTP/1.1\r\nHost: h.test\r\n{headers}\r\n"),
        );
        assert!(text.ends_with(value), "{headers:?}: {text}");
    }
}

#[test]
fn names_with_underscores_and_dots_by_the_switches() {
    let text = |switch: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT%; {switch} location / {{ return 200 \"[$http_a_b]\"; }} }}"
        )
    };
    for (switch, value) in [
        ("", "[]"),
        ("underscores_in_headers on;", "[1]"),
        ("ignore_invalid_headers off;", "[1]"),
    ] {
        let server = Server::start(&text(switch));
        assert_eq!(server.get_with("/", "a_b: 1\r\n").text(), value, "{switch}");
    }
}

#[test]
fn lengths_that_are_refused() {
    let length = |value: &str| with(&format!("Content-Length: {value}\r\n"), SMUGGLED);
    let mut cases = Vec::new();
    for value in [
        "",
        "-1",
        "+5",
        "5 5",
        "5,5",
        "0x5",
        "5a",
        "1e1",
        "9223372036854775808",
        "18446744073709551616",
        "18446744073709551621",
    ] {
        cases.push((length(value), 400));
    }
    cases.push((length("9223372036854775807"), 413));
    cases.push((
        with("Content-Length: 5\r\nContent-Length: 5\r\n", SMUGGLED),
        400,
    ));
    cases.push((
        with("Content-Length: 0\r\nContent-Length: 5\r\n", SMUGGLED),
        400,
    ));
    let server = Server::start(ECHO);
    for (bytes, status) in cases {
        let (statuses, text) = ask(&server, &bytes);
        assert_eq!(statuses, [status], "{bytes:?}: {text}");
    }
}

#[test]
fn codings_that_are_refused() {
    let server = Server::start(ECHO);
    for (headers, status) in [
        ("Transfer-Encoding: gzip\r\n", 501),
        ("Transfer-Encoding: chunked, gzip\r\n", 501),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: chunked,\r\n", 501),
        ("Transfer-Encoding: identity\r\n", 501),
        ("Transfer-Encoding: \x0bchunked\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            400,
        ),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
    ] {
        let bytes = with(headers, &format!("0\r\n\r\n{SMUGGLED}"));
        let (statuses, text) = ask(&server, &bytes);
        assert!(!text.contains("uri=/smuggled"), "{headers:?}: {text}");
        // The vertical tab is refused by both; nginx calls it an unknown coding.
        let is_right = statuses == [status] || (headers.contains('\x0b') && statuses == [501]);
        assert!(is_right, "{headers:?}: {text}");
    }
    let old = format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}");
    assert_eq!(ask(&server, old).0, [400]);
}

#[test]
fn chunks_that_are_refused_before_the_answer() {
    let server = Server::start(ECHO);
    for body in [
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\nA: b\n\r\n",
        "5\r\nhello\r\n0\r\nA\r\n\r\n",
        "5\r\nhello\r\n0\r\nA : b\r\n\r\n",
    ] {
        let bytes = with(
            "Transfer-Encoding: chunked\r\n",
            &format!("{body}{SMUGGLED}"),
        );
        let (statuses, text) = ask(&server, &bytes);
        assert_eq!(statuses, [400], "{body:?}: {text}");
    }
    server.wait_for("client sent invalid chunked body", "the reason is logged");
}

#[test]
fn chunks_that_are_fine_are_thrown_away_and_the_next_request_is_found() {
    let server = Server::start(ECHO);
    let long = format!("1000\r\n{}\r\n0\r\n\r\n", "x".repeat(4096));
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "0005;a=\"b\"\r\nhello\r\n000\r\n\r\n",
        "1\r\na\r\nA\r\n0123456789\r\n0\r\nT: x\r\nU: y\r\n\r\n",
        &long,
    ] {
        let bytes = with(
            "transfer-encoding: Chunked\r\n",
            &format!("{body}GET /next HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        );
        let (statuses, text) = ask(&server, &bytes);
        assert_eq!(statuses, [200, 200], "{body:?}: {text}");
        assert!(text.contains("uri=/next "), "{body:?}: {text}");
    }
}

#[test]
fn a_bad_chunk_that_comes_late_ends_the_connection() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    connection.send(with("Transfer-Encoding: chunked\r\n", "5\r\nhel"));
    let reply = connection.reply();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (200, Some("keep-alive"))
    );
    connection.send(format!("lo!!0\r\n\r\n{SMUGGLED}"));
    assert!(connection.is_closed());
}

#[test]
fn a_body_that_breaks_off_is_not_followed_by_a_request() {
    let server = Server::start(ECHO);
    for bytes in [
        with("Content-Length: 100\r\n", SMUGGLED),
        with(
            "Transfer-Encoding: chunked\r\n",
            &format!("64\r\n{SMUGGLED}"),
        ),
    ] {
        let (statuses, text) = ask(&server, &bytes);
        assert_eq!(statuses, [200], "{text}");
        assert!(!text.contains("/smuggled"), "{text}");
    }
}

#[test]
fn lengths_of_heads_are_limited() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; client_header_buffer_size 128; large_client_header_buffers 2 512; max_headers 10;
            location / { return 200 \"$request_length\"; } }",
    );
    let fits = "x".repeat(440);
    assert_eq!(
        ask(&server, format!("GET /{fits} HTTP/1.1\r\nHost: a\r\n\r\n")).0,
        [200]
    );
    let too_long = "x".repeat(600);
    for (bytes, status) in [
        (format!("GET /{too_long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET /{}", "x".repeat(5000)), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nA: {too_long}\r\n\r\n"),
            400,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nA{}", "x".repeat(5000)),
            400,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                format!("A: {fits}\r\n").repeat(4)
            ),
            400,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(10)),
            400,
        ),
    ] {
        let (statuses, text) = ask(&server, &bytes);
        assert_eq!(statuses, [status], "{}: {text}", &bytes[..40]);
        assert!(text.contains("Connection: close"), "{text}");
    }
    assert_eq!(
        ask(
            &server,
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(9))
        )
        .0,
        [200]
    );
}

#[test]
fn the_answer_to_an_endless_header_reaches_who_still_sends() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    connection.send("GET / HTTP/1.1\r\nHost: h.test\r\n");
    connection.send("A: ".to_owned() + &"x".repeat(1 << 20));
    let reply = connection.reply();
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("Request Header Or Cookie Too Large"));
}

#[test]
fn bodies_are_limited_by_length() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; client_max_body_size 10; lingering_timeout 300ms;
            location / { return 200 ok; } location /free { client_max_body_size 0; return 200 ok; } }",
    );
    let post = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}",
            "x".repeat(length)
        )
    };
    assert_eq!(ask(&server, post("/", 10)).0, [200]);
    let (statuses, text) = ask(&server, post("/", 11));
    assert_eq!(statuses, [413]);
    assert!(text.contains("Connection: close"));
    assert_eq!(ask(&server, post("/free", 100_000)).0, [200]);
}

#[test]
fn http_0_9_and_1_0() {
    let server = Server::start(ECHO);
    let (_, text) = ask(&server, "GET /old\r\n");
    assert!(
        text.starts_with("uri=/old "),
        "no head before the body: {text}"
    );
    let text = server.raw("GET / HTTP/1.0\r\n\r\n");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Connection: close\r\n"),
        "{text}"
    );
    let mut connection = server.connect();
    for _ in 0..2 {
        let reply = connection
            .send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .reply();
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
    // What is wrong with a line that names no version is said in HTTP/1.0's way.
    assert!(ask(&server, "GET\r\n").1.starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_head_that_comes_byte_by_byte() {
    let server = Server::start(ECHO);
    let mut connection = server.connect();
    for byte in b"GET /slow?a HTTP/1.1\r\nHost: h.test\r\nX: y\r\n\r\n" {
        connection.send([*byte]);
    }
    let text = connection.reply().text();
    assert!(
        text.starts_with("uri=/slow args=a host=h.test ") && text.ends_with(" x=y\n"),
        "{text}"
    );
}

#[test]
fn the_server_of_the_host_sets_the_limits_from_then_on() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT% default_server; large_client_header_buffers 2 2k; location / { return 200 first; } }
         server { listen 127.0.0.1:%PORT%; server_name large; large_client_header_buffers 4 16k; location / { return 200 second; } }",
    );
    let long = "x".repeat(9000);
    for (host, status) in [("small", 400), ("large", 200)] {
        let (statuses, text) = ask(
            &server,
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nA: {long}\r\n\r\n"),
        );
        assert_eq!(statuses, [status], "{host}: {text}");
    }
}

#[test]
fn random_bytes_never_hang_or_kill() {
    let server = Server::start(ECHO);
    let mut state = 1_u64;
    for round in 0..200 {
        let bytes: Vec<u8> = (0..round * 7 + 1)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56).to_le_bytes()[0]
            })
            .collect();
        let mut connection = server.connect();
        connection.send(&bytes);
        let _ = connection.stream().shutdown(Shutdown::Write);
        connection.rest();
    }
    assert_eq!(server.get("/").status, 200);
}
