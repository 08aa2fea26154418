//! What a server behind is asked, byte for byte, what of its answer is taken, and what the log says of both.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Answer, Origin, Server};

/// A server with a log of these variables.
fn logging(origin: &Origin, variables: &str, http: &str, locations: &str) -> Server {
    let text = format!(
        "log_format f '{variables}'; {http} server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log f; {locations} }}"
    );
    Server::start(&text.replace("%ORIGIN%", &origin.address()))
}

fn post(server: &Server, path: &str, headers: &str, body: &str) -> String {
    server.raw(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n{body}"
    ))
}

#[test]
fn a_trailer_that_is_none_spoils_no_body() {
    let origin = Origin::start(|_| {
        Answer::raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nno trailer\r\nX: y\r\n\r\n",
        )
    });
    let server = logging(
        &origin,
        "[$upstream_trailer_x]",
        "",
        "location / { proxy_pass http://%ORIGIN%; }
         location /on { proxy_pass_trailers on; proxy_pass http://%ORIGIN%; }",
    );
    for _ in 0..2 {
        assert_eq!(server.get("/").text(), "ok");
    }
    assert_eq!(server.access_log(2), "[-]\n[-]\n");
}

#[test]
fn a_body_that_is_not_sent_is_read_all_the_same() {
    let origin = Origin::start(|request| Answer::ok(&request.body));
    let server = logging(
        &origin,
        "[$request_body]",
        "client_max_body_size 5;",
        "location /set { proxy_set_body \"<$request_body>\"; proxy_pass http://%ORIGIN%; }
         location /off { proxy_pass_request_body off; proxy_set_header Content-Length \"\"; proxy_pass http://%ORIGIN%; }
         location / { proxy_pass http://%ORIGIN%; }",
    );
    let sent = post(&server, "/set", "Content-Length: 3\r\n", "abc");
    assert!(sent.ends_with("<abc>"), "{sent}");
    post(&server, "/off", "Content-Length: 2\r\n", "de");
    assert_eq!(origin.last().body, b"");
    for path in ["/set", "/off"] {
        let chunked = "6\r\nabcdef\r\n0\r\n\r\n";
        let refused = post(&server, path, "Transfer-Encoding: chunked\r\n", chunked);
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    }
    post(&server, "/", "Content-Length: 0\r\n", "");
    server.get("/");
    let log = server.access_log(6);
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines[..2], ["[abc]", "[de]"]);
    // One of no length is there, and empty.
    assert_eq!(lines[4..], ["[]", "[-]"]);
}

#[test]
fn only_what_is_taken_of_an_answer_has_a_length() {
    let origin = Origin::start(|request| match request.target() {
        "/hinted" => Answer::raw(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        ),
        "/away" => Answer::with("503 Away", "", "body"),
        "/elsewhere" => Answer::with("200 OK", "X-Accel-Redirect: /page\r\n", "body"),
        _ => Answer::ok("body"),
    });
    let server = logging(
        &origin,
        "$upstream_response_length $proxy_host",
        "",
        "location / { proxy_pass http://%ORIGIN%; proxy_intercept_errors on; error_page 503 /page; }
         location /page { return 200 page; }",
    );
    assert_eq!(server.get("/hinted").text(), "body");
    assert_eq!(server.get("/away").text(), "page");
    assert_eq!(server.get("/elsewhere").text(), "page");
    server.request("HEAD", "/", "");
    let address = origin.address();
    // Who was asked is known as long as the answer is its own.
    let expected = format!("4 {address}\n0 -\n0 -\n0 {address}\n");
    assert_eq!(server.access_log(4), expected);
}

#[test]
fn what_a_cache_asks_for_is_judged_here_though_it_is_not_stored() {
    let origin = Origin::start(|_| {
        Answer::with("200 OK", "Accept-Ranges: bytes\r\nETag: \"x\"\r\n", "body")
    });
    let server = logging(
        &origin,
        "$upstream_cache_status",
        "proxy_cache_path cache keys_zone=z:1m;",
        "proxy_cache z;
         location / { proxy_pass http://%ORIGIN%; }
         location /seldom { proxy_cache_min_uses 2; proxy_pass http://%ORIGIN%; }
         location /far { proxy_cache_valid 1s; proxy_cache_bypass $arg_bypass; proxy_cache_max_range_offset 2; proxy_pass http://%ORIGIN%; }",
    );
    // The origin was not told of the condition, and nothing is stored since nothing says for how long.
    let reply = server.get_with("/", "If-None-Match: \"x\"\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (304, ""));
    assert_eq!(origin.last().header("if-none-match"), None);
    let reply = server.get_with("/", "If-Match: \"y\"\r\n");
    assert_eq!(reply.status, 412);
    // HEAD becomes GET for a cache also while nothing is stored.
    server.request("HEAD", "/seldom", "");
    assert_eq!(origin.last().line(), "GET /seldom HTTP/1.1");
    // A range that begins too far behind is the origin's matter, but for who goes past the cache.
    server.get_with("/far", "Range: bytes=2-\r\n");
    assert_eq!(origin.last().header("range"), Some("bytes=2-"));
    let reply = server.get_with("/far?bypass=1", "Range: bytes=2-\r\n");
    assert_eq!(origin.last().header("range"), None);
    assert_eq!((reply.status, reply.text().as_str()), (206, "dy"));
}

#[test]
fn who_is_sent_elsewhere_takes_the_rewritten_cookies_along() {
    let origin = Origin::start(|request| match request.target() {
        "/unsafe" | "/own/unsafe" => Answer::with(
            "200 OK",
            "X-Accel-Redirect: ../x\r\nContent-Type: text/x\r\nAccept-Ranges: bytes\r\nSet-Cookie: a=b; path=/in/\r\n",
            "",
        ),
        _ => Answer::with(
            "200 OK",
            "X-Accel-Redirect: /page\r\nSet-Cookie: a=b; path=/in/\r\n",
            "",
        ),
    });
    let server = logging(
        &origin,
        "-",
        "",
        "location / { proxy_pass http://%ORIGIN%; proxy_cookie_path /in/ /out/; error_page 404 = /page; }
         location /own/ { proxy_pass http://%ORIGIN%; }
         location /page { default_type text/page; return 200 page; }",
    );
    for path in ["/", "/unsafe"] {
        let reply = server.get(path);
        assert_eq!(reply.text(), "page", "{path}");
        assert_eq!(
            reply.header("set-cookie"),
            Some("a=b; path=/out/"),
            "{path}"
        );
        // What a failure takes the place of says nothing of the page.
        assert_eq!(reply.header("content-type"), Some("text/page"), "{path}");
    }
    let reply = server.get("/own/unsafe");
    assert_eq!((reply.status, reply.header("accept-ranges")), (404, None));
}

#[test]
fn content_that_is_elsewhere_has_the_type_that_its_maker_names_and_behind_a_cache_its_own_ranges() {
    let origin = Origin::start(|request| {
        let to = request.target();
        let lines = format!(
            "X-Accel-Redirect: /in{to}\r\nContent-Type: text/html; charset=q\r\nAccept-Ranges: none\r\n"
        );
        Answer::with("200 OK", &lines, "")
    });
    let server = logging(
        &origin,
        "-",
        "proxy_cache_path cache keys_zone=z:1m;",
        "location / { proxy_cache z; proxy_pass http://%ORIGIN%; } location /uncached/ { proxy_pass http://%ORIGIN%/; }
         location /in/gif { empty_gif; } location /in/status { stub_status; }
         location /in/list/ { alias %DIR%/html/; autoindex on; autoindex_format json; }
         location /in/xml/ { alias %DIR%/html/; autoindex on; autoindex_format xml; }
         location /in/ { alias %DIR%/html/; types { text/file txt; } }",
    );
    server.file("file.txt", "content");
    for (path, kind) in [
        ("/gif", "image/gif; charset=q"),
        ("/status", "text/plain; charset=q"),
        ("/list/", "application/json; charset=q"),
        ("/xml/", "text/xml; charset=utf-8"),
        ("/file.txt", "text/html; charset=q"),
    ] {
        let reply = server.get(path);
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some(kind)),
            "{path}"
        );
    }
    let ranges = |path| server.get(path).all("accept-ranges").join(",");
    assert_eq!(ranges("/file.txt"), "bytes");
    // As in nginx, what a server says of ranges stays where no cache makes them.
    assert_eq!(ranges("/uncached/file.txt"), "none,bytes");
}

/// The charset that a server names is that of its response, and not of the page in its place.
#[test]
fn a_failed_condition_has_a_page_without_the_servers_charset() {
    let origin = Origin::start(|_| {
        let lines = "Content-Type: text/html\r\nX-Accel-Charset: utf-8\r\nETag: \"a\"\r\n";
        Answer::with("200 OK", lines, "x")
    });
    let server = logging(
        &origin,
        "-",
        "proxy_cache_path cache keys_zone=z:1m;",
        "location / { proxy_cache z; proxy_cache_valid 1m; proxy_pass http://%ORIGIN%; } location /known { charset utf-8; }",
    );
    let reply = server.get("/");
    assert_eq!(
        reply.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let reply = server.get_with("/", "If-Match: \"b\"\r\n");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (412, Some("text/html"))
    );
}

#[test]
fn a_client_that_leaves_leaves_the_figures_so_far() {
    let origin = Origin::start(|_| {
        Answer::Talk(Box::new(|_| {
            std::thread::sleep(std::time::Duration::from_secs(2));
        }))
    });
    let server = logging(
        &origin,
        "$status $upstream_bytes_sent $upstream_response_time",
        "",
        "location / { proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let asked = origin.wait(1)[0].head.len();
    drop(client);
    let log = server.access_log(1);
    assert!(log.starts_with(&format!("499 {asked} 0.")), "{log}");
}

#[test]
fn a_cache_says_what_it_looked_for_though_the_origin_fails() {
    let origin = Origin::start(|request| match request.target() {
        "/gone" => Answer::Close(Vec::new()),
        _ => Answer::ok("body"),
    });
    let server = logging(
        &origin,
        "$upstream_cache_status $upstream_status",
        "proxy_cache_path cache keys_zone=z:1m;",
        "proxy_cache z; proxy_cache_key all; proxy_cache_valid 1s; proxy_cache_bypass $arg_bypass;
         location / { proxy_pass http://%ORIGIN%; }",
    );
    server.get("/");
    assert_eq!(server.get("/gone?bypass=1").status, 200);
    assert_eq!(server.get("/gone").status, 200);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(server.get("/gone").status, 502);
    assert_eq!(
        server.access_log(4),
        "MISS 200\nBYPASS 200\nHIT -\nEXPIRED 502\n"
    );
}

#[test]
fn what_lies_elsewhere_is_not_stored_and_no_cache_speaks_for_another_location() {
    let origin = Origin::start(|request| match request.target() {
        "/led" => Answer::with("200 OK", "X-Accel-Redirect: /plain\r\n", "body"),
        _ => Answer::ok("body"),
    });
    let server = logging(
        &origin,
        "$upstream_cache_status",
        "proxy_cache_path cache keys_zone=z:1m;",
        "location / { proxy_cache z; proxy_cache_valid any 1m; proxy_pass http://%ORIGIN%; }
         location /plain { proxy_pass http://%ORIGIN%; }
         location /ignoring/ { proxy_cache z; proxy_cache_valid any 1m; proxy_ignore_headers X-Accel-Redirect; proxy_pass http://%ORIGIN%/; }",
    );
    for asked in [2, 4] {
        assert_eq!(server.get("/led").text(), "body");
        assert_eq!(origin.received().len(), asked);
    }
    for _ in 0..2 {
        server.get("/ignoring/led");
    }
    assert_eq!(origin.received().len(), 5);
    assert_eq!(server.access_log(4), "-\n-\nMISS\nHIT\n");
}

#[test]
fn of_lines_that_count_once_the_first_is_told() {
    let twice = "ETag: \"a\"\r\nETag: \"b\"\r\nX-A: c\r\nX-A: d\r\n";
    let origin = Origin::start(move |_| Answer::with("200 OK", twice, "x"));
    let server = logging(
        &origin,
        "$upstream_http_etag $upstream_http_x_a",
        "",
        "location / { proxy_pass http://%ORIGIN%; }",
    );
    assert_eq!(server.get("/").all("etag"), ["\"a\""]);
    assert_eq!(server.access_log(1), "\\x22a\\x22 c, d\n");
}
