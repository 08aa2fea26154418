//! Early hints (103) of servers: which are passed on, and what follows them.

use blackbox::slow::narrow;
use blackbox::{Answer, Origin, Server, is_nginx};

fn server(origin: &Origin, lines: &str) -> Server {
    let lines = lines.replace("%ORIGIN%", &origin.address());
    Server::start(&format!("server {{ listen 127.0.0.1:%PORT%; {lines} }}"))
}

#[test]
fn early_hints_are_passed_on_where_wanted() {
    let origin = Origin::start(|_| {
        Answer::raw(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nDate: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        )
    });
    let server = server(
        &origin,
        "location / { early_hints $http_x_hints; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Hints: 1\r\n\r\n");
    let hint = client.reply();
    assert_eq!((hint.status, hint.headers.len()), (103, 1));
    assert_eq!(hint.header("link"), Some("</a>; rel=preload"));
    assert_eq!(client.reply().text(), "x");
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().status, 200);
}

/// All hints together may be as large as a head.
#[test]
fn early_hints_that_are_too_large_together_are_not_passed_on() {
    let hint = |name: &str| {
        let target = format!("{name}{}", "x".repeat(1500));
        format!("HTTP/1.1 103 Early Hints\r\nLink: <{target}>\r\n\r\n")
    };
    let hints = ["one", "two", "three"].map(hint).concat();
    let origin = Origin::start(move |_| {
        Answer::raw(format!(
            "{hints}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        ))
    });
    let server = server(
        &origin,
        "proxy_buffer_size 4k; early_hints 1; location / { proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for name in ["<one", "<two"] {
        let hint = client.reply();
        let link = hint.header("link").unwrap_or_default();
        assert!(hint.status == 103 && link.starts_with(name), "{link}");
    }
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "x"));
    server.wait_for("upstream sent too big early hints", "why");
}

/// A client that takes only a part of them within `send_timeout` gets nothing behind that part. (nginx sends the rest
/// with the response, without a limit for the time between.)
#[test]
fn nothing_follows_early_hints_that_are_cut_off() {
    if is_nginx() {
        return;
    }
    // More than the sockets on the way hold.
    let hints = format!("Link: <{}>\r\n", "x".repeat(1000)).repeat(60);
    let origin = Origin::start(move |_| {
        Answer::raw(format!(
            "HTTP/1.1 103 Early Hints\r\n{hints}\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        ))
    });
    let server = Server::start(&format!(
        "proxy_cache_path cache keys_zone=c:1m;
         server {{ listen 127.0.0.1:%PORT% sndbuf=4k; send_timeout 1s; early_hints 1;
            proxy_buffer_size 128k; proxy_buffers 8 128k;
            location / {{ proxy_pass http://{0}; }}
            location /cached {{ proxy_cache c; proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    for path in ["/", "/cached"] {
        server.forget_log();
        let mut client = narrow(&server);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        server.wait_for("while sending early hints to client", path);
        let taken = String::from_utf8(client.rest()).expect("text");
        assert!(taken.starts_with("HTTP/1.1 103 "), "{path}: {taken}");
        assert!(!taken.contains("200 OK"), "{path}: {taken}");
    }
}
