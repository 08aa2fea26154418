//! Small files that are asked for again and again: the short way gives what the long one would.

use std::time::Duration;

use blackbox::{Connection, Reply, Server};

/// Asks of a file that come before it is looked for the short way; a file is kept once its time stamp would show a change.
const WARM: usize = 8;
const SETTLED: Duration = Duration::from_millis(60);

/// Lines that stand in the log when every request has its own.
const LINES: usize = 2 * WARM + 14;

struct Asker<'a> {
    server: &'a Server,
    connection: Connection,
}

impl<'a> Asker<'a> {
    fn new(server: &'a Server) -> Self {
        let connection = server.connect();
        Self { server, connection }
    }

    fn ask(&mut self, method: &str, target: &str, lines: &str) -> Reply {
        self.connection
            .send(format!(
                "{method} {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"
            ))
            .reply_to(method)
    }

    fn get(&mut self, target: &str, lines: &str) -> Reply {
        self.ask("GET", target, lines)
    }

    /// Makes files, and asks for them until their answers are ready: a new name in a directory makes the loop look anew.
    fn warm(&mut self, files: &[(&str, &str)]) {
        for (name, text) in files {
            self.server.file(name, text);
        }
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::thread::sleep(SETTLED);
        for _ in 0..WARM {
            for (name, text) in files {
                let reply = self.get(&format!("/{name}"), "");
                assert_eq!(
                    (reply.status, reply.text().as_str()),
                    (200, *text),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn every_request_is_obeyed() {
    let server = Server::start(
        "log_format f escape=none '$request_method $uri $args $request_filename $status $sent_http_etag $body_bytes_sent';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log f; add_header X-Asked \"$arg_x\"; client_max_body_size 3; location / { } }",
    );
    let mut asker = Asker::new(&server);
    asker.warm(&[("a", "0123456789"), ("long", &"x".repeat(20_000))]);
    let plain = asker.get("/a?x=1", "");
    assert_eq!((plain.status, plain.text().as_str()), (200, "0123456789"));
    assert_eq!(plain.header("x-asked"), Some("1"));
    assert_eq!(asker.get("/a?x=2", "").header("x-asked"), Some("2"));
    assert_eq!(asker.get("/a", "").header("x-asked"), None);
    assert_eq!(asker.get("/%61", "").text(), "0123456789");
    let tag = plain.header("etag").unwrap().to_owned();
    let reply = asker.get("/a", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((reply.status, reply.header("etag")), (304, Some(&tag[..])));
    assert_eq!(asker.get("/a", "If-Match: \"other\"\r\n").status, 412);
    let reply = asker.get("/a", "Range: bytes=2-4\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (206, "234"));
    let reply = asker.get("/long", "Range: bytes=19990-\r\n");
    assert_eq!((reply.status, reply.body.len()), (206, 10));
    let reply = asker.ask("HEAD", "/a", "");
    assert_eq!(
        (reply.header("content-length"), reply.body.len()),
        (Some("10"), 0)
    );
    assert_eq!(asker.ask("POST", "/a", "").status, 405);
    let reply = asker.ask("GET", "/a", "Content-Length: 3\r\n\r\nabc");
    assert_eq!(reply.text(), "0123456789");
    let reply = server.get_with("/a", "Content-Length: 4\r\n");
    assert_eq!(reply.status, 413);
    assert_eq!(asker.get("/a", "").header("connection"), Some("keep-alive"));
    let reply = asker.get("/a", "Connection: close\r\n");
    assert_eq!(reply.header("connection"), Some("close"));
    let path = server.site().path("html/a");
    let line = format!("GET /a x=2 {} 200 {tag} 10\n", path.display());
    let log = server.access_log(LINES);
    assert!(log.contains(&line), "{log}");
}

#[test]
fn a_file_that_changes_is_not_ready() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; location / { } }");
    let mut asker = Asker::new(&server);
    server.file("other/a", "elsewhere");
    asker.warm(&[("a", "one")]);
    asker.warm(&[("a", "three")]);
    let new = server.file("b", "replaced");
    let path = server.site().path("html/a");
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::rename(new, &path).unwrap();
    assert_eq!(asker.get("/a", "").text(), "replaced");
    asker.warm(&[("a", "once more")]);
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::remove_file(&path).unwrap();
    assert_eq!(asker.get("/a", "").status, 404);
    asker.warm(&[("a", "again")]);
    server.reload("server { listen 127.0.0.1:%PORT%; root html/other; location / { } }");
    assert_eq!(Asker::new(&server).get("/a", "").text(), "elsewhere");
}

#[test]
fn what_depends_on_more_than_the_uri_is_never_ready() {
    let server = Server::start(
        "map $arg_where $dir { default one; 2 two; }
         server { listen 127.0.0.1:%PORT%; server_name a; gzip_static on;
             location /fixed/ { gzip_static off; }
             location ~ ^/re/(\\w+)$ { add_header X-One \"$1\"; gzip_static off; }
             location /root/ { root html/$dir; gzip_static off; }
             location /try/ { try_files /$dir$uri =404; }
             location /judged/ { auth_request /judge; error_page 403 = @refused; }
             location @refused { root html/one; gzip_static off; }
             location /judge { internal; try_files /$http_word =403; }
             location /inner/ { internal; gzip_static off; }
             location /led/ { error_page 404 = /inner/a; } }
         server { listen 127.0.0.1:%PORT%; server_name b; root html/b; }",
    );
    for name in [
        "one/root/a",
        "one/try/a",
        "two/root/a",
        "two/try/a",
        "b/fixed/a",
        "one/judged/a",
        "judged/a",
    ] {
        server.file(name, name);
    }
    server.file("zip/a.gz", "not really");
    server.file("inner/a", "inner");
    let mut asker = Asker::new(&server);
    asker.warm(&[("fixed/a", "fixed"), ("zip/a", "unzipped"), ("re/a", "re")]);
    for _ in 0..WARM {
        assert_eq!(asker.get("/re/a", "").header("x-one"), Some("a"));
        assert_eq!(
            asker.get("/judged/a", "Word: fixed/a\r\n").text(),
            "judged/a"
        );
        assert_eq!(
            asker.get("/judged/a", "Word: none\r\n").text(),
            "one/judged/a"
        );
        for (where_, dir) in [("1", "one"), ("2", "two")] {
            for location in ["root", "try"] {
                let reply = asker.get(&format!("/{location}/a?where={where_}"), "");
                assert_eq!(reply.text(), format!("{dir}/{location}/a"));
            }
        }
        let reply = asker.get("/zip/a", "Accept-Encoding: gzip\r\n");
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(asker.get("/zip/a", "").text(), "unzipped");
        let reply = server.raw("GET /fixed/a HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n");
        assert!(reply.ends_with("b/fixed/a"), "{reply}");
        assert_eq!(asker.get("/led/none", "").text(), "inner");
        assert_eq!(asker.get("/inner/a", "").status, 404);
    }
}
