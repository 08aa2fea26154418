//! Files and directories that clients make, move and remove (`dav_methods`).
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use blackbox::{Connection, PATIENCE, Reply, Server, Site, is_nginx};

const ALL: &str = "dav_methods PUT DELETE MKCOL COPY MOVE;";

fn server(locations: &str) -> Server {
    let server = Server::start(&format!(
        "client_body_temp_path %DIR%/bodies; client_body_buffer_size 1k; absolute_redirect off;
         server {{ listen 127.0.0.1:%PORT%; {locations} }}"
    ));
    open(&server.site().path("html"));
    server
}

/// Lets the worker do everything in a directory and those in it, whoever it is.
fn open(dir: &Path) {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).expect("it is ours");
    for entry in std::fs::read_dir(dir).expect("it is there") {
        let entry = entry.expect("it can be read");
        if entry.file_type().expect("it has one").is_dir() {
            open(&entry.path());
        }
    }
}

fn directory(server: &Server, name: &str) -> PathBuf {
    let path = server.site().path("html").join(name);
    std::fs::create_dir_all(&path).expect("the directory is ours");
    open(&path);
    path
}

fn put(server: &Server, path: &str, body: &[u8], headers: &str) -> Reply {
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    server
        .connect()
        .send([head.as_bytes(), body].concat())
        .reply()
}

fn read(server: &Server, name: &str) -> String {
    let path = server.site().path("html").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn exists(server: &Server, name: &str) -> bool {
    let path = server.site().path("html").join(name);
    std::fs::symlink_metadata(path).is_ok()
}

fn temporaries(server: &Server) -> usize {
    std::fs::read_dir(server.site().path("bodies"))
        .expect("it was made")
        .count()
}

/// Waits until nothing lies there any more: who removes it is not waited for by the answer.
fn wait_for_none(server: &Server) {
    let begun = Instant::now();
    while temporaries(server) > 0 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn a_body_has_a_directory_where_no_line_names_one() {
    let server = Server::start(&format!(
        "client_body_buffer_size 1k; server {{ listen 127.0.0.1:%PORT%; {ALL} }}"
    ));
    open(&server.site().path("html"));
    let body = vec![b'x'; 100_000];
    assert_eq!(put(&server, "/a", &body, "").status, 201);
    assert_eq!(read(&server, "a").len(), body.len());
}

#[test]
fn a_body_becomes_a_file_in_one_step() {
    let server = server(&format!(
        "location / {{ {ALL} }}
         location /shared/ {{ {ALL} dav_access user:rw group:rw all:r; create_full_put_path on; }}
         location /other/ {{ {ALL} alias %DIR%/html/; }}
         location /small/ {{ {ALL} client_max_body_size 10; }}"
    ));
    let reply = put(&server, "/a%20file", b"one", "");
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("Location"), Some("/a%20file"));
    assert_eq!(reply.header("Content-Length"), Some("0"));
    assert_eq!(reply.header("Content-Type"), None);
    assert_eq!(read(&server, "a file"), "one");
    let large: String = (0..60_000).map(|i| format!("{i} ")).collect();
    let reply = put(
        &server,
        "/a%20file",
        large.as_bytes(),
        "Date: Mon, 28 Sep 1970 06:00:00 GMT\r\n",
    );
    assert_eq!((reply.status, reply.header("Location")), (204, None));
    assert_eq!(reply.header("Content-Length"), None);
    assert!(read(&server, "a file") == large);
    let meta = std::fs::metadata(server.site().path("html/a file")).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o600, 23_349_600));
    assert_eq!(server.get("/a%20file").text().len(), large.len());

    assert_eq!(put(&server, "/shared/x/y/file", b"deep", "").status, 201);
    let meta = |name: &str| std::fs::metadata(server.site().path("html").join(name)).unwrap();
    assert_eq!(meta("shared/x/y/file").mode() & 0o777, 0o664);
    assert_eq!(
        put(&server, "/other/aliased", b"", "").header("Location"),
        Some("/other/aliased")
    );
    assert_eq!(read(&server, "aliased"), "");

    let mut connection = server.connect();
    connection.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    let invited = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(connection.read(invited.len()), invited);
    connection.send(
        "3\r\nabc\r\n0\r\n\r\nPUT /next HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nnext",
    );
    assert_eq!(
        (connection.reply().status, connection.reply().status),
        (201, 201)
    );
    assert_eq!(
        (read(&server, "chunked"), read(&server, "next")),
        ("abc".into(), "next".into())
    );

    assert_eq!(
        put(&server, "/small/file", b"more than ten", "").status,
        413
    );
    let chunks = "PUT /small/file HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nmore than ten\r\n0\r\n\r\n";
    assert_eq!(server.connect().send(chunks).reply().status, 413);
    wait_for_none(&server);
}

#[test]
fn what_cannot_be_put() {
    let server = server(&format!("location / {{ {ALL} }} location /none/ {{ }}"));
    directory(&server, "dir");
    for (path, headers, status) in [
        ("/dir/", "", 409),
        ("/dir", "", 409),
        ("/file", "Content-Range: bytes 0-3/10\r\n", 501),
        ("/none/file", "", 405),
        ("/missing/file", "", 500),
    ] {
        assert_eq!(
            put(&server, path, b"body", headers).status,
            status,
            "{path}"
        );
    }
    wait_for_none(&server);
    for text in [
        "cannot PUT to a collection",
        "PUT with range is unsupported",
        "html/dir\" could not be created (21: Is a directory)",
        "html/missing/file\" failed (2: No such file or directory)",
    ] {
        server.wait_for(text, "the reason");
    }
    server.forget_log();
}

#[test]
fn a_client_that_leaves_leaves_nothing() {
    let server = server(&format!("location / {{ {ALL} }}"));
    let head = "PUT /file HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let mut connection = server.connect();
    connection.send([head.as_bytes(), &[b'x'; 50_000]].concat());
    while temporaries(&server) == 0 {
        std::thread::yield_now();
    }
    drop(connection);
    wait_for_none(&server);
    assert!(!exists(&server, "file"));
}

#[test]
fn deleting() {
    let server = server(&format!(
        "location / {{ {ALL} }} location /deep/ {{ {ALL} min_delete_depth 3; }}"
    ));
    for name in ["full/one/two", "empty", "kept", "deep/a/b"] {
        directory(&server, name);
    }
    for name in [
        "file",
        "full/x",
        "full/one/two/y",
        "kept/z",
        "deep/a/f",
        "deep/f",
    ] {
        server.file(name, name);
    }
    open(&server.site().path("html"));
    let delete = |path: &str, headers: &str| server.request("DELETE", path, headers).status;
    for (path, headers, status) in [
        ("/file", "Content-Length: 0\r\n", 204),
        ("/file", "", 404),
        ("/kept/z/", "", 409),
        ("/full", "", 409),
        ("/full/", "Depth: 0\r\n", 400),
        ("/full/", "Depth: 2\r\n", 400),
        ("/kept/z", "Depth: 1\r\n", 400),
        ("/full/", "Depth: infinity\r\n", 204),
        ("/empty/", "", 204),
        ("/deep/f", "", 409),
        ("/deep/a/f", "", 204),
        ("/deep/a/", "", 409),
        ("/deep/a/b/", "", 204),
    ] {
        assert_eq!(delete(path, headers), status, "{path} {headers}");
    }
    assert_eq!(read(&server, "kept/z"), "kept/z");
    assert!(!exists(&server, "full") && !exists(&server, "empty"));
    let body = "DELETE /kept/z HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(server.connect().send(body).reply().status, 415);
}

#[test]
fn making_directories() {
    let server = server(&format!(
        "location / {{ {ALL} dav_access group:rw all:r; }}"
    ));
    let make = |path: &str| server.request("MKCOL", path, "");
    let reply = make("/new%20one/");
    assert_eq!(
        (reply.status, reply.header("Location")),
        (201, Some("/new%20one/"))
    );
    assert_eq!(reply.header("Content-Length"), Some("0"));
    assert!(exists(&server, "new one"));
    for (path, status) in [("/new%20one/", 405), ("/file", 409), ("/a/b/", 409)] {
        assert_eq!(make(path).status, status, "{path}");
    }
}

/// The mask of whoever starts it does not hold for a daemon.
#[test]
fn a_daemon_gives_directories_the_permissions_that_were_asked_for() {
    let site = Site::new();
    site.configure(
        "daemon on; pid nginx.pid; error_log logs/error.log; events { }
         http { client_body_temp_path %DIR%/bodies; access_log off; root %DIR%/html;
            server { listen 127.0.0.1:%PORT%; location / { dav_methods MKCOL; dav_access group:rw all:rw; } } }",
    );
    open(&site.path("html"));
    // Nobody reads what it says: it would be read to its end.
    let mut start = site.command();
    start.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(start.status().unwrap().success());
    let stream = std::net::TcpStream::connect(("127.0.0.1", site.port(0))).unwrap();
    let mut connection = Connection::new(stream);
    let request = "MKCOL /dir/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let reply = connection.send(request).reply();
    let (status, text) = site.run(&["-s", "stop"]);
    assert!(status.success(), "{text}");
    assert_eq!(reply.status, 201);
    let mode = std::fs::metadata(site.path("html/dir")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o777);
    let begun = Instant::now();
    while site.path("nginx.pid").exists() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

/// Files and directories to copy.
fn copies(server: &Server) {
    for name in ["tree/in/side", "there", "over"] {
        directory(server, name);
    }
    for name in [
        "file",
        "tree/a",
        "tree/in/b",
        "tree/in/side/c",
        "there/old",
        "taken",
    ] {
        let path = server.file(name, name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("it is ours");
    }
    let file = std::fs::File::options()
        .write(true)
        .open(server.site().path("html/tree/a"));
    file.expect("it is ours")
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000))
        .expect("it is ours");
    open(&server.site().path("html"));
}

#[test]
fn copying() {
    let server = server(&format!("location / {{ {ALL} }}"));
    copies(&server);
    symlink("../file", server.site().path("html/tree/link")).unwrap();
    symlink("../../over", server.site().path("html/tree/in/dir")).unwrap();
    symlink("over", server.site().path("html/linked")).unwrap();
    server.file("over/d", "linked");
    open(&server.site().path("html"));
    // Whose it is counts in nginx, which writes into the file.
    assert_eq!(put(&server, "/taken", b"taken", "").status, 204);
    let copy = |path: &str, headers: &str| server.request("COPY", path, headers).status;
    for (path, headers, status) in [
        ("/file", "Destination: /copy%20of\r\n", 204),
        ("/file", "Destination: http://localhost:123/taken\r\n", 204),
        ("/file", "Destination: /taken\r\nOverwrite: F\r\n", 412),
        ("/file", "Destination: /free\r\nOverwrite: f\r\n", 204),
        ("/tree/", "Destination: /tree2/\r\n", 201),
        ("/tree/", "Destination: /there/\r\nDepth: 0\r\n", 201),
        ("/linked/", "Destination: /of%20linked/\r\n", 201),
        ("/tree", "Destination: /tree3\r\n", 400),
        ("/missing", "Destination: /tree3\r\n", 404),
    ] {
        assert_eq!(copy(path, headers), status, "{path} {headers}");
    }
    for (name, content) in [
        ("copy of", "file"),
        ("taken", "file"),
        ("free", "file"),
        ("tree2/in/side/c", "tree/in/side/c"),
        ("tree2/link", "file"),
        ("tree2/in/dir/d", "linked"),
        ("of linked/d", "linked"),
        ("there/a", "tree/a"),
        ("tree/in/b", "tree/in/b"),
    ] {
        assert_eq!(read(&server, name), content, "{name}");
    }
    assert!(!exists(&server, "there/old"));
    let meta = std::fs::metadata(server.site().path("html/tree2/a")).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o644, 1_000_000));
}

#[test]
fn moving() {
    let server = server(&format!("location / {{ {ALL} }}"));
    copies(&server);
    let move_ = |path: &str, headers: &str| server.request("MOVE", path, headers).status;
    for (path, headers, status) in [
        ("/file", "Destination: /new/place/file\r\n", 204),
        ("/file", "Destination: /x\r\n", 404),
        ("/taken", "Destination: /new/place/file\r\n", 204),
        ("/tree/in/", "Destination: /there/\r\n", 201),
        ("/tree/", "Destination: /there/in/\r\nDepth: 0\r\n", 400),
    ] {
        assert_eq!(move_(path, headers), status, "{path} {headers}");
    }
    assert_eq!(read(&server, "new/place/file"), "taken");
    assert_eq!(read(&server, "there/side/c"), "tree/in/side/c");
    assert!(
        !exists(&server, "file") && !exists(&server, "tree/in") && !exists(&server, "there/old")
    );
}

/// What is asked for, with which headers; the status and the reason in the log.
const CHECKED: &[(&str, &str, u16, &str)] = &[
    ("/file", "", 400, "client sent no \"Destination\" header"),
    (
        "/file",
        "Destination: copy\r\n",
        400,
        "client sent invalid \"Destination\" header: \"copy\"",
    ),
    (
        "/file",
        "Destination: http://else/x\r\n",
        400,
        "is handled by different repository than the source URI",
    ),
    (
        "/file",
        "Destination: http://localhost\r\n",
        400,
        "invalid \"Destination\" header: \"http://localhost\"",
    ),
    (
        "/file",
        "Destination: /../x\r\n",
        400,
        "unsafe URI \"/../x\" was detected",
    ),
    (
        "/file",
        "Destination: /x/\r\n",
        409,
        "both URI \"/file\" and \"Destination\" URI \"/x/\" should be either",
    ),
    (
        "/file",
        "Destination: //file\r\n",
        403,
        "point to the same location",
    ),
    (
        "/tree/",
        "Destination: /tree/in/x/\r\n",
        403,
        "\"/tree/\" could not be COPYed to collection \"/tree/in/x/\"",
    ),
    (
        "/tree/in/",
        "Destination: /tree/\r\n",
        403,
        "\"/tree/in/\" could not be COPYed to collection \"/tree/\"",
    ),
    (
        "/file",
        "Destination: /tree\r\n",
        409,
        "\"/file\" could not be COPYed to collection \"/tree\"",
    ),
    (
        "/file",
        "Destination: /x\r\nOverwrite: yes\r\n",
        400,
        "invalid \"Overwrite\" header: \"yes\"",
    ),
    (
        "/file",
        "Destination: /x\r\nDepth: 1\r\n",
        400,
        "\"Depth\" header must be 0 or infinity",
    ),
    (
        "/file",
        "Destination: /x\r\nDepth: some\r\n",
        400,
        "client sent invalid \"Depth\" header: \"some\"",
    ),
    (
        "/aliased/file",
        "Destination: /short\r\n",
        400,
        "invalid \"Destination\" header: \"/short\"",
    ),
    (
        "/file",
        "Destination: /file2\r\nContent-Length: 0\r\n",
        204,
        "",
    ),
];

#[test]
fn where_to_copy_is_checked() {
    let server = server(&format!(
        "location / {{ {ALL} }} location /aliased/ {{ alias %DIR%/html/; {ALL} }}"
    ));
    copies(&server);
    for (path, headers, status, text) in CHECKED {
        let reply = server.request("COPY", path, headers);
        assert_eq!(reply.status, *status, "{path} {headers}");
        server.wait_for(text, path);
    }
    let body = "COPY /file HTTP/1.1\r\nHost: a\r\nDestination: /y\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(server.connect().send(body).reply().status, 415);
}

/// nginx removes what it should copy or move.
#[test]
fn what_is_copied_or_moved_is_not_removed() {
    if is_nginx() {
        return;
    }
    let server = server(&format!(
        "location / {{ {ALL} }} location /aliased {{ alias %DIR%/html/; {ALL} }}"
    ));
    copies(&server);
    symlink("tree", server.site().path("html/link")).unwrap();
    symlink("link", server.site().path("html/over/link")).unwrap();
    for (path, destination) in [
        ("/tree/in/", "/tree/./in/"),
        ("/tree/in/", "/tree/%2e/in/"),
        ("/tree/in/", "/tree/in/."),
        ("/tree/in/", "/./tree/"),
        ("/tree/in/", "/./"),
        ("/tree/", "/tree/./in/"),
        ("/tree/in/", "/link/in/"),
        ("/link/in/", "/tree/"),
        ("/link/", "/tree/"),
        ("/tree/", "/link/in/"),
        ("/tree/a", "/link/a"),
        ("/tree/a", "/tree/./a"),
        ("/aliased/tree/in/", "/aliased./tree/"),
    ] {
        for method in ["COPY", "MOVE"] {
            let header = format!("Destination: {destination}\r\n");
            let status = server.request(method, path, &header).status;
            assert_eq!(status, 403, "{method} {path} {destination}");
            for name in ["tree/a", "tree/in/b", "tree/in/side/c", "file"] {
                assert_eq!(read(&server, name), name, "{method} {path} {destination}");
            }
        }
    }
    let to = "Destination: /tree/./new/.\r\n";
    assert_eq!(server.request("COPY", "/there/", to).status, 201);
    assert_eq!(read(&server, "tree/new/old"), "there/old");
    assert_eq!(server.request("COPY", "/file", to).status, 409);
}

/// nginx follows such paths out of its `alias`.
#[test]
fn nothing_is_done_outside_the_root() {
    if is_nginx() {
        return;
    }
    let server = server(&format!(
        "location / {{ {ALL} }} location /a {{ alias %DIR%/html/in/; {ALL} create_full_put_path on; }}"
    ));
    directory(&server, "in");
    server.file("kept", "kept");
    open(&server.site().path("html"));
    assert_eq!(put(&server, "/a../kept", b"new", "").status, 403);
    assert_eq!(put(&server, "/a../x/y", b"new", "").status, 403);
    assert_eq!(server.request("DELETE", "/a../kept", "").status, 403);
    assert_eq!(server.request("MKCOL", "/a../x/", "").status, 403);
    assert_eq!(put(&server, "/a/file", b"file", "").status, 201);
    let to = "Destination: /a../file\r\n";
    assert_eq!(server.request("COPY", "/a/file", to).status, 403);
    assert_eq!(read(&server, "kept"), "kept");
    assert!(!exists(&server, "x") && !exists(&server, "file"));
    server.wait_for("html/in/../kept\" leads out of its root", "the reason");
}

/// nginx empties the directory that the link leads to.
#[test]
fn a_link_is_removed_and_not_what_it_leads_to() {
    if is_nginx() {
        return;
    }
    let server = server(&format!("location / {{ {ALL} }}"));
    directory(&server, "kept");
    server.file("kept/file", "kept");
    open(&server.site().path("html"));
    symlink("kept", server.site().path("html/link")).unwrap();
    let inner = directory(&server, "dir");
    symlink("../kept", inner.join("link")).unwrap();
    assert_eq!(server.request("DELETE", "/dir/", "").status, 204);
    assert_eq!(server.request("DELETE", "/link/", "").status, 409);
    assert_eq!(read(&server, "kept/file"), "kept");
    assert_eq!(server.request("DELETE", "/link", "").status, 204);
    assert!(!exists(&server, "link"));
    assert_eq!(read(&server, "kept/file"), "kept");
}

#[test]
fn wrong_lines() {
    for (line, text) in [
        ("dav_methods GET;", "invalid value \"GET\""),
        ("dav_access all:x;", "invalid value \"all:x\""),
        ("min_delete_depth x;", "invalid number"),
    ] {
        let refused = Server::try_start(&format!(
            "daemon off; pid nginx.pid; error_log logs/error.log; events {{ }} http {{ {line} }}"
        ));
        let Err(refused) = refused else {
            panic!("{line}")
        };
        assert!(refused.stderr.contains(text), "{line}: {}", refused.stderr);
    }
}
