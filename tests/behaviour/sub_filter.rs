//! Texts replaced in bodies.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Answer, Origin, Server};

fn text(server: &Server, path: &str) -> String {
    server.get(path).text()
}

#[test]
fn texts_are_replaced() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; sub_filter_types text/plain;
             location / { sub_filter hello bye; sub_filter WORLD '[$arg_a$status]'; }
             location /all/ { sub_filter_once off; sub_filter aa b; sub_filter a ''; alias %DIR%/html/; }
             location /types/ { sub_filter_types x/y; sub_filter hello bye; alias %DIR%/html/; }
             location /any/ { sub_filter_types *; sub_filter hello bye; types { x/y txt; } alias %DIR%/html/; }
             location /made { sub_filter_once off; sub_filter '${arg_a}X' +; sub_filter '$arg_b' '$arg_a-'; return 200 $arg_t; } }",
    );
    server.file("a.txt", "Hello, World! hello, world!");
    server.file("a.html", "HELLO");
    server.file("b.txt", "aaaxAa-a.");
    for (path, expected) in [
        ("/a.txt?a=1", "bye, [1200]! hello, world!"),
        ("/a.html", "bye"),
        ("/all/b.txt", "bxb-."),
        ("/types/a.txt", "Hello, World! hello, world!"),
        ("/types/a.html", "bye"),
        ("/any/a.txt", "bye, World! hello, world!"),
        ("/made?a=p&b=q&t=pxqPXp", "+p-+p"),
        ("/made?b=q&t=pxqPXp", "p+-P+p"),
        ("/made?t=axb", "a+b"),
    ] {
        assert_eq!(text(&server, path), expected, "{path}");
    }
}

#[test]
fn heads_are_those_of_another_body() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; sub_filter x y;
             location /kept/ { sub_filter_last_modified on; alias %DIR%/html/; } }",
    );
    server.file("a.html", "axb");
    server.file("empty.html", "");
    let reply = server.get("/a.html");
    assert_eq!(reply.text(), "ayb");
    for name in ["content-length", "last-modified", "etag", "accept-ranges"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    let kept = server.get("/kept/a.html");
    assert!(kept.header("etag").is_some_and(|tag| tag.starts_with("W/")));
    assert!(kept.header("last-modified").is_some());
    let part = server.get_with("/a.html", "Range: bytes=0-0\r\n");
    assert_eq!((part.status, part.text().as_str()), (200, "ayb"));
    let head = server.request("HEAD", "/a.html", "");
    assert_eq!((head.status, head.header("content-length")), (200, None));
    assert_eq!(
        server.get("/empty.html").header("content-length"),
        Some("0")
    );
}

#[test]
fn matches_cross_pieces() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
        Answer::Talk(Box::new(move |mut stream| {
            use std::io::Write as _;
            for piece in [head, "a <he", "a", "d", "> b </hea", "x </h"] {
                let _ = stream.write_all(piece.as_bytes());
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }))
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; sub_filter <head> '<head><script>'; sub_filter </head> x;
             location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    assert_eq!(text(&server, "/"), "a <head><script> b </heax </h");
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; sub_filter_once off; sub_filter abcdefg -; }",
    );
    server.file("long.html", "abcdefg ABCDEF".repeat(50_000));
    assert!(text(&server, "/long.html") == "- ABCDEF".repeat(50_000));
}

#[test]
fn one_answer_may_grow_much() {
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; root %DIR%/html; sub_filter_once off; sub_filter x '{}'; }}",
        "y".repeat(2000)
    ));
    server.file("a.html", "x".repeat(2000));
    let body = server.get("/a.html").body;
    assert_eq!(body.len(), 4_000_000);
    assert!(body.iter().all(|byte| *byte == b'y'));
}

#[test]
fn what_is_kept_back_is_only_what_may_match() {
    let origin = Origin::start(|_| {
        Answer::Close(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 10\r\n\r\nxyz".to_vec(),
        )
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; proxy_buffering off; sub_filter_types *;
             location /part {{ sub_filter za -; proxy_pass http://{0}; }}
             location /none {{ sub_filter ab -; proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    let raw = |path: &str| server.raw(format!("GET {path} HTTP/1.0\r\n\r\n"));
    assert!(raw("/part").ends_with("\r\n\r\nxy"));
    assert!(raw("/none").ends_with("\r\n\r\nxyz"));
}

#[test]
fn wrong_lines() {
    let many: String = (0..256).map(|n| format!("sub_filter x{n} y;")).collect();
    for (lines, sentence) in [
        ("sub_filter '' x;", "empty search pattern"),
        (&many, "number of search patterns exceeds 255"),
        (
            "sub_filter_once off; sub_filter_once on;",
            "\"sub_filter_once\" directive is duplicate",
        ),
    ] {
        let refused = Server::try_start(&format!("events {{}} http {{ {lines} }}"));
        let said = refused
            .err()
            .map(|refused| refused.stderr)
            .unwrap_or_default();
        assert!(said.contains(sentence), "{sentence}: {said}");
    }
}
