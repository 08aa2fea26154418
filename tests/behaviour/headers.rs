//! Headers that directives add.

use blackbox::Server;

#[test]
fn expires_sets_two_headers() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /epoch { expires epoch; } location /max { expires max; } location /hour { expires 1h; }
            location /past { expires -1; } location /off { expires off; } }",
    );
    for name in ["epoch", "max", "hour", "past", "off"] {
        server.file(name, "x");
    }
    for (target, cache_control) in [
        ("/epoch", Some("no-cache")),
        ("/max", Some("max-age=315360000")),
        ("/hour", Some("max-age=3600")),
        ("/past", Some("no-cache")),
        ("/off", None),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.header("cache-control"), cache_control, "{target}");
        assert_eq!(
            reply.header("expires").is_some(),
            cache_control.is_some(),
            "{target}"
        );
    }
    assert_eq!(
        server.get("/epoch").header("expires"),
        Some("Thu, 01 Jan 1970 00:00:01 GMT")
    );
}

#[test]
fn a_trailer_needs_chunks() {
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; add_trailer X-Trailer $status; }");
    server.file("a", "abc");
    let reply = server.get("/a");
    assert_eq!(
        (reply.header("content-length"), reply.text().as_str()),
        (None, "abc")
    );
    assert_eq!(reply.trailers, [("X-Trailer".to_owned(), "200".to_owned())]);
    let old = server.raw("GET /a HTTP/1.0\r\n\r\n");
    assert!(old.ends_with("\r\n\r\nabc"), "{old}");
}

#[test]
fn request_headers_are_variables() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; return 200 \"$http_x_one|$http_user_agent|$cookie_b|$arg_q|$args|$is_args|$request_method|$scheme\"; }",
    );
    let reply = server.get_with(
        "/?Q=1&z",
        "X-One: a\r\nX-One: b\r\nUser-Agent: me\r\nCookie: a=1; b=2\r\n",
    );
    assert_eq!(reply.text(), "a, b|me|2|1|Q=1&z|?|GET|http");
}

#[test]
fn header_names_that_are_not_tokens_are_dropped() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; return 200 \"$http_under_score|$http_fine\"; }",
    );
    assert_eq!(
        server.get_with("/", "under_score: 1\r\nfine: 2\r\n").text(),
        "|2"
    );
}

#[test]
fn values_may_look_at_what_is_to_be_sent() {
    let server = Server::start(
        "map $sent_http_content_type $lifetime { default off; text/html epoch; ~image/ max; }
         types { text/html html; image/png png; }
         server { listen 127.0.0.1:%PORT%; expires $lifetime;
            add_header X-Seen \"$status $sent_http_content_type $sent_http_content_length\" always; }",
    );
    server.file("a.html", "12345");
    server.file("b.png", "1");
    server.file("c", "1");
    let seen = |target: &str, headers: &str| {
        let reply = server.get_with(target, headers);
        let header = |name: &str| reply.header(name).unwrap_or("-").to_owned();
        (header("cache-control"), header("x-seen"))
    };
    let pair = |one: &str, two: &str| (one.to_owned(), two.to_owned());
    assert_eq!(seen("/a.html", ""), pair("no-cache", "200 text/html 5"));
    assert_eq!(
        seen("/b.png", ""),
        pair("max-age=315360000", "200 image/png 1")
    );
    assert_eq!(seen("/c", ""), pair("-", "200 text/plain 1"));
    assert_eq!(seen("/none", "").1[..13], *"404 text/html");
}

#[test]
fn modified_0_is_now() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; expires modified 0; }");
    server.file("a", "a");
    assert_eq!(server.get("/a").header("cache-control"), Some("max-age=0"));
}

#[test]
fn a_trailer_sees_those_before_it() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; add_trailer X-One 1; add_trailer X-Two $sent_trailer_x_one; }",
    );
    server.file("a", "abc");
    let reply = server.get("/a");
    let trailer = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        reply.trailers,
        [trailer("X-One", "1"), trailer("X-Two", "1")]
    );
}

#[test]
fn several_lines_of_a_type_are_joined() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; add_header X-Type $content_type; return 204; }",
    );
    let reply = server.get_with("/", "Content-Type: a\r\nContent-Type: b\r\n");
    assert_eq!(reply.header("x-type"), Some("a, b"));
}
