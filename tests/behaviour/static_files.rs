//! Files, directories and indexes.

use blackbox::Server;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const PLAIN: &str = "server { listen 127.0.0.1:%PORT%; location / { } }";

#[test]
fn a_file_comes_with_length_type_date_and_tag() {
    let server = Server::start(&format!(
        "types {{ text/html html; image/png png; text/none \"\"; }} default_type text/x-other; {PLAIN}"
    ));
    server.file("a.html", "<p>");
    server.file("b.png", "png");
    server.file("c.unknown", "");
    let reply = server.get("/a.html");
    assert_eq!((reply.status, reply.text().as_str()), (200, "<p>"));
    assert_eq!(
        (reply.header("content-length"), reply.header("content-type")),
        (Some("3"), Some("text/html"))
    );
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert!(
        reply
            .header("last-modified")
            .is_some_and(|date| date.ends_with(" GMT"))
    );
    let tag = reply.header("etag").unwrap();
    assert!(tag.starts_with('"') && tag.ends_with("-3\""), "{tag}");
    assert_eq!(
        server.get("/b.png").header("content-type"),
        Some("image/png")
    );
    server.file("none", "");
    for path in ["/c.unknown", "/none"] {
        let empty = server.get(path);
        assert_eq!(
            (empty.header("content-type"), empty.header("content-length")),
            (Some("text/x-other"), Some("0"))
        );
    }
}

#[test]
fn a_large_file_comes_whole() {
    let server = Server::start(&format!("sendfile on; tcp_nopush on; {PLAIN}"));
    let bytes: Vec<u8> = (0..3_000_001_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    server.file("large", &bytes);
    for _ in 0..2 {
        assert!(server.get("/large").body == bytes);
    }
}

#[test]
fn a_file_that_changes_is_seen_by_the_next_request() {
    let server = Server::start(PLAIN);
    let mut connection = server.connect();
    let path = server.file("a", "one");
    let mut ask = || {
        connection
            .send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            .reply()
    };
    assert_eq!(ask().text(), "one");
    server.file("a", "three");
    assert_eq!(ask().text(), "three");
    let new = server.file("b", "replaced");
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::rename(new, &path).unwrap();
    assert_eq!(ask().text(), "replaced");
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask().status, 404);
    server.file("a", "again");
    assert_eq!(ask().text(), "again");
}

#[test]
fn a_switched_link_above_the_file_is_seen_too() {
    let server = Server::start(PLAIN);
    server.file("v1/a", "one");
    server.file("v2/a", "two");
    let link = server.site().path("html/current");
    std::os::unix::fs::symlink("v1", &link).unwrap();
    assert_eq!(server.get("/current/a").text(), "one");
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("v2", &link).unwrap();
    assert_eq!(server.get("/current/a").text(), "two");
}

#[test]
fn directories_have_an_index_or_none() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; index first.html second.html; location /elsewhere/ { index /target.html; } }",
    );
    server.file("dir/second.html", "second");
    server.file("empty/x", "");
    server.file("elsewhere/x", "");
    server.file("target.html", "target");
    assert_eq!(server.get("/dir/").text(), "second");
    assert_eq!(server.get("/empty/").status, 403);
    assert_eq!(server.get("/elsewhere/").text(), "target");
    assert_eq!(server.get("/none/").status, 404);
    assert_eq!(server.get("/dir/second.html/").status, 404);
    let reply = server.get("/dir?a=b");
    let location = format!("http://localhost:{}/dir/?a=b", server.site().port(0));
    assert_eq!(
        (reply.status, reply.header("location")),
        (301, Some(location.as_str()))
    );
}

#[test]
fn an_alias_replaces_the_prefix() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /p/ { alias %DIR%/html/real/; }
            location ~ ^/re/(.*)$ { alias %DIR%/html/real/$1; } }"
            .replace("%DIR%/", "html/../")
            .as_str(),
    );
    server.file("real/a", "real");
    assert_eq!(server.get("/p/a").text(), "real");
    assert_eq!(server.get("/re/a").text(), "real");
}

#[test]
fn what_may_not_be_read_is_403_and_what_is_no_file_404() {
    let server = Server::start(PLAIN);
    let path = server.file("secret", "x");
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    server.file("file", "x");
    assert_eq!(server.get("/secret").status, 403);
    assert_eq!(server.get("/missing").status, 404);
    assert_eq!(server.get("/file/below").status, 404);
    server.wait_for("(13: Permission denied)", "the file that may not be read");
    server.wait_for(
        "(2: No such file or directory)",
        "the one that is not there",
    );
}

#[test]
fn other_methods_on_a_file() {
    let server = Server::start(PLAIN);
    server.file("a", "abc");
    let head = server.request("HEAD", "/a", "");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("3"))
    );
    assert_eq!(
        server.request("POST", "/a", "Content-Length: 0\r\n").status,
        405
    );
    assert_eq!(server.request("DELETE", "/a", "").status, 405);
}

#[test]
fn a_compressed_file_is_for_those_who_take_it() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; gzip_static on; }");
    server.file("a", "plain");
    server.file("a.gz", "packed");
    let takes = "Accept-Encoding: gzip\r\n";
    let reply = server.get_with("/a", takes);
    assert_eq!(
        (reply.text().as_str(), reply.header("content-encoding")),
        ("packed", Some("gzip"))
    );
    for headers in [
        "",
        "Accept-Encoding: *\r\n",
        "Accept-Encoding: gzip;q=0\r\n",
        "Accept-Encoding: gzip\r\nVia: 1.1 proxy\r\n",
    ] {
        assert_eq!(server.get_with("/a", headers).text(), "plain", "{headers}");
    }
    let old = server.raw(format!("GET /a HTTP/1.0\r\n{takes}\r\n"));
    assert!(old.ends_with("\r\n\r\nplain"), "{old}");
}
