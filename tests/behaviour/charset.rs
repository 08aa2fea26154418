//! The charsets of answers: said in their heads, and recoded into.

use blackbox::{Answer, Origin, Server};

const KOI8: &str = "charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; 80 E282AC; } charset_map koi8-r windows-1251 { C1 E0; C2 E1; }";

fn kind(server: &Server, path: &str) -> String {
    let reply = server.get(path);
    reply.header("content-type").unwrap_or("none").to_owned()
}

#[test]
fn a_charset_is_said_of_texts() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; charset utf-8;
             location /types/ { charset_types text/css; types { text/css css; } alias %DIR%/html/; }
             location /off/ { charset off; alias %DIR%/html/; }
             location /all/ { charset_types *; types { image/x x; } alias %DIR%/html/; }
             location /variable/ { charset $arg_c; return 200 a; }
             location /none { return 204; }
             location /moved { return 302 /; }
             location /gone { return 410; } }",
    );
    for name in ["a.html", "a.css", "a.gif", "a.x"] {
        server.file(name, "text");
    }
    for (path, expected) in [
        ("/a.html", "text/html; charset=utf-8"),
        ("/a.x", "text/plain; charset=utf-8"),
        ("/a.gif", "image/gif"),
        ("/types/a.css", "text/css; charset=utf-8"),
        ("/off/a.html", "text/html"),
        ("/all/a.x", "image/x; charset=utf-8"),
        ("/variable/?c=koi8-r", "text/plain; charset=koi8-r"),
        ("/none", "none"),
        ("/moved", "text/html"),
        ("/gone", "text/html; charset=utf-8"),
    ] {
        assert_eq!(kind(&server, path), expected, "{path}");
    }
    let reply = server.get("/a.html");
    assert_eq!(reply.header("content-length"), Some("4"));
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert!(
        reply
            .header("etag")
            .is_some_and(|tag| !tag.starts_with("W/"))
    );
}

#[test]
fn texts_are_recoded() {
    let server = Server::start(&format!(
        "{KOI8} server {{ listen 127.0.0.1:%PORT%; root %DIR%/html;
             location /to/ {{ source_charset koi8-r; charset utf-8; alias %DIR%/html/; }}
             location /from/ {{ source_charset UTF-8; charset koi8-r; alias %DIR%/html/; }}
             location /other/ {{ source_charset koi8-r; charset windows-1251; alias %DIR%/html/; }}
             location /back/ {{ source_charset windows-1251; charset koi8-r; alias %DIR%/html/; }}
             location /same/ {{ source_charset koi8-r; charset Koi8-R; alias %DIR%/html/; }} }}"
    ));
    server.file("koi.html", b"x\xc1\xc2y\x80\xff");
    server.file("utf.html", "xаб–y😀");
    server.file("win.html", b"x\xe0\xe1y\xe2");
    let get = |path: &str| server.get(path);
    assert_eq!(get("/to/koi.html").body, "xабy€?".as_bytes());
    assert_eq!(get("/to/koi.html").header("content-length"), None);
    assert_eq!(get("/from/utf.html").body, b"x\xc1\xc2&#8211;y&#128512;");
    let other = get("/other/koi.html");
    assert_eq!(other.body, b"x\xe0\xe1y??");
    assert_eq!(
        other.header("content-type"),
        Some("text/html; charset=windows-1251")
    );
    assert_eq!(other.header("content-length"), Some("6"));
    assert_eq!(get("/back/win.html").body, b"x\xc1\xc2y?");
    // By the name that stands first in the configuration.
    let same = get("/same/koi.html");
    assert_eq!(same.body, b"x\xc1\xc2y\x80\xff");
    assert_eq!(
        same.header("content-type"),
        Some("text/html; charset=koi8-r")
    );
    let part = server.get_with("/other/koi.html", "Range: bytes=1-2\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &b"\xe0\xe1"[..]));
    let head = server.request("HEAD", "/to/koi.html", "");
    assert_eq!(head.header("content-length"), None);
    assert_eq!(
        head.header("content-type"),
        Some("text/html; charset=utf-8")
    );
}

#[test]
fn long_texts_are_recoded_whole() {
    let server = Server::start(&format!(
        "{KOI8} server {{ listen 127.0.0.1:%PORT%; charset koi8-r; source_charset utf-8; root %DIR%/html; }}"
    ));
    // Pieces end within characters.
    server.file("long.html", "аб–".repeat(100_000) + "x");
    let expected = b"\xc1\xc2&#8211;".repeat(100_000);
    let body = server.get("/long.html").body;
    assert_eq!(body.len(), expected.len() + 1);
    assert!(body.starts_with(&expected) && body.ends_with(b"x"));
}

#[test]
fn other_servers_say_their_charset() {
    let origin = Origin::start(|request| {
        let name = request.target().trim_start_matches('/').to_owned();
        let lines = match &name[..] {
            "told" => "Content-Type: text/html\r\nX-Accel-Charset: utf-8\r\n".into(),
            "unknown" => "Content-Type: text/html\r\nX-Accel-Charset: x\r\n".into(),
            "coded" => "Content-Type: text/html\r\nContent-Encoding: gzip\r\n".into(),
            _ => format!("Content-Type: text/html; charset={name}\r\n"),
        };
        Answer::with("200 OK", &lines, b"x\xc1")
    });
    let server = Server::start(&format!(
        "{KOI8} server {{ listen 127.0.0.1:%PORT%;
             location / {{ charset utf-8; proxy_pass http://{0}/; }}
             location /over/ {{ charset utf-8; override_charset on; proxy_pass http://{0}/; }}
             location /coded/ {{ charset utf-8; source_charset koi8-r; proxy_pass http://{0}/; }}
             location /plain/ {{ proxy_pass http://{0}/; }}
             location /deaf/ {{ proxy_ignore_headers X-Accel-Charset; proxy_pass http://{0}/; }} }}",
        origin.address()
    ));
    for (path, expected, body) in [
        ("/koi8-r", "text/html; charset=koi8-r", &b"x\xc1"[..]),
        ("/over/koi8-r", "text/html; charset=utf-8", "xа".as_bytes()),
        ("/over/UTF-8", "text/html; charset=utf-8", b"x\xc1"),
        ("/over/latin", "text/html; charset=latin", b"x\xc1"),
        ("/plain/koi8-r", "text/html; charset=koi8-r", b"x\xc1"),
        ("/plain/told", "text/html; charset=utf-8", b"x\xc1"),
        ("/plain/unknown", "text/html", b"x\xc1"),
        ("/deaf/told", "text/html", b"x\xc1"),
        ("/coded/coded", "text/html", b"x\xc1"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.header("content-type"), Some(expected), "{path}");
        assert_eq!(reply.body, body, "{path}");
    }
    server.wait_for(
        "no \"charset_map\" between the charsets \"latin\" and \"utf-8\"",
        "the log",
    );
    server.wait_for("unknown charset \"x\" to override", "the log");
}

#[test]
fn wrong_maps() {
    for (lines, sentence) in [
        (
            "charset_map a a { }",
            "\"charset_map\" between the same charsets \"a\" and \"a\"",
        ),
        (
            "charset_map utf-8 a { }",
            "\"charset_map\" with \"utf-8\" charset should be given in the second column",
        ),
        (
            "charset_map a b { } charset_map B A { }",
            "duplicate \"charset_map\" between \"B\" and \"A\"",
        ),
        ("charset_map a b { 80 81 82; }", "invalid parameters number"),
        ("charset_map a b { 80 100; }", "invalid value \"100\""),
        ("charset_map a b { x 80; }", "invalid value \"x\""),
        ("charset_map a utf-8 { 80 41; }", "invalid value \"41\""),
        (
            "charset_map a utf-8 { 80 F09F9880; }",
            "invalid value \"F09F9880\"",
        ),
        (
            "charset a; source_charset b; server { listen 127.0.0.1:%PORT%; }",
            "no \"charset_map\" between the charsets \"b\" and \"a\"",
        ),
    ] {
        let refused = Server::try_start(&format!("events {{}} http {{ {lines} }}"));
        let said = refused
            .err()
            .map(|refused| refused.stderr)
            .unwrap_or_default();
        assert!(said.contains(sentence), "{lines}: {said}");
    }
}

#[test]
fn a_charset_that_no_variable_names_ends_the_connection() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; charset $arg_charset; location / { return 302 /b; } }",
    );
    assert_eq!(server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    let log = server.access_log(1);
    assert!(log.contains("\" 302 0 "), "{log}");
}
