//! What servers say of themselves in their answers, and what they ask us to do: redirects, cookies, X-Accel lines, upgrades.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read as _, Write as _};

use blackbox::{Answer, Origin, Server, is_nginx};

fn server(origin: &Origin, locations: &str) -> Server {
    let locations = locations.replace("%ORIGIN%", &origin.address());
    Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; merge_slashes off; {locations} }}"
    ))
}

/// An origin whose answers carry the line that the target says, `%20` for a blank.
fn echo() -> Origin {
    Origin::start(|request| {
        let line = request.target().rsplit("!").next().unwrap_or_default();
        let line = line.replace("%20", " ");
        Answer::with("200 OK", &format!("{line}\r\n"), "x")
    })
}

#[test]
fn redirects_lead_to_us() {
    let origin = echo();
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; }
         location /uri/ { proxy_pass http://%ORIGIN%/other/; }
         location /off { proxy_redirect off; proxy_pass http://%ORIGIN%; }
         location /rules { proxy_redirect http://one/ http://$host:1/; proxy_redirect ~*^http://(t[^/]+)/(.+)$ /$1/$2; proxy_redirect / http://rel/;
            proxy_pass http://%ORIGIN%; }",
    );
    let port = server.site().port(0);
    let here = format!("http://localhost:{port}");
    let there = format!("http://{}", origin.address());
    for (path, line, expected) in [
        (
            "/",
            format!("Location:%20{there}/a?b"),
            format!("{here}/a?b"),
        ),
        (
            "/",
            "Location:%20http://else/".to_owned(),
            "http://else/".to_owned(),
        ),
        ("/", "Location:%20/a".to_owned(), "/a".to_owned()),
        (
            "/uri/",
            format!("Location:%20{there}/other/a"),
            format!("{here}/uri/a"),
        ),
        (
            "/off",
            format!("Location:%20{there}/a"),
            format!("{there}/a"),
        ),
        (
            "/rules",
            "Location:%20http://one/a".to_owned(),
            "http://localhost:1/a".to_owned(),
        ),
        (
            "/rules",
            "Location:%20HTTP://TWO/a".to_owned(),
            format!("{here}/TWO/a"),
        ),
        (
            "/rules",
            "Location:%20/a".to_owned(),
            "http://rel/a".to_owned(),
        ),
        (
            "/rules",
            "Location:%20http://other/".to_owned(),
            "http://other/".to_owned(),
        ),
    ] {
        let reply = server.get(&format!("{path}!{line}"));
        assert_eq!(
            reply.header("location"),
            Some(expected.as_str()),
            "{path} {line}"
        );
    }
    let reply = server.get("/rules!Refresh:%203;%20URL=http://one/a");
    assert_eq!(reply.header("refresh"), Some("3; URL=http://localhost:1/a"));
}

#[test]
fn cookies_are_ours() {
    let origin = echo();
    let server = server(
        &origin,
        "location / { proxy_cookie_domain .one.example two.example; proxy_cookie_domain ~(.+)\\.three$ $1.four; proxy_cookie_path /a/ /b/;
            proxy_cookie_flags plain off; proxy_cookie_flags ~^s secure samesite=strict; proxy_cookie_flags n nosecure nohttponly nosamesite;
            proxy_pass http://%ORIGIN%; }"
            .replace(" proxy_cookie_flags plain off;", "")
            .as_str(),
    );
    for (sent, expected) in [
        (
            "a=1; Domain=.ONE.example; path=/a/x",
            "a=1; Domain=.two.example; path=/b/x",
        ),
        ("a=1; domain=x.three;Path=/c", "a=1; domain=x.four; Path=/c"),
        ("a=1;  Path=/c", "a=1;  Path=/c"),
        ("sid=1; Path=/c", "sid=1; Path=/c; Secure; SameSite=Strict"),
        ("s=1; samesite=lax; secure", "s=1; SameSite=Strict; secure"),
        (
            "n=1; Secure; HttpOnly; SameSite=None; Path=/",
            "n=1; Path=/",
        ),
        ("plain; Path=/a/", "plain; Path=/a/"),
    ] {
        let reply = server.get(&format!("/!Set-Cookie:%20{}", sent.replace(' ', "%20")));
        assert_eq!(reply.header("set-cookie"), Some(expected), "{sent}");
    }
}

#[test]
fn what_is_broken_in_itself_is_no_answer_and_what_was_lost_is_a_part_of_one() {
    let origin = Origin::start(|request| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
        let said = match request.target() {
            "/chunks" => format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n"),
            "/coded" => format!("{head}Content-Encoding: gzip\r\nContent-Length: 7\r\n\r\nno gzip"),
            _ => format!("{head}Content-Length: 7\r\n\r\n"),
        };
        Answer::Close(said.into())
    });
    let server = server(
        &origin,
        "location / { gunzip on; proxy_pass http://%ORIGIN%; }
         location /page { default_type text/html; add_before_body /chunks; return 200 page; }",
    );
    for path in ["/chunks", "/coded"] {
        assert_eq!(
            server.raw(format!("GET {path} HTTP/1.0\r\n\r\n")),
            "",
            "{path}"
        );
    }
    let lost = server.raw("GET /lost HTTP/1.0\r\n\r\n");
    assert!(lost.starts_with("HTTP/1.1 200 OK\r\n"), "{lost}");
    // Neither does a page go on behind such a part.
    let page = server.raw("GET /page HTTP/1.0\r\n\r\n");
    assert!(!page.contains("page"), "{page}");
    server.wait_for("upstream sent invalid chunked response", "the reason");
    server.forget_log();
}

#[test]
fn the_content_may_be_elsewhere() {
    let origin = Origin::start(|request| {
        let to = &request.target()[1..];
        let lines = format!(
            "X-Accel-Redirect: {to}\r\nContent-Type: text/x\r\nSet-Cookie: a=b\r\nETag: \"no\"\r\nCache-Control: private\r\nContent-Disposition: attachment\r\n"
        );
        Answer::with("201 Created", &lines, "not this")
    });
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; } location /inner/ { internal; alias %DIR%/; }
         location @named { return 200 \"$uri|$request_method\"; } location /ignored { proxy_ignore_headers X-Accel-Redirect; proxy_pass http://%ORIGIN%/inner/; }"
            .replace("alias %DIR%/;", "root html; try_files $uri =404;")
            .as_str(),
    );
    server.file("inner/a b", "secret");
    let reply = server.request("POST", "//inner/a%20b?x", "");
    assert_eq!((reply.status, reply.text().as_str()), (200, "secret"));
    assert_eq!(reply.header("content-type"), Some("text/x"));
    assert_eq!(reply.header("cache-control"), Some("private"));
    assert_eq!(reply.header("content-disposition"), Some("attachment"));
    assert_eq!(reply.header("set-cookie"), Some("a=b"));
    assert_ne!(reply.header("etag"), Some("\"no\""));
    let reply = server.get_with("//inner/a%20b", "Range: bytes=50-\r\n");
    assert_eq!(reply.status, 416);
    assert_eq!(reply.header("set-cookie"), Some("a=b"));
    assert_eq!(reply.all("cache-control"), ["private"]);
    let reply = server.get_with("//inner/a%20b", "Range: bytes=1-2\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (206, "ec"));
    assert_eq!(reply.all("set-cookie"), ["a=b"]);
    assert_eq!(server.get("/@named").text(), "/@named|GET");
    assert_eq!(server.get("//inner/../x").status, 404);
    assert_eq!(server.get("//inner/%2e%2e/x").status, 404);
    let reply = server.get("/ignored");
    assert_eq!((reply.status, reply.text().as_str()), (201, "not this"));
}

#[test]
fn errors_may_be_covered() {
    let origin = Origin::start(|_| {
        Answer::with(
            "401 No",
            "WWW-Authenticate: a\r\nWWW-Authenticate: b\r\nX-Lost: 1\r\n",
            "theirs",
        )
    });
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; error_page 401 /ours; }
         location /on { proxy_intercept_errors on; error_page 401 /ours; proxy_pass http://%ORIGIN%; }
         location /other { proxy_intercept_errors on; error_page 404 /ours; proxy_pass http://%ORIGIN%; }
         location = /ours { return 200 ours; }",
    );
    assert_eq!(server.get("/").text(), "theirs");
    assert_eq!(server.get("/other").text(), "theirs");
    let reply = server.get("/on");
    assert_eq!((reply.status, reply.text().as_str()), (401, "ours"));
    assert_eq!(reply.all("www-authenticate"), ["a", "b"]);
    assert_eq!(reply.header("x-lost"), None);
}

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let origin = Origin::start(|request| {
        if request.header("upgrade").is_none() {
            return Answer::ok("plain");
        }
        Answer::Talk(Box::new(|mut stream| {
            let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello";
            stream.write_all(head.as_bytes()).unwrap();
            let mut buffer = [0; 1000];
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                stream
                    .write_all(&buffer[..count].to_ascii_uppercase())
                    .unwrap();
                if buffer[..count].ends_with(b"bye") {
                    return;
                }
            }
        }))
    });
    let server = server(
        &origin,
        "location / { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://%ORIGIN%; }
         location /plain { proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly");
    let reply = client.reply();
    assert_eq!(reply.status, 101);
    assert_eq!(reply.header("upgrade"), Some("x"));
    assert_eq!(reply.header("connection"), Some("upgrade"));
    assert_eq!(client.read(10), b"helloEARLY");
    client.send("more, bye");
    assert_eq!(client.rest(), b"MORE, BYE");
    let reply = server.get_with("/plain", "Upgrade: x\r\n");
    assert_eq!(reply.text(), "plain");
}

#[test]
fn a_101_that_was_not_asked_for_is_passed_on_and_ends_the_connection() {
    let origin = Origin::start(|_| {
        Answer::raw(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nforeign",
        )
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    for _ in 0..2 {
        let mut client = server.connect();
        // What is behind the request is not taken for the next one.
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        let reply = client.reply();
        assert_eq!(reply.status, 101);
        assert_eq!(reply.header("connection"), Some("upgrade"));
        assert_eq!(reply.header("content-length"), None);
        assert_eq!(client.rest(), b"");
    }
    let asked = origin.take();
    let connections: Vec<_> = asked.iter().map(|one| one.connection).collect();
    assert_eq!(connections, [0, 1]);
    if is_nginx() {
        return;
    }
    let mut old = server.connect();
    assert_eq!(old.send("GET / HTTP/1.0\r\n\r\n").reply().status, 502);
}

#[test]
fn ranges_can_be_forced() {
    let origin = Origin::start(|_| Answer::ok("0123456789"));
    let server = server(
        &origin,
        "location / { proxy_force_ranges on; proxy_pass http://%ORIGIN%; } location /not { proxy_pass http://%ORIGIN%; }",
    );
    let reply = server.get_with("/", "Range: bytes=2-4\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (206, "234"));
    assert_eq!(reply.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(server.get_with("/not", "Range: bytes=2-4\r\n").status, 200);
}

#[test]
fn rates_and_charsets_may_come_from_the_server() {
    let origin = echo();
    let server = server(
        &origin,
        "location / { add_header X-Rate $limit_rate; proxy_pass http://%ORIGIN%; }",
    );
    let reply = server.get("/!X-Accel-Limit-Rate:%2012345");
    assert_eq!(reply.header("x-rate"), Some("12345"));
    let reply = server.get("/!Content-Type:%20text/html%0D%0AX-Accel-Charset:%20koi8-r");
    assert_eq!(reply.header("x-accel-charset"), None);
}

/// At these rates the body would take longer than a test waits.
#[test]
fn rates_are_for_buffered_responses_only() {
    let origin = Origin::start(|request| {
        let line = match request.target() {
            "/off" | "/var/off?rate=1" | "/sent" => "",
            "/off/said" => "X-Accel-Limit-Rate: 5\r\n",
            "/said" => "X-Accel-Limit-Rate: 5\r\nX-Accel-Buffering: no\r\n",
            _ => "X-Accel-Buffering: no\r\n",
        };
        Answer::with("200 OK", line, "x".repeat(1000))
    });
    let server = server(
        &origin,
        "proxy_limit_rate 1; location / { proxy_pass http://%ORIGIN%; }
         location /off { proxy_buffering off; proxy_pass http://%ORIGIN%; }
         location /var { proxy_limit_rate $arg_rate; proxy_pass http://%ORIGIN%; }
         location /var/off { proxy_limit_rate $arg_rate; proxy_buffering off; proxy_pass http://%ORIGIN%; }
         location /sent { proxy_limit_rate 0; limit_rate 5; proxy_buffering off; proxy_pass http://%ORIGIN%; }",
    );
    let paths = "/ /off /var?rate=1 /var/off?rate=1 /sent /off/said /said";
    for path in paths.split(' ') {
        let begun = std::time::Instant::now();
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.reply_to("HEAD").status, 200);
        for come in 0..1000 {
            assert_eq!(client.read(1), b"x");
            assert!(
                begun.elapsed() < blackbox::PATIENCE,
                "{path}: {come} have come"
            );
        }
    }
}

#[test]
fn a_rate_from_the_server_holds_where_it_redirects_to() {
    let origin = Origin::start(|request| {
        let rate = match request.target() {
            "/off/own" => "",
            _ => "X-Accel-Limit-Rate: 12345\r\n",
        };
        let lines = "X-Accel-Redirect: /inside\r\nAccept-Ranges: none\r\n";
        Answer::with("200 OK", &format!("{lines}{rate}"), "")
    });
    let server = Server::start(&format!(
        "log_format rate $limit_rate;
         server {{ listen 127.0.0.1:%PORT%; proxy_force_ranges on; access_log logs/access.log rate;
            location / {{ proxy_pass http://{0}; }}
            location /off {{ proxy_buffering off; proxy_pass http://{0}; }}
            location /inside {{ internal; limit_rate 54321; add_header X-Rate $limit_rate; }} }}",
        origin.address()
    ));
    let mut lines = 0;
    server.file("inside", "content");
    for (path, head, log) in [
        ("/", "12345", "12345"),
        ("/off", "12345", "12345"),
        // The location's own is known once the response is being sent.
        ("/off/own", "0", "54321"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.text(), "content");
        assert_eq!(reply.header("x-rate"), Some(head), "{path}");
        assert_eq!(reply.all("accept-ranges"), ["bytes"]);
        lines += 1;
        let logged = server.access_log(lines);
        assert_eq!(logged.lines().last(), Some(log), "{path}");
    }
}

#[test]
fn what_several_servers_say_on_the_way_adds_up() {
    let origin = Origin::start(|request| {
        let lines = match request.target() {
            "/one" => {
                "X-Accel-Redirect: /two\r\nSet-Cookie: a=1\r\nCache-Control: private\r\nContent-Disposition: d1\r\nContent-Type: a/b\r\n"
            }
            "/other" => "X-Accel-Redirect: /typed\r\nContent-Type: a/b\r\n",
            "/typed" => "Content-Type: c/d\r\n",
            "/two" => "X-Accel-Redirect: /three\r\nSet-Cookie: b=2\r\n",
            _ => "Cache-Control: public\r\n",
        };
        Answer::with("200 OK", lines, "x")
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    let reply = server.get("/one");
    assert_eq!(reply.all("Set-Cookie"), ["a=1", "b=2"]);
    assert_eq!(reply.all("Cache-Control"), ["private", "public"]);
    assert_eq!(reply.all("Content-Disposition"), ["d1"]);
    assert_eq!(reply.all("Content-Type"), ["a/b"]);
    assert_eq!(server.get("/other").all("Content-Type"), ["c/d"]);
}

#[test]
fn what_comes_behind_a_response_is_told() {
    let origin = Origin::start(|request| match request.target() {
        "/chunks" => Answer::raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nmore",
        ),
        _ => Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxmore"),
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    for (target, sentence) in [
        (
            "/",
            "upstream sent more data than specified in \"Content-Length\" header while reading upstream",
        ),
        (
            "/chunks",
            "upstream sent data after final chunk while reading upstream",
        ),
    ] {
        assert_eq!(server.get(target).text(), "x");
        server.wait_for(sentence, "the warning");
    }
}

#[test]
fn a_second_location_sees_what_came_of_the_first() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(
        &origin,
        "location / { error_page 502 = @other; proxy_pass http://127.0.0.1:9; }
         location @other { proxy_set_header X-Before $upstream_status; proxy_pass http://%ORIGIN%; add_header X-Both $upstream_status; }",
    );
    assert_eq!(server.get("/").header("x-both"), Some("502 : 200"));
    assert_eq!(origin.last().header("X-Before"), Some("502"));
}

#[test]
fn names_made_of_variables_are_upstreams_addresses_or_resolved() {
    let origin = echo();
    let server = Server::start(&format!(
        "upstream up {{ server {0}; }} server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://$arg_to; }}
           location /u {{ proxy_bind $arg_from; proxy_pass http://up$uri; }} }}",
        origin.address()
    ));
    assert_eq!(server.get("/?to=up").status, 200);
    assert_eq!(
        server.get(&format!("/?to={}", origin.address())).status,
        200
    );
    assert_eq!(server.get("/?to=no.such.host").status, 502);
    server.wait_for("no resolver defined to resolve no.such.host", "the log");
    assert_eq!(server.get("/?to=a:b").status, 500);
    server.wait_for("invalid port in upstream \"a:b\"", "the log");
    assert_eq!(server.get("/u?from=127.0.0.9").status, 200);
    assert_eq!(server.get("/u?from=nonsense").status, 200);
    server.wait_for("invalid local address \"nonsense\"", "the log");
}

#[test]
fn unbuffered_bodies_pass_as_they_come() {
    let origin = Origin::start(|request| Answer::ok(&request.body));
    let server = server(
        &origin,
        "location / { proxy_request_buffering off; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    std::thread::sleep(std::time::Duration::from_millis(50));
    client.send("2\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.reply().text(), "abcde");
    assert_eq!(origin.last().header("transfer-encoding"), Some("chunked"));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz");
    assert_eq!(client.reply().text(), "xyz");
}

#[test]
fn a_worker_that_was_root_may_come_from_foreign_addresses() {
    let origin = Origin::start(|_| {
        Answer::Talk(Box::new(|mut stream| {
            let peer = stream.peer_addr().unwrap().ip().to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                peer.len()
            );
            let _ = std::io::Write::write_all(&mut stream, (head + &peer).as_bytes());
        }))
    });
    let text = |parameter: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_bind 127.0.0.2 {parameter}; proxy_pass http://{}; }} }}",
            origin.address()
        )
    };
    let is_root = nix::unistd::Uid::effective().is_root();
    let server = Server::start(&text("transparent"));
    let reply = server.get("/");
    if is_root {
        assert_eq!(reply.text(), "127.0.0.2");
    } else {
        assert_eq!(reply.status, 500);
        server.wait_for(
            "setsockopt(IP_TRANSPARENT) failed (1: Operation not permitted)",
            "why",
        );
        server.forget_log();
    }
    if is_root && !is_nginx() {
        let server = Server::start(&text(""));
        assert_eq!(server.get("/").text(), "127.0.0.2");
        server.reload_file(&format!(
            "daemon off; pid nginx.pid; error_log logs/error.log info; events {{ }} http {{ {} }}",
            server.site().fill(&text("transparent"))
        ));
        server.wait_for("needs a right that the worker gave up", "the refusal");
        server.wait_for("the new configuration is not served", "what follows it");
        assert_eq!(server.get("/").text(), "127.0.0.2");
        server.forget_log();
    }
}
