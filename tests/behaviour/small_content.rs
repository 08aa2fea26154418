//! Content that is chosen or made in one step: `empty_gif`, `random_index`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use blackbox::Server;

#[test]
fn a_picture_of_one_pixel() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location / { empty_gif; location /inner/ { } } }",
    );
    let reply = server.get("/any/name");
    assert_eq!(reply.header("content-type"), Some("image/gif"));
    assert_eq!(reply.header("content-length"), Some("43"));
    assert_eq!(reply.header("etag"), None);
    let date = reply.header("last-modified");
    assert_eq!(date, Some("Mon, 28 Sep 1970 06:00:00 GMT"));
    assert_eq!(&reply.body[..6], b"GIF89a");
    let head = server.request("HEAD", "/", "");
    assert_eq!(
        (head.header("content-length"), head.body.len()),
        (Some("43"), 0)
    );
    let since = "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n";
    assert_eq!(server.get_with("/", since).status, 304);
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(server.request(method, "/", "").status, 405, "{method}");
    }
    assert_eq!(server.get("/inner/none").status, 404);
    server.forget_log();
}

#[test]
fn any_file_of_a_directory() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /many/ { random_index on; add_header X-Uri $uri; }
             location /empty/ { random_index on; autoindex on; }
             location /none/ { random_index on; } }",
    );
    for name in ["a", "b", "c"] {
        server.file(&format!("many/{name}"), name);
    }
    server.file("many/.hidden", "hidden");
    server.file("many/directory/d", "d");
    server.file("empty/directory/d", "d");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let reply = server.get("/many/");
        let text = reply.text();
        assert_eq!(reply.header("x-uri"), Some(&*format!("/many/{text}")));
        seen.insert(text);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(
        server.get("/empty/").text().contains("directory/"),
        "the next answers"
    );
    assert_eq!(server.get("/none/").status, 404);
    assert_eq!(server.get("/many").status, 301);
    assert_eq!(server.request("PUT", "/many/", "").status, 405);
    server.wait_for(
        "/html/none\" failed (2: No such file or directory)",
        "what is not there",
    );
    server.forget_log();
}

#[test]
fn a_random_file_is_chosen_by_what_the_directory_says() {
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; location / { random_index on; } }");
    let mut directory = server.file("closed/a", "a");
    directory.pop();
    // It may be read, and not searched: only the chosen file is opened.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o444)).unwrap();
    let status = server.get("/closed/").status;
    std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(status, 403);
    server.wait_for("/closed/a\" failed (13: Permission denied)", "the file");
    let file = server.file("links/a", "a");
    std::os::unix::fs::symlink("nowhere", file.with_file_name("dangling")).unwrap();
    assert_eq!(server.get("/links/").text(), "a");
    std::os::unix::fs::symlink("circle", file.with_file_name("circle")).unwrap();
    assert_eq!(server.get("/links/").status, 500);
    server.wait_for("/links/circle\" failed (40: ", "the link");
    server.forget_log();
}
