//! Error pages.

use blackbox::{Answer, Origin, Server};

#[test]
fn a_built_in_page_is_html_and_closes_with_the_server() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; }");
    let reply = server.get("/none");
    assert_eq!(
        (
            reply.status,
            reply.reason.as_str(),
            reply.header("content-type")
        ),
        (404, "Not Found", Some("text/html"))
    );
    assert!(reply.text().contains("<title>404 Not Found</title>"));
    assert_eq!(
        reply.header("content-length").map(str::to_owned),
        Some(reply.body.len().to_string())
    );
}

#[test]
fn error_page_keeps_changes_or_redirects() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            error_page 404 /missing.html;
            location /changed { error_page 404 =200 /missing.html; }
            location /taken { error_page 404 = /say; }
            location /away { error_page 404 http://other.example/; }
            location /named { error_page 404 = @named; }
            location @named { return 202 named; }
            location = /say { return 203 said; } }",
    );
    server.file("missing.html", "page");
    for (target, status, body) in [
        ("/x", 404, "page"),
        ("/changed/x", 200, "page"),
        ("/taken/x", 203, "said"),
        ("/named/x", 202, "named"),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, body),
            "{target}"
        );
    }
    let away = server.get("/away/x");
    assert_eq!(
        (away.status, away.header("location")),
        (302, Some("http://other.example/"))
    );
}

#[test]
fn a_page_of_a_returned_redirect_knows_its_status() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /returned { error_page 301 = /say?$status; return 301 /x; }
            location /kept { error_page 301 /say?$status; return 301 /x; }
            location /rewritten { error_page 301 = /say?$status; rewrite ^ /x permanent; }
            location /named { error_page 302 = @named; return 302 /x; }
            location @named { set $told $status; return 200 $told; }
            location = /say { return 200 $args; } }",
    );
    for (target, told) in [
        ("/returned", "301"),
        ("/kept", "301"),
        ("/rewritten", "000"),
        ("/named", "302"),
    ] {
        assert_eq!(server.get(target).text(), told, "{target}");
    }
}

#[test]
fn an_internal_location_is_404_from_outside() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location /in/ { internal; } location / { error_page 404 /in/page; } }",
    );
    server.file("in/page", "inside");
    assert_eq!(server.get("/in/page").status, 404);
    assert_eq!(server.get("/none").text(), "inside");
}

#[test]
fn access_rules_go_by_address_in_order() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /open { allow 127.0.0.0/8; deny all; } location /shut { deny 127.0.0.1; allow all; } }",
    );
    server.file("open", "x");
    server.file("shut", "x");
    assert_eq!(
        (server.get("/open").status, server.get("/shut").status),
        (200, 403)
    );
}

#[test]
fn a_body_that_is_too_large_is_413() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; client_max_body_size 10; location / { return 200 x; } }",
    );
    let reply = server.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
}

#[test]
fn a_redirect_may_have_no_target() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 301; }");
    let reply = server.get("/");
    assert_eq!((reply.status, reply.header("location")), (301, Some("")));
    assert!(reply.text().contains("<h1>301 Moved Permanently</h1>"));
}

#[test]
fn the_log_names_the_index_file_that_is_not_there() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; index first second; }");
    assert_eq!(server.get("/none/").status, 404);
    let line = "/html/none/first\" is not found (2: No such file or directory)";
    server.wait_for(line, "the name");
}

#[test]
fn the_log_says_what_was_being_read_and_of_which_request() {
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; server_name named; return 200 x; }");
    server.raw("GET /one HTTP/7.0\r\n\r\n");
    server.raw("GET /two HTTP/1.1\r\nHost: a/b\r\n\r\n");
    server.raw("GET /three HTTP/1.0\r\nsome_name: value\r\n\r\n");
    for line in [
        "client sent invalid version while reading client request line, client: 127.0.0.1, server: named, request: \"GET /one HTTP/7.0\"",
        "client sent invalid host header while reading client request headers, client: 127.0.0.1, server: named, request: \"GET /two HTTP/1.1\"",
        "client sent invalid header line: \"some_name: value\" while reading client request headers, client: 127.0.0.1, server: named, request: \"GET /three HTTP/1.0\"",
    ] {
        server.wait_for(line, "the reason");
    }
}

#[test]
fn statuses_without_an_answer_close_the_connection() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location /408 { return 408; } location /499 { return 499; } }",
    );
    assert_eq!(server.raw("GET /408 HTTP/1.0\r\n\r\n"), "");
    assert_eq!(server.raw("GET /499 HTTP/1.0\r\n\r\n"), "");
    let log = server.access_log(2);
    assert!(log.contains(" 408 0 ") && log.contains(" 499 0 "), "{log}");
}

#[test]
fn ten_redirects_are_followed_and_no_more() {
    let locations: String = (1..=11)
        .map(|at| format!("location = /{at} {{ error_page 404 = /{}; }}", at - 1))
        .collect();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; recursive_error_pages on; location = /0 {{ return 200 end; }} {locations} }}"
    ));
    assert_eq!(server.get("/10").text(), "end");
    assert_eq!(server.get("/11").status, 500);
    server.wait_for(
        "rewrite or internal redirection cycle while internally redirecting to \"/0\"",
        "the line about the cycle",
    );
}

#[test]
fn a_page_that_refreshes_is_200() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; msie_refresh on; return 301 http://other.example/; }",
    );
    let reply = server.get_with("/", "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n");
    assert_eq!((reply.status, reply.header("location")), (200, None));
    assert!(reply.text().contains("URL=http://other.example/"));
}

#[test]
fn a_body_may_be_limited_in_gigabytes() {
    let server = Server::start(
        "client_max_body_size 1g; server { listen 127.0.0.1:%PORT%; location / { return 200 x; } }",
    );
    let refused = server.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741825\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
}

#[test]
fn a_page_keeps_the_lines_of_what_it_covers() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; error_page 416 /page; location /away { error_page 301 =200 /page; return 301 http://other.example/; } }",
    );
    server.file("page", "page");
    server.file("a", "0123456789");
    let reply = server.get_with("/a", "Range: bytes=100-\r\n");
    assert_eq!(
        (reply.status, reply.header("content-range"), reply.text()),
        (416, Some("bytes */10"), "page".to_owned())
    );
    let reply = server.get("/away");
    assert_eq!(
        (reply.status, reply.header("location")),
        (200, Some("http://other.example/"))
    );
}

/// The lines are there for what chooses the page and makes it.
#[test]
fn a_page_is_told_the_lines_of_what_it_covers() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location = /named { return 301 /foo; error_page 301 =200 @named; }
            location @named { if ($sent_http_location ~ foo) { return 200 matched; } return 200 no; }
            location = /a { error_page 301 =200 /told?to=$sent_http_location; }
            location = /closed { auth_basic q; auth_basic_user_file %DIR%/html/users; error_page 401 =200 /told?to=$sent_http_www_authenticate; }
            location = /away { auth_basic q; auth_basic_user_file %DIR%/html/users; error_page 401 http://a/?$sent_http_www_authenticate; }
            location = /told { return 200 [$args]; } }",
    );
    server.file("a/b", "");
    server.file("users", "");
    for (target, told) in [
        ("/named", "matched"),
        ("/a", "[to=/a/]"),
        ("/closed", "[to=Basic realm=\"q\"]"),
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, reply.text().as_str()), (200, told));
    }
    let away = server.get("/away");
    assert_eq!(away.header("location"), Some("http://a/?Basic realm=\"q\""));
    assert_eq!(away.header("www-authenticate"), Some("Basic realm=\"q\""));
    server.forget_log();
}

/// `Last-Modified` of a file is not sent with a failure, that of a server's response is.
#[test]
fn a_page_of_a_server_keeps_its_date() {
    let dated = "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n";
    let origin = Origin::start(move |_| Answer::with("200 OK", dated, "page"));
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server {{ listen 127.0.0.1:%PORT%;
            location /passed {{ error_page 404 /page; return 404; }}
            location /file {{ error_page 404 /made; return 404; }}
            location = /made {{ root %DIR%/html; }}
            location = /page {{ proxy_pass http://{}; proxy_cache c; proxy_cache_valid 200 1h; }} }}",
        origin.address()
    ));
    server.file("made", "page");
    for (target, date) in [
        ("/passed", Some("Tue, 14 Nov 2023 22:13:20 GMT")),
        ("/passed", Some("Tue, 14 Nov 2023 22:13:20 GMT")),
        ("/file", None),
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, reply.text().as_str()), (404, "page"));
        assert_eq!(reply.header("last-modified"), date, "{target}");
    }
}

/// `Content-Range: bytes */10` says of a 416 how long the file is, of a 200 nothing.
#[test]
fn a_page_with_another_status_than_416_is_no_part() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location / { error_page 416 =203 /page; } location = /page { return 200 page; } }",
    );
    server.file("a", "0123456789");
    let reply = server.get_with("/a", "Range: bytes=100-\r\n");
    // nginx looks for the range in the page, too.
    if !blackbox::is_nginx() {
        assert_eq!((reply.status, reply.text().as_str()), (203, "page"));
        assert_eq!(reply.header("content-range"), None);
    }
}
