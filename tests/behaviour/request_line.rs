//! The request line: what is a request, and which URI it means.

use blackbox::Server;

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
