//! Lists of directories.

use blackbox::Server;

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
fn head_has_no_chunks() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; autoindex on; }");
    server.file("list/b", "12345");
    let head = server.request("HEAD", "/list/", "");
    assert_eq!((head.status, head.header("transfer-encoding")), (200, None));
}
