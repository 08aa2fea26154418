//! Answers that are kept as files (`proxy_store`).
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use blackbox::{Answer, Origin, PATIENCE, Server, is_nginx};

const BODY: &str = "what is stored";

/// Waits until a file has this content.
fn wait_for(path: &PathBuf, content: &[u8]) {
    let begun = Instant::now();
    while std::fs::read(path).ok().as_deref() != Some(content) {
        assert!(begun.elapsed() < PATIENCE, "{}", path.display());
        std::thread::yield_now();
    }
}

fn server(origin: &Origin, locations: &str) -> Server {
    let locations = locations.replace("%ORIGIN%", &origin.address());
    let server = Server::start(&format!(
        "proxy_temp_path %DIR%/temporary; server {{ listen 127.0.0.1:%PORT%; {locations} }}"
    ));
    // Whoever the worker is.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(server.site().path("html"), permissions).expect("it is ours");
    server
}

#[test]
fn a_whole_answer_becomes_a_file_with_its_time_and_permissions() {
    let origin = Origin::start(|request| match request.target() {
        "/chunked" => Answer::raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhat \r\n9\r\nis stored\r\n0\r\n\r\n",
        ),
        "/empty" => Answer::ok(""),
        _ => Answer::with(
            "200 OK",
            "Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT\r\n",
            BODY,
        ),
    });
    let server = server(
        &origin,
        "location / { proxy_store on; proxy_pass http://%ORIGIN%; }
         location /named/ { proxy_store %DIR%/html/under/$arg_name; proxy_store_access user:rw group:rw all:r;
            proxy_pass http://%ORIGIN%; }
         location /alias/ { alias %DIR%/html/other/; proxy_store on; proxy_pass http://%ORIGIN%; }",
    );
    let path = |name: &str| server.site().path("html").join(name);
    for (asked, stored, content) in [
        ("/a/b/file", "a/b/file", BODY),
        ("/chunked", "chunked", BODY),
        ("/empty", "empty", ""),
        ("/named/x?name=n/n", "under/n/n", BODY),
        ("/alias/c", "other/c", BODY),
    ] {
        assert_eq!(server.get(asked).text(), content, "{asked}");
        wait_for(&path(stored), content.as_bytes());
    }
    let stat = std::fs::metadata(path("a/b/file")).unwrap();
    assert_eq!((stat.mode() & 0o777, stat.mtime()), (0o600, 23_349_600));
    let stat = std::fs::metadata(path("under/n/n")).unwrap();
    assert_eq!(stat.mode() & 0o777, 0o664);
    let stat = std::fs::metadata(path("under/n")).unwrap();
    // Without what the process's mask takes.
    assert_eq!(stat.mode() & 0o755, 0o755);
}

#[test]
fn nothing_else_becomes_a_file() {
    let origin = Origin::start(|request| match request.target() {
        "/part" => Answer::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\na part".to_vec()),
        "/none" => Answer::with("404 Not Found", "", BODY),
        "/elsewhere" => Answer::with("200 OK", "X-Accel-Redirect: /page\r\n", BODY),
        "/unbuffered" => Answer::with("200 OK", "X-Accel-Buffering: no\r\n", BODY),
        _ => Answer::ok(BODY),
    });
    let server = server(
        &origin,
        "proxy_store on; location / { proxy_pass http://%ORIGIN%; }
         location = /page { return 200 page; }
         location /off { proxy_store off; proxy_pass http://%ORIGIN%; }
         location /buffers { proxy_buffering off; proxy_pass http://%ORIGIN%; }",
    );
    for path in ["/none", "/elsewhere", "/unbuffered", "/off", "/buffers"] {
        server.get(path);
    }
    server.raw("GET /part HTTP/1.0\r\n\r\n");
    server.request("HEAD", "/head", "");
    server.get("/last");
    wait_for(&server.site().path("html").join("last"), BODY.as_bytes());
    let left = std::fs::read_dir(server.site().path("html")).unwrap();
    let left: Vec<_> = left.map(|one| one.unwrap().file_name()).collect();
    assert!(left == ["last"] || is_nginx(), "{left:?}");
    server.forget_log();
}

#[test]
fn an_answer_is_stored_though_its_client_has_left() {
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let is_released = std::sync::Mutex::new(Some(is_released));
    let origin = Origin::start(move |_| {
        let is_released = is_released.lock().unwrap().take().unwrap();
        Answer::Talk(Box::new(move |mut stream| {
            let mut write = |bytes: &[u8]| std::io::Write::write_all(&mut stream, bytes).unwrap();
            write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n");
            write(&[b'x'; 100_000]);
            let _ = is_released.recv_timeout(PATIENCE);
            write(&[b'x'; 100_000]);
        }))
    });
    let server = server(
        &origin,
        "location / { proxy_store on; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read(1000);
    drop(client);
    release.send(()).unwrap();
    wait_for(&server.site().path("html").join("file"), &[b'x'; 200_000]);
}

#[test]
fn a_file_that_cannot_be_made_costs_nothing_but_itself() {
    let origin = Origin::start(|_| Answer::ok(BODY));
    let server = server(
        &origin,
        "location / { proxy_store /proc/none/file; proxy_pass http://%ORIGIN%; }",
    );
    assert_eq!(server.get("/").text(), BODY);
    server.wait_for("/proc/none", "whose file it is");
    server.forget_log();
}

#[test]
fn a_level_stores_or_caches() {
    let text = |outer: &str, inner: &str| {
        format!(
            "daemon off; pid nginx.pid; events {{ }} http {{ proxy_cache_path %DIR%/cache keys_zone=z:1m; {outer}
             server {{ listen 127.0.0.1:%PORT%; location / {{ {inner} proxy_pass http://127.0.0.1:1; }} }} }}"
        )
    };
    let (store, cache) = ("proxy_store on;", "proxy_cache z;");
    for (outer, inner) in [(store, cache), (cache, store), ("", store), (cache, "")] {
        assert!(
            Server::try_start(&text(outer, inner)).is_ok(),
            "{outer} {inner}"
        );
    }
    let Err(refused) = Server::try_start(&text("", "proxy_cache z; proxy_store on;")) else {
        panic!("both are accepted");
    };
    let sentence = "\"proxy_store\" directive is incompatible with \"proxy_cache\"";
    assert!(refused.stderr.contains(sentence), "{}", refused.stderr);
}
