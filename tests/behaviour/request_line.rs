//! The request line: what is a request, and which URI it means.

use blackbox::{Answer, Origin, Server};

const ECHO: &str = "server { listen 127.0.0.1:%PORT%; location / { add_header X-Uri \"x $uri\" always; return 204; } }";

fn uri(server: &Server, target: &str) -> String {
    let reply = server.get(target);
    match reply.header("x-uri") {
        Some(uri) => uri[2..].to_owned(),
        None => reply.status.to_string(),
    }
}

#[test]
fn a_header_line_that_is_too_long_forges_no_line_of_the_log() {
    let server = Server::start(
        "error_log logs/error.log info; server { listen 127.0.0.1:%PORT%; large_client_header_buffers 2 1k; return 204; }",
    );
    let long = "v".repeat(1500);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n2026/11/28 15:00:00 [emerg] 1#1: forged\r\nCookie: secret\r\n\r\n"
    );
    assert!(server.raw(request).starts_with("HTTP/1.1 400 "));
    server.wait_for("client sent too long header line: \"X: vvv", "the refusal");
    let log = server.error_log();
    assert!(!log.contains("forged") && !log.contains("secret"), "{log}");
}

#[test]
fn a_uri_is_decoded_and_normalised() {
    let server = Server::start(ECHO);
    for (target, expected) in [
        ("/a%41b", "/aAb"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a/b/..?x", "/a/"),
        ("//a///b", "/a/b"),
        ("/a#b", "/a"),
        ("/a%2fb", "/a/b"),
        ("/%2e%2e/a", "400"),
        ("/../a", "400"),
        ("/a%", "400"),
        ("/a%1", "400"),
        ("/a%zz", "400"),
        ("/a%00", "400"),
        ("/a%02b", "/a\u{2}b"),
    ] {
        assert_eq!(uri(&server, target), expected, "{target}");
    }
}

#[test]
fn without_merging_an_empty_segment_is_one() {
    let server = Server::start(&format!("merge_slashes off; {ECHO}"));
    assert_eq!(uri(&server, "//a//b"), "//a//b");
    assert_eq!(uri(&server, "/foo//../bar"), "/foo/bar");
}

#[test]
fn an_absolute_target_names_the_host() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 200 $host$uri; }");
    assert!(
        server
            .raw("GET http://other.example:81/p HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .ends_with("\r\n\r\nother.example/p")
    );
    assert!(
        server
            .raw("GET http://other.example?q HTTP/1.0\r\n\r\n")
            .ends_with("\r\n\r\nother.example/")
    );
}

#[test]
fn lines_may_end_in_a_bare_lf() {
    let server = Server::start(ECHO);
    let reply = server.raw("GET / HTTP/1.0\nHost: localhost\n\n");
    assert!(reply.starts_with("HTTP/1.1 204 No Content\r\n"), "{reply}");
    assert!(reply.contains("\r\nConnection: close\r\n"), "{reply}");
}

#[test]
fn the_answer_to_head_has_no_body_whatever_is_wrong_with_it() {
    let server = Server::start(ECHO);
    for line in [
        "HEAD /%zz HTTP/1.1",
        "HEAD / HTTP/7.0",
        "HEAD /\x01 HTTP/1.1",
    ] {
        let reply = server.raw(format!("{line}\r\nHost: a\r\n\r\n"));
        assert!(reply.starts_with("HTTP/1.1 "), "{line}: {reply}");
        assert!(reply.ends_with("\r\n\r\n"), "{line}: {reply}");
    }
}

#[test]
fn a_line_that_could_not_be_read_has_the_method_and_uri_of_its_page() {
    let origin = Origin::start(|request| Answer::ok(request.line()));
    let server = Server::start(&format!(
        "log_format f '$status|$request_method|$uri|$server_protocol';
         server {{ listen 127.0.0.1:%PORT%; http2 on; error_page 400 414 505 /e; large_client_header_buffers 2 1k;
            access_log logs/access.log f; location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    let long = format!("GET /{} HTTP/1.1", "a".repeat(3000));
    let lines = [
        ("GET / HTTP/3.0", 505, ""),
        ("HEAD / HTTP/3.0", 505, ""),
        ("GET / HTTP/1.x", 400, ""),
        ("GET /x y HTTP/1.1", 400, ""),
        ("GET a HTTP/1.1", 400, ""),
        ("GET /%00 HTTP/1.1", 400, "HTTP/1.1"),
        ("BAD", 400, "-"),
        (&long, 414, "-"),
    ];
    let mut logged = Vec::new();
    for (line, status, protocol) in lines {
        let reply = server.raw(format!("{line}\r\nHost: a\r\n\r\n"));
        let method = line
            .get(..4)
            .filter(|start| *start == "HEAD")
            .unwrap_or("GET");
        assert!(reply.contains(&format!(" {status} ")), "{line}: {reply}");
        let asked = format!("{method} /e HTTP/1.1");
        assert_eq!(origin.last().line(), asked, "{line}");
        if method == "GET" {
            assert!(reply.ends_with(&asked), "{line}: {reply}");
        }
        logged.push(format!("{status}|{method}|/e|{protocol}"));
    }
    for path in ["/..", "/%00"] {
        let mut client = server.connect_http2();
        let stream = client.get(path);
        let reply = client.reply(stream);
        assert_eq!(reply.text(), "GET /e HTTP/1.1", "{path}");
        logged.push("400|GET|/e|HTTP/2.0".to_owned());
    }
    let log = server.access_log(logged.len());
    assert_eq!(log.lines().collect::<Vec<_>>(), logged);
}

#[test]
fn a_line_that_is_too_long_is_logged_as_far_as_it_fits_into_a_buffer() {
    let server = Server::start(
        "log_format f '$request';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log f; large_client_header_buffers 2 1k; return 204; }",
    );
    for request in [
        format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(3000)),
        format!("GET /\x01{}", "a".repeat(3000)),
    ] {
        assert!(server.raw(request).starts_with("HTTP/1.1 4"));
    }
    let log = server.access_log(2);
    let lengths: Vec<_> = log.lines().map(str::len).collect();
    assert_eq!(lengths, [1024, 1024 + "\\x01".len() - 1], "{log}");
}
