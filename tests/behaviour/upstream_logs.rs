//! What the error log tells of servers: of lines that are dropped, of places that are not gone to, of tunnels that break.

use std::io::Write as _;

use blackbox::{Answer, Origin, Server};

const READING: &str = " while reading response header from upstream, client: 127.0.0.1, ";

fn server(origin: &Origin, locations: &str) -> Server {
    let locations = locations.replace("%ORIGIN%", &origin.address());
    Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; {locations} }}"
    ))
}

/// The line of the log with this text.
fn line(server: &Server, text: &str) -> String {
    server.wait_for(text, "the log");
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(text));
    line.expect("it was there").to_owned()
}

#[test]
fn a_line_that_is_dropped_since_another_one_counts_is_told() {
    const SINGLE: [(&str, &str, &str); 10] = [
        ("Content-Type", "text/a", "text/b"),
        ("Date", "Thu, 01 Jan 2026 00:00:00 GMT", "x"),
        ("ETag", "\"a\"", "\"b\""),
        ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT", "x"),
        ("Server", "a", "b"),
        ("Location", "/a", "/b"),
        ("Refresh", "1", "2"),
        ("Expires", "0", "1"),
        ("X-Accel-Expires", "0", "1"),
        ("X-Accel-Limit-Rate", "1000000", "1000001"),
    ];
    let origin = Origin::start(|_| {
        let lines =
            SINGLE.map(|(name, a, b)| format!("{name}: {a}\r\nX-Same: {a}\r\n{name}: {b}\r\n"));
        Answer::raw(format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n{}\r\nx",
            lines.concat()
        ))
    });
    let server = server(
        &origin,
        "location / { proxy_pass_header X-Accel-Limit-Rate; proxy_pass_header Server; proxy_pass_header Date;
            add_header X-Rate $upstream_http_x_accel_limit_rate; proxy_pass http://%ORIGIN%; }",
    );
    let reply = server.get("/a?b");
    assert_eq!(reply.status, 200);
    for (name, a, b) in SINGLE {
        let told = format!(
            "upstream sent duplicate header line: \"{name}: {b}\", previous value: \"{name}: {a}\", ignored{READING}"
        );
        let line = line(&server, &told);
        assert!(line.contains("[warn]"), "{line}");
        let upstream = format!("upstream: \"http://{}/a?b\"", origin.address());
        assert!(line.contains(&upstream), "{line}");
        assert!(reply.all(name).len() < 2, "{name}");
    }
    assert_eq!(reply.header("x-rate"), Some("1000000"));
    let log = server.error_log();
    assert_eq!(log.matches("duplicate").count(), SINGLE.len(), "{log}");
}

#[test]
fn a_charset_that_no_filter_knows_is_told() {
    let origin = Origin::start(|_| {
        let lines = "Content-Type: text/html\r\nX-Accel-Charset: utf-8\r\n";
        Answer::with("200 OK", lines, "x")
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    let reply = server.get("/");
    assert_eq!(reply.header("content-type"), Some("text/html"));
    let line = line(&server, "unknown charset \"utf-8\" to override");
    assert!(line.contains("[error]"), "{line}");
}

#[test]
fn a_place_that_leads_out_is_told_with_the_server_that_named_it() {
    let origin = Origin::start(|_| Answer::with("200 OK", "X-Accel-Redirect: /../a\r\n", ""));
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    assert_eq!(server.get("/c").status, 404);
    let line = line(&server, "unsafe URI \"/../a\" was detected");
    let told = format!("unsafe URI \"/../a\" was detected{READING}");
    assert!(line.contains(&told), "{line}");
    let upstream = format!("upstream: \"http://{}/c\"", origin.address());
    assert!(line.contains(&upstream), "{line}");
}

#[test]
fn urls_and_addresses_that_variables_make_are_told_as_they_are() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(
        &origin,
        "location / { proxy_pass $arg_url; } location /bind { proxy_bind $arg_from; proxy_pass http://%ORIGIN%; }",
    );
    for url in ["ftp://a.t:22020", "http://", "https://", "a"] {
        assert_eq!(server.get(&format!("/?url={url}")).status, 500);
        line(
            &server,
            &format!("invalid URL prefix in \"{url}\", client: "),
        );
    }
    assert_eq!(server.get("/bind?from=127.0.0.8:0").status, 200);
    line(&server, "invalid local address \"127.0.0.8:0\"");
}

#[test]
fn a_tunnel_that_its_server_breaks_is_told() {
    let origin = Origin::start(|_| {
        Answer::Talk(Box::new(|mut stream| {
            let head = "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            // Closed with data that was not read, a socket sends RST.
            let _ = stream.peek(&mut [0]);
        }))
    });
    let server = server(
        &origin,
        "location / { proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(client.reply().status, 101);
    client.send("more");
    client.rest();
    let told = "recv() failed (104: Connection reset by peer) while proxying upgraded connection, client: ";
    let line = line(&server, told);
    assert!(line.contains("[error]"), "{line}");
}

#[test]
fn a_rate_of_a_response_that_is_no_size_is_told() {
    let origin = Origin::start(|_| Answer::with("200 OK", "X-Rate: fast\r\n", "x"));
    let server = server(
        &origin,
        "proxy_limit_rate $upstream_http_x_rate;
         location / { proxy_pass http://%ORIGIN%; }
         location /at-once { proxy_buffering off; proxy_pass http://%ORIGIN%; }",
    );
    assert_eq!(server.get("/at-once").text(), "x");
    assert_eq!(server.get("/").text(), "x");
    let line = line(&server, "invalid size \"fast\"");
    assert!(line.contains("\"GET / HTTP/1.1\""), "{line}");
}
