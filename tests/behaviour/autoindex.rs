//! Lists of directories.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Server, is_nginx};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn directories_first_names_escaped() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    server.file("list/b.txt", "12345");
    server.file("list/a b%c.txt", "1");
    server.file("list/zdir/x", "1");
    server.file("list/.hidden", "1");
    let reply = server.get("/list/");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("text/html"))
    );
    let text = reply.text();
    let at = |needle: &str| {
        text.find(needle)
            .unwrap_or_else(|| panic!("no {needle} in {text}"))
    };
    assert!(at("<a href=\"../\">../</a>") < at("<a href=\"zdir/\">zdir/</a>"));
    assert!(at("<a href=\"zdir/\">") < at("<a href=\"a%20b%25c.txt\">a b%c.txt</a>"));
    assert!(at("a%20b") < at("<a href=\"b.txt\">b.txt</a>"));
    assert!(!text.contains("hidden"));
    assert!(text.contains("<title>Index of /list/</title>"));
}

#[test]
fn as_json() {
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; autoindex_format json; }");
    server.file("list/b", "12345");
    server.file("list/d/x", "1");
    let text = server.get("/list/").text();
    assert!(
        text.contains("{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\""),
        "{text}"
    );
    assert!(
        text.contains("{ \"name\":\"b\", \"type\":\"file\", \"mtime\":\"")
            && text.contains("\"size\":5 }"),
        "{text}"
    );
}

#[test]
fn a_long_listing_is_whole() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    let name = |number: usize| format!("{number:0>100}.txt");
    for number in 0..1000 {
        server.file(&format!("list/{}", name(number)), "1");
    }
    let text = server.get("/list/").text();
    assert!((0..1000).all(|number| text.contains(&format!("href=\"{}\"", name(number)))));
    assert!(text.ends_with("</body>\r\n</html>\r\n"), "its end");
    let old = server.connect().send("GET /list/ HTTP/1.0\r\n\r\n").rest();
    assert!(old.ends_with(text.as_bytes()), "without chunks");
}

#[test]
fn head_has_no_chunks() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    server.file("list/b", "12345");
    let head = server.request("HEAD", "/list/", "");
    assert_eq!((head.status, head.header("transfer-encoding")), (200, None));
}

#[test]
fn an_entry_that_cannot_be_looked_at_is_an_error() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    let file = server.file("list/file", "12345");
    let link = file.with_file_name("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let reply = server.get("/list/");
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("<a href=\"link\">"));
    std::os::unix::fs::symlink("file/below", file.with_file_name(".hidden")).unwrap();
    assert_eq!(server.get("/list/").status, 200);
    if is_nginx() {
        return; // It closes the connection, since its head has gone to the filters.
    }
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("file/below", &link).unwrap();
    assert_eq!(server.get("/list/").status, 500);
    server.wait_for(
        "/list/link\" failed (20: Not a directory)",
        "the line about the entry",
    );
    server.forget_log();
}

#[test]
fn entries_that_may_not_be_looked_at_are_left_out_and_logged_up_to_a_limit() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    let mut closed = server.file("closed/a", "");
    closed.pop();
    let file = server.file("list/file", "");
    for number in 0..300 {
        let link = file.with_file_name(number.to_string());
        std::os::unix::fs::symlink("../closed/a", link).unwrap();
    }
    std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let reply = server.get("/list/");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    let text = reply.text();
    assert_eq!((reply.status, text.matches("<a href=").count()), (200, 2));
    if !is_nginx() {
        server.wait_for("200 more such failures", "the number of the others");
        let log = server.error_log();
        assert_eq!(log.matches("(13: Permission denied)").count(), 100);
    }
    server.forget_log();
}
