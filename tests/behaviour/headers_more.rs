//! `more_set_headers`, `more_clear_headers`, `more_set_input_headers` and `more_clear_input_headers`.

use blackbox::http2_origin::{Http2Origin, Windows};
use blackbox::{Answer, Origin, Server, Site};

/// Lines of a location that answers `/a` with a file of three bytes, and what its head says then: `Name: value`, or `-Name` for one that is not
/// there.
const OF_A_FILE: &str = "
    more_set_headers 'X-A: 1' 'X-B: a$args'; => X-A: 1 | X-B: a
    more_set_headers 'Server: mine'; => Server: mine
    more_clear_headers Server; => -Server
    more_set_headers Server; => -Server
    more_clear_headers Date; => -Date
    more_set_headers 'Date: never'; => Date: never
    more_set_headers 'Content-Type: text/x'; => Content-Type: text/x
    more_set_headers 'Content-Type: text/x; charset=b'; => Content-Type: text/x; charset=b
    more_clear_headers Content-Type; => -Content-Type
    more_clear_headers Content-Length; => -Content-Length | Transfer-Encoding: chunked
    more_set_headers 'Content-Length: 1'; => Content-Length: 3
    more_clear_headers ETag Last-Modified; => -ETag | -Last-Modified
    more_set_headers 'ETag: \"x\"' 'Last-Modified: Thu, 01 Jan 1970 00:00:01 GMT'; => ETag: \"x\" | Last-Modified: Thu, 01 Jan 1970 00:00:01 GMT
    more_clear_headers Accept-Ranges; => -Accept-Ranges
    more_set_headers 'Accept-Ranges: none'; => Accept-Ranges: none
    more_set_headers -s 404 'X-A: 1'; => -X-A
    more_set_headers -s '404 200' 'X-A: 1'; => X-A: 1
    more_set_headers -s 404 -s 200 'X-A: 1'; => X-A: 1
    more_set_headers -t text/html 'X-A: 1'; => -X-A
    more_set_headers -t 'text/html; text/plain' 'X-A: 1'; => X-A: 1
    more_set_headers -t text/plain -s 404 'X-A: 1'; => -X-A
    more_set_headers 'X-A: 1'; more_set_headers 'X-A: 2'; => X-A: 2
    more_set_headers 'X-A: 1'; more_set_headers -a 'X-A: 2'; => X-A: 1, 2
    more_set_headers -a 'Server: mine'; => Server: mine
    more_set_headers 'X-A: 1' 'X-B: $sent_http_x_a'; => X-B: 1
    more_set_headers 'X-A: 1' 'X-AB: 2' 'X-C: 3'; more_clear_headers 'X-A*'; => -X-A | -X-AB | X-C: 3
    more_clear_headers X-A; more_set_headers 'X-A: 1'; => X-A: 1
    add_header X-A 1; more_clear_headers X-A; => X-A: 1
    more_set_headers 'X-A : 1'; => X-A: 1
    more_set_headers 'X-A:'; => -X-A
    more_set_headers 'X-Empty: $arg_none' 'X-A: 1'; => -X-Empty | X-A: 1
    if ($uri ~ a$) { more_set_headers 'X-A: 1'; } => X-A: 1
    set $x 1; if ($x) { set $y 2; } more_set_headers 'X-A: $y'; => X-A: 2
";

#[test]
fn headers_of_answers_are_set_and_cleared() {
    let rows = OF_A_FILE
        .lines()
        .map(str::trim)
        .filter(|row| !row.is_empty());
    let rows: Vec<_> = rows.map(|row| row.split_once(" => ").unwrap()).collect();
    let locations: String = rows
        .iter()
        .enumerate()
        .map(|(at, (lines, _))| format!("location /{at}/ {{ default_type text/plain; {lines} }}\n"))
        .collect();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; {locations} }}"
    ));
    for (at, (lines, expected)) in rows.into_iter().enumerate() {
        server.file(&format!("{at}/a"), "abc");
        let reply = server.get(&format!("/{at}/a"));
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, "abc"),
            "{lines}"
        );
        for field in expected.split(" | ") {
            match field.strip_prefix('-') {
                Some(name) => assert_eq!(reply.header(name), None, "{lines}"),
                None => {
                    let (name, value) = field.split_once(": ").unwrap();
                    assert_eq!(reply.all(name).join(", "), value, "{lines}");
                }
            }
        }
    }
}

#[test]
fn they_hold_for_every_status_and_for_what_other_servers_say() {
    let origin = Origin::start(|_| {
        Answer::with(
            "404 Not Found",
            "Server: theirs\r\nX-Powered-By: php\r\nX-Debug-A: 1\r\nX-Debug-B: 2\r\nContent-Type: text/html; charset=a\r\n",
            "gone",
        )
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; more_set_headers 'X-A: $status';
            location / {{ }}
            location /refused {{ return 403; }}
            location /moved {{ return 301 /x; }}
            location /away {{ proxy_pass http://{}; more_clear_headers X-Powered-By 'X-Debug-*'; more_set_headers -t text/html -s 404 'X-B: 1'; }}
            location /sent {{ return 302 /x; more_set_headers 'Location: /y'; }} }}",
        origin.address()
    ));
    server.file("a", "abc");
    let date = server.get("/a").header("last-modified").unwrap().to_owned();
    let unchanged = server.get_with("/a", &format!("If-Modified-Since: {date}\r\n"));
    assert_eq!(
        (unchanged.status, unchanged.header("x-a")),
        (304, Some("304"))
    );
    for (target, status) in [("/none", 404), ("/refused", 403), ("/moved", 301)] {
        let reply = server.get(target);
        let said = reply.header("x-a").map(str::to_owned);
        assert_eq!((reply.status, said), (status, Some(status.to_string())));
    }
    let reply = server.get("/away");
    assert_eq!((reply.status, reply.text().as_str()), (404, "gone"));
    for (name, value) in [
        ("x-powered-by", None),
        ("x-debug-a", None),
        ("x-debug-b", None),
        ("x-a", Some("404")),
        ("x-b", Some("1")),
        ("content-type", Some("text/html; charset=a")),
    ] {
        assert_eq!(reply.header(name), value, "{name}");
    }
    let sent = server.get("/sent");
    let location = sent.header("location").unwrap();
    assert!(
        location.starts_with("http://") && location.ends_with("/y"),
        "{location}"
    );
    let bad = server.raw("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert!(bad.contains("\r\nX-A: 400\r\n"), "{bad}");
}

#[test]
fn lines_of_the_levels_around_come_first() {
    let server = Server::start(
        "more_set_headers 'X-A: http' 'X-H: http';
         server { listen 127.0.0.1:%PORT%; more_set_headers 'X-A: server' 'X-S: server';
            location /in { return 200; more_clear_headers X-S; more_set_headers 'X-A: location'; location /in/deeper { return 200; } }
            location / { return 200; } }",
    );
    let of = |target: &str| {
        let reply = server.get(target);
        ["x-a", "x-h", "x-s"].map(|name| reply.header(name).unwrap_or("-").to_owned())
    };
    assert_eq!(of("/"), ["server", "http", "server"]);
    assert_eq!(of("/in"), ["location", "http", "-"]);
    assert_eq!(of("/in/deeper"), ["location", "http", "-"]);
}

#[test]
fn headers_of_requests_are_set_and_cleared_for_all_who_look_at_them() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; server_name known;
            add_header X-Seen '$http_x_new|$host|$http_host|$http_user_agent|$cookie_a|$http_x_ha|$http_x_hb|$http_x_i';
            location /set {{ more_set_input_headers 'X-New: $arg_a' 'Host: Other.Example:81' 'User-Agent: faked'; try_files /f =404; }}
            location /only {{ more_set_input_headers -r 'X-I: new' 'X-New: new'; try_files /f =404; }}
            location /clear {{ more_clear_input_headers Cookie 'X-H*' Host; try_files /f =404; }}
            location /typed {{ more_set_input_headers -t 'text/x text/y' 'X-New: 1'; try_files /f =404; }}
            location /away {{ more_set_input_headers 'X-New: 1' 'X-Twice: one'; more_clear_input_headers X-Secret Accept-Encoding; proxy_pass http://{origin}; }}
            location /moved {{ more_set_input_headers 'X-New: 1'; rewrite ^ /f; }}
            location /bad {{ more_set_input_headers 'Host: a b'; try_files /f =404; }}
            location /split {{ more_set_input_headers 'X-New: $uri'; try_files /f =404; }}
            location /ranged {{ more_clear_input_headers Range; try_files /f =404; }}
            location /packed {{ more_clear_input_headers Accept-Encoding; gzip on; gzip_min_length 1; gzip_types *; try_files /f =404; }} }}",
        origin = origin.address()
    ));
    server.file("f", "0123456789".repeat(100));
    let lines =
        "X-I: i\r\nX-Ha: a\r\nX-Hb: b\r\nCookie: a=1\r\nContent-Type: text/y\r\nUser-Agent: me\r\n";
    for (target, seen) in [
        ("/set?a=b", "b|other.example|Other.Example:81|faked|1|a|b|i"),
        ("/only", "|localhost|localhost|me|1|a|b|new"),
        ("/clear", "|known||me||||i"),
        ("/typed", "1|localhost|localhost|me|1|a|b|i"),
        ("/moved", "1|localhost|localhost|me|1|a|b|i"),
        ("/f", "|localhost|localhost|me|1|a|b|i"),
    ] {
        let reply = server.get_with(target, lines);
        assert_eq!(
            (reply.status, reply.header("x-seen")),
            (200, Some(seen)),
            "{target}"
        );
    }
    for target in ["/bad", "/split%0d%0aX-Evil:1"] {
        assert_eq!(server.get(target).status, 500, "{target}");
    }
    let twice = "X-Secret: s\r\nx-twice: a\r\nX-Twice: b\r\nAccept-Encoding: gzip\r\n";
    assert_eq!(server.get_with("/away", twice).status, 200);
    let last = origin.last();
    assert_eq!(last.header("x-new"), Some("1"));
    assert_eq!(last.header("x-twice"), Some("one"));
    assert_eq!(last.header("x-secret"), None);
    assert_eq!(last.header("accept-encoding"), None);
    assert_eq!(last.head.to_lowercase().matches("x-twice").count(), 1);
    assert_eq!(
        server.get_with("/ranged", "Range: bytes=0-1\r\n").status,
        200
    );
    let whole = server.get_with("/packed", "Accept-Encoding: gzip\r\n");
    assert_eq!(whole.header("content-encoding"), None);
}

/// Fields that `Connection` names are not passed on: a client could have those removed by which a server is to know it.
#[test]
fn a_client_cannot_have_lines_removed_that_were_set_for_the_server() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let of_http2 = Http2Origin::start(Windows(1 << 20));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; more_set_input_headers 'X-A: 1' 'X-B*: 2';
            location / {{ proxy_pass http://{}; }}
            location /fields/two {{ proxy_http_version 2; proxy_pass http://{1}; }}
            location /fields/grpc {{ grpc_pass {1}; }} }}",
        origin.address(),
        of_http2.address()
    ));
    let lines =
        "Connection: X-A\r\nX-Bc: of the client\r\nConnection: x-c , X-A,x-bc\r\nX-C: 3\r\n";
    assert_eq!(server.get_with("/", lines).status, 200);
    let last = origin.last();
    let seen = ["x-a", "x-bc", "x-c"].map(|name| last.header(name));
    assert_eq!(seen, [Some("1"), Some("2"), None]);
    for path in ["/fields/two", "/fields/grpc"] {
        let fields = server.get_with(path, lines).text();
        assert!(
            fields.contains("x-a: 1\n") && fields.contains("x-bc: 2\n"),
            "{fields}"
        );
        assert!(!fields.contains("x-c"), "{fields}");
    }
}

#[test]
fn what_is_wrong_is_refused_and_what_has_no_effect_is_told() {
    let site = Site::new();
    for (line, sentence) in [
        (
            "more_set_headers -x 'A: b';",
            "more_set_headers: invalid option name: \"-x\"",
        ),
        (
            "more_clear_headers -a A;",
            "more_clear_headers: invalid option name: \"-a\"",
        ),
        (
            "more_set_input_headers -s 404 'A: b';",
            "more_set_input_headers: invalid option name: \"-s\"",
        ),
        (
            "more_set_headers 'A: b' -t;",
            "more_set_headers: option -t takes an argument",
        ),
        (
            "more_set_headers -s 4x4 'A: b';",
            "more_set_headers: the list of statuses \"4x4\" has what is no number",
        ),
        (
            "more_set_headers ': b';",
            "more_set_headers: no key found in the header argument: : b",
        ),
        (
            "more_clear_headers '*';",
            "more_clear_headers: wildcard key too short: *",
        ),
        (
            "more_set_headers 'A: $nosuch';",
            "unknown \"nosuch\" variable",
        ),
        (
            "if ($uri) { more_set_headers 'A: b'; }",
            "\"more_set_headers\" directive is not allowed here",
        ),
    ] {
        site.configure(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%PORT%; {line} }} }}"
        ));
        let (status, said) = site.run(&["-t"]);
        assert_eq!(status.code(), Some(1), "{line}");
        assert!(
            said.contains(&format!("nginx: [emerg] {sentence} in ")),
            "{said}"
        );
    }
    site.configure("events {} http { more_set_headers 'Content-Length: 3' 'Transfer-Encoding: x'; more_clear_headers Connection; }");
    let (status, said) = site.run(&["-t"]);
    assert!(status.success());
    assert_eq!(said.matches("directive is ignored").count(), 3, "{said}");
}

#[test]
fn a_line_end_of_the_uri_ends_no_line() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
         location ~ ^/type/([^/]+)/ { more_set_headers \"Content-Type: $1\"; return 200 x; }
         location ~ ^/charset/(?<named>[^/]+)/ { charset $named; default_type text/plain; return 200 x; }
         location ~ ^/tag/([^/]+)/ { add_header ETag '\"$1\"'; return 200 x; } }",
    );
    for place in ["type", "charset", "tag"] {
        let reply = server.get(&format!("/{place}/a%0d%0aX-Evil:1%0d%0a%0d%0aevil/"));
        assert_eq!((reply.status, reply.text().as_str()), (200, "x"), "{place}");
        assert_eq!(reply.header("x-evil"), None, "{place}");
    }
}
